"""Signals from the lines that an engine writes every few seconds or every few batches: load, rates, cache, SGLang's
decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..samples import EngineLog, Floats
from ..signals import Signal
from .measured import Measured

SAME_BATCH = 0.1
"""Change of the batch between two decode lines up to which their throughput is that of one batch size. Judgement."""

EVERY_BATCH = 1.5
"""Decode batches a line up to which every one is printed."""

MIN_FOR_A_LIMIT = 3
"""Lines from which a number of running requests that does not change is no chance."""

COLUMNS = ("time", "engine", "running", "waiting", "swapped", "kv_usage_fraction", "prefill_tokens_per_s",
           "decode_tokens_per_s", "prefix_hit_fraction", "is_prefill", "graph", "new_tokens", "cached_tokens", "tokens",
           "accept_length")


@dataclass(frozen=True, eq=False)
class _Lines:
    """The periodic lines of one engine of one log."""

    source: str
    engine: str
    rows: dict[str, Floats]
    several: bool

    @property
    def batches(self) -> bool:
        """One line a batch, prefill or decode, as SGLang writes them."""
        return bool((~np.isnan(self.rows["is_prefill"])).any())

    @property
    def name(self) -> str:
        return f" of engine {self.engine}" if self.several else ""


class _Load(NamedTuple):
    """Which lines count: those under load, and those whose whole interval was under load."""

    now: NDArray[np.bool_]
    throughout: NDArray[np.bool_]


def from_periodic(logs: Sequence[EngineLog]) -> Measured:
    """Of the engine with most requests running; steps are those of SGLang's decode lines."""
    engines = [each for log in logs for each in _engines(log)]
    if not engines:
        return Measured()
    busiest = max(engines, key=lambda each: float(np.nan_to_num(each.rows["running"]).sum()))
    notes = []
    if len(engines) > 1:
        notes.append(f"{len(engines)} engines write periodic lines: those of engine {busiest.engine} of "
                     f"{busiest.source}, with most requests, are used")
    load = _load(busiest)
    if not load.now.any():
        return Measured(unknown={"serving.decode_tokens_per_s": "no request ran at any periodic line of the log"},
                        notes=tuple(notes))
    signals, unknown = _levels(busiest, load), {}
    if busiest.batches:
        steps, why, more = _steps(busiest)
        signals += steps
        unknown.update(why)
        notes += more
    return Measured(tuple(signals), unknown, tuple(notes))


def _engines(log: EngineLog) -> list[_Lines]:
    if not log.stats or not len(log.stats.get("running", ())):
        return []
    size = len(log.stats["running"])
    rows = {name: log.stats.get(name, np.full(size, np.nan)) for name in COLUMNS}
    engine = np.nan_to_num(rows["engine"], nan=0)
    names = np.unique(engine)
    return [_Lines(log.source, f"{name:g}", {key: column[engine == name] for key, column in rows.items()},
                   len(names) > 1) for name in names.tolist()]


def _load(of: _Lines) -> _Load:
    running = of.rows["running"]
    before = np.concatenate(([np.nan], running[:-1]))
    if of.batches:
        decode = of.rows["is_prefill"] == 0
        after_decode = np.concatenate(([False], decode[:-1]))
        return _Load(decode & (running > 0), decode & after_decode & (running > 0))
    return _Load((running > 0) | (of.rows["waiting"] > 0), (running > 0) & (before > 0))


def _levels(of: _Lines, load: _Load) -> list[Signal]:
    """Means over the lines under load; rates over those whose whole interval was."""
    found: list[Signal] = []

    def give(name: str, column: str, mask: NDArray[np.bool_], what: str) -> None:
        values = of.rows[column][mask]
        values = values[~np.isnan(values)]
        if len(values):
            found.append(Signal(name, float(values.mean()), "log", f"mean over {len(values):,} {what}{of.name}, "
                                f"{values.min():,.4g}–{values.max():,.4g}", of.source))

    line = "decode lines" if of.batches else "periodic lines under load"
    give("serving.running", "running", load.now, line)
    give("serving.waiting", "waiting", load.now, line)
    running, waiting = of.rows["running"][load.now], of.rows["waiting"][load.now]
    if len(running) >= MIN_FOR_A_LIMIT and running.any() and (waiting >= 1).all():  # False where one is not known
        found.append(Signal("serving.running_spread_ratio", float(np.ptp(running) / running.mean()), "log",
                            f"{running.min():,.4g}–{running.max():,.4g} running, {waiting.min():,.4g}–"
                            f"{waiting.max():,.4g} waiting, {len(running):,} {line}{of.name}", of.source))
    give("kv.usage_fraction", "kv_usage_fraction", load.now, line)
    give("kv.swapped", "swapped", load.now, line)
    give("serving.decode_tokens_per_s", "decode_tokens_per_s", load.throughout, f"{line}, loaded since the one before")
    if of.batches:
        new, cached = (float(np.nansum(of.rows[name])) for name in ("new_tokens", "cached_tokens"))
        if new + cached > 0:
            count = int((of.rows["is_prefill"] == 1).sum())
            found.append(Signal("kv.prefix_hit_fraction", cached / (new + cached), "log",
                                f"{count:,} prefill batches{of.name}", of.source))
    else:
        give("serving.prefill_tokens_per_s", "prefill_tokens_per_s", load.throughout,
             "periodic lines, loaded since the one before: what the load asked for, not what prefill can do")
        hits = of.rows["prefix_hit_fraction"]
        known = hits[~np.isnan(hits)]
        if len(known):
            found.append(Signal("kv.prefix_hit_fraction", float(known[-1]), "log",
                                f"the last line{of.name}; the engine counts over its last requests", of.source))
    return found


def _steps(of: _Lines) -> tuple[list[Signal], dict[str, str], list[str]]:
    """SGLang prints throughput over the decode batches since the line before: batch ÷ throughput is the step. Only
    between two decode lines, as a prefill in between is part of the time; tokens accepted by speculation count."""
    rows = of.rows
    decode = rows["is_prefill"] == 0
    running, rate = rows["running"], rows["decode_tokens_per_s"]
    before = np.concatenate(([np.nan], running[:-1]))
    pair = decode & np.concatenate(([False], decode[:-1])) & (rate > 0) & (running > 0)
    pair &= np.abs(running - before) <= SAME_BATCH * running
    accepted = np.where(np.isnan(rows["accept_length"]), 1.0, rows["accept_length"])
    signals: list[Signal] = []
    unknown: dict[str, str] = {}
    notes: list[str] = []
    if pair.any():
        step = (running * accepted / np.where(rate > 0, rate, np.nan) * 1000)[pair]
        window = (f"median of {len(step):,} pairs of decode lines{of.name} without a prefill between: batch ÷ "
                  f"throughput, {step.min():,.2f}–{step.max():,.2f} ms")
        signals += [Signal("step.wall_ms", float(np.median(step)), "log", window, of.source),
                    Signal("step.method", "log", "log", "decode lines", of.source)]
    elif decode.any():
        unknown["step.wall_ms"] = "no two decode lines of one batch without a prefill between"
    unknown.update(_prefills(of, signals, pair))
    graph = rows["graph"][decode]
    graph = graph[~np.isnan(graph)]
    if len(graph) and graph.mean() < 1:
        notes.append(f"{int((graph == 0).sum()):,} of {len(graph):,} decode lines say that no captured graph was "
                     "replayed")
    return signals, unknown, notes


def _prefills(of: _Lines, signals: list[Signal], pair: NDArray[np.bool_]) -> dict[str, str]:
    """Runs of prefill batches while others wait to decode, where the log shows every decode batch."""
    rows = of.rows
    if not (rows["is_prefill"] == 1).any():
        return {}
    grown = np.concatenate(([np.nan], np.diff(rows["tokens"])))
    accepted = np.where(np.isnan(rows["accept_length"]), 1.0, rows["accept_length"])
    same = pair & (np.concatenate(([np.nan], np.diff(rows["running"]))) == 0) & (grown > 0)
    if not same.any():
        return {"serving.prefill_run_steps": "the log does not show how many decode batches one line stands for"}
    each = float(np.median((grown / rows["running"] / accepted)[same]))
    if each > EVERY_BATCH:
        return {"serving.prefill_run_steps": f"one decode line stands for about {each:.0f} batches, which may lie "
                                             "between two prefills unseen: --decode-log-interval 1 shows all"}
    pending = (rows["is_prefill"] == 1) & (rows["running"] > 0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], pending, [False])).astype(int)))
    longest = int((edges[1::2] - edges[::2]).max(initial=0))
    signals.append(Signal("serving.prefill_run_steps", longest, "log", "prefill batches with requests running",
                          of.source))
    return {}

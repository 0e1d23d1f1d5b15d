"""Signals from an engine's log: steps from its iteration lines, load from its periodic ones, and what single lines say.

Steps of different engines are not mixed. Where a log holds several, the slowest of those that did a good part of the
work is measured: it is the one that requests wait for, and an average would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..samples import EngineLog, Floats
from ..signals import Signal, Value
from ..text import counted
from . import regimes
from .log_facts import from_facts
from .log_lines import last_level
from .measured import Measured, joined
from .periodic import from_periodic

GOOD_PART = 1 / 3
"""Of the iterations of the busiest engine: one with fewer is not compared with it."""

AGREES = 1.3
"""A sum of elapsed times and the wall time between the lines' own stamps that differ by more are two quantities.
Stamps of whole seconds over ten seconds are good to a tenth, and medians against means to as much again. Judgement."""

STAMPED_S = 10.0
"""Wall time of a run of decode steps from which on stamps of whole seconds are good enough to check with."""

SUSTAINED_S = 60.0
"""Shortest run in which a drift is looked for: clocks and temperatures need about a minute. Judgement."""

DRIFT_STEPS = 60
"""Fewest decode steps of one batch size in that run."""

LOOKED_AT = 2000
"""Decode steps, or medians over as many in a row as makes that many, that are looked at for a change in time."""

LONGER = 1.2
"""Cache in use late ÷ early from which on requests are longer, and a longer step is no drift. Judgement."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Iterations:
    """The iterations of one engine, in the order of the log."""

    source: str
    engine: str
    rows: dict[str, Floats]
    several: bool
    """The log holds other engines as well."""
    within: str = ""
    """Which part of the log these are, behind a semicolon; empty for all of it."""

    def __len__(self) -> int:
        return len(self.rows["elapsed_ms"])

    @property
    def name(self) -> str:
        return f" of engine {self.engine}" if self.several else ""

    @property
    def prefill(self) -> Bools:
        """Steps in which prompts are computed and nothing is generated."""
        return (self.rows["context_requests"] > 0) & ~(self.rows["generation_requests"] > 0)

    @property
    def decode(self) -> Bools:
        return (self.rows["context_requests"] == 0) & (self.rows["generation_requests"] > 0)

    @property
    def follows(self) -> Bools:
        """Whether the line before is that of the iteration before."""
        index = self.rows["index"]
        return np.concatenate(([False], np.diff(index) == 1))


class _Stamped(NamedTuple):
    """Decode steps between two stamps of the log."""

    steps: int
    wall_s: float
    elapsed_s: float
    tokens: float


def measure(logs: Sequence[EngineLog]) -> Measured:
    """Steps, load, cache and placement of the engines in these logs; the order of the logs does not matter."""
    logs = sorted(logs, key=lambda log: (log.source, log.lines))
    chosen, notes = _chosen([each for log in logs for each in _engines(log)])
    steps = joined((_present(chosen), Measured(notes=notes))) if chosen else Measured()
    return joined((steps, _beside(steps, from_periodic(logs)), from_facts(logs)))


def _beside(steps: Measured, other: Measured) -> Measured:
    """What the iteration lines do not say already, or say that it cannot be told: one figure for one quantity."""
    told = {signal.name for signal in steps.signals} | set(steps.unknown)
    return Measured(tuple(signal for signal in other.signals if signal.name not in told),
                    {name: why for name, why in other.unknown.items() if name not in told}, other.notes)


def _engines(log: EngineLog) -> Iterator[Iterations]:
    if not log.iterations or not len(log.iterations.get("elapsed_ms", ())):
        return
    size = len(log.iterations["elapsed_ms"])
    columns = {name: log.iterations.get(name, np.full(size, np.nan)) for name in (
        "time", "engine", "index", "elapsed_ms", "context_requests", "context_tokens", "generation_requests",
        "generation_tokens", "kv_usage_fraction", "profiled")}
    valid = columns["elapsed_ms"] > 0
    if np.isnan(columns["index"]).all():
        columns["index"] = np.arange(size, dtype=float)
    engine = np.nan_to_num(columns["engine"], nan=0)
    names = np.unique(engine[valid])
    for number in names.tolist():
        of_it = valid & (engine == number)
        yield Iterations(log.source, f"{number:g}", {name: column[of_it] for name, column in columns.items()},
                         len(names) > 1)


def _chosen(engines: Sequence[Iterations]) -> tuple[Iterations | None, tuple[str, ...]]:
    """The slowest of the engines with a good part of the decode steps, with a word about the others."""
    counts = [int(each.decode.sum()) for each in engines]
    if not any(counts):
        return (max(engines, key=len) if engines else None), ()
    compared = [each for each, count in zip(engines, counts, strict=True) if count >= max(counts) * GOOD_PART]
    medians = [float(np.median(each.rows["elapsed_ms"][each.decode])) for each in compared]
    slowest = int(np.argmax(medians))
    if len(engines) == 1:
        return engines[0], ()
    of = compared[slowest]
    return of, (f"{len(engines)} engines in the logs, with median decode steps of {min(medians):,.2f} to "
                f"{max(medians):,.2f} ms: the slowest, engine {of.engine} of {of.source}, is measured",)


def _present(of: Iterations) -> Measured:
    """Of a log whose decode steps fall apart in time those of the last level, as no median is of several."""
    rows = of.rows
    places = np.flatnonzero(of.decode & ~(rows["profiled"] > 0))
    each = max(-(-len(places) // LOOKED_AT), 1)
    blocks = len(places) // each
    if blocks < 2:
        return _steps(of)
    places = places[len(places) - blocks * each:]
    running, made, elapsed = (np.median(rows[name][places].reshape(blocks, each), axis=1)
                              for name in ("generation_requests", "generation_tokens", "elapsed_ms"))
    found = regimes.parts(np.cumsum(elapsed) * each / 1000, running, made / elapsed * 1000)  # in time of steps
    stamps = rows["time"][places]
    last = last_level([part._replace(since=float(stamps[part.first * each])) for part in found],
                      f"decode steps of the log{of.name}")
    if last is None:
        return _steps(of)
    end = None if last.to_the_end else int(places[(last.part.last + 1) * each - 1]) + 1
    cut = slice(int(places[last.part.first * each]), end)
    steps = _steps(replace(of, rows={name: column[cut] for name, column in rows.items()}, within=last.within))
    unknown = {"serving.reference_tokens_per_s": last.reference} if last.reference else {}
    return joined((steps, Measured(unknown=unknown, notes=last.notes)))


def _steps(of: Iterations) -> Measured:
    rows, decode = of.rows, of.decode
    profiled = rows["profiled"] > 0
    notes: list[str] = []
    if not decode.any():
        return joined((_unknown("step.wall_ms", "no iteration line of a decode step"), _prefill(of)))
    used = decode & ~profiled
    if not used.any():
        used = decode
        notes.append("all decode steps of the log ran under the profiler, which makes them longer")
    left_out = int((decode & ~used).sum())
    elapsed = rows["elapsed_ms"][used]
    count = int(used.sum())
    median, mean = float(np.median(elapsed)), float(elapsed.mean())
    window = (f"{count:,} decode iterations{of.name}, {elapsed.min():,.2f}–{elapsed.max():,.2f} ms"
              + (f"; {left_out} under the profiler left out" if left_out else "") + of.within)
    stamped = _stamped(of, used)
    step, rate = median, float(np.nansum(rows["generation_tokens"][used]) / elapsed.sum() * 1000)
    if stamped and not 1 / AGREES <= stamped.elapsed_s / stamped.wall_s <= AGREES:
        step, rate = stamped.wall_s / stamped.steps * 1000, stamped.tokens / stamped.wall_s
        mean = step
        window = (f"{stamped.steps:,} decode iterations{of.name} in {stamped.wall_s:,.0f} s by the lines' stamps, mean"
                  f"{of.within}")
        more = "less" if stamped.elapsed_s < stamped.wall_s else "more"
        notes.append(f"the elapsed times that the engine prints (median {median:,.2f} ms) add up to {more} than the "
                     f"time between the lines, {step:,.2f} ms a step: they cover the wait for the model's result "
                     "only, and the step is taken from the stamps")
    signals = [_signal("step.wall_ms", step, of, window), _signal("step.count", count, of, window),
               _signal("step.method", "log", of, "iteration lines"),
               _signal("serving.running", float(rows["generation_requests"][used].mean()), of,
                       f"mean over {count:,} decode iterations{of.name}{of.within}")]
    unknown: dict[str, str] = {}
    if mean > AGREES * step:
        low, high = np.percentile(elapsed, (10, 90)).tolist()
        unknown["serving.decode_tokens_per_s"] = (
            f"decode steps took {low:,.1f} to {high:,.1f} ms (tenth to ninetieth percentile) over this log: several "
            f"loads or machines' states, for which one rate would say nothing. Cut out the part that matters")
    elif rate > 0:
        signals.append(_signal("serving.decode_tokens_per_s", rate, of,
                               f"{count:,} decode iterations{of.name}{of.within}"))
    usage = rows["kv_usage_fraction"][used]
    if (~np.isnan(usage)).any():
        signals.append(_signal("kv.usage_fraction", float(np.nanmean(usage)), of,
                               f"mean over decode iterations, up to {np.nanmax(usage):.1%}{of.within}"))
    return joined((Measured(tuple(signals), unknown, tuple(notes)), _prefill(of), _drift(of, used)))


def _stamped(of: Iterations, used: Bools) -> _Stamped | None:
    """Runs of consecutive decode steps, between the stamp of the line before and that of the last. A step that only
    decodes goes on with requests that were there, so nothing but the engine's own work lies between."""
    rows = of.rows
    time = rows["time"]
    if np.isnan(time).any():
        return None
    least = STAMPED_S if (time == np.floor(time)).all() else STAMPED_S / 100
    found = []
    for first, last in _runs(used & of.follows):
        wall = float(time[last - 1] - time[first - 1])
        if wall >= least:
            span = slice(first, last)
            found.append(_Stamped(last - first, wall, float(rows["elapsed_ms"][span].sum() / 1000),
                                  float(np.nansum(rows["generation_tokens"][span]))))
    if not found:
        return None
    return _Stamped(*(sum(column) for column in zip(*found, strict=True)))


def _runs(mask: Bools) -> list[tuple[int, int]]:
    """Start and end of every stretch of true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _prefill(of: Iterations) -> Measured:
    """Runs of steps that only compute prompts, and how many of them kept other requests from decoding."""
    rows, follows = of.rows, of.follows
    context, running = rows["context_requests"], rows["generation_requests"]
    tokens = rows["context_tokens"]
    if not (context > 0).any():
        return Measured()
    largest = float(np.nanmax(tokens)) if (~np.isnan(tokens)).any() else np.nan
    chunks = tokens == largest
    in_chunks = int(chunks.sum()) >= 2
    longest, unclear, alone = 0, 0, []
    held_ms = [0.0]
    for first, last in _runs(of.prefill):
        pieces = [first, *(i for i in range(first + 1, last) if not follows[i]), last]
        for begin, end in pairwise(pieces):
            after = float(running[end]) if end < len(of) and follows[end] else np.nan
            before = float(running[begin - 1]) if begin and follows[begin] else 0.0
            sure, possible = _kept_waiting(context[begin:end], chunks[begin:end] & in_chunks, after, before)
            longest, unclear = max(longest, sure), max(unclear, possible)
            if sure >= 2:
                held_ms.append(float(rows["elapsed_ms"][end - sure:end].sum()))
            if (context[begin:end] == 1).all():
                alone += _requests(rows["elapsed_ms"][begin:end], chunks[begin:end] & in_chunks)
    signals, unknown = [], {}
    if unclear > max(longest, 1):
        unknown["serving.prefill_run_steps"] = (
            f"{unclear} prefill steps follow each other, and the log does not say whether decodes were pending")
    else:
        with_prompts = counted(int((context > 0).sum()), "iteration")
        signals.append(_signal("serving.prefill_run_steps", longest, of, f"{with_prompts}{of.name} with prompts"))
        in_all = float(rows["elapsed_ms"].sum())
        if in_all > 0 and not np.isnan(sum(held_ms)):
            signals += [_signal("serving.prefill_run_ms", max(held_ms), of, f"the longest such run{of.name}"),
                        _signal("serving.prefill_run_fraction", sum(held_ms) / in_all, of,
                                f"{counted(len(of), 'iteration')}{of.name}, {in_all:,.0f} ms")]
    if len(alone) >= 3:
        signals.append(_signal("latency.prefill_ms", float(np.median(alone)), of,
                               f"median of {len(alone):,} requests that were prefilled alone"))
    return Measured(tuple(signals), unknown)


def _kept_waiting(context: Floats, chunk: Bools, after: float, before: float) -> tuple[int, int]:
    """Of a run of prefill steps: the last so many during which requests surely waited to decode, and how many might.

    The requests that decode after the run are those prefilled in it and those that had waited. At most one request a
    step is prefilled in part, and only in a step that fills the budget: it is counted again in the next one.
    """
    if np.isnan(after):
        return 0, len(context) if before > 0 else 0
    ended = context - chunk * (np.arange(len(context)) < len(context) - 1)
    still_to_end = np.cumsum(ended[::-1])[::-1]
    waited = after - still_to_end
    sure = int((waited > 0).sum())
    return sure, len(context) if before > 0 else sure


def _requests(elapsed: Floats, chunk: Bools) -> list[float]:
    """Times of single requests, the chunks of one added up."""
    times, total = [], 0.0
    for took, more in zip(elapsed.tolist(), chunk.tolist(), strict=True):
        total += took
        if not more:
            times.append(total)
            total = 0.0
    return times


def _drift(of: Iterations, used: Bools) -> Measured:
    """Late against early steps of the longest run without a pause, at its usual batch size and equal lengths."""
    rows = of.rows
    elapsed, time = rows["elapsed_ms"], rows["time"]
    gap = np.concatenate(([np.inf], np.diff(time)))
    unbroken = of.follows & (np.isnan(gap) | (gap <= elapsed / 1000 + 2) | of.decode)
    starts = np.flatnonzero(~unbroken)
    ends = np.append(starts[1:], len(of))
    lasted = [float(elapsed[a:b].sum()) / 1000 for a, b in zip(starts, ends, strict=True)]
    best = int(np.argmax(lasted))
    if lasted[best] < SUSTAINED_S:
        return Measured()
    inside = np.zeros(len(of), bool)
    inside[starts[best]:ends[best]] = True
    inside &= used
    sizes, counts = np.unique(rows["generation_requests"][inside], return_counts=True)
    if not len(sizes):
        return Measured()
    size = sizes[int(np.argmax(counts))]
    steps = np.flatnonzero(inside & (rows["generation_requests"] == size))
    if len(steps) < DRIFT_STEPS:
        return _unknown("step.drift_ratio", f"no {DRIFT_STEPS} decode steps of one batch size in the longest run")
    steps = steps[len(steps) // 10:]  # a first tenth for warming up
    early, late = steps[:len(steps) // 3], steps[-(len(steps) // 3):]
    held = [rows["kv_usage_fraction"][part] for part in (early, late)]
    if any(np.isnan(part).all() for part in held):
        return _unknown("step.drift_ratio", "the lines do not say how long the requests' contexts were early and late")
    low, high = sorted(float(np.nanmedian(part)) for part in held)
    if high > LONGER * low:
        return _unknown("step.drift_ratio", f"the cache in use went between {low:.2%} and {high:.2%} in the longest "
                                            "run: other lengths, and no drift can be told")
    ratio = float(np.median(elapsed[late]) / np.median(elapsed[early]))
    return Measured((_signal("step.drift_ratio", ratio, of, f"last against first third of {len(steps):,} decode steps "
                                                            f"of {size:g} requests in {lasted[best]:,.0f} s"),))


def _signal(name: str, value: Value, of: Iterations, window: str) -> Signal:
    return Signal(name, value, "log", window, of.source)


def _unknown(name: str, why: str) -> Measured:
    return Measured(unknown={name: why})

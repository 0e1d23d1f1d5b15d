"""Signals from the lines that SGLang writes of its batches: decode steps, runs of prefills, and prefill by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..signals import Signal
from ..text import counted
from .log_lines import SAME_BATCH, Lines, lasted
from .measured import Measured

EVERY_BATCH = 1.5
"""Decode batches a line up to which every one is printed."""

STAMPED_S = 10.0
"""Time between stamps of whole seconds from which on a rate is good to a tenth."""

QUIET_S = 60.0
"""Prefill lines after the last decode line for longer are said: no request got a token in that time."""


def measure(of: Lines) -> Measured:
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
                  f"throughput, {step.min():,.2f}–{step.max():,.2f} ms{of.within}")
        signals += [Signal("step.wall_ms", float(np.median(step)), "log", window, of.source),
                    Signal("step.method", "log", "log", "decode lines", of.source)]
    elif decode.any():
        unknown["step.wall_ms"] = "no two decode lines of one batch without a prefill between"
    unknown.update(_runs(of, signals, pair))
    graph = rows["graph"][decode]
    graph = graph[~np.isnan(graph)]
    if len(graph) and graph.mean() < 1:
        notes.append(f"{int((graph == 0).sum()):,} of {len(graph):,} decode lines say that no captured graph was "
                     "replayed")
    notes += _at_the_end(of)
    return Measured(tuple(signals), unknown, tuple(notes))


def prefill_alone(of: Lines) -> Measured:
    """Of a log in which nothing decodes: prompts are computed, and requests wait. How many of them run its lines do not
    say: they count those that decode."""
    rows = of.rows
    lines = rows["is_prefill"] == 1
    count = f"{counted(int(lines.sum()), 'prefill line')}{of.name}, and none of a decode batch"
    signals = [Signal(name, float(values.mean()), "log", f"mean over {count}, {values.min():,.4g}–{values.max():,.4g}",
                      of.source)
               for name, column in (("serving.waiting", "waiting"), ("kv.usage_fraction", "kv_usage_fraction"))
               if len(values := _known(rows[column][lines]))]
    signals += hits(of)
    reason = f"{counted(int(lines.sum()), 'prefill batch', 'prefill batches')} and none that decodes in this log"
    unknown = {"serving.decode_tokens_per_s": reason,
               "serving.running": f"{reason}: such a line counts the requests that decode, and not those whose prompts "
                                  "are computed",
               "serving.prefill_run_steps": f"{reason}: whether requests wait for their next token is not shown"}
    rate = _rate(of, lines)
    if isinstance(rate, str):
        unknown["serving.prefill_tokens_per_s"] = rate
    else:
        signals.append(rate)
    return Measured(tuple(signals), unknown, (
        f"no decode batch in {counted(int(lines.sum()), 'line')} of prefill batches: a server that only computes "
        "prompts, long prompts one after another, or a part of a log",))


def hits(of: Lines) -> list[Signal]:
    """`kv.prefix_hit_fraction`: prompt tokens found in the cache, of all of the prefill lines."""
    new, cached = (float(np.nansum(of.rows[name])) for name in ("new_tokens", "cached_tokens"))
    if not new + cached > 0:
        return []
    count = int((of.rows["is_prefill"] == 1).sum())
    return [Signal("kv.prefix_hit_fraction", cached / (new + cached), "log",
                   f"{count:,} prefill batches{of.name}{of.within}", of.source)]


def _rate(of: Lines, prefill: NDArray[np.bool_]) -> Signal | str:
    """Tokens computed ÷ time, from one prefill line to the next while requests wait, so that the engine had no pause. A
    line is written as its batch starts. Where the stamps are too coarse, what the lines say of their throughput."""
    rows = of.rows
    time, new = rows["time"], rows["new_tokens"]
    then = np.concatenate((prefill[1:], [False]))
    seconds = np.concatenate((np.diff(time), [np.nan]))
    kept = prefill & then & (rows["waiting"] >= 1) & (seconds >= 0) & (new >= 0)
    covered = float(seconds[kept].sum())
    coarse = bool((time[prefill] == np.floor(time[prefill])).all())
    if covered >= (STAMPED_S if coarse else STAMPED_S / 10):
        return Signal("serving.prefill_tokens_per_s", float(new[kept].sum() / covered), "log",
                      f"{float(new[kept].sum()):,.0f} tokens in {covered:,.4g} s: {int(kept.sum()):,} prefill batches"
                      f"{of.name} with requests waiting, each to the stamp of the next", of.source)
    told = _known(rows["prefill_tokens_per_s"][prefill & (rows["waiting"] >= 1)])
    if len(told):
        return Signal("serving.prefill_tokens_per_s", float(np.median(told)), "log",
                      f"median of {len(told):,} prefill lines{of.name} with requests waiting, as they say", of.source)
    if not (rows["waiting"][prefill] >= 1).any():
        return "no request waits at the prefill lines: the time between them may be a pause"
    return f"the prefill lines with requests waiting are {covered:,.4g} s apart in all: too short for their stamps"


def _runs(of: Lines, signals: list[Signal], pair: NDArray[np.bool_]) -> dict[str, str]:
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


def _at_the_end(of: Lines) -> list[str]:
    """What came after the last decode line, where that is long."""
    rows = of.rows
    last = int(np.flatnonzero(rows["is_prefill"] == 0)[-1])
    after = rows["is_prefill"][last + 1:] == 1
    if not after.any():
        return []
    seconds = float(rows["time"][-1] - rows["time"][last])
    if not seconds >= QUIET_S:
        return []
    return [f"the log ends with {counted(int(after.sum()), 'prefill batch', 'prefill batches')} in {lasted(seconds)} "
            "and no decode line: the figures of decode are older than that"]


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]

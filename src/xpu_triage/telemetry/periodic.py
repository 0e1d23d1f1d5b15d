"""Signals from the lines that an engine writes every few seconds or every few batches: load, rates, cache, and the
step that follows from them. Of a log whose figures fall apart in time they are of its last part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..samples import EngineLog
from ..signals import Signal
from . import batches
from .log_lines import SAME_BATCH, Lines, Load, engines, load, present
from .measured import Measured, joined

MIN_FOR_A_LIMIT = 3
"""Lines from which a number of running requests that does not change is no chance."""

RUN_ALL_THE_TIME = 8
"""Requests at both ends of an interval from which on some ran in all of it. Judgement: where they come by chance, as
many on average, there is none in 0.03 % of the time."""

PROMPT_A_STEP, PROMPT_PER_S = 300.0, 300.0
"""Prompt tokens a step, or per second, up to which a step is one of decode. A step turns from memory to arithmetic at
about 300 tokens (the page on queueing); a device that decodes at all computes prompts ten times faster. Judgement."""

DERIVED = "derived:"
"""Begins the window of a step time that follows from other figures of the same log."""

FEWEST_INTERVALS, FEWEST_STEPS = 3, 3.0
"""From which a mean is one."""


def from_periodic(logs: Sequence[EngineLog]) -> Measured:
    """Of the engine with most requests running, at the end of its log."""
    found = [each for log in logs for each in engines(log)]
    if not found:
        return Measured()
    busiest = max(found, key=lambda each: float(np.nan_to_num(each.rows["running"]).sum()))
    notes: tuple[str, ...] = ()
    if len(found) > 1:
        notes = (f"{len(found)} engines write periodic lines: those of engine {busiest.engine} of {busiest.source}, "
                 "with most requests, are used",)
    under = load(busiest)
    if not under.now.any():
        if (busiest.rows["is_prefill"] == 1).any():
            return joined((Measured(notes=notes), batches.prefill_alone(busiest)))
        return Measured(unknown={"serving.decode_tokens_per_s": "no request ran at any periodic line of the log"},
                        notes=notes)
    now = present(busiest)
    lines, under = now.lines, load(now.lines)
    unknown = {"serving.reference_tokens_per_s": now.reference} if now.reference else {}
    steps = batches.measure(lines) if lines.batches else _step(lines, under)
    return joined((Measured(tuple(_levels(lines, under)), unknown, (*notes, *now.notes)), steps,
                   Measured(notes=_standing_still(lines))))


def _levels(of: Lines, under: Load) -> list[Signal]:
    """Means over the lines under load; rates over those whose whole interval was."""
    found: list[Signal] = []

    def give(name: str, column: str, mask: NDArray[np.bool_], what: str) -> None:
        values = of.rows[column][mask]
        values = values[~np.isnan(values)]
        if len(values):
            found.append(Signal(name, float(values.mean()), "log", f"mean over {len(values):,} {what}{of.name}, "
                                f"{values.min():,.4g}–{values.max():,.4g}{of.within}", of.source))

    line = "decode lines" if of.batches else "periodic lines under load"
    give("serving.running", "running", under.now, line)
    give("serving.waiting", "waiting", under.now, line)
    running, waiting = of.rows["running"][under.now], of.rows["waiting"][under.now]
    if len(running) >= MIN_FOR_A_LIMIT and running.any() and (waiting >= 1).all():  # False where one is not known
        found.append(Signal("serving.running_spread_ratio", float(np.ptp(running) / running.mean()), "log",
                            f"{running.min():,.4g}–{running.max():,.4g} running, {waiting.min():,.4g}–"
                            f"{waiting.max():,.4g} waiting, {len(running):,} {line}{of.name}{of.within}", of.source))
    give("kv.usage_fraction", "kv_usage_fraction", under.now, line)
    give("kv.swapped", "swapped", under.now, line)
    give("serving.decode_tokens_per_s", "decode_tokens_per_s", under.throughout,
         f"{line}, loaded since the one before")
    if of.batches:
        found += batches.hits(of)
    else:
        give("serving.prefill_tokens_per_s", "prefill_tokens_per_s", under.throughout,
             "periodic lines, loaded since the one before: what the load asked for, not what prefill can do")
        last = of.rows["prefix_hit_fraction"]
        last = last[~np.isnan(last)]
        if len(last):
            found.append(Signal("kv.prefix_hit_fraction", float(last[-1]), "log",
                                f"the last line{of.name}; the engine counts over its last requests", of.source))
    return found


def _step(of: Lines, under: Load) -> Measured:
    """Running ÷ generation rate is the step where every request that runs gets one token from each: requests ran all
    the time, prompts are a small part, nothing is drafted. Requests ran all the time where as many run at both ends of
    an interval and no prompt came in, or where many do. Intervals in which that does not hold may be few."""
    rows = of.rows
    running, rate, prompt = rows["running"], rows["decode_tokens_per_s"], rows["prefill_tokens_per_s"]
    before = np.concatenate(([np.nan], running[:-1]))
    made = under.throughout & (rate > 0)
    if not made.any():
        return Measured(unknown={"step.wall_ms": "no token between two lines with requests running"})
    if of.speculates:
        return Measured(unknown={"step.wall_ms": "speculative decoding makes several tokens a step, so that running ÷ "
                                                 "generation rate is none"})
    step = running / np.where(rate > 0, rate, np.nan)
    alike = made & (np.abs(running - before) <= SAME_BATCH * running)
    kept = alike & (running == before) & (prompt == 0)
    full = alike & (np.minimum(running, before) >= RUN_ALL_THE_TIME)
    kept |= full & ((prompt * step <= PROMPT_A_STEP) | (prompt <= PROMPT_PER_S))
    loaded = np.flatnonzero(under.now)
    intervals = max(int(loaded[-1] - loaded[0]), 1)
    seconds = np.concatenate(([np.nan], np.diff(rows["time"])))[kept]
    if kept.sum() * 2 < intervals:
        return Measured(unknown={"step.wall_ms": (
            f"running ÷ generation rate is a step where {RUN_ALL_THE_TIME} and more run throughout, or no prompt comes "
            f"in, and prompts are a small part: so in {int(kept.sum()):,} of {intervals:,} intervals between lines")})
    if kept.sum() < FEWEST_INTERVALS or (seconds / step[kept]).sum() < FEWEST_STEPS:  # no time: as if long enough
        return Measured(unknown={"step.wall_ms": f"fewer than {FEWEST_INTERVALS} intervals between periodic lines, or "
                                                 f"{FEWEST_STEPS:.0f} steps in them, are no mean"})
    value = float(running[kept].sum() / rate[kept].sum() * 1000)
    each = step[kept] * 1000
    window = (f"{DERIVED} running ÷ generation rate, mean of {int(kept.sum()):,} intervals between periodic lines"
              f"{of.name}, {each.min():,.4g}–{each.max():,.4g} ms{of.within}; holds where every request gets a token "
              f"a step (no drafts in the log, prompts at {np.nanmax(prompt[kept]):,.4g} tokens/s at most)")
    return Measured((Signal("step.wall_ms", value, "log", window, of.source),
                     Signal("step.method", "log", "log", "running ÷ generation rate of periodic lines", of.source)))


def _standing_still(of: Lines) -> tuple[str, ...]:
    """vLLM writes one line of no tokens and then none until there are some: silence may be a standstill."""
    last = {name: float(of.rows[name][-1]) for name in ("running", "decode_tokens_per_s", "prefill_tokens_per_s")}
    if of.batches or not last["running"] > 0 or last["decode_tokens_per_s"] != 0 or last["prefill_tokens_per_s"] != 0:
        return ()
    return (f"the last line{of.name} says 0 tokens/s with {last['running']:,.0f} requests running, and an engine that "
            "makes none writes no more lines: whether it stands still the log does not show",)

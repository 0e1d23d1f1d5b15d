"""How long one step of a serving engine takes, from its `/metrics`. No engine but TGI exports it: it is time ÷ steps,
as long as requests ran all the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from ..units import figure
from .engines import Source
from .scrape_runs import Run
from .scrape_views import View, Who
from .serving_basis import NO_TIMES, TAKE_TWO, Findings, Load, largest, miss_if_exported, rounded, total
from .serving_checks import step_doubt
from .serving_latencies import latency

STEP_SPREAD = 1.3
"""Longest ÷ shortest step time over the engines of a server above which it is said. Judgement."""


def steps(out: Findings, load: Load) -> None:
    """`step.*` from what the engine exports: a histogram of steps, the last step, a count of steps, its throughput."""
    run = out.run
    timed = run.spread("step")
    if timed is not None and timed[0].count > 0:
        out.give("step.count", timed[0].count, timed[1].remark)
        out.give("step.method", "metrics")
        latency(out, "step.wall_ms", "step")
        return
    if _last_iterations(out, load):
        return
    if len(run.views) == 1:
        miss_if_exported(out, ("iterations", "iteration_s"), "step.wall_ms", TAKE_TWO)
        return
    iterations = run.change("iterations")
    if iterations is None:
        _by_throughput(out, load)
    elif iterations.value <= 0:
        out.miss("step.wall_ms", "no engine step between the scrapes")
    else:
        out.give("step.count", iterations.value, iterations.source.remark)
        out.give("step.method", "metrics")
        _wall(out, iterations.source)


def _wall(out: Findings, source: Source) -> None:
    """Δt ÷ Δiterations of each engine, over the intervals at both ends of which it had requests and in which nothing
    that it times says that it had none in between: running at both ends is not running throughout."""
    run = out.run
    if not run.is_timed:
        out.miss("step.wall_ms", NO_TIMES)
        return
    steps: dict[Who, list[tuple[float, float]]] = {}
    doubts: list[str] = []
    for before, after in pairwise(run.views):
        seconds = (after.time or 0.0) - (before.time or 0.0)
        earlier = before.cells(source)
        for who, count in after.cells(source).items():
            made = count - earlier.get(who, math.inf)
            if seconds > 0 and made > 0 and _ran(run, who, before) and _ran(run, who, after):
                if doubt := step_doubt(run, who, before, after, seconds / made, made):
                    doubts.append(doubt)
                else:
                    steps.setdefault(who, []).append((seconds / made * 1000, made))
    if not steps:
        out.miss("step.wall_ms", doubts[-1] if doubts else
                 "no interval with a request running at both its ends: time ÷ steps would count the time without work; "
                 "scrape while the load runs")
        return
    each = [_middle(values) for values in steps.values()]
    intervals = sum(map(len, steps.values()))
    words = f"median over {intervals} intervals under load" if intervals > 1 else "mean under load"
    remark = source.remark or "all steps, those with prefill among them"
    if len(each) > 1:
        words += f" of {len(each)} engines"
        if max(each) > STEP_SPREAD * min(each):
            out.notes.append(f"the engines' step times differ: {figure(min(each))} to {figure(max(each))} ms")
    if doubts:
        remark += f"; {len(doubts)} left out ({doubts[-1]})"
    out.give("step.wall_ms", rounded(median(each)), f"{words}; {remark}")


def _middle(steps: Sequence[tuple[float, float]]) -> float:
    """The mean of the interval that holds the middle step: an interval counts as often as it had steps."""
    half, passed = sum(count for _, count in steps) / 2, 0.0
    for value, count in sorted(steps):
        passed += count
        if passed > half:
            return value
    return max(steps)[0]


def _ran(run: Run, who: Who, view: View) -> bool:
    for source in run.engine.gauges.get("running", ()):
        if cells := view.cells(source):
            return cells.get(who, total(cells) if len(cells) == 1 else 0.0) not in (0.0, None)
    return False


def _last_iterations(out: Findings, load: Load) -> bool:
    """A gauge of the last iteration: a sample of steps, one a scrape. Whether the engine exports it."""
    readings = [(largest(cells), running) for cells, running in
                zip(out.run.gauge("iteration_s"), load.running, strict=True)]
    known = [value * 1000 for value, running in readings if value and running]
    if all(value is None for value, _ in readings):
        return False
    if len(known) < 2:
        out.miss("step.wall_ms", "the engine exports the time of its last step alone: scrape it several times under "
                 "load")
        return True
    out.give("step.wall_ms", rounded(median(known)), f"median of {len(known)} single steps under load, "
             f"{figure(min(known))} to {figure(max(known))} ms")
    out.give("step.method", "metrics")
    return True


def _by_throughput(out: Findings, load: Load) -> None:
    """Requests ÷ tokens per second is the step time, where every request gets one token a step and the engine's own
    rate is of the same time: it must have had requests at every scrape."""
    run = out.run
    rates = [total(cells) for cells in run.gauge("generated_per_s")]
    accepted = [largest(cells) or 0.0 for cells in run.gauge("accepted_per_step")]
    if not any(rates):
        return
    busy = [(running, rate) for running, rate in zip(load.running, rates, strict=True) if running and rate]
    if len(busy) < len(rates):
        out.miss("step.wall_ms", "the engine's throughput gauge keeps its last value while idle: scrape under load")
    elif max(accepted) > 1:
        out.miss("step.wall_ms", "speculative decoding makes several tokens a step")
    else:
        step = fmean(running for running, _ in busy) / fmean(rate for _, rate in busy) * 1000
        out.give("step.wall_ms", rounded(step), "running ÷ the engine's own throughput gauge")
        out.give("step.method", "metrics")

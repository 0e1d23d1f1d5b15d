"""While requests wait: whether the same number runs all the time, whether the engine makes steps, and how much of the
time it had none to make. These tell a limit from an admission that stalls, and both from a step that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ..units import figure
from .engines import Source
from .scrape_runs import Run
from .scrape_views import View, Who
from .serving_basis import Findings, Load, largest, rounded, total
from .serving_checks import mean_s, rise

MIN_FOR_A_LIMIT = 3
"""Scrapes from which a number of running requests that does not change is no chance."""
SAME_NUMBER = 0.05
"""Of the running requests: finished ones are replaced at the next step. Judgement."""
FEW = 2
"""Running requests up to which a limit would be unusual, and a stalled admission looks the same."""
LOADED = 8
UNEVEN = 3.0
"""Running requests of the fullest engine, and how many times those of the emptiest, from which the difference is said.
Judgement."""
CHANCE = 0.05
"""That looks at random moments all find a request running; below it they contradict the time without work."""
LEAST_WITHOUT_WORK = 0.15
"""Of the time, from which time without work is told: steps × token gap is good to about that. Judgement."""


UNUSED = 0.05
"""Share of the time in forward passes up to which no prompt is being computed: a pass or two. Judgement."""
AT_REST = 0.5
"""Share of the time in which the scheduler says that it has nothing to run, from which on no prompt fills it."""
LONG_ENOUGH_S = 10.0
"""A prompt that is computed for so long without a first token has tens of thousands of tokens, and holds a part of the
cache that two digits show."""


def may_prefill(run: Run, load: Load) -> bool:
    """Whether requests wait, none is counted as running, and prompts may be computed meanwhile: the engine does not
    count those, and nothing that it exports excludes it."""
    waits = any((total(cells) or 0.0) > 0 for cells in run.gauge("waiting"))
    seen = [running for running in load.running if running is not None]
    if run.engine.counts_prefills or not waits or not seen or any(seen):
        return False
    if (executing := run.change("executing_s")) is not None and executing.seconds:
        return executing.value > UNUSED * executing.seconds
    if (computed := run.change("computed")) is not None:
        return computed.value > 0
    if (idle := run.change("idle_s")) is not None and idle.seconds and idle.value >= AT_REST * idle.seconds:
        return False
    first, usage = run.spread("ttft"), [largest(cells) for cells in run.gauge("kv_usage")]
    empty = bool(usage) and all(value == 0 for value in usage)
    return not (empty and (run.seconds or 0.0) >= LONG_ENOUGH_S and (first is None or first[0].count == 0))


def queue(out: Findings, load: Load) -> None:
    """`serving.running_spread_ratio`, `idle.no_work_fraction` where requests waited all the time, and remarks."""
    _engines(out)
    waiting = [value for cells in out.run.gauge("waiting") if (value := total(cells)) is not None]
    running = [value for value in load.running if value is not None]
    if not len(out.run.views) == len(running) == len(waiting) or min(waiting) < 1:
        return
    if len(running) >= MIN_FOR_A_LIMIT and not may_prefill(out.run, load):
        _spread(out, running, waiting)
    if len(running) > 1:
        _standing(out, running, load)
        _without_work(out)


def _spread(out: Findings, running: Sequence[float], waiting: Sequence[float]) -> None:
    low, high, mean = min(running), max(running), fmean(running)
    out.give("serving.running_spread_ratio", rounded((high - low) / mean) if mean else 0.0,
             f"{_range(running)} running, {_range(waiting)} waiting")
    if low > FEW and high - low <= max(SAME_NUMBER * high, 1.0):
        out.notes.append(f"{_range(running)} requests run at each of {len(running)} scrapes while {_range(waiting)} "
                         "wait: as many as a limit lets run (--max-num-seqs, --max-running-requests, the cache). "
                         "Whether it is set too low, the device tells")


def _standing(out: Findings, running: Sequence[float], load: Load) -> None:
    """Requests run at every scrape and none of them got a token."""
    made = load.generated
    if min(running) >= 1 and made is not None and not made.source.at_finish and made.value == 0 and made.seconds:
        out.notes.append(f"{_range(running)} requests run and none got a token in {made.seconds:.3g} s: a step that "
                         "hangs or compiles, or the prompt of a very long request. Where the process that runs the "
                         "model stands tells which (stack dumps)")


def _engines(out: Findings) -> None:
    """Data-parallel engines of one server that do not share the requests."""
    run = out.run
    each: dict[Who, list[float]] = {}
    for cells in run.gauge("running"):
        for who, value in cells.items():
            each.setdefault(who, []).append(value)
    means = sorted(fmean(values) for values in each.values())
    if len(means) > 1 and means[-1] >= LOADED and means[-1] > UNEVEN * means[0]:
        out.notes.append(f"{len(means)} engines run {figure(means[0])} to {figure(means[-1])} requests: they are not "
                         "spread over the engines, and figures of the whole server hide it")


def _without_work(out: Findings) -> None:
    """Time less steps × the mean gap between two tokens of a request, less the prefills: every step that decodes is in
    a gap. The mean over tokens leans to the long steps, so that the time with work is rather too long than too short.
    """
    run = out.run
    source = next((source for source in run.engine.counters.get("iterations", ()) if not source.remark), None)
    if source is None or not run.is_timed:
        return
    shares = [share for who in run.views[-1].cells(source) if (share := _share(run, who, source)) is not None]
    if shares and fmean(shares) >= LEAST_WITHOUT_WORK:
        out.give("idle.no_work_fraction", rounded(fmean(shares)), "time less steps × token gap, less prefills: the "
                 "engine had no request to run while others waited", seconds=run.seconds)
    elif shares:
        out.miss("idle.no_work_fraction", "steps × token gap account for the time: what is without work, if anything, "
                 f"is less than the {LEAST_WITHOUT_WORK:.0%} that this is good to")


def _share(run: Run, who: Who, iterations: Source) -> float | None:
    """Of the time between the first scrape and the last; None where nothing tells."""
    first, last = run.views[0], run.views[-1]
    seconds = (last.time or 0.0) - (first.time or 0.0)
    made = rise(first, last, iterations, "", who)
    if seconds <= 0 or made is None:
        return None
    ran = [_ran(run, view, who) for view in run.views]
    if not made:
        return 1.0 if not any(ran) else None
    gap = mean_s(run, "gap", first, last, who)
    if gap is None:
        return None
    prefills = _prefills(run, first, last, who)
    if prefills is None:
        return None
    count, each = prefills
    share = max(0.0, 1 - (made * gap + each * (count + max(ran))) / seconds)  # one that still runs may not be told yet
    if all(ran) and (1 - share) ** len(ran) < CHANCE:
        return None                                          # every look found a request running
    return share


def _ran(run: Run, view: View, who: Who) -> float:
    for source in run.engine.gauges.get("running", ()):
        if cells := view.cells(source):
            return cells.get(who, largest(cells) or 0.0)
    return 0.0


def _prefills(run: Run, before: View, after: View, who: Who) -> tuple[float, float] | None:
    """How many, and seconds each; None where the engine does not time them."""
    for source in run.engine.histograms.get("prefill", ()):
        if (count := rise(before, after, source, "_count", who)) is not None:
            return count, mean_s(run, "prefill", before, after, who) or 0.0
    return None


def _range(values: Sequence[float]) -> str:
    return figure(min(values)) if min(values) == max(values) else f"{figure(min(values))} to {figure(max(values))}"

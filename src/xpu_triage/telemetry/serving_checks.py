"""Whether the counters of an interval can be of the one server that they seem to be of, and whether time ÷ steps is the
time of a step, by what the engine itself times: the gaps between tokens, and whole requests."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from ..units import figure
from .engines import Source
from .scrape_runs import Run
from .scrape_views import View, Who
from .serving_basis import largest, total

STEP_OVER_GAP = 2.0
"""Time ÷ steps against the mean gap between two tokens of a request, above which there was time without work: a request
gets its token in every step that it runs in, so the two are alike. Judgement: prefill steps beside few requests make
them differ by less."""
GAP_OVER_STEP = 32.0
"""The other way round. Stages of a pipeline and prefill steps between decode steps make several steps a gap; so many
are none: the count of steps is of another time, or of another server. Judgement."""
SHORTEST_STEP_MS = 0.1
"""No engine schedules, launches and samples in less; Python alone takes longer. Judgement."""
LEAST_SHARE = 0.5
"""Of the requests seen running at both ends, how many must have run in between, by the requests' own durations."""
SHORT_FOR_LITTLE = 3.0
"""Interval ÷ mean duration of a request from which the requests that finish are those that ran."""
LEAST_TOKENS = 1 / 3
"""Tokens a step ÷ requests running at both ends: a running request makes one, unless its prompt is being computed."""
MOST_DECODING = 1000.0
"""Requests decoding at once, by tokens × gap ÷ time, from which two servers are looked for where steps are not
counted."""


def mixed(run: Run) -> str:
    """Why the counters of a run cannot be those of one server; empty where nothing says so."""
    for before, after in pairwise(run.views):
        if (seconds := _seconds(before, after)) is None:
            continue
        gap = mean_s(run, "gap", before, after)
        made, source = _made(run, before, after)
        if source is not None and made > 0:
            engines = max(len(after.cells(source)), 1)
            step = seconds * engines / made
            if step * 1000 < SHORTEST_STEP_MS or (gap is not None and gap > GAP_OVER_STEP * step
                                                  and _usual_gap(run, before, after) > GAP_OVER_STEP * step):
                beside = f", but tokens of a request come {figure(gap * 1000)} ms apart" if gap is not None else ""
                return _two(f"{made:,.0f} steps in {seconds:.3g} s are {figure(step * 1000)} ms each{beside}")
        elif gap is not None and (tokens := _observed(run, "gap", before, after)) * gap / seconds > MOST_DECODING:
            ran = max(_running(run, before) or 0.0, _running(run, after) or 0.0, 1.0)
            if tokens * gap / seconds > GAP_OVER_STEP * ran:
                return _two(f"{tokens:,.0f} tokens {figure(gap * 1000)} ms apart in {seconds:.3g} s need "
                            f"{figure(tokens * gap / seconds)} requests at once, and {figure(ran)} ran")
    return ""


def _usual_gap(run: Run, before: View, after: View) -> float:
    """The least that the median gap can be, in seconds: after a stall a few long gaps make the mean."""
    found = Run(run.engine, (before, after)).spread("gap")
    if found is None:
        return 0.0
    bucket = found[0].bucket(0.5)
    return (found[0].mean or 0.0) if bucket is None else bucket[0]


def _two(figures: str) -> str:
    return f"{figures}: the scrapes are of two servers, or their times are wrong"


def step_doubt(run: Run, who: Who, before: View, after: View, step_s: float, made: float) -> str:
    """Why time ÷ steps is no step time in this interval of one engine; empty where what the engine times bears it
    out, or nothing can be held against it."""
    seen = min(_running(run, before, who) or 0.0, _running(run, after, who) or 0.0)
    shown = figure(step_s * 1000)
    gap = mean_s(run, "gap", before, after, who) or mean_s(run, "per_token", before, after, who)
    if gap is not None:
        accepted = max((largest(cells) or 0.0 for cells in run.gauge("accepted_per_step")), default=0.0)
        if step_s > STEP_OVER_GAP * max(accepted, 1.0) * gap:
            return (f"time ÷ steps is {shown} ms, but the engine's tokens come {figure(gap * 1000)} ms apart: there "
                    "was time without work in it")
        return ""
    seconds = _seconds(before, after) or 0.0
    duration = mean_s(run, "e2e", before, after, who)
    if duration is not None and seconds >= SHORT_FOR_LITTLE * duration:
        ran = _observed(run, "e2e", before, after, who) * duration / seconds
        if ran < LEAST_SHARE * seen:
            return (f"time ÷ steps is {shown} ms, but by the durations of the requests {figure(ran)} ran on average "
                    f"and not the {figure(seen)} of the scrapes: there was time without work in it")
        return ""
    generated = _generated(run, before, after, who)
    if generated is not None and generated < LEAST_TOKENS * seen * made:
        return (f"time ÷ steps is {shown} ms, but {figure(generated / made)} tokens a step are far fewer than the "
                f"{figure(seen)} requests of the scrapes: they did not run all the time")
    return ""


def _seconds(before: View, after: View) -> float | None:
    if before.time is None or after.time is None or after.time <= before.time:
        return None
    return after.time - before.time


def _running(run: Run, view: View, who: Who | None = None) -> float | None:
    for source in run.engine.gauges.get("running", ()):
        if cells := view.cells(source):
            return _of(cells, who)
    return None


def _of(cells: Mapping[Who, float], who: Who | None) -> float | None:
    """The figure of one engine; of all where it is not told by engine."""
    return cells[who] if who is not None and who in cells else total(cells)


def rise(before: View, after: View, source: Source, end: str, who: Who | None = None) -> float | None:
    earlier, later = _of(before.cells(source, end), who), _of(after.cells(source, end), who)
    return later - earlier if earlier is not None and later is not None and later >= earlier else None


def mean_s(run: Run, quantity: str, before: View, after: View, who: Who | None = None) -> float | None:
    """Δsum ÷ Δcount of a histogram, in seconds."""
    for source in run.engine.histograms.get(quantity, ()):
        total_s, count = rise(before, after, source, "_sum", who), rise(before, after, source, "_count", who)
        if total_s and count:
            return total_s / count
    return None


def _observed(run: Run, quantity: str, before: View, after: View, who: Who | None = None) -> float:
    return next((count for source in run.engine.histograms.get(quantity, ())
                 if (count := rise(before, after, source, "_count", who))), 0.0)


def _made(run: Run, before: View, after: View) -> tuple[float, Source | None]:
    for source in run.engine.counters.get("iterations", ()):
        if (made := rise(before, after, source, "")) is not None:
            return made, source
    return 0.0, None


def _generated(run: Run, before: View, after: View, who: Who) -> float | None:
    """Tokens that are counted while they come."""
    return next((made for source in run.engine.counters.get("generated", ()) if not source.at_finish
                 and (made := rise(before, after, source, "", who)) is not None), None)

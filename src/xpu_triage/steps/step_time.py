"""Step 2, step time: where one engine iteration ends and the next begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..trace import FIRST_DEVICE_KIND, Ints, Kind, Trace
from .anchor import FEWEST, find_anchor
from .host import Host, NameTable
from .results import Step, Steps
from .step_names import (
    StepName,
    is_engine_step,
    is_profiler_step,
    is_step_function,
    parse,
    speaks_of_steps,
    template,
)

ENGINE_STEPS_PER_PROFILER_STEP = 2
"""From this many engine iterations inside one profiler step on, the profiler's step is the capture and not a
step."""

UNANNOTATED_SHARE = 0.3
"""Share of the capture outside the steps from which on the reader is told."""

OUTSIDE_WORK_SHARE = 0.1
"""The same for recorded device work that lies outside the steps."""

RUNS_AHEAD_SHARE = 0.5
"""A device that still works this share of a step after the step's end is fed by a host that runs ahead."""

FRAMES_SHARE = 0.5
"""Calls of a step's function must cover this share of the capture: else they are not what it is about."""

OUTLIER_RATIO = 1.5
"""A first step that takes this many times the others' median is set apart."""

_MARKS = (Kind.ANNOTATION, Kind.HOST_OP)
"""Kinds under which the profilers file a step's mark (Ascend files `ProfilerStep` under operators)."""


def find_steps(trace: Trace, names: NameTable | None = None, host: Host | None = None) -> Steps:
    """The steps of a capture: by annotation or by the profiler's own list, else by a recurring anchor, else one window
    over all of it.

    A step's window runs from its start to the next step's start, the last one's to the later of its own end
    and the end of the device work that it launched. Steps nested in others, or drawn on several threads,
    count once.
    """
    names = names or NameTable(trace)
    notes: list[str] = []
    steps = _annotated(trace, names, notes) or _recurring(trace, names, notes) or _listed(trace)
    if steps is not None:
        return steps
    marks, doubt = _by_frame(trace, names), ""
    if marks is None:
        found = find_anchor(trace, names, host or Host(trace))
        marks, doubt = (found.rows if len(found.rows) else None), found.doubt
    if marks is not None:
        start = trace.start[marks]
        name = trace.name_of(int(marks[0]))
        starts, ends = start[:-1].tolist(), start[1:].tolist()
        walls = [Step(f"{name} #{i + 1}", a, b) for i, (a, b) in enumerate(zip(starts, ends, strict=True))]
        notes.append(f"no annotated steps: a step is one period of {name}, which recurs {len(start)} times")
        notes += _about_window(trace, walls)
        return Steps("anchor", f"anchor: {name} × {len(start)}", tuple(walls), tuple(notes))
    notes.append(f"no steps found, {doubt or 'nothing recurs evenly'}: the whole capture is taken as one window, and "
                 "no figure is a step time")
    return Steps("window", "no recurring mark", (Step("whole capture", 0, max(trace.span, 1)),), tuple(notes))


def _annotated(trace: Trace, names: NameTable, notes: list[str]) -> Steps | None:
    """Steps that a profiler or an engine has marked."""
    profiler = np.flatnonzero(names.rows(is_profiler_step, *_MARKS))
    engine = np.flatnonzero(names.rows(is_engine_step, *_MARKS))
    profiler, engine = _apart(trace, profiler, notes), _apart(trace, engine, notes)
    if not len(profiler) and not len(engine):
        return None
    inside = engine[_enclosing(trace, profiler, engine) >= 0]
    by_engine = len(inside) >= ENGINE_STEPS_PER_PROFILER_STEP * len(profiler)
    marks = engine if by_engine else profiler
    detail = template(trace.name_of(int(marks[0])))
    if by_engine:
        return _steps(trace, marks, detail, notes, parse)
    told = _enclosing(trace, profiler, inside)
    within = {int(i): trace.name_of(int(row)) for i, row in zip(told, inside, strict=True)}
    by_name = {trace.name_of(int(row)): within.get(i, "") for i, row in enumerate(profiler.tolist())}
    return _steps(trace, marks, detail, notes, lambda name: parse(by_name[name]))


def _recurring(trace: Trace, names: NameTable, notes: list[str]) -> Steps | None:
    """Annotations of some other program that call themselves steps and recur: those that cover most of the
    capture."""
    rows = np.flatnonzero(names.rows(speaks_of_steps, Kind.ANNOTATION))
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(template(trace.name_of(row)), []).append(row)
    best, most = None, 0
    for members in groups.values():
        apart = _apart(trace, np.array(members), [])
        total = int(trace.dur[apart].sum())
        if len(apart) >= 2 and total > most:
            best, most = apart, total
    if best is None:
        return None
    return _steps(trace, best, template(trace.name_of(int(best[0]))), notes, parse)


def _listed(trace: Trace) -> Steps | None:
    """Steps of which a table of device work says which row belongs to which (`Trace.steps`). They run from one's
    first device work to that of the next; a single one is the whole capture, and may hold several."""
    listed = sorted(trace.steps, key=lambda step: step[1])
    if len(listed) < 2:
        return None
    ends = [*(start for _, start, _ in listed[1:]), max(end for _, _, end in listed)]
    steps = [Step(name, start, end) for (name, start, _), end in zip(listed, ends, strict=True) if end > start]
    notes = "steps are those that the table gives its rows, each from its first device work to the next one's"
    return Steps("annotation", template(steps[0].name), tuple(steps), (notes, *_about_window(trace, steps)))


def _by_frame(trace: Trace, names: NameTable) -> Ints | None:
    """Calls of a function that in known engines and trainers runs once an iteration, where Python stacks were
    recorded."""
    rows = np.flatnonzero(names.rows(is_step_function, Kind.PYTHON))
    if len(rows) < FEWEST:
        return None
    marks = _apart(trace, rows, [])
    covered = int(trace.dur[marks].sum())
    return marks if len(marks) >= FEWEST and covered > FRAMES_SHARE * trace.span else None


def _apart(trace: Trace, rows: Ints, notes: list[str]) -> Ints:
    """Marks that neither lie in one another nor repeat one another on other threads, in order of time."""
    if len(rows) < 2:
        return rows
    end = trace.end[rows]
    rows = rows[np.lexsort((-end, trace.start[rows]))]
    kept = _sequence(trace, rows)
    threads = np.unique(trace.thread[rows])
    if len(threads) > 1 and len(_sequence(trace, rows, across_threads=False)) > len(kept):
        # steps of several threads run at the same time: several engines, or one step drawn more than once
        lead = max(threads.tolist(), key=lambda thread: _fed(trace, rows, thread))
        others = set(map(trace.name_of, rows[trace.thread[rows] != lead].tolist()))
        rows = rows[trace.thread[rows] == lead]
        kept = _sequence(trace, rows)
        if others - set(map(trace.name_of, kept.tolist())) or len(threads) > 2:
            notes.append(f"steps run on {len(threads)} threads at the same time; those of thread "
                         f"{trace.threads[lead]}, which feeds the device most, are used")
    return kept


def _sequence(trace: Trace, rows: Ints, across_threads: bool = True) -> Ints:
    """Outermost marks, on all threads taken together or each thread for itself."""
    kept: list[int] = []
    reach: dict[int, int] = {}
    ends, starts = trace.end[rows].tolist(), trace.start[rows].tolist()
    threads = trace.thread[rows].tolist()
    for row, start, end, thread in zip(rows.tolist(), starts, ends, threads, strict=True):
        lane = -1 if across_threads else thread
        if start >= reach.get(lane, 0) or lane not in reach:
            kept.append(row)
            reach[lane] = end
    return np.array(kept, np.int64)


def _fed(trace: Trace, rows: Ints, thread: int) -> tuple[int, int]:
    """Device time that a thread launched inside its own marks; then the marked time itself."""
    mine = rows[trace.thread[rows] == thread]
    mine = mine[np.argsort(trace.start[mine], kind="stable")]
    device = np.flatnonzero(trace.on_device & (trace.launch >= 0))
    device = device[trace.thread[trace.launch[device]] == thread]
    at = trace.start[trace.launch[device]]
    i = np.searchsorted(trace.start[mine], at, "right") - 1
    inside = (i >= 0) & (at <= trace.end[mine][np.maximum(i, 0)])
    return int(trace.dur[device[inside]].sum()), int(trace.dur[mine].sum())


def _enclosing(trace: Trace, outer: Ints, inner: Ints) -> Ints:
    """Number of the mark of `outer` in whose step each of `inner` starts, or -1."""
    if not len(outer):
        return np.full(len(inner), -1, np.int64)
    i = np.searchsorted(trace.start[outer], trace.start[inner], "right") - 1
    inside = (i >= 0) & (trace.start[inner] <= trace.end[outer][np.maximum(i, 0)])
    return np.where(inside, i, -1)


def _steps(trace: Trace, marks: Ints, detail: str, notes: list[str],
           told: Callable[[str], StepName]) -> Steps:
    start = trace.start[marks]
    last = int(marks[-1])
    last_end = max(int(trace.end[last]), _launched_until(trace, int(start[-1]), int(trace.end[last])))
    ends = [*start[1:].tolist(), last_end]
    steps = []
    for row, a, b in zip(marks.tolist(), start.tolist(), ends, strict=True):
        name = trace.name_of(row)
        tells = told(name)
        steps.append(Step(name, a, b, tells.phase, tells.prefill_requests, tells.prefill_tokens,
                          tells.decode_requests))
    return Steps("annotation", detail, tuple(steps), (*notes, *_about_window(trace, steps)))


def _launched_until(trace: Trace, start: int, end: int) -> int:
    """End of the device work whose launch began within [start, end]; 0 for none."""
    device = np.flatnonzero(trace.on_device & (trace.launch >= 0))
    at = trace.start[trace.launch[device]]
    return int(trace.end[device[(at >= start) & (at <= end)]].max(initial=0))


def _about_window(trace: Trace, steps: Sequence[Step]) -> list[str]:
    """What the reader must know of the steps: how much of the capture they leave out, and whether the host
    runs ahead."""
    notes = []
    start, end = steps[0].start, steps[-1].end
    left_out = 1 - (end - start) / max(trace.span, 1)
    device = np.flatnonzero(trace.kind >= FIRST_DEVICE_KIND)
    work = trace.dur[device]
    outside = (trace.start[device] >= end) | (trace.end[device] <= start)
    lost = float(work[outside].sum() / max(work.sum(), 1))
    if left_out > UNANNOTATED_SHARE or lost > OUTSIDE_WORK_SHARE:
        count = "1 step was" if len(steps) == 1 else f"{len(steps)} steps were"
        notes.append(
            f"{count} found, over {(end - start) / 1e6:,.1f} ms of a capture of {trace.span / 1e6:,.1f} ms; "
            f"{lost:.0%} of the recorded device time lies outside and is not in these figures")
    if len(steps) == 1:
        notes.append("only one step: nothing can be said of how steps differ")
        return notes
    alike = [step.wall for step in steps[1:] if step.phase == steps[0].phase]
    if len(alike) >= 2 and steps[0].wall > OUTLIER_RATIO * (usual := float(np.median(alike))):
        notes.append(f"the first step takes {steps[0].wall / 1e6:,.1f} ms, the others {usual / 1e6:,.1f} ms: medians "
                     "leave it out, shares of the window hold it")
    ahead = _runs_ahead_ns(trace, device, steps)
    if ahead > RUNS_AHEAD_SHARE * np.median([step.wall for step in steps]):
        notes.append(f"the host runs ahead of the device by {ahead / 1e6:,.1f} ms: the times of single steps are times "
                     "of launching; their sum and mean hold")
    return notes


def _runs_ahead_ns(trace: Trace, device: Ints, steps: Sequence[Step]) -> float:
    """Median time by which device work outlasts the step that launched it, the last step left out."""
    linked = device[trace.launch[device] >= 0]
    if not len(linked):
        return 0.0
    starts = np.array([s.start for s in steps])
    ends = np.array([s.end for s in steps])
    which = np.searchsorted(starts, trace.start[trace.launch[linked]], "right") - 1
    reach = np.zeros(len(steps), np.int64)
    np.maximum.at(reach, which[which >= 0], trace.end[linked][which >= 0])
    late = (reach - ends)[:-1]
    return float(np.median(np.maximum(late, 0)))

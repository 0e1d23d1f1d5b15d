"""Step 3, operator bisection: from each part of the window down to the one operator that explains most of
it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..trace import Ints, Kind
from .blame import Part, Weights, device_part, host_part, idle_part
from .fallback import Fallbacks
from .idle_causes import GapWork
from .intervals import Bools
from .patterns import GRAPH_LAUNCH, PLUMBING, is_library
from .results import CAUSES, Cause, Finding, Level
from .scene import Scene
from .step_names import is_engine_step, is_profiler_step, template
from .utilization import PART_KINDS, DeviceTime

WORTH_FINDING = 0.02
"""Share of the window from which a part is bisected: the small ones are what is left when the large one is
fixed."""

HOLDS = 0.5
"""An operator is named when it explains at least this share of its part; else the part is spread."""

LAUNCHES_PER_CALL = 16
"""An operator that launches more than this a call is a container (a compiled region, a whole model) and not
one operator: where time goes by the launch, naming it would say nothing."""

OTHERS = 5

NO_ROWS = "host code that the capture holds no rows of"
NOTHING = "(waiting, or nothing recorded)"

_KINDS = {Kind.HOST_OP: "operator", Kind.RUNTIME: "runtime", Kind.PYTHON: "python", Kind.ANNOTATION: "phase"}

_NOUN = {
    "compute": "kernels", "copy": "copies", "comm": "collectives", Cause.LAUNCHING: "launches",
    Cause.AFTER_SYNC: "synchronizations", Cause.TURNAROUND: "gaps on the device", "host": "host rows"}

_UNNAMED = {
    Cause.HIDDEN: "device work that the capture lacks",
    Cause.UNRECORDED: "nothing recorded on the launching thread",
    Cause.PROFILER: "the profiler's own overhead"}
"""Causes that no operator of the program is to blame for."""

_NOT_GAINED = (Cause.HIDDEN, Cause.UNRECORDED, Cause.PROFILER, Cause.NO_WORK, Cause.TURNAROUND)
"""Causes for which "the step without it" has no meaning."""

_BY_LAUNCH = (Cause.LAUNCHING, Cause.TURNAROUND, "compute")
"""Parts in which time goes by the launch: only operators are named, and no containers."""


def find_causes(scene: Scene, time: DeviceTime, work: GapWork, fallbacks: Fallbacks) -> tuple[Finding, ...]:
    """What every part of the window that is worth it bisects to, for one device; largest share of the window
    first."""
    bisector = Bisector(scene, fallbacks, time)
    parts = [lambda name=name: device_part(scene, time, name) for name in PART_KINDS if time.parts[name].sum() >= bisector.least]
    by_cause = work.gaps.by_cause()
    parts += [lambda cause=cause: idle_part(scene, work, cause) for cause in CAUSES if by_cause[cause] >= bisector.least]
    found = [bisector.finding(make()) for make in parts]  # one at a time: each holds a weight a host row
    return tuple(sorted(found, key=lambda f: -f.total_share))


def find_host(scene: Scene, thread: int) -> tuple[tuple[Finding, ...], float]:
    """Where a thread's time goes, in a trace without device work; and the share of the window that it
    waits."""
    part, waiting = host_part(scene, thread)
    if part.total < WORTH_FINDING * scene.steps.window:
        return (), waiting
    return (Bisector(scene, None, None).finding(part),), waiting


@dataclass(frozen=True, eq=False)
class _Groups:
    """Host rows by name. A group's sums run over its outermost rows, each with all that lies below.

    code       int64, one entry a host row: its group
    rows       int64, forest indices of the outermost rows, group by group
    kind       int64, one entry a group: its `Kind`
    label      what each group is called
    nameable, library, plumbing   bool, one entry a group
    """

    code: Ints
    rows: Ints
    kind: Ints
    label: tuple[str, ...]
    library: Bools
    plumbing: Bools
    is_step: Bools

    def sums(self, inclusive: Weights) -> NDArray[np.float64]:
        return np.bincount(self.code[self.rows], inclusive[self.rows], len(self.label))


def _group(scene: Scene) -> _Groups:
    """Groups by name; step marks are one group, and so are annotations that differ only in their numbers."""
    trace, host = scene.trace, scene.host
    annotated = np.bincount(scene.host_name[scene.host_kind == Kind.ANNOTATION], minlength=len(trace.names)) > 0
    label = list(trace.names)
    canon = np.arange(len(label))
    first: dict[str, int] = {}
    steps = np.zeros(len(label), np.bool_)
    for i, name in enumerate(trace.names):
        step = is_profiler_step(name) or is_engine_step(name)
        if not step and not annotated[i]:
            continue
        key = template(name)
        canon[i] = first.setdefault(key, i)
        steps[canon[i]] |= step
        if canon[i] != i:
            label[canon[i]] = key
    code = canon[scene.host_name]
    narrow = code.astype(np.uint16) if len(label) < 1 << 16 else code  # a radix sort, where it fits
    order = np.argsort(narrow, kind="stable")
    size = len(host)
    reach = np.maximum.accumulate(host.last[order] + code[order] * size) if size else order
    outermost = order[np.concatenate(([True], order[1:] + code[order][1:] * size >= reach[:-1]))] if size else order
    kind = np.full(len(label), -1, np.int64)
    kind[code[::-1]] = scene.host_kind[::-1]
    python = kind == Kind.PYTHON
    library = np.array([bool(p) and is_library(name) for p, name in zip(python, label, strict=True)], np.bool_)
    plumbing = np.array([bool(PLUMBING.search(name)) for name in label], np.bool_)
    return _Groups(code, outermost, kind, tuple(label), library, plumbing, steps)


class Bisector:
    """Bisects parts of one trace's window. The groups by name and the host's own times are made once."""

    def __init__(self, scene: Scene, fallbacks: Fallbacks | None, time: DeviceTime | None) -> None:
        self.scene, self.fallbacks = scene, fallbacks
        self.groups = _group(scene)
        self.window = scene.window
        self.least = WORTH_FINDING * self.window
        self.count = len(scene.steps.steps)
        self.launched = np.zeros(len(scene.host))
        if time is not None:
            index = scene.host.index(scene.trace.launch[time.rows])
            self.launched += np.bincount(index[index >= 0], time.part[index >= 0], len(scene.host))
        self._self_sums = np.bincount(self.groups.code, scene.self_ns, len(self.groups.label))
        self._device_sums = self.groups.sums(scene.host.below(self.launched))
        starts = scene.trace.start[scene.host.row[self.groups.rows]]
        inside = (starts >= scene.left) & (starts < scene.right)
        self._calls = np.bincount(self.groups.code[self.groups.rows][inside], minlength=len(self.groups.label))

    # -- one part
    # ---------------------------------------------------------------------------------------------------
    def finding(self, part: Part) -> Finding:
        if part.about in _UNNAMED:
            return self._unnamed(part)
        below = self.scene.host.below(part.weight)
        sums = self.groups.sums(below)
        device = part.about in PART_KINDS
        group = None if device and self._replayed(part) else self._deepest(part, sums, below)
        kernel = self._kernel(part, group) if device else None
        if part.about in ("copy", "comm") and kernel is not None:
            whole = self._kernel(part, None)
            if whole is not None:
                return self._of_kernel(part, whole, sums, group, below)
        if group is None and kernel is not None:
            return self._of_kernel(part, kernel, sums, None, below)
        if group is None:
            return self._spread(part)
        return self._of_group(part, group, sums, below, kernel)

    def _of_group(self, part: Part, group: int, sums: Weights, below: Weights, kernel: int | None) -> Finding:
        heaviest = self._heaviest(group, below)
        path = self._path(part, heaviest, group, sums)
        if kernel is not None:
            path.append(self._kernel_level(part, kernel))
        elif (call := self._call(group, sums, below)) is not None:
            path.append(call)
        share = sums[group] / self.window
        return Finding(part.about, part.total / self.window, float(share), tuple(path), self.groups.label[group], False,
                       float(self._calls[group] / self.count), self._line(heaviest), self._step_ms,
                       self._without(part, group, float(sums[group])), self._others(part, group, None))

    def _of_kernel(self, part: Part, kernel: int, sums: Weights, group: int | None, below: Weights) -> Finding:
        """A finding that names the device operation: a copy or a collective says more than the operator
        around it."""
        rows = self.scene.trace.name[part.rows] == kernel
        held = int(part.row_weight[rows].sum())
        path = [self._top(part)]
        line = ""
        if group is not None:
            heaviest = self._heaviest(group, below)
            path, line = self._path(part, heaviest, group, sums), self._line(heaviest)
        path.append(self._kernel_level(part, kernel))
        without = self._step_ms - held / 1e6 / self.count
        return Finding(part.about, part.total / self.window, held / self.window, tuple(path), self.scene.trace.names[kernel],
                       False, float(rows.sum() / self.count), line, self._step_ms, max(without, 0.0),
                       self._others(part, None, kernel))

    def _spread(self, part: Part) -> Finding:
        noun = _NOUN.get(part.about, "intervals")
        share = part.total / self.window
        silent = self._unnamed_ns(part)
        if silent >= HOLDS * part.total:
            return Finding(part.about, share, silent / self.window, (self._top(part),), NO_ROWS, False,
                           part.events / self.count, "", self._step_ms, None, self._others(part, None, None))
        return Finding(part.about, share, share, (), f"spread over {part.events:,} {noun}", True, part.events / self.count, "",
                       self._step_ms, None, self._others(part, None, None))

    def _unnamed_ns(self, part: Part) -> float:
        """ns of host time inside the marks of steps and in no row below them."""
        if part.about in PART_KINDS or part.about in _BY_LAUNCH:
            return 0.0
        return float(part.weight[self.groups.is_step[self.groups.code]].sum())

    def _unnamed(self, part: Part) -> Finding:
        share = part.total / self.window
        name = _UNNAMED[Cause(part.about)]
        if part.about == Cause.PROFILER:
            trace = self.scene.trace
            rows = np.flatnonzero(trace.kind == Kind.OVERHEAD)
            if len(rows):
                name = trace.names[int(np.bincount(trace.name[rows], trace.dur[rows]).argmax())]
        return Finding(part.about, share, share, (), name, False, part.events / self.count, "", self._step_ms, None,
                       self._others(part, None, None))

    # -- which operator
    # ---------------------------------------------------------------------------------------------
    def _deepest(self, part: Part, sums: Weights, below: Weights) -> int | None:
        """The deepest group that explains at least half of the part: an operator if one does, else a frame,
        span or call.

        The deepest and not the shortest: the wrapper around it explains as much and says less.
        """
        groups = self.groups
        candidates = (sums >= HOLDS * part.total) & (sums > 0) & ~groups.library & ~groups.plumbing & ~groups.is_step
        operators = candidates & (groups.kind == Kind.HOST_OP)
        if part.about in _BY_LAUNCH:
            launches = groups.sums(self.scene.host.below(self._launch_count(part)))
            operators &= launches <= LAUNCHES_PER_CALL * np.maximum(self._calls, 1)
            chosen = operators
        else:
            chosen = operators if operators.any() else candidates
        best, best_key = None, (-1, 0.0)
        for group in np.flatnonzero(chosen).tolist():
            key = (len(self.scene.host.path(self._heaviest(group, below))), float(sums[group]))
            if key > best_key:
                best, best_key = group, key
        return best

    def _launch_count(self, part: Part) -> Weights:
        index = self.scene.host.index(self.scene.trace.launch[part.rows])
        return np.bincount(index[index >= 0], minlength=len(self.scene.host)).astype(np.float64)

    def _heaviest(self, group: int, below: Weights) -> int:
        rows = self.groups.rows[self.groups.code[self.groups.rows] == group]
        return int(rows[below[rows].argmax()])

    def _replayed(self, part: Part) -> bool:
        """Whether most of a device part comes from graph replays: one call for all kernels, so that only they
        tell."""
        index = self.scene.host.index(self.scene.trace.launch[part.rows])
        graph = np.append(self.scene.host_rows(GRAPH_LAUNCH, Kind.RUNTIME), False)[index]
        return bool(2 * part.row_weight[graph].sum() > part.total)

    def _kernel(self, part: Part, group: int | None) -> int | None:
        """The name of the device rows that hold half of a part, or of what a group in it launched; None for
        none."""
        rows, ns = part.rows, part.row_weight
        if group is not None:
            inside = np.append(self.scene.host.around(self.groups.code == group) >= 0, False)
            mine = inside[self.scene.host.index(self.scene.trace.launch[rows])]
            rows, ns = rows[mine], ns[mine]
        if not len(rows):
            return None
        held = np.bincount(self.scene.trace.name[rows], ns)
        top = int(held.argmax())
        return top if held[top] >= HOLDS * (ns.sum() if group is not None else part.total) else None

    # -- how it reads
    # -----------------------------------------------------------------------------------------------
    @property
    def _step_ms(self) -> float:
        return self.window / 1e6 / self.count

    def _top(self, part: Part) -> Level:
        """The first level: the one step, or the phase, that holds most of the part; else all steps."""
        steps, total = self.scene.steps.steps, max(int(part.per_step.sum()), 1)
        phases = sorted({s.phase for s in steps})
        held = part.per_step.astype(np.float64)
        name, chosen = "step", np.ones(len(steps), np.bool_)
        if len(steps) >= 3 and held.max() >= HOLDS * total:
            name, chosen = steps[int(held.argmax())].name, held == held.max()
        elif len(phases) > 1:
            phase = max(phases, key=lambda p: sum(h for h, s in zip(held, steps, strict=True) if s.phase == p))
            name, chosen = f"{phase or 'other'} steps", np.array([s.phase == phase for s in steps])
        elif phases[0]:
            name = f"{phases[0]} step"
        elif self.scene.steps.method == "window":
            name = "whole capture"
        return Level(name, "phase", float(held[chosen].sum() / total * part.total / self.window),
                     float(self.launched.sum() / 1e6 / self.count), float(self._self_sums[self.groups.is_step].sum() / 1e6 / self.count))

    def _path(self, part: Part, row: int, group: int, sums: Weights) -> list[Level]:
        """Levels from the step down to the operator. Of what lies between only what holds all of it is a
        level: the third layer of many is not."""
        levels: list[Level] = []
        seen: set[int] = set()
        least = float(sums[group])
        for i in reversed(self.scene.host.path(row)):
            g = int(self.groups.code[i])
            if g in seen or (g != group and (self.groups.library[g] or self.groups.is_step[g])) or sums[g] < least * (1 - 1e-9):
                continue
            seen.add(g)
            least = float(sums[g])
            levels.append(Level(self.groups.label[g], _KINDS[Kind(int(self.groups.kind[g]))], least / self.window,
                                float(self._device_sums[g] / 1e6 / self.count), float(self._self_sums[g] / 1e6 / self.count)))
        return [self._top(part), *reversed(levels)]

    def _kernel_level(self, part: Part, kernel: int) -> Level:
        held = float(part.row_weight[self.scene.trace.name[part.rows] == kernel].sum())
        return Level(self.scene.trace.names[kernel], "kernel", held / self.window, held / 1e6 / self.count, 0.0)

    def _call(self, group: int, sums: Weights, below: Weights) -> Level | None:
        """The runtime call that holds most of what an operator holds: the leaf below it."""
        groups, host = self.groups, self.scene.host
        if groups.kind[group] == Kind.RUNTIME:
            return None
        inside = (host.around(groups.code == group)[groups.rows] >= 0) & (self.scene.host_kind[groups.rows] == Kind.RUNTIME)
        rows = groups.rows[inside]
        if not len(rows):
            return None
        held = np.bincount(groups.code[rows], below[rows], len(groups.label))
        top = int(held.argmax())
        if held[top] < HOLDS * sums[group]:
            return None
        return Level(groups.label[top], "runtime", float(held[top]) / self.window,
                     float(np.bincount(groups.code[rows], host.below(self.launched)[rows], len(groups.label))[top] / 1e6 / self.count),
                     float(self.scene.self_ns[rows[groups.code[rows] == top]].sum() / 1e6 / self.count))

    def _line(self, row: int) -> str:
        """The innermost Python frame of the program itself around a row."""
        for i in reversed(self.scene.host.path(row)):
            if self.scene.host_kind[i] == Kind.PYTHON and not self.groups.library[self.groups.code[i]]:
                return self.scene.trace.name_of(int(self.scene.host.row[i]))
        return ""

    def _without(self, part: Part, group: int, held: float) -> float | None:
        """Mean step without the operator: less the idle it is to blame for, and the device time it launched
        with it."""
        if part.about in _NOT_GAINED:
            return None
        gone = held
        label = self.groups.label[group]
        if part.about == Cause.HOST_OP:
            gone += float(self._device_sums[group])
            if self.fallbacks is not None:
                gone = max(gone, float(self.fallbacks.total(self.scene.left, self.scene.right, label)))
        return max(self._step_ms - gone / 1e6 / self.count, 0.0)

    def _others(self, part: Part, group: int | None, kernel: int | None) -> tuple[tuple[str, float], ...]:
        """The next heaviest names, each with only what it holds itself; what no name holds is the last."""
        held: dict[str, float] = {}
        labels, host, trace = self.groups.label, self.scene.host, self.scene.trace
        if part.about in PART_KINDS and (kernel is not None or not (self.groups.kind == Kind.HOST_OP).any() or self._replayed(part)):
            for i, ns in _top_of(trace.name[part.rows], part.row_weight):
                if i != kernel:
                    held[trace.names[i]] = ns
        else:
            weighted = np.flatnonzero(part.weight > 0)
            if group is not None:
                weighted = weighted[host.around(self.groups.code == group)[weighted] < 0]
            good = ~(self.groups.library | self.groups.plumbing | self.groups.is_step)
            operator = (good & (self.groups.kind == Kind.HOST_OP))[self.groups.code]
            owner = host.nearest(weighted, operator)
            owner = np.where(owner >= 0, owner, host.nearest(weighted, good[self.groups.code]))
            known = owner >= 0
            for i, ns in _top_of(self.groups.code[owner[known]], part.weight[weighted[known]]):
                held[labels[i]] = ns
            if part.about in PART_KINDS:
                loose = host.index(trace.launch[part.rows]) < 0
                for i, ns in _top_of(trace.name[part.rows[loose]], part.row_weight[loose]):
                    held[trace.names[i]] = held.get(trace.names[i], 0.0) + ns
            else:
                held[NOTHING] = part.loose
                if group is not None:
                    held[NO_ROWS] = self._unnamed_ns(part)
        first = sorted(held.items(), key=lambda item: -item[1])[:OTHERS]
        return tuple((name, ns / self.window) for name, ns in first if ns > 0) or (("everything else", 0.0),)


def _top_of(code: Ints | NDArray[np.int32], ns: Ints | Weights) -> list[tuple[int, float]]:
    """The heaviest codes with their sums."""
    if not len(code):
        return []
    held = np.bincount(code, ns)
    order = np.argsort(-held, kind="stable")[: OTHERS + 1]
    return [(int(i), float(held[i])) for i in order if held[i] > 0]

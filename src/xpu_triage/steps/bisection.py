"""Step 3, operator bisection: from each part of the window down to the operator that explains most of it."""

from __future__ import annotations

import numpy as np

from ..trace import Ints, Kind
from .blame import Part, device_part, host_part, idle_part
from .fallback import Fallbacks
from .groups import Groups, group_rows, heaviest_code
from .host import Indices
from .idle_causes import GapWork
from .intervals import Bools, Weights
from .patterns import GRAPH_LAUNCH
from .results import CAUSES, Cause, Finding, Level
from .scene import Scene
from .utilization import PART_KINDS, DeviceTime

WORTH_FINDING = 0.02
"""Share of the window from which a part is bisected: the small ones are what is left once the large one is
fixed."""

HOLDS = 0.5
"""An operator is named when it explains at least this share of its part; else the part is spread."""

LAUNCHES_PER_CALL = 16
"""An operator that launches more than this a call is a container (a compiled region, a whole model). Where
time goes by the launch, naming it would say nothing."""

OTHERS = 5
"""Names shown beside the one that was found."""

NO_ROWS = "host code that the capture holds no rows of"
NOTHING = "(waiting, or nothing recorded)"

NS_PER_MS = 1e6

_LEVEL_KIND = {
    Kind.HOST_OP: "operator", Kind.RUNTIME: "runtime", Kind.PYTHON: "python", Kind.ANNOTATION: "phase"}

_NOUN = {
    "compute": ("kernel", "kernels"), "copy": ("copy", "copies"), "comm": ("collective", "collectives"),
    "host": ("host row", "host rows"), Cause.LAUNCHING: ("launch", "launches"),
    Cause.AFTER_SYNC: ("synchronization", "synchronizations"),
    Cause.TURNAROUND: ("gap on the device", "gaps on the device")}

_UNNAMED = {
    Cause.HIDDEN: "device work that the capture lacks",
    Cause.UNRECORDED: "nothing recorded on the launching thread",
    Cause.PROFILER: "the profiler's own overhead"}
"""Causes that no operator of the program is to blame for."""

_NOT_GAINED = (Cause.HIDDEN, Cause.UNRECORDED, Cause.PROFILER, Cause.NO_WORK, Cause.TURNAROUND)
"""Causes for which a step without them has no meaning."""

_BY_LAUNCH = (Cause.LAUNCHING, Cause.TURNAROUND, "compute")
"""Parts in which time goes by the launch: only operators are named, and no containers."""


def find_causes(scene: Scene, time: DeviceTime, work: GapWork, fallbacks: Fallbacks) -> tuple[Finding, ...]:
    """What every part of the window that is worth it bisects to, for one device; largest part first."""
    bisector = Bisector(scene, fallbacks, time)
    least, by_cause = WORTH_FINDING * scene.window, work.gaps.by_cause()
    found = [bisector.finding(device_part(scene, time, name))
             for name, ns in time.parts.items() if ns.sum() >= least]
    found += [bisector.finding(idle_part(scene, work, cause)) for cause in CAUSES if by_cause[cause] >= least]
    return tuple(sorted(found, key=lambda finding: -finding.total_share))


def find_host(scene: Scene, thread: int) -> tuple[tuple[Finding, ...], float]:
    """Where a thread's time goes, for a trace without device work; and the share of the window that it
    waits."""
    part, waiting = host_part(scene, thread)
    if part.total < WORTH_FINDING * scene.window:
        return (), waiting
    return (Bisector(scene, None, None).finding(part),), waiting


class Bisector:
    """Bisects the parts of one trace's window. The groups by name, and their own times, are made once for
    all."""

    def __init__(self, scene: Scene, fallbacks: Fallbacks | None, time: DeviceTime | None) -> None:
        self.scene, self.host, self.trace, self.fallbacks = scene, scene.host, scene.trace, fallbacks
        self.groups: Groups = group_rows(scene)
        self.count = len(scene.steps.steps)
        self.step_ms = scene.window / NS_PER_MS / self.count
        self.launched = np.zeros(len(scene.host))
        if time is not None:
            index = self.host.index(self.trace.launch[time.rows])
            self.launched += np.bincount(index[index >= 0], time.part[index >= 0], len(self.host))
        groups = self.groups
        self._self_ns = np.bincount(groups.code, scene.self_ns, len(groups))
        self._device_ns = groups.sums(self.host.below(self.launched))
        starts = self.trace.start[self.host.row[groups.rows]]
        inside = groups.rows[(starts >= scene.left) & (starts < scene.right)]
        self._calls = np.bincount(groups.code[inside], minlength=len(groups))

    # -- what a part bisects to
    def finding(self, part: Part) -> Finding:
        """The operator, device operation or spread that one part bisects to."""
        if part.about in _UNNAMED:
            return self._unnamed(part)
        inclusive = self.host.below(part.weight)
        sums = self.groups.sums(inclusive)
        device = part.about in PART_KINDS
        group = None if device and self._replayed(part) else self._deepest(part, sums, inclusive)
        if part.about in ("copy", "comm") and (kernel := self._kernel(part, None)) is not None:
            return self._of_kernel(part, kernel, group, sums, inclusive)  # says more than the operator around it
        kernel = self._kernel(part, group) if device else None
        if group is not None:
            return self._of_group(part, group, kernel, sums, inclusive)
        if kernel is not None:
            return self._of_kernel(part, kernel, None, sums, inclusive)
        return self._spread(part, sums, inclusive)

    def _of_group(self, part: Part, group: int, kernel: int | None, sums: Weights, inclusive: Weights) -> Finding:
        row = self.groups.heaviest(group, inclusive)
        path = self._path(part, row, group, sums)
        leaf = self._call(group, sums, inclusive) if kernel is None else self._kernel_level(part, kernel)
        path += [leaf] if leaf is not None else []
        return self._finding(
            part, name=self.groups.label[group], share=float(sums[group]), path=path,
            calls=float(self._calls[group]), line=self._line(row),
            gone=None if part.about in _NOT_GAINED else self._gone(part, group, float(sums[group])), group=group)

    def _of_kernel(self, part: Part, kernel: int, group: int | None, sums: Weights, inclusive: Weights) -> Finding:
        held = self._held_by_kernel(part, kernel)
        path, line = [self._top(part)], ""
        if group is not None:
            row = self.groups.heaviest(group, inclusive)
            path, line = self._path(part, row, group, sums), self._line(row)
        path.append(self._kernel_level(part, kernel))
        calls = float((self.trace.name[part.rows] == kernel).sum())
        return self._finding(part, name=self.trace.names[kernel], share=held, path=path, calls=calls, line=line,
                             gone=held, kernel=kernel)

    def _spread(self, part: Part, sums: Weights, inclusive: Weights) -> Finding:
        silent = self._in_marks_only(part)
        if silent >= HOLDS * part.total:
            return self._finding(part, name=NO_ROWS, share=silent, path=[self._top(part)])
        one, many = _NOUN.get(part.about, ("interval", "intervals"))
        name = f"within one {one}, no name holds half" if part.events == 1 else f"spread over {part.events:,} {many}"
        frames = (sums >= HOLDS * part.total) & self.groups.nameable & self.groups.frames
        frame = self._deepest_of(frames, sums, inclusive)
        line = "" if frame is None else self.groups.label[frame]
        return self._finding(part, name=name, share=part.total, spread=True, line=line)

    def _unnamed(self, part: Part) -> Finding:
        name = _UNNAMED[Cause(part.about)]
        overhead = np.flatnonzero(self.trace.kind == Kind.OVERHEAD)
        if part.about == Cause.PROFILER and len(overhead):
            name = self.trace.names[heaviest_code(self.trace.name[overhead], self.trace.dur[overhead])]
        return self._finding(part, name=name, share=part.total)

    def _finding(self, part: Part, *, name: str, share: float, path: list[Level] | None = None, spread: bool = False,
                 calls: float | None = None, line: str = "", gone: float | None = None, group: int | None = None,
                 kernel: int | None = None) -> Finding:
        window = self.scene.window
        whole = self.scene.steps.method == "window"  # a capture is not a step
        without = None if gone is None or whole else max(self.step_ms - gone / NS_PER_MS / self.count, 0.0)
        return Finding(
            about=str(part.about), total_share=part.total / window, share=share / window, path=tuple(path or ()),
            name=name, spread=spread, calls_per_step=(part.events if calls is None else calls) / self.count, line=line,
            step_ms=self.step_ms, step_without_ms=without, others=self._others(part, group, kernel))

    # -- which operator
    def _deepest(self, part: Part, sums: Weights, inclusive: Weights) -> int | None:
        """The deepest group that explains at least half of the part: an operator if one does, else a frame,
        span or call. The deepest and not the shortest: a wrapper around it explains as much and says less."""
        groups = self.groups
        chosen = (sums >= HOLDS * part.total) & (sums > 0) & groups.nameable
        operators = chosen & groups.operators
        if part.about in _BY_LAUNCH:
            index = self.host.index(self.trace.launch[part.rows])
            launches = np.bincount(index[index >= 0], minlength=len(self.host)).astype(np.float64)
            per_call = groups.sums(self.host.below(launches)) / np.maximum(self._calls, 1)
            chosen = operators & (per_call <= LAUNCHES_PER_CALL)
        elif operators.any():
            chosen = operators
        return self._deepest_of(chosen, sums, inclusive)

    def _deepest_of(self, chosen: Bools, sums: Weights, inclusive: Weights) -> int | None:
        """The group whose heaviest row lies deepest; of several that which holds most; None of none."""
        best, most = None, (-1, 0.0)
        for group in np.flatnonzero(chosen).tolist():
            depth = len(self.host.path(self.groups.heaviest(group, inclusive)))
            if (depth, float(sums[group])) > most:
                best, most = group, (depth, float(sums[group]))
        return best

    def _replayed(self, part: Part) -> bool:
        """Whether most of a device part comes from graph replays: one call for all kernels, so that only they
        tell."""
        index = self.host.index(self.trace.launch[part.rows])
        graph = np.append(self.scene.host_rows(GRAPH_LAUNCH, Kind.RUNTIME), False)[index]
        return bool(2 * part.row_weight[graph].sum() > part.total)

    def _kernel(self, part: Part, group: int | None) -> int | None:
        """Name of the device rows that hold half of a part, or of what a group in it launched; None for
        none."""
        rows, ns, total = part.rows, part.row_weight, part.total
        if group is not None:
            mine = np.append(self._below(group), False)[self.host.index(self.trace.launch[rows])]
            rows, ns = rows[mine], ns[mine]
            total = int(ns.sum())
        if not len(rows):
            return None
        top = heaviest_code(self.trace.name[rows], ns)
        return top if ns[self.trace.name[rows] == top].sum() >= HOLDS * total else None

    def _below(self, group: int) -> Bools:
        """bool, one entry a host row: in a row of the group."""
        inside: Bools = self.host.around(self.groups.code == group) >= 0
        return inside

    def _gone(self, part: Part, group: int, held: float) -> float:
        """ns that go with the operator: the time it is to blame for; for work on the host also the device
        time that it launched, and for a fallback all of its stretch."""
        if part.about != Cause.HOST_OP:
            return held
        stretch = 0
        if self.fallbacks is not None:
            stretch = self.fallbacks.total(self.scene.left, self.scene.right, self.groups.label[group])
        return max(held + float(self._device_ns[group]), float(stretch))

    # -- how it reads
    def _top(self, part: Part) -> Level:
        """The first level: all steps, and where one of them or one phase holds most of the part, which."""
        steps, held = self.scene.steps.steps, part.per_step.astype(np.float64)
        total = max(float(held.sum()), 1.0)
        phases = sorted({step.phase for step in steps})
        name = "whole capture" if self.scene.steps.method == "window" else f"{phases[0]} step".strip()
        if len(steps) >= 3 and held.max() >= HOLDS * total:
            name = f"{steps[int(held.argmax())].name} ({held.max() / total:.0%} of this)"
        elif len(phases) > 1:
            in_phase = {phase: float(held[[step.phase == phase for step in steps]].sum()) for phase in phases}
            phase = max(phases, key=lambda p: in_phase[p])
            name = f"{phase or 'other'} steps ({in_phase[phase] / total:.0%} of this)"
        return Level(name, "phase", part.total / self.scene.window, self._ms(self.launched.sum()),
                     self._ms(self._self_ns[self.groups.is_step].sum()))

    def _path(self, part: Part, row: int, group: int, sums: Weights) -> list[Level]:
        """Levels from the step down to the operator. Of what lies between, only what holds all of it is a
        level: one layer of many is not."""
        groups, levels, seen, least = self.groups, [], set[int](), float(sums[group])
        for i in reversed(self.host.path(row)):
            g = int(groups.code[i])
            dull = g != group and (groups.library[g] or groups.is_step[g])
            if g in seen or dull or sums[g] < least * (1 - 1e-9):
                continue
            seen.add(g)
            least = float(sums[g])
            levels.append(self._level(g, least, float(self._device_ns[g]), float(self._self_ns[g])))
        return [self._top(part), *reversed(levels)]

    def _level(self, group: int, held: float, device_ns: float, self_ns: float) -> Level:
        return Level(self.groups.label[group], _LEVEL_KIND[Kind(int(self.groups.kind[group]))],
                     held / self.scene.window, self._ms(device_ns), self._ms(self_ns))

    def _ms(self, ns: float) -> float:
        """ms a step."""
        return float(ns) / NS_PER_MS / self.count

    def _held_by_kernel(self, part: Part, kernel: int) -> float:
        return float(part.row_weight[self.trace.name[part.rows] == kernel].sum())

    def _kernel_level(self, part: Part, kernel: int) -> Level:
        held = self._held_by_kernel(part, kernel)
        return Level(self.trace.names[kernel], "kernel", held / self.scene.window, self._ms(held), 0.0)

    def _call(self, group: int, sums: Weights, inclusive: Weights) -> Level | None:
        """The runtime call that holds most of what an operator holds: the leaf below it."""
        groups = self.groups
        if groups.kind[group] == Kind.RUNTIME:
            return None
        rows = groups.rows[self._below(group)[groups.rows] & (self.scene.host_kind[groups.rows] == Kind.RUNTIME)]
        if not len(rows):
            return None
        held = np.bincount(groups.code[rows], inclusive[rows], len(groups))
        top = int(held.argmax())
        mine = rows[groups.code[rows] == top]
        if held[top] < HOLDS * sums[group]:
            return None
        return self._level(top, float(held[top]), float(self.host.below(self.launched)[mine].sum()),
                           float(self.scene.self_ns[mine].sum()))

    def _line(self, row: int) -> str:
        """The innermost Python frame of the program itself around a row."""
        for i in reversed(self.host.path(row)):
            if self.scene.host_kind[i] == Kind.PYTHON and not self.groups.library[self.groups.code[i]]:
                return self.trace.name_of(int(self.host.row[i]))
        return ""

    # -- what comes next
    def _others(self, part: Part, group: int | None, kernel: int | None) -> tuple[tuple[str, float], ...]:
        """The next heaviest names, each with only what it holds itself."""
        device = part.about in PART_KINDS
        if device and (kernel is not None or not self.groups.operators.any() or self._replayed(part)):
            held = self._by_kernel(part.rows, part.row_weight)
            held.pop(self.trace.names[kernel] if kernel is not None else "", None)
        else:
            held = self._by_owner(part, group)
            if device:
                loose = self.host.index(self.trace.launch[part.rows]) < 0
                for name, ns in self._by_kernel(part.rows[loose], part.row_weight[loose]).items():
                    held[name] = held.get(name, 0.0) + ns
            else:
                held[NOTHING] = part.loose
                if group is not None:
                    held[NO_ROWS] = self._in_marks_only(part)
        first = sorted(held.items(), key=lambda item: -item[1])[:OTHERS]
        shown = tuple((name, ns / self.scene.window) for name, ns in first if ns > 0)
        return shown or (("everything else", 0.0),)

    def _by_kernel(self, rows: Ints, ns: Ints) -> dict[str, float]:
        return _heaviest(self.trace.names, self.trace.name[rows], ns)

    def _by_owner(self, part: Part, group: int | None) -> dict[str, float]:
        """ns by the innermost operator (where there is none, by the innermost frame, span or call), a group
        left out."""
        groups = self.groups
        rows = np.flatnonzero(part.weight > 0)
        if group is not None:
            rows = rows[~self._below(group)[rows]]
        owner = self.host.nearest(rows, (groups.nameable & groups.operators)[groups.code])
        owner = np.where(owner >= 0, owner, self.host.nearest(rows, groups.nameable[groups.code]))
        known = owner >= 0
        return _heaviest(groups.label, groups.code[owner[known]], part.weight[rows[known]])

    def _in_marks_only(self, part: Part) -> float:
        """ns of host time inside the marks of steps and in no row below them."""
        if part.about in PART_KINDS or part.about in _BY_LAUNCH:
            return 0.0
        return float(part.weight[self.groups.is_step[self.groups.code]].sum())


def _heaviest(labels: tuple[str, ...], code: Ints | Indices, ns: Ints | Weights) -> dict[str, float]:
    """The heaviest names with their sums, some more than are shown."""
    if not len(code):
        return {}
    held = np.bincount(code, ns)
    order = np.argsort(-held, kind="stable")[: 2 * OTHERS]
    return {labels[i]: float(held[i]) for i in order.tolist() if held[i] > 0}

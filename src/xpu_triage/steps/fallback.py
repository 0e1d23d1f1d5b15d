"""Operators that ran on a CPU while the model is on the device, seen at their shape: data comes down, the
operator runs on the host, the result goes up."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ..trace import FIRST_DEVICE_KIND, Ints, Kind
from .host import Indices
from .intervals import Bools, covered_between, total_within, uncovered, union_of
from .patterns import CONTROL_CPU, COPY_DIRECTION, NOT_COMPUTE, OPERATOR, OWN_OPERATOR
from .scene import Scene

LONE_NS = 200_000
"""Shortest host work that is called a fallback on its own: below it, preparing inputs with a few operators
looks alike."""

SEVERAL_NS = 1_000_000
"""Shortest work in which several operators share the time and none holds half of it."""

DISPATCH_NS = 20_000
"""Host time of an operator that merely dispatches; what stays below is never one of many small fallbacks."""

UPLOAD_RATIO = 10
"""A copy up that takes this much longer than the copy down before it carries new data (a prepared batch after
the read of a token or a loss), not the result of what came down."""

SMALL_COPY_NS = 5_000
"""A copy of this length carries next to nothing: reading a token back, or putting up a few indices, takes 1–5 µs."""

COMPUTED_PER_COPIED = 10_000
"""Beyond `SMALL_COPY_NS`, a copy next to an operator takes at least its host time divided by this: a CPU does not
compute longer on what crosses the bus in a moment."""

DOUBT_SHARE = 0.02
"""Share of the window from which on it is said that host work on few numbers could be a fallback."""

UNTOLD_SHARE = 0.15
"""Share of the window from which on it is said that operators on the host could be a fallback without copies: that at
which a cause counts."""

LOADER = re.compile(r"data_?loader|collate|Dataset", re.I)
"""Inside these, operators on host tensors prepare data that was never on the device."""


@dataclass(frozen=True, eq=False)
class Fallbacks:
    """Stretches in which an operator runs on a CPU for a model on the device, their copies included, sorted
    by start.

    start, end   int64 ns
    name         the operator of each
    doubt        what was taken for host work and could be one, in words; else empty
    """

    start: Ints
    end: Ints
    name: tuple[str, ...]
    doubt: str = ""

    def share_of(self, left: Ints, right: Ints) -> Ints:
        """ns of each interval that lies inside a fallback."""
        start, end = union_of(self.start, self.end)
        return covered_between(start, end, left, right)

    def total(self, left: int, right: int, name: str | None = None) -> int:
        """ns of [left, right] inside fallbacks, of all operators or of one."""
        mine = np.array([name is None or n == name for n in self.name], np.bool_)
        start, end = union_of(self.start[mine], self.end[mine])
        return int(covered_between(start, end, np.array([left]), np.array([right]))[0])

    def heaviest(self, left: int, right: int) -> str | None:
        totals = {name: self.total(left, right, name) for name in dict.fromkeys(self.name)}
        name = max(totals, key=lambda n: totals[n], default=None)
        return name if name is not None and totals[name] > 0 else None


def cannot_show(scene: Scene) -> str:
    """Why this trace could not show a fallback if there was one; empty where it could."""
    trace = scene.trace
    if why := trace.cannot.get("fallback.op"):
        return why
    if not trace.on_device.any():
        return "no device rows: whether the model is on a device cannot be seen"
    if not scene.host_rows(OPERATOR, Kind.HOST_OP).any():
        return "no operator rows: device and runtime calls alone do not tell where an operator ran"
    copies = trace.kind == Kind.COPY
    if (scene.copies_down | scene.copies_up).any():
        return ""
    if copies.any() and not scene.names.rows(COPY_DIRECTION, Kind.COPY).any():
        return "the copies do not say their direction"
    return "no copies between host and device in the capture: a fallback's copies would not be seen either"


def without_copies(scene: Scene) -> str:
    """Why host work could be a fallback all the same; empty where nothing suggests it.

    An operator that nowhere launches device work holds the host for long, and no copy that could carry its data goes
    one of the two ways that it would go. On memory that host and device share a fallback copies nothing, and a trace
    does not say whose tensors an operator works on.
    """
    host, trace = scene.host, scene.trace
    own = scene.host_rows(lambda n: OWN_OPERATOR.match(n) and not NOT_COMPUTE.search(n), Kind.HOST_OP)
    launching = np.unique(scene.host_name[own & scene.launched_below])
    if not len(launching):  # without such links no operator is seen to launch anything
        return ""
    in_loader = host.around(scene.host_rows(LOADER, Kind.HOST_OP, Kind.PYTHON, Kind.ANNOTATION)) >= 0
    own &= ~in_loader & (trace.dur[host.row] >= LONE_NS) & ~np.isin(scene.host_name, launching)
    rows = host.row[own & np.isin(trace.thread[host.row], scene.feeding_threads)]
    held = total_within(trace.start[rows], scene.end[rows], scene.left, scene.right)
    if held < UNTOLD_SHARE * scene.window:
        return ""
    longest = int(rows[trace.dur[rows].argmax()])
    name = trace.name_of(longest)
    up, down = (bool(_carries(scene, np.flatnonzero(way), trace.dur[longest]).any())
                for way in (scene.copies_up, scene.copies_down))
    if up and down:
        return ""
    way = "either way" if not (up or down) else "down to the host" if up else "up to the device"
    return (f"{name} runs on the host for {held / scene.window:.0%} of the window and launches nothing, and no copy "
            f"that could carry its data goes {way}: work of the host on its own tensors, or, on memory that host and "
            "device share, a fallback, which would leave no copies")


def find_fallbacks(scene: Scene) -> Fallbacks:
    """Every stretch of the capture in which an operator ran on a CPU, on the host or on the device's own."""
    on_host, doubt = _on_host(scene)
    found = [on_host, _on_control_cpu(scene)]
    start = np.concatenate([f[0] for f in found])
    end = np.concatenate([f[1] for f in found])
    name = [n for f in found for n in f[2]]
    order = np.argsort(start, kind="stable")
    return Fallbacks(start[order], end[order], tuple(name[i] for i in order.tolist()), doubt)


_Found = tuple[Ints, Ints, list[str]]
_NOTHING: _Found = (np.zeros(0, np.int64), np.zeros(0, np.int64), [])


def alone_on_control_cpu(scene: Scene) -> tuple[Ints, Ints, Ints]:
    """The kernels that the profiler says ran on the device's control CPU, where no core of that device computes beside
    them: starts, ends, and the row that each piece is of. What runs in the shadow of other work (a task on a stream of
    its own) holds nothing up."""
    trace, on_cpu = scene.trace, scene.names.rows(CONTROL_CPU, Kind.KERNEL)
    parts = [(np.zeros(0, np.int64),) * 3]
    for device in np.unique(trace.device[on_cpu]).tolist():
        here = trace.device == device
        mine, cores = np.flatnonzero(on_cpu & here), np.flatnonzero((trace.kind == Kind.KERNEL) & ~on_cpu & here)
        start, end, which = uncovered(trace.start[mine], scene.end[mine],
                                      *union_of(trace.start[cores], scene.end[cores]))
        parts.append((start, end, mine[which]))
    start, end, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    return start, end, rows


def _on_control_cpu(scene: Scene) -> _Found:
    """Those, by the operator that launched them."""
    trace, host = scene.trace, scene.host
    start, end, rows = alone_on_control_cpu(scene)
    if not len(rows):
        return _NOTHING
    operator = host.nearest(host.index(trace.launch[rows]), scene.host_rows(OPERATOR, Kind.HOST_OP))
    named = np.where(operator >= 0, host.row[np.maximum(operator, 0)], rows) if len(host) else rows
    return start, end, [trace.name_of(row) for row in named.tolist()]


@dataclass(frozen=True, eq=False)
class _Calls:
    """Calls that hand work to a device, as forest indices in order, and what kind of work."""

    index: Ints
    first_copy: Ints
    """Trace row of the first device row that each launched."""
    down: Bools
    up: Bools
    kernel: Bools


def _launch_calls(scene: Scene) -> _Calls:
    trace, host = scene.trace, scene.host
    device = np.flatnonzero((trace.kind >= FIRST_DEVICE_KIND) & (trace.launch >= 0))
    index = host.index(trace.launch[device])
    device, index = device[index >= 0], index[index >= 0]
    is_call = np.zeros(len(host), np.bool_)
    is_call[index] = True
    calls, which = np.flatnonzero(is_call), (np.cumsum(is_call) - 1)[index]
    first = np.full(len(calls), len(trace), np.int64)
    np.minimum.at(first, which, device)

    def any_of(mask: Bools) -> Bools:
        return np.bincount(which, mask[device], len(calls)) > 0

    kernels = (trace.kind == Kind.KERNEL) | (trace.kind == Kind.COMM)
    return _Calls(calls, first, any_of(scene.copies_down), any_of(scene.copies_up), any_of(kernels))


@dataclass(frozen=True, eq=False)
class _Stretches:
    """Host time before each copy up, back to the call before it on the same thread; one entry a copy up.

    up           int64, place of the call in `_Calls`
    index        int64, its forest index
    before       int64, place of the launching call before it
    came_down    bool, that call, on the same thread, brought data down and did nothing else
    left, span   int64 ns, start (on the forest's shifted clock) and length of the stretch
    """

    up: Ints
    index: Ints
    before: Ints
    came_down: Bools
    left: Ints
    span: Ints

    def at(self, chosen: Ints) -> _Stretches:
        return _Stretches(self.up[chosen], self.index[chosen], self.before[chosen], self.came_down[chosen],
                          self.left[chosen], self.span[chosen])


def _on_host(scene: Scene) -> tuple[_Found, str]:
    """Operators on the host between a copy down and a copy up, or with the copy up inside them; and the doubt."""
    calls = _launch_calls(scene)
    if not (calls.up & ~calls.kernel).any():
        return _NOTHING, ""
    found = _heaviest_operators(scene, _stretches(scene, calls))
    if found is None:
        return _NOTHING, ""
    stretch, row, most, together = found
    whole = _holds_its_copies(scene, calls, stretch, row, most)
    shaped = _between_copies(scene, calls, stretch, row, most, together) & ~whole
    own = scene.host_rows(OWN_OPERATOR, Kind.HOST_OP)[row]
    apart = shaped & own & _carries(scene, calls.first_copy[stretch.before], together)
    apart &= _carries(scene, calls.first_copy[stretch.up], together)
    begin, finish = _extent(scene, calls, stretch, row, whole)
    take = whole | apart
    names = [scene.trace.names[i] for i in scene.host_name[row[take]].tolist()]
    return (begin[take], finish[take], names), _doubt(scene, row[shaped & own & ~apart], most[shaped & own & ~apart])


def _carries(scene: Scene, copy: Ints, computed: Ints | np.int64) -> Bools:
    """Whether a copy carries as much as an operator of that host time would take or give."""
    accounted = (scene.trace.dur[copy] - SMALL_COPY_NS) * COMPUTED_PER_COPIED
    enough: Bools = accounted >= computed
    return enough


def _doubt(scene: Scene, row: Ints, ns: Ints) -> str:
    """Why a fallback is not excluded: operators between copies that carry too little to tell."""
    if ns.sum() < DOUBT_SHARE * scene.window:
        return ""
    name: str = scene.trace.names[scene.host_name[row[int(ns.argmax())]]]
    return (f"{name} runs on the host between a small copy down and a small copy up: that is host work on a few "
            "numbers read back, and is taken as such; a fallback on a tiny tensor would look the same")


def _stretches(scene: Scene, calls: _Calls) -> _Stretches:
    host = scene.host
    thread = scene.trace.thread[host.row]
    up = np.flatnonzero(calls.up & ~calls.kernel)
    index = calls.index[up]
    blocking = np.flatnonzero(scene.blocked_in == np.arange(len(host)))
    holds_up = np.searchsorted(index, host.last[blocking]) > np.searchsorted(index, blocking, "right")
    marks = np.union1d(calls.index, blocking[~holds_up])
    mark = marks[np.maximum(np.searchsorted(marks, index) - 1, 0)]
    has_mark = (mark < index) & (thread[mark] == thread[index])
    left = np.where(has_mark, np.minimum(host.end[mark], host.start[index]), thread[index] * host.shift)
    before = up - 1
    came_down = (before >= 0) & calls.down[before] & ~calls.kernel[before]
    came_down &= thread[calls.index[before]] == thread[index]
    return _Stretches(up, index, before, came_down, left, host.start[index] - left)


def _heaviest_operators(scene: Scene, stretch: _Stretches) -> tuple[_Stretches, Ints, Ints, Ints] | None:
    """The stretches that any operator computes in, with the one that holds most of each.

    Returns the stretches, the operator's heaviest row (forest index), the ns that it holds, and the ns of all
    operators together; None where there is no such stretch.
    """
    host, names = scene.host, len(scene.trace.names)
    # the forest's own clock already carries the thread
    which, owner, ns = host.pieces(np.zeros(len(stretch.left), np.int64), stretch.left, stretch.left + stretch.span)
    operator = _operator_of(scene, owner, stretch.index[which])
    which, ns, operator = which[operator >= 0], ns[operator >= 0], operator[operator >= 0]
    if not len(which):
        return None
    groups, of = np.unique(which * np.int64(names) + scene.host_name[operator], return_inverse=True)
    held = np.bincount(of, ns).astype(np.int64)
    together = np.bincount(which, ns, len(stretch.left)).astype(np.int64)
    # of several writes to one place the last, and so the longest, stays
    longest, heaviest = np.zeros(len(groups), np.int64), np.full(len(stretch.left), -1, np.int64)
    by_length, by_held = np.argsort(ns, kind="stable"), np.argsort(held, kind="stable")
    longest[of[by_length]] = operator[by_length]
    heaviest[groups[by_held] // names] = by_held
    chosen = np.flatnonzero(heaviest >= 0)
    group = heaviest[chosen]
    return stretch.at(chosen), longest[group], held[group], together[chosen]


def _holds_its_copies(scene: Scene, calls: _Calls, stretch: _Stretches, row: Ints, most: Ints) -> Bools:
    """Operators with the copy up inside them, and the copy down too; or that launch nothing else and compute long."""
    last = scene.host.last[row]
    downs, kernels = calls.index[calls.down], calls.index[calls.kernel]
    down_inside = np.searchsorted(downs, stretch.index) > np.searchsorted(downs, row)
    kernel_inside = np.searchsorted(kernels, last) > np.searchsorted(kernels, row)
    only_up = ~kernel_inside & (most >= LONE_NS) & scene.host_rows(OWN_OPERATOR, Kind.HOST_OP)[row]
    only_up &= _carries(scene, calls.first_copy[stretch.up], most)
    shape = (down_inside & (most >= DISPATCH_NS)) | only_up
    return np.asarray((row < stretch.index) & (stretch.index < last) & (2 * most >= stretch.span) & shape)


def _between_copies(scene: Scene, calls: _Calls, stretch: _Stretches, row: Ints, most: Ints, together: Ints) -> Bools:
    """Operators that stand between a copy down and a copy up, in the step that the data was read in, and are not the
    preparation of a new batch."""
    trace, host = scene.trace, scene.host
    inside = (row < stretch.index) & (stretch.index < host.last[row])
    down, up = calls.first_copy[stretch.before], calls.first_copy[stretch.up]
    in_loader = host.around(scene.host_rows(LOADER, Kind.HOST_OP, Kind.PYTHON, Kind.ANNOTATION))[row] >= 0
    good = ~inside & stretch.came_down & ~in_loader & (trace.dur[up] <= UPLOAD_RATIO * trace.dur[down])
    good &= _same_step(scene, host.row[row], trace.launch[down]) & (most >= DISPATCH_NS)
    good &= (2 * most >= stretch.span) | ((2 * together >= stretch.span) & (together >= SEVERAL_NS))
    return np.asarray(good & ((most >= LONE_NS) | _many_small(scene, good, host.row[row], most)))


def _operator_of(scene: Scene, owner: Indices, up: Ints) -> Ints:
    """The computing operator that each piece of host time belongs to, as forest index, or -1.

    Of the operators around the piece (no Python frame or annotation between) the innermost that also holds
    the copy up; else the innermost.
    """
    host = scene.host
    is_op = (scene.host_kind == Kind.HOST_OP) | (scene.host_kind == Kind.RUNTIME)
    computes = scene.host_rows(lambda n: OPERATOR.match(n) and not NOT_COMPUTE.search(n), Kind.HOST_OP)
    innermost = np.full(len(owner), -1, np.int64)
    holding = np.full(len(owner), -1, np.int64)
    at = owner.copy()
    todo = np.flatnonzero(at >= 0)
    while len(todo):
        todo = todo[is_op[at[todo]]]
        row = at[todo]
        good = computes[row]
        new = todo[good & (innermost[todo] < 0)]
        innermost[new] = at[new]
        inside = good & (row < up[todo]) & (up[todo] < host.last[row])
        holding[todo[inside]] = row[inside]
        todo = todo[~inside]
        at[todo] = host.parent[at[todo]]
        todo = todo[at[todo] >= 0]
    return np.where(holding >= 0, holding, innermost)


def _same_step(scene: Scene, operator: Ints, down_call: Ints) -> Bools:
    """Whether an operator runs in the step that its data was read in. Where steps are not annotated nobody
    knows: yes."""
    trace = scene.trace
    if scene.steps.method != "annotation":
        return np.ones(len(operator), np.bool_)
    same: Bools = scene.step_of(trace.start[operator]) == scene.step_of(trace.start[down_call])
    return same


def _many_small(scene: Scene, among: Bools, operator: Ints, ns: Ints) -> Bools:
    """Whether one operator's small pieces add up, within their step, to what would count as one large
    piece."""
    trace = scene.trace
    step = scene.step_of(trace.start[operator]) + 1
    _, of = np.unique(step * np.int64(len(trace.names)) + trace.name[operator], return_inverse=True)
    return np.bincount(of, ns * among)[of] >= LONE_NS


def _extent(scene: Scene, calls: _Calls, stretch: _Stretches, row: Ints, whole: Bools) -> tuple[Ints, Ints]:
    """From the device's start of the copy down to its end of the copy up. Not from the call: that waits for the queue.

    Where the copies lie inside the operator (`whole`), from the first of them, or the operator's start, to its end.
    """
    trace, op = scene.trace, scene.host.row[row]
    copy_up, copy_down = calls.first_copy[stretch.up], calls.first_copy[stretch.before]
    downs = np.flatnonzero(calls.down)
    first = np.searchsorted(calls.index[downs], row)
    inside = first < np.searchsorted(calls.index[downs], stretch.index)
    inner = calls.first_copy[downs[np.minimum(first, len(downs) - 1)]] if len(downs) else copy_down
    from_op = np.where(inside, np.maximum(trace.start[inner], trace.start[op]), trace.start[op])
    begin = np.where(whole, from_op, trace.start[copy_down])
    finish = np.where(whole, np.maximum(scene.end[copy_up], scene.end[op]), scene.end[copy_up])
    return begin, np.maximum(finish, begin)

"""Operators that ran on a CPU while the model is on the device, seen at their shape: data comes down, the
operator runs on the host, the result goes up."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ..trace import FIRST_DEVICE_KIND, Ints, Kind
from .host import Indices
from .intervals import Bools, covered_between, union_of
from .patterns import CONTROL_CPU, COPY_DIRECTION, NOT_COMPUTE, OPERATOR
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

LOADER = re.compile(r"data_?loader|collate|Dataset", re.I)
"""Inside these, operators on host tensors prepare data that was never on the device."""


@dataclass(frozen=True, eq=False)
class Fallbacks:
    """Stretches in which an operator runs on a CPU for a model on the device, their copies included, sorted
    by start.

    start, end   int64 ns
    name         the operator of each
    """

    start: Ints
    end: Ints
    name: tuple[str, ...]

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
    if not trace.on_device.any():
        return "no device rows: whether the model is on a device cannot be seen"
    if not scene.host_rows(OPERATOR, Kind.HOST_OP).any():
        return "no operator rows: device and runtime calls alone do not tell where an operator ran"
    copies = trace.kind == Kind.COPY
    told = scene.copies_down | scene.copies_up | scene.names.rows(COPY_DIRECTION, Kind.COPY)
    return "" if told.any() or not copies.any() else "the copies do not say their direction"


def find_fallbacks(scene: Scene) -> Fallbacks:
    """Every stretch of the capture in which an operator ran on a CPU, on the host or on the device's own."""
    found = [_on_host(scene), _on_control_cpu(scene)]
    start = np.concatenate([f[0] for f in found])
    end = np.concatenate([f[1] for f in found])
    name = [n for f in found for n in f[2]]
    order = np.argsort(start, kind="stable")
    return Fallbacks(start[order], end[order], tuple(name[i] for i in order.tolist()))


_Found = tuple[Ints, Ints, list[str]]
_NOTHING: _Found = (np.zeros(0, np.int64), np.zeros(0, np.int64), [])


def _on_control_cpu(scene: Scene) -> _Found:
    """Kernels that the profiler says ran on the device's control CPU, by the operator that launched them."""
    trace, host = scene.trace, scene.host
    rows = np.flatnonzero(scene.names.rows(CONTROL_CPU, Kind.KERNEL))
    if not len(rows):
        return _NOTHING
    operator = host.nearest(host.index(trace.launch[rows]), scene.host_rows(OPERATOR, Kind.HOST_OP))
    named = np.where(operator >= 0, host.row[np.maximum(operator, 0)], rows) if len(host) else rows
    names = [trace.name_of(row) for row in named.tolist()]
    return trace.start[rows], scene.end[rows], names


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
    calls, which = np.unique(index, return_inverse=True)
    first = np.full(len(calls), len(trace), np.int64)
    np.minimum.at(first, which, device)

    def any_of(mask: Bools) -> Bools:
        return np.bincount(which, mask[device], len(calls)) > 0

    kernels = (trace.kind == Kind.KERNEL) | (trace.kind == Kind.COMM)
    return _Calls(calls, first, any_of(scene.copies_down), any_of(scene.copies_up), any_of(kernels))


def _on_host(scene: Scene) -> _Found:
    """Operators on the host between a copy down and a copy up, or with the copy up inside them."""
    trace, host = scene.trace, scene.host
    calls = _launch_calls(scene)
    ups = np.flatnonzero(calls.up & ~calls.kernel)
    if not len(ups):
        return _NOTHING
    up = calls.index[ups]
    thread = trace.thread[host.row]
    # the call before, on the same thread: the host's own work lies between its return and the copy up
    blocking = np.flatnonzero(scene.blocked_in == np.arange(len(host)))
    blocking = blocking[np.searchsorted(up, host.last[blocking]) == np.searchsorted(up, blocking, "right")]
    marks = np.union1d(calls.index, blocking)
    mark = marks[np.maximum(np.searchsorted(marks, up) - 1, 0)]
    has_mark = (mark < up) & (thread[mark] == thread[up])
    before = ups - 1
    has_call = (before >= 0) & (thread[calls.index[before]] == thread[up])
    came_down = has_call & calls.down[before] & ~calls.kernel[before]
    left = np.where(has_mark, np.minimum(host.end[mark], host.start[up]), thread[up] * host.shift)
    which, owner, ns = host.pieces(np.zeros(len(up), np.int64), left, host.start[up])
    operator = _operator_of(scene, owner, up[which])
    keep = operator >= 0
    if not keep.any():
        return _NOTHING
    which, operator, ns = which[keep], operator[keep], ns[keep]
    span = host.start[up] - left
    # the operator name that holds most of each stretch, and all operators together
    code = which * np.int64(len(trace.names)) + scene.host_name[operator]
    groups, of = np.unique(code, return_inverse=True)
    held = np.bincount(of, ns).astype(np.int64)
    heaviest_row = np.zeros(len(groups), np.int64)
    order = np.argsort(ns, kind="stable")
    heaviest_row[of[order]] = operator[order]
    candidate = groups // len(trace.names)
    all_held = np.bincount(which, ns, len(up)).astype(np.int64)
    order = np.argsort(held, kind="stable")
    best = np.full(len(up), -1, np.int64)
    best[candidate[order]] = order
    chosen = np.flatnonzero(best >= 0)
    most, row = held[best[chosen]], heaviest_row[best[chosen]]
    up, ups, span, all_held = up[chosen], ups[chosen], span[chosen], all_held[chosen]
    before, came_down = before[chosen], came_down[chosen]
    nested = (row < up) & (up < host.last[row])
    downs, kernels = calls.index[calls.down], calls.index[calls.kernel]
    down_inside = nested & (np.searchsorted(downs, up) > np.searchsorted(downs, row))
    kernel_inside = np.searchsorted(kernels, host.last[row]) > np.searchsorted(kernels, row)
    half = 2 * most >= span
    whole = nested & half & ((down_inside & (most >= DISPATCH_NS)) | (~kernel_inside & (most >= LONE_NS)))
    up_ns, down_ns = trace.dur[calls.first_copy[ups]], trace.dur[calls.first_copy[before]]
    in_loader = host.around(scene.host_rows(LOADER, Kind.HOST_OP, Kind.PYTHON, Kind.ANNOTATION))[row] >= 0
    same_step = _same_step(scene, host.row[row], trace.launch[calls.first_copy[before]])
    apart = ~nested & came_down & same_step & ~in_loader & (up_ns <= UPLOAD_RATIO * down_ns)
    apart &= most >= DISPATCH_NS
    apart &= half | ((2 * all_held >= span) & (all_held >= SEVERAL_NS))
    apart &= (most >= LONE_NS) | _many_small(scene, apart, host.row[row], most)
    begin, finish = _extent(scene, calls, row, up, whole, ups, before)
    take = whole | apart
    names = [trace.names[i] for i in scene.host_name[row[take]].tolist()]
    return begin[take], finish[take], names


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
    return scene.step_of(trace.start[operator]) == scene.step_of(trace.start[down_call])


def _many_small(scene: Scene, among: Bools, operator: Ints, ns: Ints) -> Bools:
    """Whether one operator's small pieces add up, within their step, to what would count as one large
    piece."""
    trace = scene.trace
    step = scene.step_of(trace.start[operator]) + 1
    _, of = np.unique(step * np.int64(len(trace.names)) + trace.name[operator], return_inverse=True)
    return np.bincount(of, ns * among)[of] >= LONE_NS


def _extent(scene: Scene, calls: _Calls, row: Ints, up: Ints, whole: Bools, ups: Ints,
            before: Ints) -> tuple[Ints, Ints]:
    """From the device's start of the copy down to its end of the copy up. Not from the call: that waits for
    the queue.

    Where the copies lie inside the operator (`whole`), from the first of them, or the operator's start, to
    its end.
    """
    trace, host = scene.trace, scene.host
    copy_up, copy_down = calls.first_copy[ups], calls.first_copy[before]
    down_at = np.flatnonzero(calls.down)
    first_down = np.searchsorted(calls.index[down_at], row)
    inside = first_down < np.searchsorted(calls.index[down_at], up)
    inner = copy_down
    if len(down_at):
        inner = calls.first_copy[down_at[np.minimum(first_down, len(down_at) - 1)]]
    op = host.row[row]
    from_op = np.where(inside, np.maximum(trace.start[inner], trace.start[op]), trace.start[op])
    begin = np.where(whole, from_op, trace.start[copy_down])
    finish = np.where(whole, np.maximum(scene.end[copy_up], scene.end[op]), scene.end[copy_up])
    return begin, np.maximum(finish, begin)

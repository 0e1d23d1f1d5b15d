"""Why a device is idle: every idle interval gets exactly one cause, so that the causes add up to the idle.

A gap lies between two pieces of device work. Its *host part* runs from its start until the call that launches
the next piece returns (that call may itself be the slow one), its *stall* from there to the gap's end. What
the launching thread does in the host part names the cause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace import BEFORE_CAPTURE, NOT_LINKED, Ints
from .fallback import Fallbacks
from .gap_facts import FIRST_USE_NS
from .host import Indices
from .intervals import Bools, covered_between, union_of
from .results import CAUSES, Cause, Gaps
from .scene import Scene
from .utilization import DeviceTime, IdleSpans, idle_spans

STALL_NS = 200_000
"""A kernel that was launched starts on a dry device within 20 µs (50–100 on some): ten times that is no
latency but work that the capture lacks. Between 50 µs and 2 ms no verdict on a real trace depends on it."""

BLOCKED_NS = 1_000_000
"""A synchronization returns within 100 µs of the last work (500 seen twice): a longer wait on a device that
looks dry is a wait for work that was not recorded. Between 0.3 and 3 ms no verdict depends on it."""

WORK_NS = 1_000_000
"""Eager launches come every 20–500 µs and host work takes milliseconds, with few gaps between 0.5 and 1
ms."""

LEAF_NS = 200_000
"""One operator or frame that holds half of a gap, and is this long, is the cause and not the launching: by its own
time, or with all that it calls where nothing in it launches or waits."""

BESIDE = 0.1
"""Devices that work at the same time for no more than this part of their work take turns. Judgement: what overlaps is a
copy between them, or the next batch's first kernels."""

RECURS_STEPS = 3
"""From this many steps on it can be seen that a call is slow in all of them and not in the first."""

_NUMBER = {cause: i for i, cause in enumerate(CAUSES)}


@dataclass(frozen=True, eq=False)
class GapWork:
    """Gaps of one device with what the host did in them.

    gaps             the gaps, classified
    returned         int64 ns, end of each gap's host part, within the gap
    gap, owner, ns   one entry a piece of host time: number of the gap, forest index of the innermost row (-1: none)
    """

    gaps: Gaps
    returned: Ints
    gap: Indices
    owner: Indices
    ns: Ints


def classify(scene: Scene, time: DeviceTime, fallbacks: Fallbacks, left_out: Ints | None = None) -> GapWork:
    """Every gap of one device inside the window with its cause. `left_out`: rows of the same device that are not to
    count as its work."""
    spans = idle_spans(time, scene.left, scene.right)
    return _Classifier(scene, time, spans, fallbacks, np.zeros(0, np.int64) if left_out is None else left_out).result()


class _Classifier:
    """The evidence of all gaps of one device, column by column, and the rules over it."""

    def __init__(self, scene: Scene, time: DeviceTime, spans: IdleSpans, fallbacks: Fallbacks, left_out: Ints) -> None:
        trace, host = scene.trace, scene.host
        self.scene, self.facts, self.spans, self.time, self.fallbacks = scene, scene.gap_facts, spans, time, fallbacks
        self.left_out = left_out
        self.count = len(spans.start)
        self.length = spans.end - spans.start
        self.launch = np.where(spans.after >= 0, trace.launch[spans.after], NOT_LINKED)
        linked = self.launch >= 0
        self.call = np.where(linked, self.launch, 0)  # safe to index with; meaningless where not linked
        returned = np.where(linked, scene.end[self.call] if len(trace) else 0, spans.end)
        returned = np.where(self.launch == BEFORE_CAPTURE, spans.start, returned)
        self.returned = np.clip(returned, spans.start, spans.end)
        self.queued = returned <= spans.start
        self.stall = np.where(linked | (self.launch == BEFORE_CAPTURE), spans.end - self.returned, 0)
        self._follow_host()
        self.row = np.where(self.owner >= 0, host.row[self.owner], -1) if len(host) else self.owner

    def _follow_host(self) -> None:
        """Who held the launching thread in the host part of each gap. A thread without rows for over half of
        it waited for the main one, which is then followed instead."""
        scene, host = self.scene, self.scene.host
        launches = scene.launches_of(self.time.rows)
        main = int(launches.argmax()) if launches.sum() else scene.main_thread
        thread = np.where(self.launch >= 0, scene.trace.thread[self.call], main).astype(np.int64)
        self.gap, self.owner, self.ns = host.pieces(thread, self.spans.start, self.returned)
        asleep = self._share(self.owner < 0) * 2 > self.returned - self.spans.start
        if (asleep & (thread != main)).any():
            thread = np.where(asleep, main, thread)
            self.gap, self.owner, self.ns = host.pieces(thread, self.spans.start, self.returned)
        self.thread = thread

    def _share(self, mask: Bools) -> Ints:
        """ns of each gap in pieces that the mask marks."""
        return np.bincount(self.gap, self.ns * mask, self.count).astype(np.int64)

    def result(self) -> GapWork:
        cause, in_fallback, elsewhere = self._rules()
        spans = self.spans
        gaps = Gaps(start=spans.start, end=spans.end, cause=cause.astype(np.int8), host_row=self.leaf,
                    host_ns=self.leaf_ns, sync_row=self.sync, before=spans.before, after=spans.after,
                    launch=self.launch, fallback=(cause == _NUMBER[Cause.HOST_OP]) & in_fallback,
                    elsewhere=(cause == _NUMBER[Cause.PEER_WAIT]) & elsewhere)
        return GapWork(gaps, self.returned, self.gap, self.owner, self.ns)

    def _rules(self) -> tuple[Ints, Bools, Bools]:
        """The cause of every gap: the first rule that holds decides. And whether it lies in a fallback, and whether
        another device has the thread's work meanwhile."""
        facts, length = self.facts, self.length
        self._find_leaf()
        dried = self._find_sync()
        own_call = self.row == self.launch[self.gap]
        blocked = self._share((self._in_blocking & ~own_call).astype(np.bool_))
        work = (self.returned - self.spans.start) - blocked
        silent = self._share(self.row < 0)
        launching = (self.leaf == self.launch) & (self.leaf >= 0) & ~facts.copy_calls[self.leaf]
        one_leaf = facts.works[self.leaf] & ~facts.blocks[self.leaf] & ~launching
        one_leaf &= (self.leaf_ns >= LEAF_NS) & (2 * self.leaf_ns >= length)
        silent_ns = np.where((self.launch >= 0) | (self.spans.after < 0), self._longest_silence(), 0)
        one_frame = (silent_ns >= LEAF_NS) & (2 * silent_ns >= length)
        first_use = self._share(np.isin(self.row, self._first_calls()) | facts.compiling[self.owner])
        exchange = self._share(facts.exchanging[self.owner])
        waits = self._share(facts.waiting[self.owner])
        asking = facts.empty_passes(self.thread, self.spans.start, self.returned)
        asking[self._most(self._share(facts.operating[self.owner]))] = 0  # what runs operators is no empty pass
        in_fallback = 2 * self.fallbacks.share_of(self.spans.start, self.spans.end) >= length
        nothing_linked = (self.launch < 0) & (silent == self.returned - self.spans.start)
        other_device = self._most(self._elsewhere())
        # of devices that take turns each is dry while another works, however early its own work was launched
        turn = other_device & bool(other_device.any() and self._in_turns())
        rules = (
            # an operator seen to run on a CPU between its copies is seen, whatever else the capture lacks
            (Cause.HIDDEN, ((self._lost_launches() > 0) | self.scene.trace.incomplete) & ~in_fallback),
            (Cause.HIDDEN, (self.stall > STALL_NS) & self._most(self.stall) & ~turn),
            (Cause.TURNAROUND, self.queued & (self.stall <= STALL_NS)),
            (Cause.HIDDEN, (blocked > BLOCKED_NS) & self._most(blocked) & ~other_device),
            (Cause.PROFILER, self._most(self._profiler())),
            (Cause.FIRST_USE, self._most(first_use) & (length > FIRST_USE_NS)),
            # an engine that finds no request passes each empty pass on to its other ranks
            (Cause.NO_WORK, self._most(asking) & ~one_leaf & (length > LEAF_NS)),
            (Cause.PEER_WAIT, self._most(exchange) & (length > LEAF_NS)),
            (Cause.PEER_WAIT, other_device & (length > LEAF_NS)),
            (Cause.NO_WORK, self._most(waits) & (length > LEAF_NS)),
            (Cause.UNRECORDED, (work > WORK_NS) & self._most(silent)),
            (Cause.UNRECORDED, nothing_linked & ~dried),
            (Cause.HOST_OP, ((work > WORK_NS) & ~launching) | one_leaf | one_frame | in_fallback),
            (Cause.AFTER_SYNC, dried),
            (Cause.LAUNCHING, np.ones(self.count, np.bool_)))
        return np.select([rule for _, rule in rules], [_NUMBER[cause] for cause, _ in rules]), in_fallback, (
            other_device & ~self._most(exchange))

    def _first_calls(self) -> Ints:
        """Rows of the trace: calls that take their first-time toll. A slow launch of a kernel that ran before loads no
        module."""
        trace, rows, slow = self.scene.trace, self.time.rows, self.facts.slow_calls
        if not len(slow):
            return slow
        calls = trace.launch[rows]
        launched = np.isin(calls, slow)
        if launched.any():
            _, first = np.unique(trace.name[rows], return_index=True)
            is_first = np.zeros(len(rows), np.bool_)
            is_first[first] = True
            again = np.setdiff1d(calls[launched], calls[launched & is_first])
            slow = np.setdiff1d(slow, again)
        loads = slow[~np.isin(slow, calls)]
        every_step = [loads[trace.name[loads] == code] for code in np.unique(trace.name[loads]).tolist()]
        return np.setdiff1d(slow, np.concatenate([mine[self._recurs(mine)] for mine in every_step] or [loads[:0]]))

    def _recurs(self, calls: Ints) -> Bools:
        """Whether calls of one name come alike in most steps, each: what is paid in every step is no first use."""
        scene, count = self.scene, len(self.scene.steps.steps)
        none = np.zeros(len(calls), np.bool_)
        step = scene.step_of(scene.trace.start[calls])
        inside = step >= 0
        if count < RECURS_STEPS or not inside.any():
            return none
        ns = np.bincount(step[inside], scene.trace.dur[calls[inside]], count)
        even = ns >= np.median(ns[ns > 0]) / 2
        concentrated = 2 * ns[0] > ns.sum()
        return ~none if 2 * even.sum() > count and not concentrated else none

    def _elsewhere(self) -> Ints:
        """ns of each gap in which another device works on what the gap's thread launched."""
        spans, trace = self.spans, self.scene.trace
        own = union_of(trace.start[self.left_out], self.scene.end[self.left_out])
        worked = self.facts.worked_elsewhere(self.thread, spans.start, spans.end)
        return np.maximum(worked - covered_between(*own, spans.start, spans.end), 0)

    def _in_turns(self) -> bool:
        """Whether this device and the others hardly ever work at the same time: parts of one model, one after the
        other. Devices that share the work of a step do."""
        trace, time = self.scene.trace, self.time
        others = np.flatnonzero(trace.on_device & (trace.device != time.device))
        if not len(others):
            return False
        beside = covered_between(*union_of(trace.start[others], self.scene.end[others]), time.busy_start, time.busy_end)
        return bool(beside.sum() <= BESIDE * (time.busy_end - time.busy_start).sum())

    def _lost_launches(self) -> Ints:
        """Launches without device rows, from the launch of the work before each gap to that of the work after
        it, on the same thread: the device ran them in between."""
        trace, spans = self.scene.trace, self.spans
        out, lost = np.zeros(self.count, np.int64), self.facts.lost_starts
        if not lost:
            return out
        before = np.where(spans.before >= 0, trace.launch[spans.before], NOT_LINKED)
        left = np.where(before >= 0, trace.start[np.maximum(before, 0)], spans.start)
        right = np.where(self.launch >= 0, trace.start[self.call], spans.end)
        told = ((before >= 0) | (spans.before < 0)) & ((self.launch >= 0) | (spans.after < 0)) & (right > left)
        for thread in np.unique(self.thread).tolist():
            if thread in lost:
                between = np.searchsorted(lost[thread], right, "left") - np.searchsorted(lost[thread], left, "right")
                out += np.where(told & (self.thread == thread), np.maximum(between, 0), 0)
        return out

    def _most(self, ns: Ints) -> Bools:
        return 2 * ns > self.length

    def _find_leaf(self) -> None:
        """The one row that held the host longest in each gap, and for how long."""
        self.leaf, self.leaf_ns = np.full(self.count, -1, np.int64), np.zeros(self.count, np.int64)
        if not len(self.gap):
            return
        order = np.argsort(self.gap * np.int64(len(self.scene.host) + 1) + self.owner, kind="stable")
        gap, owner = self.gap[order], self.owner[order]
        new = np.flatnonzero(np.concatenate(([True], (gap[1:] != gap[:-1]) | (owner[1:] != owner[:-1]))))
        total = np.add.reduceat(self.ns[order], new)
        by_total = np.argsort(total, kind="stable")  # of several writes to one place the last and longest stays
        gap, owner = gap[new][by_total], owner[new][by_total]
        self.leaf[gap] = np.where(owner >= 0, self.scene.host.row[owner], -1) if len(self.scene.host) else -1
        self.leaf_ns[gap] = total[by_total]

    def _longest_silence(self) -> Ints:
        """ns, of each gap, in the one operator or frame that launches nothing and holds most of it, however many small
        rows it consists of."""
        out = np.zeros(self.count, np.int64)
        around = self.facts.silent_in[self.owner]
        inside = around >= 0
        if inside.any():
            code = self.gap[inside] * np.int64(len(self.scene.host) + 1) + around[inside]
            groups, of = np.unique(code, return_inverse=True)
            held = np.bincount(of, self.ns[inside]).astype(np.int64)
            np.maximum.at(out, groups // (len(self.scene.host) + 1), held)
        return out

    def _find_sync(self) -> Bools:
        """Gaps at whose start the launching thread was in a blocking call: the device ran dry because the
        host waited."""
        scene, host = self.scene, self.scene.host
        self._in_blocking = self.facts.blocking[self.owner]
        running = host.innermost(self.thread, self.spans.start)
        at = np.where(running >= 0, scene.blocked_in[running], -1) if len(host) else running
        dried = (at >= 0) & ~self.queued
        self.sync = np.where(dried, host.row[at], -1) if len(host) else np.full(self.count, -1, np.int64)
        return dried

    def _profiler(self) -> Ints:
        """ns of each gap's host part under the profiler's own rows."""
        return covered_between(*self.facts.overhead, self.spans.start, self.returned)

"""What each part of the window is to be blamed on: idle time on host rows, device time on the calls that
launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace import Ints, Kind
from .idle_causes import GapWork
from .intervals import Weights
from .patterns import EVENT_LOOP, is_wait
from .results import CAUSES, Cause
from .scene import Scene
from .utilization import PART_KINDS, DeviceTime


@dataclass(frozen=True, eq=False)
class Part:
    """One part of the window, its time laid on what is to blame.

    total        ns of the window
    per_step     int64 ns, one entry a step
    weight       float64 ns, one entry a host row in forest order; what no row can be blamed for is left out
    rows         int64, device rows that hold the time (device parts) or that follow the idle
    row_weight   int64 ns, one entry a row of `rows`
    events       how many gaps, device rows or host rows the time is spread over
    """

    about: str
    total: int
    per_step: Ints
    weight: Weights
    rows: Ints
    row_weight: Ints
    events: int

    @property
    def loose(self) -> float:
        """ns that no host row is to blame for."""
        return max(self.total - float(self.weight.sum()), 0.0)


def idle_part(scene: Scene, work: GapWork, cause: Cause) -> Part:
    """Idle time of one cause. A bubble is blamed on the call that waited, all other idle on what the host did
    meanwhile, and what came after the launch's return on the launch."""
    gaps, host, size = work.gaps, scene.host, len(scene.host)
    chosen = gaps.cause == CAUSES.index(cause)
    length = gaps.dur
    weight = np.zeros(size)
    if cause is Cause.AFTER_SYNC:
        _add(weight, host.index(gaps.sync_row[chosen]), length[chosen])
    else:
        use = chosen[work.gap] & (work.owner >= 0)
        if cause is Cause.HOST_OP:  # while the host waited no operator of its own ran
            use &= np.append(scene.blocked_in < 0, True)[work.owner]
        weight += np.bincount(work.owner[use], work.ns[use], size)
        _add(weight, host.index(gaps.launch[chosen]), (gaps.end - work.returned)[chosen])
    followed = chosen & (gaps.after >= 0)
    per_step = _by_step(scene, gaps.start[chosen], length[chosen])
    return Part(str(cause), int(length[chosen].sum()), per_step, weight, gaps.after[followed], length[followed],
                int(chosen.sum()))


def device_part(scene: Scene, time: DeviceTime, name: str) -> Part:
    """Device time of one kind, each row for what it adds to the union, on the calls that launched it."""
    trace = scene.trace
    mine = (trace.kind[time.rows] == PART_KINDS[name]) & (time.part > 0)
    rows, ns = time.rows[mine], time.part[mine]
    weight = np.zeros(len(scene.host))
    _add(weight, scene.host.index(trace.launch[rows]), ns)
    return Part(name, int(ns.sum()), time.parts[name], weight, rows, ns, len(rows))


def host_part(scene: Scene, thread: int) -> tuple[Part, float]:
    """Time of one host thread inside the window on the innermost rows, waits left out; and the share that
    waits."""
    host = scene.host
    held = np.where(scene.trace.thread[host.row] == thread, scene.self_ns, 0)
    idle = host.around(scene.host_rows(is_wait, Kind.PYTHON)) >= 0
    idle |= scene.host_rows(EVENT_LOOP, Kind.PYTHON) | (scene.blocked_in >= 0)
    waiting = float(held[idle].sum())
    held[idle] = 0
    rows = np.flatnonzero(held)
    per_step = _by_step(scene, np.maximum(scene.trace.start[host.row[rows]], scene.left), held[rows])
    none = np.zeros(0, np.int64)
    part = Part("host", int(held.sum()), per_step, held.astype(np.float64), none, none, len(rows))
    return part, waiting / scene.window


def _add(weight: Weights, index: Ints, ns: Ints) -> None:
    known = index >= 0
    weight += np.bincount(index[known], ns[known], len(weight))


def _by_step(scene: Scene, at: Ints, ns: Ints) -> Ints:
    """ns by step. An interval that runs over the end of its step counts where it starts."""
    step = np.maximum(scene.step_of(at), 0)
    return np.bincount(step, ns, len(scene.step_start)).astype(np.int64)

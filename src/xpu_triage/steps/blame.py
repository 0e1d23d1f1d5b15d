"""What each part of the window is to be blamed on: idle time on host rows, device time on the calls that
launched it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..trace import Ints, Kind
from .idle_causes import GapWork
from .patterns import EVENT_LOOP, WAIT_FRAME
from .results import CAUSES, Cause
from .scene import Scene
from .utilization import PART_KINDS, DeviceTime

Weights = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """One part of the window, with its time laid on what is to blame.

    total      int, ns of the window
    per_step   int64 ns, one entry a step
    weight     float64 ns, one entry a host row in forest order; what nothing recorded can be blamed for is left out
    rows, row_weight   device rows that the time is in (device parts) or that follow the idle (turnaround, hidden), and ns
    events     how many gaps, or device rows, the time is spread over
    loose      float, ns that no host row holds
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
        return max(self.total - float(self.weight.sum()), 0.0)


def idle_part(scene: Scene, work: GapWork, cause: Cause) -> Part:
    """Idle time of one cause. A bubble is blamed on the call that waited, all other idle on what the host did
    meanwhile, and the part after the launch returned on the launch."""
    gaps, host, size = work.gaps, scene.host, len(scene.host)
    chosen = gaps.cause == CAUSES.index(cause)
    length = gaps.dur
    weight = np.zeros(size)
    if cause is Cause.AFTER_SYNC:
        _add(weight, host.index(gaps.sync_row[chosen]), length[chosen])
    else:
        use = chosen[work.gap] & (work.owner >= 0)
        if cause is Cause.HOST_OP:  # the part of such a gap in which the host waited is not the operator's
            use &= np.append(scene.blocked_in < 0, True)[work.owner]
        weight += np.bincount(work.owner[use], work.ns[use], size)
        _add(weight, host.index(gaps.launch[chosen]), (gaps.end - work.returned)[chosen])
    followed = chosen & (gaps.after >= 0)
    return Part(str(cause), int(length[chosen].sum()), _by_step(scene, gaps.start[chosen], length[chosen]), weight,
                gaps.after[followed], length[followed], int(chosen.sum()))


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
    idle = host.around(scene.host_rows(WAIT_FRAME, Kind.PYTHON)) >= 0
    idle |= scene.host_rows(EVENT_LOOP, Kind.PYTHON) | (scene.blocked_in >= 0)
    waiting = float(held[idle].sum())
    held[idle] = 0
    rows = np.flatnonzero(held)
    at = np.maximum(scene.trace.start[host.row[rows]], scene.left)
    none = np.zeros(0, np.int64)
    part = Part("host", int(held.sum()), _by_step(scene, at, held[rows]), held.astype(np.float64), none, none, len(rows))
    return part, waiting / max(scene.steps.window, 1)


def _add(weight: Weights, index: Ints, ns: Ints) -> None:
    known = index >= 0
    weight += np.bincount(index[known], ns[known], len(weight))


def _by_step(scene: Scene, at: Ints, ns: Ints) -> Ints:
    step = np.maximum(scene.step_of(at), 0)
    return np.bincount(step, ns, len(scene.step_start)).astype(np.int64)

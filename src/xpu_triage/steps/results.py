"""What the three steps return. Times are ns on the trace's own clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..signals import Signal
from ..trace import Ints, Trace


class Cause(StrEnum):
    """Why a device is idle. Each idle interval has exactly one; `idle.<cause>_fraction` is its share of the window."""

    HIDDEN = "hidden"
    TURNAROUND = "turnaround"
    PROFILER = "profiler"
    FIRST_USE = "first_use"
    PEER_WAIT = "peer_wait"
    NO_WORK = "no_work"
    UNRECORDED = "unrecorded"
    HOST_OP = "host_op"
    AFTER_SYNC = "after_sync"
    LAUNCHING = "launching"


CAUSES: tuple[Cause, ...] = tuple(Cause)


@dataclass(frozen=True)
class Step:
    """One engine iteration. `end` is the next step's start; for the last one the later of its own end and the end
    of the device work it launched."""

    name: str
    start: int
    end: int
    phase: str = ""
    """`prefill`, `decode`, `mixed`, or empty where the name does not tell."""
    prefill_requests: int | None = None
    prefill_tokens: int | None = None
    decode_requests: int | None = None

    @property
    def wall(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Steps:
    method: str
    """`annotation`, `anchor` or `window`."""
    detail: str
    """What marks a step, in words: `ProfilerStep#…`, `anchor: hipGraphLaunch × 40`, `no recurring mark`."""
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def start(self) -> int:
        return self.steps[0].start

    @property
    def end(self) -> int:
        return self.steps[-1].end

    @property
    def window(self) -> int:
        """ns of the window: wall time of the whole steps."""
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class Gaps:
    """Every idle interval of one device inside the window, one entry a gap; they add up to the idle exactly.

    start, end     int64, ns, clipped to the window
    cause          int8, index into CAUSES
    host_row       int64, row of the trace that held the host longest meanwhile; -1 for none
    host_ns        int64, for how long
    sync_row       int64, the blocking call in which the host was when the device ran dry; -1 for none
    before, after  int64, device rows that end and start at the gap's sides; -1 at the window's edge
    launch         int64, the call that launched `after`, as in Trace.launch
    fallback       bool, host-op gap with the shape of a CPU fallback
    elsewhere      bool, gap in which another device works on what the same thread launched; empty where nobody looked
    """

    start: Ints
    end: Ints
    cause: NDArray[np.int8]
    host_row: Ints
    host_ns: Ints
    sync_row: Ints
    before: Ints
    after: Ints
    launch: Ints
    fallback: NDArray[np.bool_]
    elsewhere: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def dur(self) -> Ints:
        return self.end - self.start

    def by_cause(self) -> dict[Cause, int]:
        """ns of idle a cause."""
        total = np.bincount(self.cause, self.dur, len(CAUSES))
        return {cause: int(total[i]) for i, cause in enumerate(CAUSES)}


@dataclass(frozen=True, eq=False)
class DeviceUse:
    """One device over the window. `busy`, `compute`, `copy`, `comm`: int64 ns, one entry a step; the three parts add
    up to busy. `busy_start`, `busy_end`: the union of its work over streams, as disjoint intervals, not clipped."""

    device: str
    busy: Ints
    compute: Ints
    copy: Ints
    comm: Ints
    busy_start: Ints
    busy_end: Ints
    gaps: Gaps

    @property
    def idle(self) -> int:
        return int(self.gaps.dur.sum())


@dataclass(frozen=True)
class Level:
    """One level of a bisection path, from the step down."""

    name: str
    kind: str
    """`phase`, `operator`, `python`, `runtime`, `kernel`."""
    share: float
    """Of the window, of what this finding explains: inclusive of everything below."""
    device_ms: float
    """Device time per step launched from here."""
    host_self_ms: float
    """Host time per step in this level itself, children excluded."""


@dataclass(frozen=True)
class Finding:
    """What one part of the window bisects to.

    `about` names the part: a Cause value, or `compute`, `copy`, `comm` (device time), or `host` (host time, where
    there is no device)."""

    about: str
    total_share: float
    """Share of the window of the whole part."""
    share: float
    """Share of the window that the named operator explains."""
    path: tuple[Level, ...]
    """From the step down to the operator; empty where no one operator holds half (`spread`)."""
    name: str
    """The operator, or what the part is spread over: `spread over 2,100 launches`."""
    spread: bool
    calls_per_step: float
    line: str
    """The Python line where the trace has it, else empty."""
    step_ms: float
    """Mean wall time of a step now."""
    step_without_ms: float | None
    """The same without this operator; None where that cannot be said."""
    others: tuple[tuple[str, float], ...] = ()
    """The next heaviest names of this part with their shares of the window, heaviest first."""


@dataclass(frozen=True, eq=False)
class Walk:
    """The three steps of one trace."""

    trace: Trace
    steps: Steps
    devices: tuple[DeviceUse, ...]
    """Busiest first; empty where the trace has no device work."""
    findings: tuple[Finding, ...]
    """Largest share of the window first."""
    signals: tuple[Signal, ...]
    unknown: dict[str, str] = field(default_factory=dict)
    """Signals that a trace should give and this one cannot, each with the reason."""
    notes: tuple[str, ...] = ()
    next: str = ""
    """Of a capture that lacks the device's work: what to record or to ask first."""

    @property
    def busiest(self) -> DeviceUse | None:
        return self.devices[0] if self.devices else None

    def finding(self, about: str) -> Finding | None:
        return next((f for f in self.findings if f.about == about), None)

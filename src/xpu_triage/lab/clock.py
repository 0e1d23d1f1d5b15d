"""Two clocks for one device. Virtual time is counted, so that a run is the same to the nanosecond every time;
real time passes, so that live tools see it pass."""

from __future__ import annotations

import time
from typing import Protocol

_SPIN_NS = 200_000  # sleep ends up to this late on a quiet Linux machine: the last stretch is spun


class Clock(Protocol):
    """The host thread's clock, in integer ns."""

    name: str

    def now(self) -> int: ...

    def charge(self, ns: float) -> None:
        """Time that the framework takes by itself: counted on the virtual clock, already spent on the real
        one."""

    def work(self, ns: float) -> None:
        """The host computes for so long."""

    def wait_until(self, when: int) -> None:
        """The host does nothing until then."""


class VirtualClock:
    name = "virtual"

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        return self._now

    def charge(self, ns: float) -> None:
        self._now += int(ns)

    work = charge

    def wait_until(self, when: int) -> None:
        self._now = max(self._now, when)


class RealClock:
    name = "real"

    def __init__(self) -> None:
        self._zero = time.perf_counter_ns()

    def now(self) -> int:
        return time.perf_counter_ns() - self._zero

    def charge(self, ns: float) -> None:
        pass

    def work(self, ns: float) -> None:
        until = self.now() + int(ns)
        while self.now() < until:
            sum(range(200))

    def wait_until(self, when: int) -> None:
        while (left := when - self.now()) > 0:
            if left > _SPIN_NS:
                time.sleep((left - _SPIN_NS) / 1e9)

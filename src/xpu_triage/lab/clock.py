"""Two clocks for one device. Virtual time is counted, so that a run is the same to the nanosecond every time;
real time passes, so that live tools see it pass."""

from __future__ import annotations

import time
from collections.abc import Callable
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

    def wait_for(self, done: Callable[[], None]) -> None:
        """The host does nothing until `done` returns."""

    def held_up_ns(self) -> int:
        """For how long so far the machine did not run the host's thread, which asks, although it had work to do
        or a wait of it was over: what other programs took. 0 on the virtual clock."""


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

    def wait_for(self, done: Callable[[], None]) -> None:
        done()

    def held_up_ns(self) -> int:
        return 0


class RealClock:
    name = "real"

    def __init__(self) -> None:
        self._zero = time.perf_counter_ns()
        self._idle_ns = self._overslept_ns = 0
        self._busy_zero = time.thread_time_ns()
        """CPU time of the host's thread at the start, and what it has burnt in waits since."""

    def now(self) -> int:
        return time.perf_counter_ns() - self._zero

    def charge(self, ns: float) -> None:
        pass

    def work(self, ns: float) -> None:
        until = self.now() + int(ns)
        while self.now() < until:
            sum(range(200))

    def wait_until(self, when: int) -> None:
        began, burnt = self.now(), time.thread_time_ns()
        while (left := when - self.now()) > 0:
            if left > _SPIN_NS:
                time.sleep((left - _SPIN_NS) / 1e9)
        self._overslept_ns += self._waited(began, burnt) - max(began, when)

    def wait_for(self, done: Callable[[], None]) -> None:
        began, burnt = self.now(), time.thread_time_ns()
        done()
        self._waited(began, burnt)

    def _waited(self, began: int, burnt: int) -> int:
        burnt, ended = time.thread_time_ns() - burnt, self.now()
        self._idle_ns += ended - began
        self._busy_zero += burnt
        return ended

    def held_up_ns(self) -> int:
        """Time outside waits in which the thread used no CPU, and what waits took beyond their end."""
        not_run = self.now() - self._idle_ns - (time.thread_time_ns() - self._busy_zero)
        return max(not_run, 0) + self._overslept_ns

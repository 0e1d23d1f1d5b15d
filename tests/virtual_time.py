"""Time that passes only where everybody waits: for threads that share a clock, and for an event loop.

What is tested with it takes no real time and comes out the same on any machine, however busy.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, TypeVar

from xpu_triage.live.clock import Clock

T = TypeVar("T")

_LOOK_S = 0.01
"""Real seconds between two looks whether all wait."""


class VirtualClock(Clock):
    """A `Clock` for the threads of a recording. Whoever has asked it for the time takes part until its thread ends,
    and a probe's thread from its start on; when all of them wait, time goes on to the first that wakes."""

    def __init__(self) -> None:
        self.time = 100.0
        self._changed = threading.Condition()
        self._part: set[threading.Thread] = set()
        self._wakes: dict[threading.Thread, tuple[float, Event]] = {}

    def now(self) -> float:
        with self._changed:
            self._part.add(threading.current_thread())
            return self.time

    def utc(self) -> datetime:
        return datetime(2026, 11, 30, 6, tzinfo=UTC) + timedelta(seconds=self.now())

    def wait(self, seconds: float, stop: Event) -> bool:
        me = threading.current_thread()
        with self._changed:
            self._part.add(me)
            wake = self.time + max(seconds, 0.0)
            self._wakes[me] = wake, stop
            try:
                while not stop.is_set() and self.time < wake:
                    if not self._go_on():
                        self._changed.wait(_LOOK_S)
            finally:
                del self._wakes[me]
        return stop.is_set()

    def _go_on(self) -> bool:
        """Go on to the first wake-up, if nobody has anything to do before it."""
        part = {thread for thread in (*self._part, *threading.enumerate())
                if thread.is_alive() and (thread in self._part or thread.name.startswith("xpu-triage "))}
        if part - self._wakes.keys() or any(wake <= self.time or stop.is_set() for wake, stop in self._wakes.values()):
            return False
        self.time = min(wake for wake, _ in self._wakes.values())
        self._changed.notify_all()
        return True


class _Idle(selectors.SelectSelector):
    """Takes no time to wait; counts it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop for what waits by `asyncio.sleep` and timeouts alone, and not for sockets or threads. Its time
    starts at 0."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to its end, and close."""
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            return runner.run(work)

"""Time: monotonic for the schedule, and UTC that follows it, so that a clock that is set meanwhile moves nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from threading import Event


class Clock:
    """The machine's clock. Tests give another one."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._began_utc = datetime.now(UTC)

    def now(self) -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    def utc(self) -> datetime:
        return self._began_utc + timedelta(seconds=self.now() - self._began)

    def wait(self, seconds: float, stop: Event) -> bool:
        """Wait, or until `stop`; whether it was stopped."""
        return stop.wait(max(seconds, 0.0))


def iso(moment: datetime) -> str:
    """`2026-11-30T06:20:31.123Z`."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"

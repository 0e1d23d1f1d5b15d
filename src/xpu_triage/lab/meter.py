"""How much of the last moments the device was in use, as an exporter would show it, while nothing else is recorded."""

from __future__ import annotations

from .record import Recorder

PERIOD_NS = 50_000_000
SHOWN_PERIODS = 5
"""A reading is over the last 250 ms: vendor tools average over 1/6 s to 1 s."""
_KEPT_PERIODS = 256


class Meter:
    """Time in kernels by period. Written by the engine's thread, read by any; kernels do not overlap."""

    def __init__(self) -> None:
        self._busy_ns = [0] * _KEPT_PERIODS
        self._period = [-1] * _KEPT_PERIODS

    def add(self, start_ns: int, duration_ns: int) -> None:
        """A kernel, which may be still to come: its place on the device's timeline is known when it is launched."""
        end_ns = start_ns + duration_ns
        first = max(start_ns // PERIOD_NS, end_ns // PERIOD_NS - _KEPT_PERIODS + 1)
        for period in range(first, end_ns // PERIOD_NS + 1):
            place = period % _KEPT_PERIODS
            if self._period[place] != period:
                self._period[place], self._busy_ns[place] = period, 0
            self._busy_ns[place] += min(end_ns, (period + 1) * PERIOD_NS) - max(start_ns, period * PERIOD_NS)

    def fraction(self, now_ns: int, periods: int = SHOWN_PERIODS) -> float:
        """Share of the last whole periods in which a kernel ran."""
        last = now_ns // PERIOD_NS
        places = [(period, period % _KEPT_PERIODS) for period in range(max(last - periods, 0), last)]
        busy_ns = sum(self._busy_ns[place] for period, place in places if self._period[place] == period)
        return min(busy_ns / (len(places) * PERIOD_NS), 1.0) if places else 0.0


class MeteringRecorder(Recorder):
    """Records nothing but the meter's part while it is off."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    @property
    def held(self) -> int:
        """Rows so far, open ones included."""
        return len(self._rows)

    def device(self, name: str, start: int, duration: int, correlation: int, copy_bytes: int | None) -> None:
        if copy_bytes is None:
            self._meter.add(start, duration)
        super().device(name, start, duration, correlation, copy_bytes)

"""What the lab records while a workload runs: the same kinds of rows as PyTorch's profiler, on the lab's own
clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal, NamedTuple

from .clock import Clock

Category = Literal[
    "cpu_op", "python_function", "user_annotation", "privateuse1_runtime", "overhead", "kernel", "gpu_memcpy"
]


class Row(NamedTuple):
    """One complete event. Times are integer ns on the lab's clock."""

    category: Category
    name: str
    start: int
    end: int
    correlation: int = 0
    """Joins a call to its device work; 0 for none."""
    nbytes: int = 0
    """Bytes of a copy."""

    @property
    def on_device(self) -> bool:
        return self.category in ("kernel", "gpu_memcpy")


@dataclass
class Step:
    """One engine iteration as the engine itself sees it."""

    name: str
    start: int
    end: int = 0


class Recorder:
    """Collects rows while `on`. Host rows are kept in the order in which they opened: parents before
    children."""

    def __init__(self) -> None:
        self.on = False
        self.steps: list[Step] = []
        self.hook: Callable[[FrameType, str, object], None] | None = None
        """Reports Python frames (`sys.setprofile`); None while an operator is at work."""
        self._rows: list[Row | None] = []

    @property
    def rows(self) -> list[Row]:
        """Finished rows; those that end where they start hold nothing, and are left out."""
        return [row for row in self._rows if row is not None and row.end > row.start]

    def open(self) -> int:
        """A place for a row that has begun; -1 while nothing is recorded."""
        if not self.on:
            return -1
        self._rows.append(None)
        return len(self._rows) - 1

    def close(self, place: int, category: Category, name: str, start: int, end: int) -> None:
        if place >= 0:
            self._rows[place] = Row(category, name, start, end)

    @contextmanager
    def step(self, name: str, clock: Clock) -> Iterator[None]:
        """One step of the engine, annotated as the engine does it."""
        place, step = self.open(), Step(name, clock.now())
        try:
            yield
        finally:
            step.end = clock.now()
            self.steps.append(step)
            self.close(place, "user_annotation", name, step.start, step.end)

    def call(self, name: str, start: int, end: int, correlation: int = 0) -> None:
        """A call of the device's runtime."""
        if self.on:
            self._rows.append(Row("privateuse1_runtime", name, start, end, correlation))

    def overhead(self, name: str, start: int, end: int) -> None:
        """Time that the lab itself took."""
        if self.on:
            self._rows.append(Row("overhead", name, start, end))

    def device(self, name: str, start: int, duration: int, correlation: int, copy_bytes: int | None) -> None:
        """A piece of device work, whenever it runs."""
        if self.on:
            category: Category = "kernel" if copy_bytes is None else "gpu_memcpy"
            self._rows.append(Row(category, name, start, start + duration, correlation, copy_bytes or 0))

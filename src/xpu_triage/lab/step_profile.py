"""The lab server's profiler: recording of the engine's steps, started and stopped between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import TriageError, UnusableInput
from .engine import ENGINE
from .frames import Frames
from .meter import Meter, MeteringRecorder

MAX_RECORDED_ROWS = 100_000
"""A recording ends there by itself: its file is written by this process, beside the engine."""


class Busy(TriageError):
    """There is as much as the engine takes, or it is doing that already."""


class StepProfile:
    """For the engine's thread: Python frames are recorded of the thread that starts it."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._frames: Frames | None = None
        self._recorder: MeteringRecorder | None = None

    def start(self) -> None:
        """Record from now on. Raises `Busy` while that is so already."""
        if self._recorder is not None:
            raise Busy("a profile is being recorded already", todo="Stop it first")
        ENGINE.recorder = self._recorder = MeteringRecorder(self._meter)
        self._recorder.on = True
        self._frames = Frames(ENGINE)
        self._frames.start()

    def stop(self) -> MeteringRecorder:
        """What was recorded. Raises `UnusableInput` where nothing is."""
        recorder = self._recorder
        if recorder is None:
            raise UnusableInput("no profile is being recorded", todo="Start one first")
        self.close()
        ENGINE.recorder, self._recorder = MeteringRecorder(self._meter), None
        return recorder

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One step of the engine, annotated while it is recorded."""
        recorder = self._recorder
        if recorder is None or not recorder.on:
            yield
            return
        with recorder.step(name, ENGINE.clock):
            yield
        if recorder.held > MAX_RECORDED_ROWS:
            self.close()

    def close(self) -> None:
        """Record no more; what there is can still be had."""
        if self._frames is not None:
            self._frames.stop()
            self._frames = None
        if self._recorder is not None:
            self._recorder.on = False

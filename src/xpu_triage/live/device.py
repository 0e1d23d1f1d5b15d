"""The device: NVML where there is a driver for it, else the vendor's tool on PATH, else one line that says so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import datetime
from threading import Event
from typing import Any, Protocol

from ..errors import install
from .clock import Clock
from .folder import Folder
from .nvml import Nvml
from .probe import Trouble
from .smi import Run, Smi


class Source(Protocol):
    label: str
    interval_s: float
    trouble: list[str]

    def sample(self, moment: datetime) -> dict[str, tuple[str, str]]:
        """File to (header, lines)."""

    def close(self) -> None: ...


_IN_WORDS = {
    "NVML: LibraryNotFound": "no NVIDIA driver here (NVML: LibraryNotFound)",
    "NVML: DriverNotLoaded": "the NVIDIA driver is not loaded (NVML: DriverNotLoaded)",
}
"""What NVML says of a machine without NVIDIA's devices."""

_TODO = ". Run it where the device is, or paste what its tool prints into the folder"

WAIT_S, LOOK_S = 3.0, 0.25
"""For the server's first answer, where no device is found; and between two looks."""


def nvml_library() -> Any:
    """The binding. Raises `Trouble` where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise Trouble(f"nvidia-ml-py is not installed: {install('live')}", final=True) from None


def found(run: Run, *, nvml: Callable[[], Any] = nvml_library, path: str | None = None) -> Source:
    """What this machine has. Raises `Trouble`, one line, where there is nothing."""
    try:
        return Nvml(nvml())
    except Trouble as trouble:
        first = _IN_WORDS.get(str(trouble), str(trouble))
    try:
        return Smi(run, path=path)
    except Trouble as trouble:
        raise Trouble(f"none found: {first}, and {trouble}{_TODO}", final=True) from None


class DeviceProbe:
    name = "device"
    delay_s = 0.0

    def __init__(self, find: Callable[[], Source], folder: Folder, clock: Clock, *, interval_s: float | None = None,
                 seconds: float = 30.0, elsewhere: Callable[[], bool | None] = lambda: False) -> None:
        """`elsewhere`: whether a server's answer holds figures of its device; None while there is no answer."""
        self._find, self._folder, self._clock, self._elsewhere = find, folder, clock, elsewhere
        self._source: Source | None = None
        self._asked, self._seconds = interval_s, seconds
        self.interval_s = interval_s or 1.0
        self.notes: list[str] = []

    def sample(self) -> None:
        if self._source is None:
            try:
                self._source = self._find()
            except Trouble as trouble:
                if not self._shown_elsewhere():
                    raise
                raise Trouble(f"its figures are in the server's /metrics ({str(trouble).removesuffix(_TODO)})",
                              final=True) from None
            self.interval_s = self._asked or self._source.interval_s
            self.notes.append(self._source.label)
        for name, (header, lines) in self._source.sample(self._clock.utc()).items():
            if lines:
                self._folder.append(name, lines, header=header)
        needed = getattr(self._source, "needed_interval_s", 0.0)
        # a program that is heavy to start is asked less often, but never so rarely that its figures have no spread
        self.interval_s = max(self.interval_s, min(needed, self._seconds / 5))

    def close(self) -> None:
        if self._source is not None:
            self.notes += self._source.trouble
            self._source.close()

    def _shown_elsewhere(self) -> bool:
        until = self._clock.now() + WAIT_S
        while (shown := self._elsewhere()) is None and self._clock.now() < until:
            self._clock.wait(LOOK_S, Event())
        return bool(shown)

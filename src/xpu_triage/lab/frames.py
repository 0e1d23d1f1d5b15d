"""Python frames of the workload, as rows: every function that is neither PyTorch's, nor Python's, nor the
device's, nor the sync counter's.

`sys.setprofile` reports calls on the host thread. The device switches it off while it works (`host_op`), so
that it costs little and its own frames do not show.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from .engine import Engine

_PACKAGE = Path(__file__).resolve().parent.parent
_WORKLOAD = frozenset({"decoder", "faults"})  # of this package; the rest of it is the device
_NOT_WORKLOAD = tuple(
    str(Path(p).resolve())
    for p in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(Path(torch.__file__).parent),
    }
)

FRAME_NS = 200
"""What entering or leaving one function costs on the virtual clock. Assumed; it keeps nested rows apart."""


def shown_name(code: CodeType) -> str | None:
    """`file(line): function` as PyTorch's profiler writes it, with no path of this machine; None for a frame
    that does not belong to the workload. Comprehensions and lambdas count to the function that holds them."""
    path = Path(code.co_filename)
    if code.co_name.startswith("<") or code.co_filename.startswith("<"):
        return None
    resolved = path.resolve()
    if resolved.is_relative_to(_PACKAGE):
        inside = resolved.relative_to(_PACKAGE)
        if inside.parts[0] == "syncs" or (inside.parts[0] == "lab" and inside.stem not in _WORKLOAD):
            return None  # the device, or what counts its syncs: once used, it stays among the operators
        return f"xpu_triage/{inside.as_posix()}({code.co_firstlineno}): {code.co_name}"
    if str(resolved).startswith(_NOT_WORKLOAD):
        return None
    return f"{path.name}({code.co_firstlineno}): {code.co_name}"


class Frames:
    """Records the workload's frames between `start` and `stop`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._names: dict[CodeType, str | None] = {}
        self._open: list[tuple[int, CodeType, int, int]] = []
        self._before: Any = None

    def start(self) -> None:
        before = sys.getprofile()
        self._before = before if callable(before) else None  # a profiler written in C cannot be put back
        self._engine.recorder.hook = self._event
        sys.setprofile(self._event)

    def stop(self) -> None:
        sys.setprofile(self._before)
        self._engine.recorder.hook = None
        while self._open:
            self._leave()

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call":
            name = (
                self._names[code] if code in self._names else self._names.setdefault(code, shown_name(code))
            )
            if name is not None:
                self._open.append((id(frame), code, self._engine.recorder.open(), self._engine.clock.now()))
                self._engine.clock.charge(FRAME_NS)
        elif event == "return" and self._open and self._open[-1][0] == id(frame):
            self._engine.clock.charge(FRAME_NS)
            self._leave()

    def _leave(self) -> None:
        _, code, place, started = self._open.pop()
        self._engine.recorder.close(
            place, "python_function", self._names[code] or "", started, self._engine.clock.now()
        )

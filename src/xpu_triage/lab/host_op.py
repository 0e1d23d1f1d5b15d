"""One operator on the host: its row, its cost, and no Python frames from inside."""

from __future__ import annotations

import sys
from types import TracebackType

from .cost_model import NS_PER_US
from .engine import ENGINE


class HostOp:
    """`with HostOp("aten::mm"):` around what the framework does for it. On the virtual clock two thirds of
    its cost come before what it launches, one third after. `view` operators launch nothing and cost less."""

    __slots__ = ("_cost", "_hook", "_name", "_place", "_started")

    def __init__(self, name: str, *, view: bool = False) -> None:
        self._name = name
        self._cost = (ENGINE.model.view_us if view else ENGINE.model.operator_us) * NS_PER_US

    def __enter__(self) -> None:
        recorder = ENGINE.recorder
        self._hook = recorder.hook
        if self._hook is not None:
            sys.setprofile(None)
            recorder.hook = None
        self._place, self._started = recorder.open(), ENGINE.clock.now()
        ENGINE.clock.charge(self._cost * 2 / 3)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        ENGINE.clock.charge(self._cost / 3)
        recorder = ENGINE.recorder
        recorder.close(self._place, "cpu_op", self._name, self._started, ENGINE.clock.now())
        if self._hook is not None:
            recorder.hook = self._hook
            sys.setprofile(self._hook)

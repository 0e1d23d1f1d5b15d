"""Operators that a runtime compiles or selects online each time they run: how much host time that takes, and where the
capture cannot tell which of the two it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ..text import counted
from ..trace import Kind
from .intervals import total_within
from .measures import Measures, spoken, starts_inside
from .scene import Scene

SPOKEN_SHARE = 0.1
"""Share of the window from which on it is spoken of. Judgement."""

_ONLINE = re.compile(r"aclopCompileAndExecute")


@dataclass(frozen=True)
class Online:
    """Calls of Ascend's single-operator interface that find or compile an operator each time they run.

    Which of the two depends on torch_npu's set_compile_mode, whose default differs by product: jit_compile=True
    compiles, False takes built binaries (hiascend.com, Pytorch 7.0.0 API reference, torch_npu.npu.set_compile_mode).
    """

    calls: int
    ns: int
    """Host time inside them within the window, nothing twice."""
    steps: int
    """Steps that have some."""


def online_operators(scene: Scene) -> Online | None:
    """Those of the window; None where there are none, or in fewer than half of the steps: first uses, and no habit."""
    calls = np.flatnonzero(scene.names.rows(_ONLINE, Kind.RUNTIME, Kind.HOST_OP))
    calls = calls[starts_inside(scene, calls)]
    if not len(calls):
        return None
    ns = total_within(scene.trace.start[calls], scene.end[calls], scene.left, scene.right)
    steps = len(np.unique(scene.step_of(scene.trace.start[calls])))
    return None if 2 * steps < len(scene.steps.steps) else Online(len(calls), int(ns), steps)


def measure_online(scene: Scene, found: Online | None, out: Measures) -> None:
    """`host.online_fraction`, where such calls were seen."""
    if found is not None:
        out.share("host.online_fraction", found.ns, scene.window)


def about_online(scene: Scene, found: Online | None) -> list[str]:
    """The note on them, where they take a good part of the window."""
    if found is None or found.ns < SPOKEN_SHARE * scene.window:
        return []
    all_steps = len(scene.steps.steps)
    takes = "takes" if found.calls == 1 else "take"
    times = f" in {found.steps} of {all_steps} steps" if all_steps > 1 else ""
    return [f"operators are compiled or selected online in each call: {counted(found.calls, 'call')} of "
            f"aclopCompileAndExecute{times} {takes} {spoken(found.ns)} of host time, {found.ns / scene.window:.0%} of "
            "the window. The capture does not tell which: see that built binaries are used "
            "(torch.npu.set_compile_mode(jit_compile=False), with the binary operator package installed), or a path "
            "that has aclnn operators"]

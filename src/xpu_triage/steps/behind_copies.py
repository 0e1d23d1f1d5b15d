"""What a device's kernels wait for while copies that nothing waits for keep it busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..trace import Kind
from ..words import CAUSE_WORDS
from .bisection import WORTH_FINDING, find_causes
from .copy_waits import copy_time
from .fallback import Fallbacks
from .idle_causes import classify
from .intervals import covered_between
from .results import CAUSES, Cause
from .scene import Scene
from .utilization import DeviceTime, device_time

SPOKEN_SHARE = 0.15
"""Share of the window in such copies from which on it is spoken of: that at which a cause counts."""


TOLD = {"device.copy_over_launching_fraction": Cause.LAUNCHING, "device.copy_over_host_op_fraction": Cause.HOST_OP}
"""Signals, and the cause of the kernels' idle whose part behind copies each gives."""


@dataclass(frozen=True)
class Behind:
    """What kernels wait for behind copies: for the reader, and ns of the window by signal; empty where there are no
    such copies, or few."""

    notes: tuple[str, ...] = ()
    ns: Mapping[str, int] = field(default_factory=dict)


def behind_copies(scene: Scene, time: DeviceTime, fallbacks: Fallbacks) -> Behind:
    """The idle of the kernels alone, by its causes and with what the largest bisects to, and what of it lies behind
    copies. Copies in the background leave the device busy, so that the causes of its idle do not show it."""
    is_copy = scene.trace.kind[time.rows] == Kind.COPY
    rows = time.rows[~is_copy]
    copies = copy_time(scene, time)
    if copies is None or not len(rows) or copies.free < SPOKEN_SHARE * scene.window:
        return Behind()
    kernels = device_time(scene.trace, scene.steps, rows, time.device)
    work = classify(scene, kernels, fallbacks, left_out=time.rows[is_copy])
    by_cause = work.gaps.by_cause()
    hidden = covered_between(copies.free_start, copies.free_end, work.gaps.start, work.gaps.end)
    largest = sorted((cause for cause in CAUSES if by_cause[cause] >= WORTH_FINDING * scene.window),
                     key=lambda cause: -by_cause[cause])[:3]
    shares = ", ".join(f"{CAUSE_WORDS[cause]} {by_cause[cause] / scene.window:.0%}" for cause in largest)
    found = [f for f in find_causes(scene, kernels, work, fallbacks) if f.about in CAUSES]
    named = f"; the largest is mostly {found[0].name}" if found and not found[0].spread else ""
    note = (f"for {copies.free / scene.window:.0%} of the window only copies run and nothing waits for them: the "
            f"device is busy, and its kernels are not. What they wait for: {shares or 'nothing that is seen'}{named}")
    return Behind((note,), {name: int(hidden[work.gaps.cause == CAUSES.index(cause)].sum())
                            for name, cause in TOLD.items() if f"idle.{cause}_fraction" not in scene.trace.cannot})

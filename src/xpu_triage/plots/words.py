"""What a plot says in its title: the finding, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..steps.results import Cause, Finding, Step, Walk
from ..text import clean, shorten

NAME_WIDTH = 56

NO_TRACE = "The evidence holds no trace: there are no events to draw."
RECORD_ONE = "A profiler capture of five to ten steps under load gives this picture."

_PHRASES = {
    Cause.HOST_OP: ("host runs {name}", "host busy with work that launches nothing"),
    Cause.AFTER_SYNC: ("refilling after {name}", "refilling after host syncs"),
    Cause.LAUNCHING: ("launched piece by piece from {name}", "work launched piece by piece"),
    Cause.FIRST_USE: ("first use in {name}", "first use: loading, allocating, compiling"),
    Cause.PEER_WAIT: ("waiting for another rank or device in {name}", "waiting for another rank or device"),
    Cause.NO_WORK: ("nothing to do", "nothing to do"),
    Cause.TURNAROUND: ("the device's own turnaround", "the device's own turnaround"),
    Cause.HIDDEN: ("the capture lacks its work, so busy is a lower bound",) * 2,
    Cause.UNRECORDED: ("the capture does not show what the host did",) * 2,
    Cause.PROFILER: ("the profiler's own overhead",) * 2,
}


def percent(fraction: float) -> str:
    """`0.978` as `97.8 %`."""
    return f"{100 * fraction:.1f} %"


def milliseconds(ns: float) -> str:
    """A time for people: µs below 1 ms, s from 10 s on."""
    if ns < 1e6:
        return f"{ns / 1e3:,.1f} µs"
    return f"{ns / 1e6:,.2f} ms" if ns < 1e10 else f"{ns / 1e9:,.2f} s"


_FRAME = re.compile(r"^.*/([^/]+\.py\(\d+\): .+)$")


def short(name: str, width: int = NAME_WIDTH) -> str:
    """A name from evidence, harmless and not too long. A Python frame loses its folders first."""
    name = clean(name)
    if len(name) > width and (frame := _FRAME.match(name)):
        name = f"…/{frame[1]}"
    return shorten(name, width)


def whole_words(walk: Walk) -> str:
    """What a share is of: `the step`, or `the capture` where no steps were found."""
    return "the capture" if walk.steps.method == "window" else "the step"


def time_axis(span_ns: float) -> tuple[float, str]:
    """ns in one unit of a time axis, and the unit's name: s from 10 s on."""
    return (1e9, "s") if span_ns >= 1e10 else (1e6, "ms")


def step_words(walk: Walk, step: Step) -> str:
    """`step 3 of 12 (decode)`, or `the only step`."""
    steps = walk.steps.steps
    phase = f" ({step.phase})" if step.phase else ""
    if walk.steps.method == "window":
        return whole_words(walk)
    return (
        f"the only step{phase}" if len(steps) == 1 else f"step {steps.index(step) + 1} of {len(steps)}{phase}"
    )


def idle_words(causes: Mapping[Cause, float], finding: Finding | None) -> str:
    """What the device waits for most, naming the operator where the bisection has one for that cause."""
    cause = max(causes, key=lambda c: causes[c])
    named, unnamed = _PHRASES[cause]
    if finding is None or finding.about != cause or finding.spread or not finding.name:
        return unnamed
    return named.format(name=short(finding.name))


def device_words(busy: float, causes: Mapping[Cause, float], finding: Finding | None, where: str) -> str:
    """`Device idle 97.8 % of step 3: host runs aten::exponential_`, or how it is busy."""
    idle = sum(causes.values())
    if idle >= 0.2:
        seems = "looks idle" if max(causes, key=lambda c: causes[c]) is Cause.HIDDEN else "idle"
        return f"Device {seems} {percent(idle)} of {where}: {idle_words(causes, finding)}"
    rest = f"; the rest: {idle_words(causes, finding)}" if idle >= 0.05 else ""
    return f"Device busy {percent(busy)} of {where}{rest}"

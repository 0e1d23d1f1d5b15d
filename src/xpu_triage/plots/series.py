"""Step times in order: wall and busy, the warm-up set apart, the median as a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..steps.results import Step, Walk
from . import telemetry
from .canvas import LEGEND_IN, TOP_IN, Entry, Picture, empty, legend, number_ticks, picture, place, plain, whole_ticks
from .palette import ALERT, BUSY_COLOURS, FAINT, INK, PHASE_COLOURS
from .words import NO_TRACE, RECORD_ONE, milliseconds, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..diagnosis import Diagnosis

HEIGHT_IN = 3.5
WARM_UP = 1.5
"""A first step longer than this many medians of the others is drawn as warm-up."""
CUT = 4.0
"""Bars higher than this many times the 90th percentile of the others are cut, with their figure beside the
cut."""
MOST_APART, MOST_BARS = 80, 400
"""With more steps than the first there is no air between bars; with more than the second neighbours share
a bar, as high as the longest of them."""


def step_times(diagnosis: Diagnosis) -> Picture:
    """Draw wall and busy time of every step."""
    walk = diagnosis.lead
    if walk is None:
        return telemetry.iterations(diagnosis) if diagnosis.telemetry else empty("Step times", NO_TRACE, RECORD_ONE)
    if walk.steps.method == "window":
        return empty(
            "Step times: no steps found in this trace",
            f"{walk.steps.detail}. The whole capture is one window of {milliseconds(walk.steps.window)}.",
            "Record with step annotations (the engine's own, or the profiler's step()) to get a series.",
        )
    return _draw(walk)


def like_the_first(steps: Sequence[Step]) -> list[int]:
    """Which later steps do the same kind of work as the first: those it can be held against."""
    return [i for i, step in enumerate(steps) if i and step.phase == steps[0].phase]


def warm_up(steps: Sequence[Step]) -> bool:
    """Whether the first step stands out from the later ones of its kind."""
    walls = [steps[i].wall for i in like_the_first(steps)]
    return len(walls) > 1 and steps[0].wall > WARM_UP * float(np.median(walls))


def typical(steps: Sequence[Step]) -> tuple[float, str]:
    """The median wall time in ns and of which steps it is: decode steps where there are any, else all; as
    `step.wall_ms` has it."""
    decode = [step.wall for step in steps if step.phase == "decode"]
    walls = decode or [step.wall for step in steps]
    return float(np.median(walls)), f"{len(walls):,} {'decode ' if decode else ''}steps"


def _draw(walk: Walk) -> Picture:
    steps = walk.steps.steps
    walls = np.array([step.wall for step in steps]) / 1e6
    busy = walk.busiest.busy / 1e6 if walk.busiest else None
    first_apart = warm_up(steps)
    counted = walls[1:] if first_apart else walls
    median_ns, of_which = typical(steps)
    top = 1.18 * float(walls.max())
    if len(walls) > 2 and walls.max() > CUT * np.percentile(counted, 90):
        top = 1.6 * float(np.percentile(counted, 90))
    phases = [step.phase for step in steps]

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.85, 0.52, LEGEND_IN, TOP_IN)
        _bars(axes, walls, busy, phases, first_apart, top)
        if len(walls) > 1:
            axes.axhline(median_ns / 1e6, color=ALERT, linewidth=1.1, linestyle=(0, (5, 3)), zorder=4)
        axes.set(xlim=(0.3, len(walls) + 0.7), ylim=(0, top), ylabel="ms a step", xlabel="step, in order")
        number_ticks(axes.yaxis)
        whole_ticks(axes, len(walls))
        plain(axes, sides=("bottom", "left"))
        legend(figure, _legend(walk, median_ns, of_which, phases, first_apart), TOP_IN + 0.05)

    title = f"{of_which}, median" if len(steps) > 1 else "One step of"
    share = ", no device work" if busy is None else f", device busy {percent(float(busy.sum() / walls.sum()))}"
    spread = ""
    if len(counted) > 1:
        spread = f"; shortest {milliseconds(1e6 * counted.min())}, longest {milliseconds(1e6 * counted.max())}"
    set_apart = f"; first step {milliseconds(1e6 * walls[0])}, set apart as warm-up" if first_apart else ""
    return picture(
        f"{title} {milliseconds(median_ns)}{share}",
        f"found by {walk.steps.method} ({walk.steps.detail}){spread}{set_apart}",
        HEIGHT_IN,
        draw,
    )


def _bars(axes: Axes, walls: np.ndarray, busy: np.ndarray | None, phases: list[str], first_apart: bool,
          top: float) -> None:
    """One collection for the walls, one for the busy part; never more than MOST_BARS bars."""
    from matplotlib.collections import PolyCollection

    half = 0.42 if len(walls) <= MOST_APART else 0.5
    groups = np.array_split(np.arange(len(walls)), min(len(walls), MOST_BARS))
    outlines, darks, colours, hatched = [], [], [], None
    for group in groups:
        longest = int(group[np.argmax(walls[group])])
        left, right = group[0] + 1 - half, group[-1] + 1 + half
        outlines.append(_box(left, right, min(walls[longest], top)))
        colours.append(PHASE_COLOURS.get(phases[longest], PHASE_COLOURS[""]))
        if busy is not None:
            darks.append(_box(left, right, min(busy[longest], top)))
        if walls[longest] > top:
            axes.annotate(
                f"↑ {milliseconds(1e6 * walls[longest])}",
                ((left + right) / 2, top),
                xytext=(6, -4),
                textcoords="offset points",
                ha="left",
                va="top",
                fontsize=8.5,
                fontweight="bold",
                color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                zorder=6,
            )
        if first_apart and hatched is None:
            hatched = outlines[-1]
    axes.add_collection(PolyCollection(outlines, facecolors=colours, linewidths=0, zorder=2))
    axes.add_collection(PolyCollection(darks, facecolors=BUSY_COLOURS["compute"], linewidths=0, zorder=3))
    if hatched is not None:
        axes.add_collection(
            PolyCollection(
                [hatched], facecolors="none", edgecolors=FAINT, hatch="////", linewidths=0.6, zorder=3
            )
        )


def _box(left: float, right: float, height: float) -> list[tuple[float, float]]:
    return [(left, 0.0), (right, 0.0), (right, height), (left, height)]


def _legend(walk: Walk, median_ns: float, of_which: str, phases: list[str], first_apart: bool) -> list[Entry]:
    entries = [
        (PHASE_COLOURS.get(phase, PHASE_COLOURS[""]), f"{phases.count(phase)} ×", f"wall time, {phase or 'any phase'}")
        for phase in sorted(set(phases))
    ]
    if walk.busiest:
        entries.append((BUSY_COLOURS["compute"], "", "device busy"))
    if len(phases) > 1:
        entries.append((ALERT, "median", f"of {of_which}:\n{milliseconds(median_ns)}"))
    if first_apart:
        entries.append(("#ffffff", "", "hatched: the first step, warm-up"))
    return entries

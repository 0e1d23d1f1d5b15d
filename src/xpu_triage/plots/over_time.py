"""Utilization over the whole window: for each slice of time its share of busy by kind, then of idle by
cause, to 100 %."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..signals import Signals
from ..steps.results import CAUSES, DeviceUse, Finding, Walk
from . import telemetry
from .canvas import LEGEND_IN, TOP_IN, Entry, Picture, empty, legend, number_ticks, picture, place, plain
from .occupancy import Floats, edges_of, occupancy
from .palette import BUSY_COLOURS, BUSY_KINDS, FAINT, PART_COLOURS, PART_WORDS, PARTS
from .words import RECORD_ONE, device_words, milliseconds, percent, time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..diagnosis import Diagnosis

BINS = 150
HEIGHT_IN = 3.7
MOST_STEP_MARKS = 60


def utilization(diagnosis: Diagnosis) -> Picture:
    """Draw the busiest device over the window; from a sheet alone, one bar of the shares that it gives."""
    walk = diagnosis.lead
    if walk is not None and walk.busiest is not None:
        return _draw(walk, walk.busiest, diagnosis.finding)
    if walk is None:
        return telemetry.readings(diagnosis) if telemetry.has_readings(diagnosis) else _from_signals(diagnosis.signals)
    return empty(
        "Utilization over time: no device work in this trace",
        "A run on the CPU alone, a rank that launched nothing, or a capture without device activity.",
        "Record with the device's activity on, on a rank that runs the model.",
    )


def _draw(walk: Walk, use: DeviceUse, finding: Finding | None) -> Picture:
    steps = walk.steps
    edges = edges_of(steps.start, steps.end, BINS)
    shares = occupancy(walk.trace, use, edges)
    mean = dict(zip(PARTS, shares.mean(axis=0).tolist(), strict=True))
    shown = [part for part in PARTS if mean[part] > 0]
    entries = share_entries(mean)

    unit, unit_name = time_axis(steps.window)

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.85, 0.52, LEGEND_IN, TOP_IN + 0.08)
        _stack(axes, (edges - steps.start) / unit, shares, shown)
        if 1 < len(steps.steps) <= MOST_STEP_MARKS:
            _mark_steps(axes, walk, unit)
        axes.set(
            xlim=(0, steps.window / unit),
            ylim=(0, 100),
            ylabel="% of the time",
            xlabel=f"{unit_name} from the start of the first step",
        )
        number_ticks(axes.xaxis)
        number_ticks(axes.yaxis)
        plain(axes, sides=("bottom", "left"))
        legend(figure, entries, TOP_IN + 0.08)

    busy = sum(mean[kind] for kind in BUSY_KINDS)
    title = device_words(busy, {cause: mean[cause] for cause in CAUSES}, finding, "the window")
    device = f"device {use.device}" + (f" (busiest of {len(walk.devices)})" if len(walk.devices) > 1 else "")
    whole = f"{len(steps.steps)} whole steps" if len(steps.steps) > 1 else "1 step"
    return picture(title, f"{device}, {whole}, {milliseconds(steps.window)}, in {BINS} slices of "
                          f"{milliseconds(steps.window / BINS)}", HEIGHT_IN, draw)


def share_entries(mean: Mapping[str, float]) -> list[Entry]:
    """The legend of what a device's time consists of: busy by kind, then idle by cause, largest first.
    Parts below 0.05 % are left out."""
    busy = [part for part in BUSY_KINDS if mean[part] >= 5e-4]
    idle = sorted((str(c) for c in CAUSES if mean[c] >= 5e-4), key=lambda c: -mean[c])
    return [(PART_COLOURS[part], percent(mean[part]), PART_WORDS[part]) for part in (*busy, *idle)]


def _stack(axes: Axes, edges_ms: Floats, shares: Floats, shown: list[str]) -> None:
    below = np.zeros(len(shares))
    for column, part in enumerate(PARTS):
        if part in shown:
            above = below + 100 * shares[:, column]
            axes.fill_between(
                edges_ms,
                np.r_[below, below[-1]],
                np.r_[above, above[-1]],
                step="post",
                linewidth=0,
                facecolor=PART_COLOURS[part],
                antialiased=False,
                zorder=2,
            )
            below = above


def _mark_steps(axes: Axes, walk: Walk, unit: float) -> None:
    """Small marks above the picture where steps begin, with every so many of them numbered."""
    steps = walk.steps.steps
    every = max(1, -(-len(steps) // 15))
    for i, step in enumerate(steps):
        x = (step.start - walk.steps.start) / unit
        axes.annotate(
            "",
            (x, 100),
            xytext=(0, 5),
            textcoords="offset points",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
        )
        if i % every == 0:
            axes.annotate(
                f"step {i + 1}" if i == 0 else str(i + 1),
                (x, 100),
                xytext=(2, 3),
                textcoords="offset points",
                fontsize=7.5,
                color=FAINT,
                annotation_clip=False,
            )


def _from_signals(signals: Signals) -> Picture:
    """One bar from typed shares. What the sheet does not give stays open: unknown is not idle."""
    parts: dict[str, float] = {}
    busy = signals.value("device.busy_fraction")
    split = {kind: signals.value(f"device.{kind}_fraction") for kind in BUSY_KINDS}
    if all(isinstance(value, float | int) for value in split.values()):
        parts |= {kind: float(value) for kind, value in split.items() if value is not None}
    elif isinstance(busy, float | int):
        parts["compute"] = float(busy)
    for cause in CAUSES:
        value = signals.value(f"idle.{cause}_fraction")
        if isinstance(value, float | int):
            parts[cause] = float(value)
    if not parts:
        return empty(
            "Utilization: not in this evidence",
            "There is no trace, and the sheet types neither device.busy_fraction nor a share of idle. A "
            "utilization that a vendor's tool reports is another quantity and is not drawn as one.",
            RECORD_ONE,
        )
    unknown = max(0.0, 1.0 - sum(parts.values()))
    given = ", ".join(
        f"{'busy' if part in BUSY_COLOURS else part} {percent(share)}" for part, share in parts.items()
    )

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.30, 0.55, LEGEND_IN, 0.95)
        left = 0.0
        for part, share in parts.items():
            axes.barh([0], [100 * share], left=left, color=PART_COLOURS[part], height=0.8, zorder=2)
            left += 100 * share
        axes.barh(
            [0],
            [100 * unknown],
            left=left,
            facecolor="white",
            edgecolor=FAINT,
            hatch="////",
            linewidth=0.5,
            height=0.8,
        )
        axes.set(xlim=(0, 100), yticks=[], xlabel="% of the window, as typed in the sheet")
        number_ticks(axes.xaxis)
        plain(axes)
        words = {**PART_WORDS, "compute": PART_WORDS["compute"] if None not in split.values() else "busy"}
        entries = [(PART_COLOURS[part], percent(share), words[part]) for part, share in parts.items()]
        legend(figure, [*entries, ("#ffffff", percent(unknown), "not given (hatched)")], 0.75)

    return picture(f"From the sheet: {given}", f"{percent(unknown)} of the window is not given", 2.6, draw)

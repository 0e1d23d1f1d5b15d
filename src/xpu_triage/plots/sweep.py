"""Step time and utilization over the batch, with a fault and without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..steps.results import Cause
from .canvas import TOP_IN, Picture, empty, number_ticks, picture, place, plain
from .palette import BUSY_COLOURS, CAUSE_COLOURS, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_IN = 4.2
PANEL_IN = 4.85
"""Width of one of the two panels."""
LEFT_IN, BETWEEN_IN = 0.75, 0.62


@dataclass(frozen=True)
class SweepPoint:
    """One batch size. Utilizations are what a vendor's tool would show, 0 to 1."""

    batch: int
    faulty_ms: float
    fixed_ms: float
    faulty_utilization: float
    fixed_utilization: float

    @property
    def ratio(self) -> float:
        """Step time with the fault ÷ without it."""
        return self.faulty_ms / self.fixed_ms


def batch_sweep(points: Sequence[SweepPoint], *, cause: Cause, of: str) -> Picture:
    """Draw a sweep. `cause` is what the fault makes the device wait for and gives its colour; `of` says what
    was swept and on what."""
    if not points:
        return empty("Batch sweep", "No batch size was run.")

    def draw(figure: Figure) -> None:
        right = figure.get_size_inches()[0] - LEFT_IN - PANEL_IN
        times = place(figure, LEFT_IN, 0.52, right, TOP_IN + 0.22)
        shares = place(figure, LEFT_IN + PANEL_IN + BETWEEN_IN, 0.52, 0.25, TOP_IN + 0.22)
        _times(times, points, CAUSE_COLOURS[cause])
        _shares(shares, points, CAUSE_COLOURS[cause])

    return picture(_title(points), of, HEIGHT_IN, draw)


def _title(points: Sequence[SweepPoint]) -> str:
    """The ratio at the smallest batch, at the largest, and where it is highest if that is between them."""
    first, last, most = points[0], points[-1], max(points, key=lambda p: p.ratio)
    told = [f"The fault makes a step {_ratio(first)} times as long at batch {first.batch:,}"]
    told += [f"{_ratio(p)} at batch {p.batch:,}" for p in (most, last) if p is not first]
    return ", ".join(dict.fromkeys(told))


def _ratio(point: SweepPoint) -> str:
    return f"{point.ratio:,.1f}" if point.ratio < 20 else f"{point.ratio:,.0f}"


def _times(axes: Axes, points: Sequence[SweepPoint], colour: str) -> None:
    batches = [p.batch for p in points]
    faulty, fixed = [p.faulty_ms for p in points], [p.fixed_ms for p in points]
    low, high = min(fixed + faulty) / 1.9, max(faulty + fixed) * 1.7
    axes.set(xscale="log", yscale="log", ylim=(low, high))
    axes.fill_between(batches, fixed, faulty, color=colour, alpha=0.14, linewidth=0, zorder=1)
    _lines(axes, batches, fixed, faulty, colour)
    _label(axes, batches, faulty, [f"{_ratio(p)} ×" for p in points], colour)
    _number_axis(axes.yaxis, ticks_between(low, high))
    axes.set_title(
        "ms a step, and how many times longer the fault makes it", loc="left", fontsize=9, color=FAINT
    )


def _shares(axes: Axes, points: Sequence[SweepPoint], colour: str) -> None:
    batches = [p.batch for p in points]
    faulty, fixed = (
        [100 * u for u in column]
        for column in ([p.faulty_utilization for p in points], [p.fixed_utilization for p in points])
    )
    axes.set(xscale="log", ylim=(0, 112))
    _lines(axes, batches, fixed, faulty, colour)
    _label(axes, batches, faulty, [f"{share:.0f} %" for share in faulty], colour)
    number_ticks(axes.yaxis)
    axes.set_title("utilization, as a vendor's tool shows it, %", loc="left", fontsize=9, color=FAINT)


def _lines(
    axes: Axes, batches: Sequence[int], fixed: Sequence[float], faulty: Sequence[float], colour: str
) -> None:
    """Both states over the batch, and what the two panels share."""
    for values, paint in ((faulty, colour), (fixed, BUSY_COLOURS["compute"])):
        axes.plot(batches, values, color=paint, linewidth=2.2, marker="o", markersize=4, zorder=3)
    middle = len(batches) // 2
    _beside(axes, "without the fault", (batches[middle], fixed[middle]), (0, -13), "center", INK)
    axes.set_xlim(min(batches) / 1.9, max(batches) * 1.5)
    axes.set_xlabel("requests in the batch")
    _number_axis(axes.xaxis, batches)
    axes.grid(axis="y", color="#e6e9ee", linewidth=0.7, zorder=0)
    plain(axes, sides=("bottom", "left"))


def _label(
    axes: Axes, batches: Sequence[int], values: Sequence[float], words: Sequence[str], colour: str
) -> None:
    """Every second point, the last one always: above the line, on the side where it is lower."""
    for i in range((len(batches) - 1) % 2, len(batches), 2):
        before, after = values[max(i - 1, 0)], values[min(i + 1, len(values) - 1)]
        side, aside = ("right", -4) if after > before else ("left", 4)
        _beside(axes, words[i], (batches[i], values[i]), (aside, 8), side, colour, bold=True)


def _number_axis(axis: Any, ticks: Sequence[float]) -> None:
    """Ticks of a logarithmic axis where they are wanted, written as plain numbers."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    number_ticks(axis)


def ticks_between(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … in [low, high]; 1, 10, 100 … where that would be more than eight.

    >>> ticks_between(1.5, 12)
    [2.0, 5.0, 10.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [f * 10.0**d for d in decades for f in (1, 2, 5) if low <= f * 10.0**d <= high]
    coarse = [10.0**d for d in decades if low <= 10.0**d <= high]
    return fine if len(fine) <= 8 or len(coarse) < 2 else coarse


def _beside(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    points: tuple[float, float],
    side: str,
    colour: str,
    *,
    bold: bool = False,
) -> None:
    axes.annotate(
        text,
        at,
        xytext=points,
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8.5,
        fontweight="bold" if bold else "normal",
        color=colour,
        zorder=5,
    )

"""The bisection as a waterfall: from the whole step down to one operator, each level with its share of the
step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..steps.results import Finding, Walk
from ..words import ABOUT_WORDS
from . import telemetry
from .canvas import Picture, empty, number_ticks, picture, place, plain
from .palette import FAINT, INK, part_colour
from .words import NO_TRACE, RECORD_ONE, percent, short, whole_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..diagnosis import Diagnosis

BAR_IN = 0.32
MOST_LEVELS, MOST_OTHERS = 8, 4
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN, BETWEEN_IN = 3.95, 2.75, 1.15, 0.50, 0.66
DEVICE_PT, HOST_PT = 110, 186
"""Where the two columns of times end, right of the axes."""
NAME_CHARS = 46


def waterfall(diagnosis: Diagnosis) -> Picture:
    """Draw the finding that the verdict points to, and the second one below it."""
    walk, first = diagnosis.lead, diagnosis.finding
    if walk is None:
        if diagnosis.telemetry.stacks:
            return telemetry.where_the_host_stands(diagnosis)
        return empty("Operator bisection", NO_TRACE, RECORD_ONE)
    if first is None:
        return empty(
            "Operator bisection",
            "Nothing to bisect: no part of the step holds time that can be followed down.",
            "Record with host operators (CPU activity), and with Python stacks for the line.",
        )
    return _draw(walk, [first, *(second for second in (second_finding(walk, first),) if second is not None)])


def second_finding(walk: Walk, first: Finding) -> Finding | None:
    """The largest finding beside the first."""
    return next((found for found in walk.findings if found is not first), None)


@dataclass(frozen=True)
class Row:
    """One bar: its name, its share of the step, what stands beside it, and whether it is the one that is
    named."""

    name: str
    share: float
    device: str = ""
    host: str = ""
    beside: str = ""
    named: bool = False


def rows_of(finding: Finding, whole: str = "the step") -> list[Row]:
    """The bars of a finding, outermost first. A spread finding has no path: its heaviest names stand
    beside each other instead."""
    top = Row(whole.replace("the ", "whole "), 1.0)
    words = ABOUT_WORDS.get(finding.about, finding.about).split(" (")[0]
    if finding.spread or not finding.path:
        return [
            top,
            Row(words, finding.total_share, beside=short(finding.name, 60), named=True),
            *(
                Row(f"· {short(name, NAME_CHARS - 4)}", share)
                for name, share in finding.others[:MOST_OTHERS]
                if share >= 5e-4
            ),
        ]
    path = finding.path
    shown = path if len(path) <= MOST_LEVELS else (*path[:2], *path[2 - MOST_LEVELS:])
    names = [level.name for level in shown]
    named = names.index(finding.name) if finding.name in names else len(names) - 1
    left_out = len(path) - len(shown)
    rows = [top, Row(words, finding.total_share)]
    for depth, level in enumerate(shown):
        mark = f"… {left_out} levels … " if left_out and depth == 2 else ""
        rows.append(
            Row(
                f"{mark}{short(level.name, NAME_CHARS - len(mark))}",
                level.share,
                _ms(level.device_ms),
                _ms(level.host_self_ms),
                named=depth == named,
            )
        )
    return rows


def _ms(value: float) -> str:
    return f"{value:,.3f}" if value >= 0.0005 else "–"


def _draw(walk: Walk, findings: list[Finding]) -> Picture:
    tables = [rows_of(finding, whole_words(walk)) for finding in findings]
    height = TOP_IN + BOTTOM_IN + BAR_IN * sum(map(len, tables)) + BETWEEN_IN * (len(tables) - 1)

    def draw(figure: Figure) -> None:
        below = height - TOP_IN
        for i, (finding, rows) in enumerate(zip(findings, tables, strict=True)):
            tall = BAR_IN * len(rows)
            axes = place(figure, LEFT_IN, below - tall, RIGHT_IN, height - below)
            _bars(axes, rows, part_colour(finding.about), last=i == len(findings) - 1)
            axes.set_title(
                "first finding" if i == 0 else "second finding", loc="left", fontsize=8.5, color=FAINT, pad=5
            )
            below -= tall + BETWEEN_IN

    first = findings[0]
    gain = (f"mean step now {first.step_ms:,.2f} ms, without it {first.step_without_ms:,.2f} ms"
            if first.step_without_ms is not None else f"mean step now {first.step_ms:,.2f} ms")
    line = f"; line {short(first.line, 60)}" if first.line else ""
    often = f"{first.calls_per_step or 0:,.4g}"
    calls = f"; {often} call{'' if often == '1' else 's'} a step" if first.calls_per_step else ""
    share = first.total_share if first.spread else first.share
    return picture(
        f"{percent(share)} of {whole_words(walk)}: {short(first.name, 70)}",
        f"{gain}{calls}{line}",
        height,
        draw,
    )


def _bars(axes: Axes, rows: list[Row], colour: str, *, last: bool) -> None:
    count = len(rows)
    axes.barh([count - i - 0.5 for i in range(count)], [100 * row.share for row in rows], height=0.72,
              color=["#c9ced6", *[colour] * (count - 1)], zorder=2)
    for i, row in enumerate(rows):
        at, weight = count - i - 0.5, "bold" if row.named else "normal"
        _beside(axes, row.name, (0, at), -8, "right", weight=weight)
        _beside(axes, percent(row.share), (100 * row.share, at), 6, "left", weight=weight)
        _beside(axes, row.beside, (100 * row.share, at), 52, "left", colour=FAINT)
        _beside(axes, row.device, (100, at), DEVICE_PT, "right", colour=FAINT)
        _beside(axes, row.host, (100, at), HOST_PT, "right", colour=FAINT)
    if any(row.device or row.host for row in rows):
        _beside(axes, "device ms", (100, count + 0.25), DEVICE_PT, "right", colour=FAINT)
        _beside(axes, "host itself ms", (100, count + 0.25), HOST_PT, "right", colour=FAINT)
    axes.set(xlim=(0, 100), ylim=(0, count), yticks=[])
    axes.grid(axis="x", color="#e6e9ee", linewidth=0.7, zorder=0)
    number_ticks(axes.xaxis)
    if last:
        axes.set_xlabel("% of the wall time of whole steps; ms are of one step")
    else:
        axes.tick_params(labelbottom=False)
    plain(axes)


def _beside(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    points: float,
    side: str,
    *,
    weight: str = "normal",
    colour: str = INK,
) -> None:
    """Text at a place in the data, moved by points."""
    if text:
        axes.annotate(
            text,
            at,
            xytext=(points, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=8.5,
            fontweight=weight,
            color=colour,
            annotation_clip=False,
        )

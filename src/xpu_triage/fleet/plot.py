"""All ranks in one picture: what each takes by itself, and what it waits for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..plots.canvas import LEGEND_IN, TOP_IN, Picture, empty, legend, number_ticks, picture, place, plain
from ..plots.palette import ALERT, BUSY_COLOURS, CAUSE_COLOURS, FAINT
from ..steps.results import Cause
from ..text import clean, shorten
from .compare import RankRow
from .diagnosis import FleetDiagnosis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_IN = 4.2
NAMED = 12
"""Ranks that are named in the picture."""


def ranks(found: FleetDiagnosis) -> Picture:
    """One bar a rank, in order of rank; those that stand out are coloured and named."""
    rows = [row for row in found.comparison.rows if row.own_ms is not None]
    if not rows:
        doubt = found.comparison.doubt
        why = [*([doubt.why] if doubt else []), *found.comparison.notes]
        return empty("Ranks", "The ranks' times cannot be compared.", "; ".join(why))
    count = len(found.comparison.rows)
    per = found.comparison.per
    subtitle = f"ms a {per}, {len(rows):,} of {count:,} ranks"
    middle = float(np.sort([row.own_ms or 0.0 for row in rows])[(len(rows) - 1) // 2])
    entries = [(BUSY_COLOURS["compute"], "", f"by itself, kernels and host\n(dashed: median {middle:,.3g} ms)"),
               (ALERT, "", "the same, of a rank that is late or whose verdict differs"),
               (CAUSE_COLOURS[Cause.NO_WORK], "", "waits for other ranks, in collectives beyond their true cost")]

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.75, 0.55, LEGEND_IN, TOP_IN)
        _bars(axes, rows, middle, steps=per == "step")
        legend(figure, entries if per == "step" else entries[:2], TOP_IN)

    return picture(found.verdict.title, subtitle, HEIGHT_IN, draw)


def _bars(axes: Axes, rows: Sequence[RankRow], middle: float, *, steps: bool) -> None:
    at = np.arange(len(rows))
    own = np.array([row.own_ms or 0.0 for row in rows])
    waits = np.array([row.wait_ms or 0.0 if steps else 0.0 for row in rows])
    colours = [ALERT if row.late or row.differs else BUSY_COLOURS["compute"] for row in rows]
    width = 0.86 if len(rows) < 80 else 1.0
    axes.bar(at, own, width=width, color=colours, linewidth=0)
    axes.bar(at, waits, bottom=own, width=width, color=CAUSE_COLOURS[Cause.NO_WORK], linewidth=0)
    axes.axhline(middle, color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
    top = float((own + waits).max()) or 1.0
    axes.set_ylim(0, top * 1.16)
    axes.set_xlim(-0.7, len(rows) - 0.3)
    named = sorted((i for i, row in enumerate(rows) if row.remarkable), key=lambda i: -own[i])[:NAMED]
    for i in named:
        side = "right" if i > 0.8 * len(rows) else "left"
        axes.annotate(shorten(clean(rows[i].result.name), 30), (i, own[i] + waits[i]), xytext=(0, 4),
                      textcoords="offset points", ha=side, va="bottom", fontsize=8.5, fontweight="bold", color=ALERT)
    _rank_ticks(axes, rows)
    number_ticks(axes.yaxis)
    axes.set_xlabel("rank")
    plain(axes, sides=("bottom", "left"))


def _rank_ticks(axes: Axes, rows: Sequence[RankRow]) -> None:
    every = max(1, len(rows) // 16)
    shown = range(0, len(rows), every)
    axes.set_xticks(list(shown), [str(rows[i].result.rank if rows[i].result.rank is not None else "?") for i in shown])

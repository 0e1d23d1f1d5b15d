"""Loads as rows and columns of a picture: lengths that are one within a few per cent share a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..baseline.loads import alike, in_order
from ..baseline.store import Cell
from .canvas import plain
from .palette import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Part = tuple[float | None, ...]

GAP = 0.06
"""Between two boxes, of the distance of their middles."""


@dataclass(frozen=True)
class Axis:
    """One direction of a grid."""

    labels: tuple[str, ...]
    at: Mapping[Cell, int]
    """Place of a load; one that is not here is not drawn."""

    def __len__(self) -> int:
        return len(self.labels)


def axis(cells: Iterable[Cell], part: Callable[[Cell], Part], label: Callable[[Part], str], most: int) -> Axis:
    """Loads sorted by a part of them, equal ones within tolerance in one place. Of more than `most` places the first
    and the last are kept, and as many between."""
    found: list[tuple[Part, list[Cell]]] = []
    for cell in sorted(cells, key=lambda cell: (tuple(-1.0 if v is None else v for v in part(cell)), in_order(cell))):
        value = part(cell)
        same = next((group for group in found if all(map(alike, group[0], value))), None)
        if same is None:
            found.append((value, [cell]))
        else:
            same[1].append(cell)
    if len(found) > most:
        found = [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
    return Axis(tuple(label(value) for value, _ in found),
                {cell: place for place, (_, group) in enumerate(found) for cell in group})


def in_flight(cell: Cell) -> Part:
    return cell.concurrency, cell.request_rate


def in_flight_label(part: Part) -> str:
    """`8`, or `5 requests/s` where the load was a rate."""
    concurrency, rate = part
    if rate is not None:
        return f"{rate:,.4g}/s" if concurrency is None else f"{concurrency:,.4g} ({rate:,.4g}/s)"
    return "unknown" if concurrency is None else f"{concurrency:,.4g}"


def length_label(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def frame(axes: Axes, columns: Axis, rows: Axis, *, title: str = "", row_labels: bool = True) -> None:
    """Ticks and limits for boxes at whole places, the first row below."""
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5), xticks=range(len(columns)),
             yticks=range(len(rows)))
    axes.set_xticklabels(columns.labels)
    axes.set_yticklabels(rows.labels if row_labels else [])
    plain(axes, sides=())
    axes.tick_params(length=0, colors=FAINT)
    if title:
        axes.set_title(title, loc="left", fontsize=9.5, color=INK, pad=6)


def box(axes: Axes, column: int, row: int, *, face: str, edge: str = "none", hatch: str = "", dashed: bool = False
        ) -> None:
    """One load."""
    from matplotlib.patches import Rectangle

    size = 1 - GAP
    axes.add_patch(Rectangle((column - size / 2, row - size / 2), size, size, facecolor=face, edgecolor=edge,
                             hatch=hatch, linewidth=0.8, linestyle=(0, (3, 2)) if dashed else "solid"))


def write(axes: Axes, column: int, row: int, text: str, small: str = "", *, colour: str = INK, bold: bool = False,
          size: float = 9.0) -> None:
    """A figure in the middle of a load's box, and a smaller one below it."""
    axes.text(column, row + (0.13 if small else 0.0), text, ha="center", va="center", fontsize=size, color=colour,
              fontweight="bold" if bold else "normal")
    if small:
        axes.text(column, row - 0.22, small, ha="center", va="center", fontsize=7, color=colour)


def readable_on(face: str) -> str:
    """Ink or white, whichever is read better on a colour (relative luminance of WCAG 2)."""
    red, green, blue = ((v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4)
                        for v in (int(face[i:i + 2], 16) / 255 for i in (1, 3, 5)))
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 else "#ffffff"


def between(light: str, dark: str, share: float) -> str:
    """The colour at `share` (0 to 1) of the way from one to the other."""
    share = min(max(share, 0.0), 1.0)
    parts = (round(int(light[i:i + 2], 16) * (1 - share) + int(dark[i:i + 2], 16) * share) for i in (1, 3, 5))
    return "#" + "".join(f"{part:02x}" for part in parts)

"""Paper and ink: figures that need no display, look the same everywhere, and treat every text as plain
text."""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra
from ..text import clean, shorten
from .palette import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 11.0
DPI = 140
TOP_IN = 0.90
"""From a figure's top edge to its axes: the title, its second line, and air."""
LEGEND_IN = 2.95
"""Width on the right side that the legend takes."""

Entry = tuple[str, str, str]
"""One line of a legend: colour, share (may be empty), words."""

Draw = Callable[["Figure"], None]


@dataclass(frozen=True)
class Picture:
    """A finished plot: its finding in words, and the PNG. Jupyter shows the image, a terminal the words."""

    title: str
    subtitle: str
    png: bytes

    def save(self, path: str | Path) -> Path:
        """Write the PNG to `path`."""
        path = Path(path)
        path.write_bytes(self.png)
        return path

    def __repr__(self) -> str:
        return f"[picture] {self.title}\n{self.subtitle}".rstrip()

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        alt = f"{self.title}. {self.subtitle}".strip()
        return ({"image/png": self.png, "text/plain": repr(self)},
                {"image/png": {"width": round(WIDTH_IN * 100), "alt": alt}})


def picture(title: str, subtitle: str, height_in: float, draw: Draw) -> Picture:
    """Run `draw` on a new figure of the standard width and return it as PNG, byte for byte the same each
    time.

    The user's matplotlibrc is set aside. Raises `MissingExtra` where matplotlib is not installed.
    """
    try:
        logging.getLogger("matplotlib.font_manager").setLevel(
            logging.ERROR
        )  # it tells when it builds its cache
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.text import Text
    except ImportError as error:
        raise MissingExtra("matplotlib", "report") from error
    title, subtitle = clean(title), clean(subtitle)
    style = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}
    style |= {"font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "xtick.color": FAINT,
              "ytick.color": FAINT, "axes.edgecolor": "#c9ced6", "axes.linewidth": 0.8, "font.size": 9.0,
              "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "hatch.linewidth": 0.6}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names may hold any script
        figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        figure.text(
            0.012, 1 - 0.30 / height_in, shorten(title, 112), fontsize=13, fontweight="bold", va="center"
        )
        figure.text(
            0.012, 1 - 0.58 / height_in, shorten(subtitle, 165), fontsize=9.5, color=FAINT, va="center"
        )
        draw(figure)
        for text in figure.findobj(Text):
            text.set_parse_math(False)  # a `$` in a name is a dollar sign
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None}, pil_kwargs={"optimize": True})
    return Picture(title, subtitle, out.getvalue())


def empty(title: str, why: str, todo: str = "") -> Picture:
    """A picture that says why there is nothing to draw, and what would give it."""
    def draw(figure: Figure) -> None:
        axes = figure.add_axes((0.012, 0.10, 0.976, 0.50))
        axes.set(xticks=[], yticks=[], facecolor="#f6f7f9")
        lines = [*textwrap.wrap(clean(why), 130), *textwrap.wrap(clean(todo), 130)]
        axes.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", color=FAINT, fontsize=10)

    return picture(title, "", 1.45, draw)


def place(figure: Figure, left_in: float, bottom_in: float, right_in: float, top_in: float) -> Axes:
    """Axes by their margins to the figure's edges, in inches; so that text sizes never meet data."""
    width, height = figure.get_size_inches()
    return figure.add_axes((left_in / width, bottom_in / height,
                            (width - left_in - right_in) / width, (height - bottom_in - top_in) / height))


def legend_height(entries: Sequence[Entry]) -> float:
    """Inches that `legend` takes for these entries."""
    share_in = _share_width(entries)
    return sum(_entry_height(_wrapped(entry, share_in)) for entry in entries)


def legend(figure: Figure, entries: Sequence[Entry], top_in: float) -> None:
    """Colour, share and words, one entry below the other on the figure's right side, from `top_in` below
    its top."""
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    left, y, share_in = width - LEGEND_IN + 0.22, height - top_in, _share_width(entries)
    for entry in entries:
        colour, share, _ = entry
        lines = _wrapped(entry, share_in)
        figure.add_artist(Rectangle((left / width, (y - 0.14) / height), 0.16 / width, 0.14 / height,
                                    facecolor=colour, edgecolor="#8a929d", linewidth=0.5))
        figure.text(
            (left + 0.24) / width, (y - 0.07) / height, share, va="center", fontsize=9, fontweight="bold"
        )
        figure.text(
            (left + 0.24 + (share_in if share else 0.0)) / width,
            (y + 0.005) / height,
            "\n".join(lines),
            va="top",
            fontsize=8.5,
            linespacing=1.15,
        )
        y -= _entry_height(lines)


def _share_width(entries: Sequence[Entry]) -> float:
    """Inches of the column of shares: room for the longest, and air behind it."""
    return max((0.086 * len(share) + 0.1 for _, share, _ in entries if share), default=0.0)


def _wrapped(entry: Entry, share_in: float) -> list[str]:
    _, share, words = entry
    width = 38 - (round(share_in / 0.07) if share else 0)
    return [line for part in words.split("\n") for line in textwrap.wrap(part, width)] or [""]


def _entry_height(lines: list[str]) -> float:
    return 0.09 + 0.135 * len(lines)


def plain(axes: Axes, *, sides: Iterable[str] = ("bottom",)) -> None:
    """Take away every frame line but those named."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
    axes.tick_params(length=3, width=0.8)


def number_ticks(axis: Any) -> None:
    """Plain numbers on an axis: no offsets, no powers of ten, nothing that needs mathtext."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def whole_ticks(axes: Axes, count: int) -> None:
    """Whole numbers on the x axis, from 1 to `count`: of things that are counted there is no half."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    if count == 1:
        axes.set_xticks([1])
    number_ticks(axes.xaxis)

"""Device lanes and host lanes over one step: when the device works, and what it waits for when it does
not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..steps.results import CAUSES, Finding, Step, Walk
from ..text import counted
from ..trace import Kind
from . import host_lanes, occupancy
from .canvas import (
    LEGEND_IN,
    TOP_IN,
    Picture,
    empty,
    legend,
    legend_height,
    number_ticks,
    picture,
    place,
    plain,
)
from .over_time import share_entries
from .palette import (
    BUSY_KINDS,
    HOST_COLOURS,
    HOST_WORDS,
    INK,
    PART_COLOURS,
    PARTS,
    part_colour,
)
from .words import (
    NO_TRACE,
    RECORD_ONE,
    device_words,
    milliseconds,
    percent,
    short,
    step_words,
    time_axis,
    whole_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..diagnosis import Diagnosis

COLUMNS = 1400
"""Time resolution. Each column shows its own time in proportion, so that nothing is lost however many
events there are."""

ROWS = 60
MOST_DEVICES, MOST_THREADS = 4, 2
DEVICE_IN, STRIP_IN, LEVEL_IN, GAP_IN = 0.62, 0.26, 0.25, 0.30
LEFT_IN, BOTTOM_IN = 1.55, 0.52
LEAST_LABEL, CHARS = 8, 105
"""A box with room for fewer characters has no name on it; so many fit over the whole width."""

_BOX_COLOURS = {
    Kind.HOST_OP: "#c3d0de",
    Kind.RUNTIME: "#a9bacb",
    Kind.PYTHON: "#e6e1d2",
    Kind.ANNOTATION: "#d9e5dc",
}


def chosen_step(walk: Walk, which: str) -> Step:
    """The `slowest` step, or the `median` one (the nearest to the median wall time)."""
    steps = walk.steps.steps
    if which == "slowest":
        return max(steps, key=lambda step: step.wall)
    if which == "median":
        return sorted(steps, key=lambda step: step.wall)[len(steps) // 2]
    raise ValueError(f"which step? 'slowest' or 'median', not {which!r}")


def lanes(diagnosis: Diagnosis, step: str = "slowest") -> Picture:
    """Draw the lanes of the `slowest` or the `median` step."""
    walk = diagnosis.lead
    if walk is None:
        return empty("Lanes of one step", NO_TRACE, RECORD_ONE)
    chosen = chosen_step(walk, step)
    threads = host_lanes.busiest_threads(walk.trace, chosen.start, chosen.end, MOST_THREADS)
    if not walk.devices and not threads:
        return empty("Lanes of one step", "This step holds neither device work nor host rows.", RECORD_ONE)
    return _draw(walk, chosen, diagnosis.finding, threads)


def _draw(walk: Walk, step: Step, finding: Finding | None, threads: list[int]) -> Picture:
    edges = occupancy.edges_of(step.start, step.end, COLUMNS)
    devices = walk.devices[:MOST_DEVICES]
    shares = [occupancy.occupancy(walk.trace, use, edges) for use in devices]
    found = finding.name if finding is not None and not finding.spread else ""
    accent = part_colour(finding.about) if finding is not None else INK
    nested = [host_lanes.boxes(walk.trace, t, step, step.wall // 350, found) for t in threads]
    heights = [DEVICE_IN] * len(devices) + [
        STRIP_IN + LEVEL_IN * (1 + max((box.level for box in boxes), default=-1)) for boxes in nested]
    entries = share_entries(dict(zip(PARTS, shares[0].mean(axis=0).tolist(), strict=True))) if shares else []
    entries += [(HOST_COLOURS[key], "", words) for key, words in HOST_WORDS.items()] if threads else []
    if any(box.name == found for boxes in nested for box in boxes):
        entries.append((accent, "", "host: what the finding names, in the colour of the time that it explains"))
    height = TOP_IN + max(sum(h + GAP_IN for h in heights) + BOTTOM_IN, legend_height(entries) + 0.1)

    def draw(figure: Figure) -> None:
        axes = place(figure, LEFT_IN, BOTTOM_IN, LEGEND_IN, TOP_IN)
        unit, unit_name = time_axis(step.wall)
        span, bottom, top = step.wall / unit, 0.0, height - TOP_IN - BOTTOM_IN
        y = top
        for use, share in zip(devices, shares, strict=True):
            _raster(axes, share, [PART_COLOURS[part] for part in PARTS], span, y - DEVICE_IN, y)
            _label(axes, f"device\n{short(use.device, 18)}", y - DEVICE_IN / 2)
            y -= DEVICE_IN + GAP_IN
        for thread, boxes, tall in zip(threads, nested, heights[len(devices):], strict=True):
            _raster(
                axes,
                host_lanes.doing(walk.trace, thread, edges),
                list(HOST_COLOURS.values()),
                span,
                y - STRIP_IN,
                y,
            )
            _label(axes, f"host thread\n{short(walk.trace.threads[thread], 18)}", y - STRIP_IN / 2)
            _draw_boxes(axes, boxes, step, unit, y - STRIP_IN, found, accent)
            y -= tall + GAP_IN
        axes.set(xlim=(0, span), ylim=(bottom, top), yticks=[])
        axes.set_xlabel(f"{unit_name} from the start of {whole_words(walk)}")
        number_ticks(axes.xaxis)
        plain(axes)
        legend(figure, entries, TOP_IN)

    title, subtitle = _title(walk, step, finding, shares, bool(threads))
    return picture(title, subtitle, height, draw)


def _title(walk: Walk, step: Step, finding: Finding | None, shares: list[NDArray[np.float64]],
           with_host: bool) -> tuple[str, str]:
    where = step_words(walk, step)
    took = f"{milliseconds(step.wall)}, by {walk.steps.method}"
    if not shares:
        name = ""
        if finding is not None and finding.name:
            name = (
                f": {finding.name}"
                if finding.spread
                else f": {short(finding.name)} holds {percent(finding.share)}"
            )
        return f"Host only, {where}{name}", f"No device work in this trace. {took}"
    mean = dict(zip(PARTS, shares[0].mean(axis=0).tolist(), strict=True))
    busy = sum(mean[kind] for kind in BUSY_KINDS)
    title = device_words(busy, {cause: mean[cause] for cause in CAUSES}, finding, where)
    hidden = len(walk.devices) - MOST_DEVICES
    more = f"; {counted(hidden, 'more device')} not drawn" if hidden > 0 else ""
    bare = "" if with_host else "; this capture holds no host rows"
    return title, f"{took}. Each column shows how its own time divides{more}{bare}"


def _raster(
    axes: Axes, shares: NDArray[np.float64], colours: list[str], span: float, bottom: float, top: float
) -> None:
    """One lane as one image: each column is filled from below in proportion to its shares."""
    axes.imshow(
        paint(shares, colours, ROWS),
        extent=(0, span, bottom, top),
        aspect="auto",
        interpolation="nearest",
        origin="lower",
        zorder=2,
    )


def paint(shares: NDArray[np.float64], colours: list[str], rows: int) -> NDArray[np.uint8]:
    """Image of shape (rows, columns, 3), row 0 lowest: column c is filled from below by shares[c], white
    above."""
    hexes = [*colours, "#ffffff"]
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in hexes], dtype=np.uint8)
    tops = np.cumsum(shares, axis=1)
    tops[:, -1] += 1e-9
    middle = (np.arange(rows) + 0.5) / rows
    index = (tops[None, :, :] <= middle[:, None, None]).sum(axis=2)
    painted: NDArray[np.uint8] = rgb[index]
    return painted


def _label(axes: Axes, text: str, y: float) -> None:
    axes.annotate(
        text,
        (0, y),
        xytext=(-8, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8.5,
        annotation_clip=False,
    )


def _draw_boxes(
    axes: Axes, boxes: list[host_lanes.Box], step: Step, unit: float, top: float, found: str, accent: str
) -> None:
    from matplotlib.collections import PolyCollection

    if not boxes:
        return
    corners, colours = [], []
    for box in boxes:
        x0, x1 = (box.start - step.start) / unit, (box.end - step.start) / unit
        y1 = top - box.level * LEVEL_IN
        corners.append([(x0, y1 - LEVEL_IN), (x1, y1 - LEVEL_IN), (x1, y1), (x0, y1)])
        is_found = bool(found) and box.name == found
        colours.append(
            accent if is_found else HOST_COLOURS["blocked"] if box.blocking else _BOX_COLOURS[box.kind]
        )
        room = int((box.end - box.start) / step.wall * CHARS) - 1
        if room >= min(LEAST_LABEL, len(box.name)):
            axes.text((x0 + x1) / 2, y1 - LEVEL_IN / 2, short(box.name, room), ha="center", va="center",
                      fontsize=7.5, color=_ink_on(colours[-1]), zorder=4, clip_on=True)
    axes.add_collection(
        PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=0.5, zorder=3)
    )


def _ink_on(colour: str) -> str:
    """Dark or white text, whichever is read better on the colour (relative luminance, WCAG 2)."""
    red, green, blue = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 120 else INK

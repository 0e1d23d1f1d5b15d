"""A baseline as heat maps, and two of them as a matrix of ratios with how sure each is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from ..baseline.compare import SEEN, TAIL_SEEN, Comparison, Entry, State
from ..baseline.dimension import Dimension
from ..baseline.figures import METRICS, MIN_TAIL_REQUESTS, TAILS, THROUGHPUT
from ..baseline.loads import words
from ..baseline.records import BenchRecord
from ..baseline.store import Baseline
from ..text import counted
from ..units import figure
from .canvas import TOP_IN, WIDTH_IN, Picture, empty, picture, place
from .load_grid import (
    Axis,
    axis,
    between,
    box,
    frame,
    in_flight,
    in_flight_label,
    length_label,
    readable_on,
    write,
)
from .palette import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS, MOST_ROWS, MOST_PANELS = 7, 10, 3
ROW_IN, MOST_COLUMN_IN, BETWEEN_IN, KEY_IN, MATRIX_LEFT_IN = 0.46, 1.5, 0.28, 0.3, 1.25
ROOMY_IN, TIGHT_IN = 0.62, 0.42
"""Widths of a box from which on an interval fits into it, and a mark beside the ratio."""
HEAD_IN = TOP_IN + 0.28

NAMES = {"ttft": ("Time to first token", "ms"), "itl": ("Time per token", "ms"), "e2e": ("Request duration", "ms"),
         THROUGHPUT: ("Throughput", "tokens/s")}

TAIL_NAMES = {"ttft_tail": "Time to first token", "itl_tail": "Longest gap", "e2e_tail": "Request duration"}
"""Of the slowest tenth."""

LOW, HIGH = "#e6eef8", "#12305e"
"""Ends of a heat map: by lightness alone, so that every eye reads the order."""

WORSE, BETTER = ("#f6d5c3", "#c03b02"), ("#cfe0ff", "#0046d8")
"""From a ratio that is just sure to one of `FULL`."""
FULL = 2.0
SURE_SAME = "#e7eaee"


def heat_map(baseline: Baseline, metric: str = "ttft", name: str = "") -> Picture:
    """One metric (a name of METRICS) over requests in flight and prompt length, a panel for each output length. Medians
    over requests; of several runs of one load the median of theirs. `name` says whose it is."""
    if metric not in NAMES:
        raise ValueError(f"metric is one of {', '.join(NAMES)}, not {metric!r}")
    label, unit = NAMES[metric]
    values = {cell: value for cell, records in baseline.cells.items() if (value := _middle(records, metric))}
    if not values:
        return empty(f"{label} by load", f"None of {len(baseline.records)} runs says its {label.lower()}.",
                     "Record with streaming on: xpu-triage baseline record.")
    panels = axis(values, lambda c: (c.output_tokens,), lambda p: length_label(p[0]), MOST_PANELS)
    columns = axis(values, in_flight, in_flight_label, MOST_COLUMNS)
    rows = axis(values, lambda c: (c.prompt_tokens,), lambda p: length_label(p[0]), MOST_ROWS)
    low, high = min(values.values()), max(values.values())
    drawn = {cell: value for cell, value in values.items() if all(cell in a.at for a in (panels, columns, rows))}

    def draw(sheet: Figure) -> None:
        for number in range(len(panels)):
            axes = _panel(sheet, number, len(panels), columns, rows,
                          f"output {panels.labels[number]} tokens")
            for row in range(len(rows)):
                for column in range(len(columns)):
                    box(axes, column, row, face="#ffffff", edge="#d5d9e0")
            for cell, value in drawn.items():
                if panels.at[cell] == number:
                    share = math.log(value / low) / math.log(high / low) if high > low else 0.0
                    face = between(LOW, HIGH, share)
                    box(axes, columns.at[cell], rows.at[cell], face=face)
                    write(axes, columns.at[cell], rows.at[cell], figure(value), colour=readable_on(face))

    least, most = min(values, key=lambda c: values[c]), max(values, key=lambda c: values[c])
    span = f"{figure(low)} to {figure(high)} {unit}" if high > low else f"{figure(low)} {unit} in every load"
    where = f"least at {words(least)}; most at {words(most)}" if high > low else words(least)
    left_out = f"; {counted(len(values) - len(drawn), 'load')} not drawn" if len(drawn) < len(values) else ""
    return picture(f"{label}{f' {name}' if name else ''}: {span}", f"{unit}, the darker the more; {where}{left_out}",
                   _height(rows), draw)


def name_of(metric: str) -> str:
    """What a name of METRICS or TAILS is called: `Time per token`, `Longest gap, slowest tenth`."""
    return NAMES[metric][0] if metric in NAMES else f"{TAIL_NAMES[metric]}, slowest tenth"


def ratio_matrix(comparison: Comparison, verdict: Dimension) -> Picture:
    """New ÷ old of every load for the typical request, a panel for each metric. Only what is a claim has a colour:
    orange is surely worse, blue better; grey rules out a slow-down of 10 %; what is white allows no claim, and says
    why."""
    entries = [entry for entry in comparison.entries if entry.metric in METRICS]
    if not entries:
        return empty("Ratios new ÷ old", "No load was measured in both.", "Record the loads of the old one again.")
    kind, first = str(verdict.kind), verdict.text.partition(". ")[0].rstrip(".")
    return _matrix(entries, {metric: NAMES[metric][0].lower() for metric in METRICS},
                   first if kind.casefold() in first.casefold() else f"{kind[:1].upper()}{kind[1:]}: {first}",
                   f"{100 * (SEEN - 1):.0f} % slower")


def tail_matrix(comparison: Comparison) -> Picture:
    """The same of the slowest tenth of the requests; grey rules out that they are twice as slow."""
    entries = [entry for entry in comparison.entries if entry.metric in TAILS]
    if not entries:
        return empty("The slowest tenth, new ÷ old", "No load has enough requests in both for a slowest tenth.",
                     f"Record {MIN_TAIL_REQUESTS} requests a load or more; 200 are usual.")
    worse = [entry for entry in entries if entry.state is State.WORSE]
    most = max(worse, key=lambda entry: entry.effect, default=None)
    title = "The slowest tenth of the requests: " + (
        "none is surely slower" if most is None else
        f"{TAIL_NAMES[most.metric].lower()} × {_ratio(most.ratio)} at {words(most.cell)}")
    return _matrix(entries, {metric: TAIL_NAMES[metric].lower() for metric in TAILS}, title,
                   f"{TAIL_SEEN:.0f} times as slow")


def _matrix(entries: Sequence[Entry], names: Mapping[str, str], title: str, ruled_out: str) -> Picture:
    """A panel for each metric of `names` that there is, a box for each load."""
    metrics = [metric for metric in names if any(entry.metric == metric for entry in entries)]
    cells = tuple(dict.fromkeys(entry.cell for entry in entries))
    columns = axis(cells, in_flight, in_flight_label, MOST_COLUMNS)
    rows = axis(cells, lambda c: (c.prompt_tokens, c.output_tokens),
                lambda p: f"{length_label(p[0])} → {length_label(p[1])}", MOST_ROWS)
    drawn = [entry for entry in entries if entry.cell in columns.at and entry.cell in rows.at]

    def draw(sheet: Figure) -> None:
        for number, metric in enumerate(metrics):
            axes = _panel(sheet, number, len(metrics), columns, rows, names[metric], MATRIX_LEFT_IN)
            for entry in drawn:
                if entry.metric == metric:
                    _entry(axes, columns.at[entry.cell], rows.at[entry.cell], entry, box_in)
        _key(sheet, keys)

    keys = _keys({entry.state for entry in drawn}, ruled_out)
    box_in = _panel_in(len(metrics), len(columns), MATRIX_LEFT_IN) / max(len(columns), 1)
    within = ", below it where the ratio lies (all at once in 99 of 100)" if box_in >= ROOMY_IN else ""
    sure = sum(entry.state in (State.WORSE, State.BETTER, State.SAME) for entry in entries)
    left_out = len(entries) - len(drawn)
    return picture(
        title, f"new ÷ old{within}; {sure} of {len(entries)} allow a claim"
        f"{f'; {left_out} not drawn' if left_out else ''}", _height(rows) + KEY_IN * len(keys) + 0.1, draw)


def _entry(axes: Axes, column: int, row: int, entry: Entry, box_in: float) -> None:
    """A claim has a colour, all else is white: hatched where it is too noisy, dashed where there is no interval. In a
    narrow box the ratio stands alone."""
    def told(colour: str, mark: str = "", below: str = "", bold: bool = False) -> None:
        roomy = box_in >= ROOMY_IN
        write(axes, column, row, text + mark * (box_in >= TIGHT_IN), below if roomy else "", colour=colour, bold=bold,
              size=9.0 if box_in >= TIGHT_IN else 7.5)

    small = "" if entry.low is None or entry.high is None else f"{_ratio(entry.low)}–{_ratio(entry.high)}"
    text = _ratio(entry.ratio)
    match entry.state:
        case State.WORSE | State.BETTER:
            face = between(*(WORSE if entry.state is State.WORSE else BETTER), abs(entry.effect) / math.log(FULL))
            box(axes, column, row, face=face)
            told(readable_on(face), "", small, True)
        case State.SAME:
            box(axes, column, row, face=SURE_SAME)
            told(INK, "", small)
        case State.UNKNOWN:
            box(axes, column, row, face="#ffffff", edge=FAINT, dashed=True)
            told(FAINT, " ·", "no interval")
        case _:
            late = entry.state is State.CLIENT
            box(axes, column, row, face="#ffffff", edge="#d9dde3", hatch="...." if late else "////")
            told(FAINT, " ?", "client late" if late else small)


_Key = tuple[State, str, str, str]

_FACES: tuple[_Key, ...] = (
    (State.WORSE, WORSE[1], "", "surely worse"), (State.BETTER, BETTER[1], "", "surely better"),
    (State.SAME, SURE_SAME, "", "not {} (its own 95 %)"),
    (State.UNCLEAR, "#ffffff", "////", "no claim: too noisy"),
    (State.CLIENT, "#ffffff", "....", "no claim: client late"),
    (State.UNKNOWN, "#ffffff", "", "no claim: no interval"))


def _keys(states: set[State], ruled_out: str) -> list[list[_Key]]:
    """What the faces mean, in lines of four; the claims before what is none. Grey rests on the ratio's own interval,
    which is narrower than the one in the box: that one holds for all boxes at once."""
    shown = [(state, face, hatch, text.format(ruled_out)) for state, face, hatch, text in _FACES if state in states]
    return [shown[i:i + 4] for i in range(0, len(shown), 4)]


def _key(sheet: Figure, lines: Sequence[Sequence[_Key]]) -> None:
    from matplotlib.patches import Rectangle

    width, height = sheet.get_size_inches()
    for i, line in enumerate(reversed(lines)):
        bottom = 0.16 + KEY_IN * i
        for j, (state, face, hatch, text) in enumerate(line):
            left = MATRIX_LEFT_IN + 2.35 * j
            sheet.add_artist(Rectangle((left / width, bottom / height), 0.2 / width, 0.16 / height, facecolor=face,
                                       edgecolor=FAINT, hatch=hatch, linewidth=0.6,
                                       linestyle=(0, (3, 2)) if state is State.UNKNOWN else "solid"))
            sheet.text((left + 0.27) / width, (bottom + 0.08) / height, text, va="center", fontsize=8.5, color=INK)


def _panel_in(count: int, columns: int, left_in: float) -> float:
    """Width of one of `count` panels side by side."""
    return min((WIDTH_IN - left_in - 0.15 - BETWEEN_IN * (count - 1)) / count, MOST_COLUMN_IN * columns)


def _panel(sheet: Figure, number: int, count: int, columns: Axis, rows: Axis, title: str, left_in: float = 0.95
           ) -> Axes:
    """One of `count` panels side by side; the first carries the rows' names."""
    width, height = sheet.get_size_inches()
    each = _panel_in(count, len(columns), left_in)
    left = left_in + number * (each + BETWEEN_IN)
    axes = place(sheet, left, height - HEAD_IN - _rows_in(rows), width - left - each, HEAD_IN)
    frame(axes, columns, rows, title=title, row_labels=number == 0)
    axes.set_xlabel("requests in flight", fontsize=8.5, color=FAINT)
    if number == 0:
        axes.set_ylabel("prompt → output" if "→" in "".join(rows.labels) else "prompt, tokens", fontsize=8.5,
                        color=FAINT)
    return axes


def _rows_in(rows: Axis) -> float:
    return ROW_IN * max(len(rows), 2)


def _height(rows: Axis) -> float:
    return HEAD_IN + _rows_in(rows) + 0.55


def _middle(records: Sequence[BenchRecord], metric: str) -> float | None:
    found = [value for record in records if (value := _value(record, metric)) and math.isfinite(value) and value > 0]
    return median(found) if found else None


def _value(record: BenchRecord, metric: str) -> float | None:
    if metric == THROUGHPUT:
        return record.output_tokens_per_s
    if metric == "itl":
        return record.stat("tpot").p50 or record.stat("itl").p50
    return record.stat(metric).p50


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if 0.01 <= ratio < 100 else f"{ratio:.3g}"

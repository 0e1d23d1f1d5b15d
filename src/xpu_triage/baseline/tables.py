"""A comparison as people read it, and as programs do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..text import clean, counted
from .compare import Comparison, Entry, State
from .dimension import Dimension, Kind
from .figures import METRICS, TAILS
from .loads import words
from .store import Cell

SCHEMA = 1

MOST_NAMED = 4
"""Of the loads that one of the two alone has."""

HEADS = {"ttft": "first token", "itl": "per token", "e2e": "request", "throughput": "tokens/s",
         "ttft_tail": "first token", "itl_tail": "longest gap", "e2e_tail": "request"}
STYLES = {State.WORSE: "bold red", State.BETTER: "green", State.CLIENT: "magenta", State.UNCLEAR: "yellow",
          State.UNKNOWN: "dim"}
_MARKS = {State.WORSE: "!", State.BETTER: "+", State.CLIENT: "c", State.UNCLEAR: "?", State.UNKNOWN: "·"}
_KEY = ("! worse for sure  + better for sure  ? too noisy to rule out 10 %, of the slowest tenth a doubling  "
        "c the client was late  · no interval. Ratios new ÷ old, in brackets where it lies (all of them at once in "
        "99 of 100). Without a mark: 10 % (a doubling) is ruled out, by the ratio's own interval of 95 %, which is "
        "narrower than the one shown")


def parts(comparison: Comparison, verdict: Dimension) -> Iterator[RenderableType]:
    """The verdict, then the matrix, then what limits it."""
    yield Panel(Group(Text(verdict.kind.upper(), style=f"bold {_colour(verdict)}"), Text(clean(verdict.text)),
                      Text(clean(f"{comparison.new} against {comparison.old}"), style="dim")),
                border_style=_colour(verdict))
    yield _matrix(comparison, METRICS)
    if any(entry.metric in TAILS for entry in comparison.entries):
        yield Text("the slowest tenth of the requests:")
        yield _matrix(comparison, tuple(TAILS))
    yield Text(_KEY, style="dim")
    for line in verdict.where:
        yield Text(f"  {clean(line)}")
    for one in comparison.failures:
        mark = "! " if one.more else "  "
        yield Text(f"{mark}{words(one.cell)}: {one.new} of {counted(one.of_new, 'request')} failed, before "
                   f"{one.old} of {one.of_old}")
    for name, cells in (("only in the old one", comparison.only_old), ("only in the new one", comparison.only_new)):
        if cells:
            more = f"; and {len(cells) - MOST_NAMED:,} more" if len(cells) > MOST_NAMED else ""
            yield Text(f"{name}: {'; '.join(map(words, cells[:MOST_NAMED]))}{more}")
    for note in (*comparison.notes, *comparison.course):
        yield Text(f"mind: {clean(note)}")
    if verdict.record_next:
        yield Text(f"record next, in both: {'; '.join(map(words, verdict.record_next))}")


def _colour(verdict: Dimension) -> str:
    return "red" if verdict.regression else "green" if verdict.kind is Kind.NONE else "cyan"


def _matrix(comparison: Comparison, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    rates = any(cell.request_rate is not None for cell in comparison.cells)
    for name in ("in flight", *(["requests/s"] if rates else []), "prompt", "output"):
        table.add_column(name, justify="right")
    metrics = [metric for metric in columns if any(entry.metric == metric for entry in comparison.entries)]
    for metric in metrics:
        table.add_column(HEADS[metric])
    for cell in comparison.cells:
        load = (cell.concurrency, *([cell.request_rate] if rates else []), cell.prompt_tokens, cell.output_tokens)
        table.add_row(*("unknown" if part is None else f"{part:,.4g}" if part < 1e4 else f"{part:,.0f}"
                        for part in load), *(_shown(comparison.entry(cell, metric)) for metric in metrics))
    pooled = {one.metric: one for one in comparison.pooled if one.metric in columns}
    if pooled:
        table.add_row(*[""] * (3 if rates else 2), "all", *(
            _ratio(pooled[m].ratio, pooled[m].low, pooled[m].high, pooled[m].state) if m in pooled else Text("")
            for m in metrics))
    return table


def _shown(entry: Entry | None) -> Text:
    return Text("unknown", style="dim") if entry is None else _ratio(entry.ratio, entry.low, entry.high, entry.state)


def _ratio(ratio: float, low: float | None, high: float | None, state: State) -> Text:
    between = "" if low is None or high is None else f" ({_figure(low)}–{_figure(high)})"
    return Text(f"{_MARKS.get(state, ' ')} {_figure(ratio)}{between}", style=STYLES.get(state, ""))


def _figure(ratio: float) -> str:
    return f"{ratio:.2f}" if 0.01 <= ratio < 100 else f"{ratio:.3g}"


def to_json(comparison: Comparison, verdict: Dimension) -> dict[str, Any]:
    """Plain values; what is unknown is null. `comparison_schema` counts the versions of this shape."""
    return {
        "comparison_schema": SCHEMA,
        "old": clean(comparison.old), "new": clean(comparison.new),
        "verdict": {"kind": str(verdict.kind), "regression": verdict.regression, "text": clean(verdict.text),
                    "where": [clean(line) for line in verdict.where],
                    "record_next": [_load(cell) for cell in verdict.record_next]},
        "loads": [{**_load(cell), "figures": {entry.metric: _entry(entry) for entry in comparison.entries
                                              if entry.cell == cell}} for cell in comparison.cells],
        "all_together": {one.metric: {"ratio": _number(one.ratio), "low": _number(one.low), "high": _number(one.high),
                                      "loads": one.cells, "state": str(one.state)} for one in comparison.pooled},
        "failures": [{**_load(one.cell), "old": one.old, "of_old": one.of_old, "new": one.new, "of_new": one.of_new,
                      "more": one.more} for one in comparison.failures],
        "stalls": [{**_load(one.cell), "figure": one.tail, "longer_than_ms": _number(one.longer_than_ms),
                    "old": one.old, "of_old": one.of_old, "new": one.new, "of_new": one.of_new,
                    "longest_old_ms": _number(one.longest_old_ms), "longest_new_ms": _number(one.longest_new_ms),
                    "p": _number(one.p)} for one in comparison.stalls],
        "only_old": [_load(cell) for cell in comparison.only_old],
        "only_new": [_load(cell) for cell in comparison.only_new],
        "notes": [clean(note) for note in comparison.notes],
        "course": [clean(line) for line in comparison.course],
    }


def _load(cell: Cell) -> dict[str, float | None]:
    return dict(cell._asdict())


def _entry(entry: Entry) -> dict[str, Any]:
    return {"old": _number(entry.old), "new": _number(entry.new), "ratio": _number(entry.ratio),
            "low": _number(entry.low), "high": _number(entry.high), "state": str(entry.state), "basis": entry.basis,
            "n_old": entry.n_old, "n_new": entry.n_new}


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value

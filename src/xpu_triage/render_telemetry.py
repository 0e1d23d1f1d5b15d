"""What telemetry says, in the terminal, for each of the three steps: name, value, and what it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from .signals import Signal
from .telemetry.measured import Measured
from .text import clean, shorten
from .units import show

GROUPS: tuple[tuple[str, ...], ...] = (
    ("device", "clock", "power"),
    ("step", "serving", "latency", "kv", "warmup", "client", "roofline"),
    ("host", "fallback", "placement", "sync", "idle", "process", "log"),
)
"""Groups of signals that belong to utilization, step time, operator bisection."""

NARROWEST = 24
"""Characters that words about a figure need beside it; with fewer they go below it."""

REPEATED = 3
"""So many figures in a row of one source say once what they cover."""


def of_step(measured: Measured, step: int) -> tuple[Signal, ...]:
    """The signals of step 1, 2 or 3 that telemetry gives, in the order of the groups."""
    order = GROUPS[step - 1]
    mine = [signal for signal in measured.signals if signal.spec.group in order]
    return tuple(sorted(mine, key=lambda signal: order.index(signal.spec.group)))


def lines(signals: Sequence[Signal]) -> Iterator[RenderableType]:
    """One line a signal; nothing where there is none."""
    if not signals:
        return
    names = max(len(signal.name) for signal in signals)
    values = max(len(_value(signal)) for signal in signals)
    for (how, covers, _), group in groupby(signals, key=_covers):
        rows = list(group)
        if covers and len(rows) >= REPEATED:
            yield Text(f"{clean(how)}; {clean(covers)}", style="dim")
            told = [_rest(signal) for signal in rows]
        else:
            told = [f"{signal.how}; {signal.window}" if signal.window else signal.how for signal in rows]
        yield _Rows([(signal.name, _value(signal), clean(words)) for signal, words in zip(rows, told, strict=True)],
                    names, values)


def _covers(signal: Signal) -> tuple[str, str, str]:
    """Where from, over what; figures that cover nothing in particular stand alone."""
    covers = signal.window.partition(": ")[0]
    return signal.how, covers, "" if covers else signal.name


def _rest(signal: Signal) -> str:
    return signal.window.partition(": ")[2]


def _value(signal: Signal) -> str:
    return shorten(show(signal.value, signal.unit), 48)


class _Rows:
    """Figures in columns that are as wide in every block: name, value, words; the words below where there is no room
    beside them."""

    def __init__(self, rows: Sequence[tuple[str, str, str]], names: int, values: int) -> None:
        self._rows, self._names, self._values = rows, names, values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, min_width=self._names)
        table.add_column(justify="right", no_wrap=True, min_width=self._values)
        room = options.max_width - self._names - self._values - 4
        beside = room >= NARROWEST or all(len(words) <= room for _, _, words in self._rows)
        if beside:
            table.add_column(style="dim")
        for name, value, words in self._rows:
            if beside:
                table.add_row(Text(name), Text(value), Text(words))
                continue
            yield Text(f"{name:<{self._names}}  {value:>{self._values}}")
            if words:
                yield _below(words)
        if beside:
            yield table


def _below(words: str) -> RenderableType:
    row = Table.grid()
    row.add_column(width=4)
    row.add_column(style="dim")
    row.add_row("", Text(words))
    return row

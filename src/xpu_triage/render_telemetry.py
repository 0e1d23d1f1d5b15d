"""What telemetry says, in the terminal, for each of the three steps: name, value, and what it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
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


def of_step(measured: Measured, step: int) -> tuple[Signal, ...]:
    """The signals of step 1, 2 or 3 that telemetry gives, in the order of the groups."""
    order = GROUPS[step - 1]
    mine = [signal for signal in measured.signals if signal.spec.group in order]
    return tuple(sorted(mine, key=lambda signal: order.index(signal.spec.group)))


def lines(signals: Sequence[Signal]) -> Iterator[RenderableType]:
    """One line a signal; nothing where there is none."""
    if not signals:
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for signal in signals:
        how = f"{signal.how}; {signal.window}" if signal.window else signal.how
        table.add_row(Text(signal.name), Text(shorten(show(signal.value, signal.unit), 48)), Text(clean(how)))
    yield table


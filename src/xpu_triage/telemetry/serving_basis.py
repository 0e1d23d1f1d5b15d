"""What the signals of a serving engine are put together with: the findings, and whether requests ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..signals import Signal, Value
from .measured import Measured
from .scrape_runs import Change, Run
from .scrape_views import Who

TAKE_TWO = "take a second scrape"
NO_TIMES = ("the dumps say not when they were taken; save each with its time in its name (curl -s …/metrics > "
            "metrics-$(date -u +%Y%m%dT%H%M%SZ).prom)")


class Findings:
    """Collects signals, and reasons for those that are missing."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notes: list[str] = []
        self._signals: dict[str, Signal] = {}
        self._unknown: dict[str, str] = {}

    def give(self, name: str, value: Value, window: str = "", *, seconds: float | None = None) -> None:
        """The first to give a signal is the better one."""
        words = span(self.run, seconds)
        self._signals.setdefault(name, Signal(name, value, "metrics", f"{words}: {window}" if window else words,
                                              self.run.source))

    def miss(self, name: str, why: str) -> None:
        self._unknown.setdefault(name, why)

    def measured(self) -> Measured:
        unknown = {name: why for name, why in self._unknown.items() if name not in self._signals}
        return Measured(tuple(self._signals.values()), unknown, tuple(dict.fromkeys(self.notes)))


def span(run: Run, seconds: float | None = None) -> str:
    count = len(run.views)
    if count == 1:
        return "1 scrape"
    seconds = run.seconds if seconds is None else seconds
    if seconds is None:
        return f"{count} scrapes without times"
    return f"{count} scrapes, {seconds:.3g} s apart" if count == 2 else f"{count} scrapes over {seconds:.3g} s"


@dataclass(frozen=True)
class Load:
    """Whether requests ran, as far as the scrapes tell."""

    running: tuple[float | None, ...]
    """Requests in the running batches of all engines, a figure a scrape."""
    generated: Change | None

    @property
    def missed(self) -> bool:
        """Tokens came between the scrapes, and none of them saw a request: they were taken before and after."""
        seen = [running for running in self.running if running is not None]
        return bool(seen) and not any(seen) and self.generated is not None and self.generated.value > 0


def load_of(run: Run) -> Load:
    return Load(tuple(total(cells) for cells in run.gauge("running")), run.change("generated"))


def total(cells: Mapping[Who, float]) -> float | None:
    """Over the engines of a server."""
    return sum(cells.values()) if cells else None


def largest(cells: Mapping[Who, float]) -> float | None:
    """The engine that has most."""
    return max(cells.values()) if cells else None


def miss_if_exported(out: Findings, quantities: Iterable[str], signal: str, why: str) -> None:
    """The reason for a signal that the engine exports, in part at least, and this evidence does not give."""
    view, engine = out.run.views[-1], out.run.engine
    names = {source.name.removesuffix("_count") for quantity in quantities for table in (engine.counters, engine.gauges)
             for source in table.get(quantity, ())}
    ends = ("", "_total", "_count", "_sum", "_bucket")
    if any(name + end in view.samples for name in names for end in ends):
        out.miss(signal, why)


def rounded(value: float) -> float:
    """Six digits: more than any of this is worth."""
    return float(f"{value:.6g}")

"""Scrapes of one server, in order, with no restart between them, and what its counters rose by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..samples import Scrape
from .engines import Engine, Source
from .histograms import Spread
from .scrape_servers import servers
from .scrape_views import View, Who, views_of


@dataclass(frozen=True, eq=False)
class Run:
    """Scrapes of one server in their order, without a restart between them."""

    engine: Engine
    views: tuple[View, ...]

    @property
    def is_timed(self) -> bool:
        return all(view.time is not None for view in self.views)

    @property
    def seconds(self) -> float | None:
        """From the first scrape to the last; None where they have no times."""
        first, last = self.views[0].time, self.views[-1].time
        return last - first if first is not None and last is not None and last > first else None

    @property
    def source(self) -> str:
        first, last = self.views[0].scrape.source, self.views[-1].scrape.source
        return first if first == last else f"{first} … {last}"

    def gauge(self, quantity: str) -> list[Mapping[Who, float]]:
        """The cells of every view, by the first name that any of them has."""
        for source in self.engine.gauges.get(quantity, ()):
            if any(found := [view.cells(source) for view in self.views]):
                return found
        return [{} for _ in self.views]

    def change(self, quantity: str) -> Change | None:
        """What a counter rose by, by the first of its names that two scrapes have; None where none is."""
        for source in self.engine.counters.get(quantity, ()):
            if (change := _change(self.views, source)) is not None:
                return change
        return None

    def spread(self, quantity: str) -> tuple[Spread, Source] | None:
        """What a histogram took in between the scrapes that have it; None where fewer than two do."""
        for source in self.engine.histograms.get(quantity, ()):
            counted = _change(self.views, source, "_count") or _change(self.views, source, "_bucket", le="+Inf")
            if counted is None:
                continue
            total = _change(self.views, source, "_sum")
            below = {_bound(le): rise.value for le in self.views[-1].bounds(source)
                     if (rise := _change(self.views, source, "_bucket", le=le)) is not None}
            return Spread(counted.value, total.value if total else None, below), source
        return None


@dataclass(frozen=True)
class Change:
    value: float
    seconds: float | None
    """Between the two scrapes of the change."""
    source: Source


def _change(views: Sequence[View], source: Source, end: str = "", **label: str) -> Change | None:
    first = next((view for view in views if view.has(source, end)), None)
    last = next((view for view in reversed(views) if view.has(source, end)), None)
    if first is None or last is None or first is last:
        return None
    before, after = first.cells(source, end, **label), last.cells(source, end, **label)
    if not after:
        return None
    seconds = last.time - first.time if first.time is not None and last.time is not None else None
    rise = sum(value - before.get(who, 0.0) for who, value in after.items())
    return Change(rise, seconds or None, source) if rise >= 0 else None


def _bound(le: str) -> float:
    try:
        return float(le)
    except ValueError:
        return math.inf


def runs(scrapes: Sequence[Scrape]) -> tuple[list[Run], tuple[str, ...]]:
    """One run a server, the one with most scrapes first (the later of equals), and what was kept apart."""
    notes: list[str] = []
    found = [Run(views[0].engine, tuple(views))
             for views in servers([view for scrape in scrapes for view in views_of(scrape)], notes)]
    found.sort(key=lambda run: (len(run.views), run.views[-1].time or 0.0), reverse=True)
    if len(found) > 1:
        kept = found[0]
        notes.append(f"scrapes of {len(found)} servers, or of one before and after a restart: they are not mixed, the "
                     f"figures are of the {kept.engine.name} server of {kept.source}")
    return found, tuple(dict.fromkeys(notes))

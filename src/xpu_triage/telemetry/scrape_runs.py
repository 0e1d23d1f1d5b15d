"""Which scrapes belong together: those of one server, in order, with no restart between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..samples import Scrape
from .engines import Engine, Source, engine_of
from .histograms import Spread

Labels = Mapping[str, str]
Who = tuple[tuple[str, str], ...]
"""Labels that tell one engine of a server from another."""

_WHO = ("model_name", "model", "name", "engine", "engine_id", "engine_idx", "engine_index", "dp_rank",
        "data_parallel_rank", "instance", "pod", "replica", "ReplicaId", "worker", "worker_id", "WorkerId")
"""These add up: each is an engine with requests of its own. All labels that are in neither list are parts of one
figure (`finished_reason`, `source`, …) and add up too."""
_REPEATED = ("tp_rank", "pp_rank", "ep_rank", "moe_ep_rank", "attn_tp_rank")
"""Ranks that work on the same requests and each say the same number."""


@dataclass(frozen=True, eq=False)
class View:
    """What one engine says in one scrape."""

    scrape: Scrape
    engine: Engine
    samples: Mapping[str, tuple[tuple[Labels, float], ...]]
    """By the name below the engine's prefix."""
    announced: frozenset[str]
    """Names below the prefix that have HELP or TYPE and no sample."""

    @property
    def time(self) -> float | None:
        return self.scrape.time

    def cells(self, source: Source, end: str = "", **label: str) -> dict[Who, float]:
        """The figure of each engine: parts added up, ranks that repeat it taken once. Empty where it is not there."""
        samples = self.samples.get(source.name + end) or self.samples.get(f"{source.name}{end}_total") or ()
        chosen = [(labels, value) for labels, value in samples if all(labels.get(k) == v for k, v in label.items())
                  and all(labels.get(k) in allowed for k, allowed in source.where.items())]
        if any(labels.get("priority") == "" for labels, _ in chosen):  # SGLang: the whole beside its parts
            chosen = [(labels, value) for labels, value in chosen if not labels.get("priority")]
        ranks: dict[Who, dict[Who, float]] = {}
        for labels, value in chosen:
            each = ranks.setdefault(_picked(labels, _WHO), {})
            rank = _picked(labels, _REPEATED)
            each[rank] = each.get(rank, 0.0) + value
        return {who: max(each.values()) for who, each in ranks.items()
                if all(math.isfinite(value) for value in each.values())}

    def bounds(self, source: Source) -> tuple[str, ...]:
        """The `le` labels of a histogram as they are written."""
        return tuple(dict.fromkeys(labels["le"] for labels, _ in self.samples.get(f"{source.name}_bucket", ())
                                   if "le" in labels))

    def has(self, source: Source, end: str = "") -> bool:
        """Whether the metric is there or announced: one that is announced and has no sample yet counted nothing."""
        return bool(self.cells(source, end)) or bool(self.announced.intersection(
            (source.name, source.name + "_total", source.name.removesuffix("_count").removesuffix("_sum"))))


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

    def gauge(self, quantity: str) -> list[dict[Who, float]]:
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
    with_it = [view for view in views if view.has(source, end)]
    if len(with_it) < 2:
        return None
    first, last = with_it[0], with_it[-1]
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


def _picked(labels: Labels, names: Iterable[str]) -> Who:
    return tuple((name, labels[name]) for name in names if labels.get(name))


def runs(scrapes: Sequence[Scrape]) -> tuple[list[Run], tuple[str, ...]]:
    """One run a server, the one with most scrapes first (the later of equals), and what was kept apart."""
    notes: list[str] = []
    found: list[Run] = []
    for server in _servers([view for scrape in scrapes for view in _views(scrape)]):
        views = _ordered(_once(server, notes), notes)
        found.append(Run(views[0].engine, _since_restart(views, notes)))
    found.sort(key=lambda run: (len(run.views), run.views[-1].time or 0.0), reverse=True)
    if len(found) > 1:
        kept = found[0]
        notes.append(f"scrapes of {len(found)} servers, or of one before and after a restart: they are not mixed, the "
                     f"figures are of the {kept.engine.name} server of {kept.source}")
    return found, tuple(dict.fromkeys(notes))


def _views(scrape: Scrape) -> Iterator[View]:
    """One a kind of engine in the dump."""
    samples: dict[Engine, dict[str, tuple[tuple[Labels, float], ...]]] = {}
    empty: dict[Engine, set[str]] = {}
    for name, found in scrape.values.items():
        if (known := engine_of(name)) is not None:
            samples.setdefault(known[0], {})[known[1]] = found
    for name in scrape.empty:
        if (known := engine_of(name)) is not None:
            empty.setdefault(known[0], set()).add(known[1])
    for engine in {**samples, **empty}:
        yield View(scrape, engine, samples.get(engine, {}), frozenset(empty.get(engine, ())))


def _servers(views: Sequence[View]) -> list[list[View]]:
    """Views of the same engine that share a label set and have the same start of the process, or none."""
    groups: list[tuple[set[Who], set[float], list[View]]] = []
    for view in views:
        who = {_picked(labels, _WHO) for found in view.samples.values() for labels, _ in found}
        starts = {round(value) for _, value in view.scrape.values.get("process_start_time_seconds", ())
                  if math.isfinite(value)}
        for known, started, members in groups:
            same = members[0].engine is view.engine and (not who or not known or who & known)
            if same and (not starts or not started or starts & started):
                known |= who
                started |= starts
                members.append(view)
                break
        else:
            groups.append((who, set(starts), [view]))
    return [[view for view in members if view.samples] or members for _, _, members in groups]


def _once(views: list[View], notes: list[str]) -> list[View]:
    """The same dump given twice is one reading."""
    kept: list[View] = []
    for view in views:
        if view.time is None and any(other.time is None and view.samples == other.samples for other in kept):
            notes.append("a dump was given twice: it counts once")
        else:
            kept.append(view)
    return kept


def _ordered(views: list[View], notes: list[str]) -> list[View]:
    """By time; where fewer than two have one, by their counters, which only rise."""
    timed = [view for view in views if view.time is not None]
    if len(timed) >= 2:
        if len(timed) < len(views):
            notes.append(f"{len(views) - len(timed)} of {len(views)} dumps say not when they were taken: left out")
        return sorted(timed, key=lambda view: view.time or 0.0)
    return [_timeless(view) for view in sorted(views, key=_counted)] if len(views) > 1 else views


def _timeless(view: View) -> View:
    """One time among several dumps orders nothing."""
    return replace(view, scrape=replace(view.scrape, time=None))


def _counted(view: View) -> float:
    return sum(_monotone(view).values())


def _monotone(view: View) -> dict[tuple[str, Who], float]:
    names = view.engine.monotone()
    return {(name, tuple(sorted(labels.items()))): value for name in names.intersection(view.samples)
            for labels, value in view.samples[name] if math.isfinite(value)}


def _since_restart(views: Sequence[View], notes: list[str]) -> tuple[View, ...]:
    """The scrapes after the last time that a counter went back; before it, if only one is left after it."""
    parts: list[list[View]] = [[views[0]]]
    for before, after in pairwise(views):
        earlier, later = _monotone(before), _monotone(after)
        if any(later[series] < value for series, value in earlier.items() if series in later):
            parts.append([])
        parts[-1].append(after)
    if len(parts) == 1:
        return tuple(views)
    kept = next((part for part in reversed(parts) if len(part) > 1), parts[-1])
    notes.append(f"counters went back between scrapes ({len(parts) - 1} times): the server was restarted. The figures "
                 f"are of {len(kept)} of {len(views)} scrapes, with no restart between them")
    return tuple(kept)

"""What one engine says in one scrape, with the parts of each figure added up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..samples import Scrape
from .engines import Engine, Source, engine_of

Labels = Mapping[str, str]
Who = tuple[tuple[str, str], ...]
"""Labels that tell one engine of a server from another."""
Series = tuple[str, Who]
"""Name below the engine's prefix, and all labels."""

_WHO = ("model_name", "model", "name", "engine", "engine_id", "engine_idx", "engine_index", "dp_rank",
        "data_parallel_rank", "instance", "pod", "replica", "ReplicaId", "worker", "worker_id", "WorkerId")
"""These add up: each is an engine with requests of its own. All labels that are in neither list are parts of one
figure (`finished_reason`, `source`, …) and add up too."""
_REPEATED = ("tp_rank", "pp_rank", "ep_rank", "moe_ep_rank", "attn_tp_rank")
"""Ranks that work on the same requests and each say the same number."""


@dataclass(frozen=True, eq=False)
class View:
    """What one engine says in one scrape. Figures are worked out once and kept: every interval asks for them."""

    scrape: Scrape
    engine: Engine
    samples: Mapping[str, tuple[tuple[Labels, float], ...]]
    """By the name below the engine's prefix."""
    announced: frozenset[str]
    """Names below the prefix that have HELP or TYPE and no sample."""
    _kept: dict[tuple[Source, str, Who], dict[Who, float]] = field(default_factory=dict, init=False, repr=False)

    @property
    def time(self) -> float | None:
        return self.scrape.time

    def cells(self, source: Source, end: str = "", **label: str) -> Mapping[Who, float]:
        """The figure of each engine: parts added up, ranks that repeat it taken once. Empty where it is not there."""
        key = source, end, tuple(label.items())
        if (found := self._kept.get(key)) is None:
            found = self._kept[key] = self._worked_out(source, end, label)
        return found

    def _worked_out(self, source: Source, end: str, label: Labels) -> dict[Who, float]:
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

    @cached_property
    def engines(self) -> frozenset[Who]:
        """Every label set that tells an engine apart."""
        return frozenset(_picked(labels, _WHO) for found in self.samples.values() for labels, _ in found)

    @cached_property
    def counters(self) -> dict[Series, float]:
        """All that never falls while a server lives."""
        return {(name, _all(labels)): value for name in self.engine.monotone & self.samples.keys()
                for labels, value in self.samples[name] if math.isfinite(value)}

    @cached_property
    def born(self) -> dict[Series, float]:
        """When each counter began, in seconds since the epoch, as `prometheus_client` exports it (`…_created`)."""
        return {(name, _all(labels)): round(value, 2) for name, found in self.samples.items()
                if name.endswith("_created") for labels, value in found if math.isfinite(value) and value > 0}

    @cached_property
    def starts(self) -> frozenset[int]:
        """When its process began, to the second. Two hosts may agree: it can tell servers apart, never join them."""
        return frozenset(round(value) for _, value in self.scrape.values.get("process_start_time_seconds", ())
                         if math.isfinite(value))


def views_of(scrape: Scrape) -> Iterator[View]:
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


def _picked(labels: Labels, names: Iterable[str]) -> Who:
    return tuple((name, labels[name]) for name in names if labels.get(name))


def _all(labels: Labels) -> Who:
    return tuple(sorted(labels.items()))

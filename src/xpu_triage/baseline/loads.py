"""Which runs of two baselines had the same load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .records import BenchRecord, Floats, positive
from .signals import in_flight
from .store import Cell, cell_of

SAME = 1.1
"""Larger ÷ smaller of two concurrencies, rates or lengths that count as one: tokenizers and templates move a prompt's
length by a few per cent, and the next load that anybody would record is far more than that away."""


CHANCE = 1.95
"""Of the largest distance of two distributions times √(n · m ÷ (n + m)): it is larger by chance in 1 of 1,000 (Smirnov
1948). Lengths that answers end at by themselves differ from run to run, and that is no other load."""


@dataclass(frozen=True)
class Pair:
    """A load that was measured in both, with the runs of each."""

    cell: Cell
    """As the old one has it."""
    old: tuple[BenchRecord, ...]
    new: tuple[BenchRecord, ...]


@dataclass(frozen=True)
class Pairs:
    pairs: tuple[Pair, ...]
    only_old: tuple[Cell, ...]
    only_new: tuple[Cell, ...]
    unlike: tuple[str, ...] = ()
    """Loads that look like one by their medians and are two, and why."""


def paired(old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> Pairs:
    """Each load of one with the nearest of the other that is the same within `SAME`, smallest load first. Repeats of a
    load stay together. A part of a load that is unknown in both is no difference; one that is unknown in one is."""
    olds, news = _by_load(old), _by_load(new)
    near = sorted((distance, i, j) for i, a in enumerate(olds) for j, b in enumerate(news)
                  if (distance := _distance(cell_of(a[0]), cell_of(b[0]))) is not None)
    of_old: dict[int, int] = {}
    for _, i, j in near:
        if i not in of_old and j not in of_old.values():
            of_old[i] = j
    reasons = {i: why for i, j in of_old.items() if (why := unlike(olds[i], news[j]))}
    said = tuple(f"not compared, {words(cell_of(olds[i][0]))}: {why}" for i, why in reasons.items())
    of_old = {i: j for i, j in of_old.items() if i not in reasons}
    pairs = [Pair(cell_of(olds[i][0]), tuple(olds[i]), tuple(news[j])) for i, j in of_old.items()]
    return Pairs(tuple(sorted(pairs, key=lambda pair: in_order(pair.cell))),
                 tuple(cell_of(runs[0]) for i, runs in enumerate(olds) if i not in of_old),
                 tuple(cell_of(runs[0]) for j, runs in enumerate(news) if j not in of_old.values()),
                 said)


def unlike(old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> str:
    """Why runs whose set values and medians are one load are two all the same; empty where they are not known to be."""
    a, b = old[0], new[0]
    if a.concurrency is None and b.concurrency is None and a.request_rate is None and b.request_rate is None:
        sent = [_sent(record) for record in (a, b)]
        flying = [in_flight(record) for record in (a, b)]
        if None not in sent and not alike(*sent) and (None in flying or not alike(*flying)):
            return (f"{sent[0]:,} requests sent as fast as the client can, and {sent[1]:,}: each waits for all those "
                    "before it")
    bursty = [record.extra.get("burstiness") for record in (a, b)]
    if a.request_rate is not None and None not in bursty and not alike(*bursty):
        return f"burstiness {bursty[0]:g} and {bursty[1]:g}: requests arrive in another rhythm"
    for name, lengths in (("prompts", lambda record: record.requests.prompt_tokens),
                          ("outputs", lambda record: record.requests.output_tokens)):
        one, other = _lengths(old, lengths), _lengths(new, lengths)
        if len(one) and len(other) and (differ := _mixed(one, other)):
            return f"other {name}: {differ}"
    return ""


def _sent(record: BenchRecord) -> int | None:
    return None if record.completed is None else record.completed + (record.failed or 0)


def _lengths(records: Sequence[BenchRecord], column: Callable[[BenchRecord], Floats]) -> Floats:
    parts = [column(record) for record in records if record.requests is not None]
    values = np.concatenate(parts) if parts else np.empty(0)
    return positive(values)


def _mixed(a: Floats, b: Floats) -> str:
    """What differs between two distributions of lengths by more than `SAME` and by more than chance."""
    said = next((f"{name} {x:,.0f} and {y:,.0f} tokens" for name, x, y in (
        ("mean", float(a.mean()), float(b.mean())),
        ("p90", float(np.percentile(a, 90)), float(np.percentile(b, 90)))) if not alike(x, y)), "")
    if not said:
        return ""
    # One length and another within SAME are as one: a template's few tokens would move all of a distribution at once.
    apart = max(
        float(np.max(np.searchsorted(np.sort(one), one, "right") / len(one)
                     - np.searchsorted(np.sort(other), SAME * one, "right") / len(other)))
        for one, other in ((a, b), (b, a)))
    return said if apart * math.sqrt(len(a) * len(b) / (len(a) + len(b))) > CHANCE else ""


def alike(a: float | None, b: float | None) -> bool:
    """Whether two parts of a load are one."""
    if a is None or b is None:
        return a is b
    return a == b or (min(a, b) > 0 and max(a, b) / min(a, b) <= SAME)


def in_order(cell: Cell) -> tuple[float, ...]:
    """Sorts loads, the smallest first."""
    return tuple(-1.0 if part is None else part for part in cell)


def words(cell: Cell) -> str:
    """`concurrency 8, prompt 2,048, output 128`, as far as it is known."""
    parts = []
    if cell.concurrency is not None:
        parts.append(f"concurrency {cell.concurrency:,.4g}")
    if cell.request_rate is not None:
        parts.append(f"{cell.request_rate:,.4g} requests/s")
    if cell.prompt_tokens is not None:
        parts.append(f"prompt {cell.prompt_tokens:,.0f}")
    if cell.output_tokens is not None:
        parts.append(f"output {cell.output_tokens:,.0f}")
    return ", ".join(parts) or "unknown load"


def _by_load(records: Sequence[BenchRecord]) -> list[list[BenchRecord]]:
    groups: list[list[BenchRecord]] = []
    for record in sorted(records, key=lambda record: in_order(cell_of(record))):
        cell = cell_of(record)
        near = [(distance, i) for i, runs in enumerate(groups)
                if (distance := _distance(cell_of(runs[0]), cell)) is not None]
        if near:
            groups[min(near)[1]].append(record)
        else:
            groups.append([record])
    return groups


def _distance(a: Cell, b: Cell) -> float | None:
    """How far two loads are apart, on logarithms; None where they are two."""
    if not all(alike(one, other) for one, other in zip(a, b, strict=True)):
        return None
    return sum(abs(math.log(one / other)) for one, other in zip(a, b, strict=True) if one and other)

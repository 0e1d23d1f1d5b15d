"""Which runs of two baselines had the same load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .records import BenchRecord
from .store import Cell, cell_of

SAME = 1.1
"""Larger ÷ smaller of two concurrencies, rates or lengths that count as one: tokenizers and templates move a prompt's
length by a few per cent, and the next load that anybody would record is far more than that away."""


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
    pairs = [Pair(cell_of(olds[i][0]), tuple(olds[i]), tuple(news[j])) for i, j in of_old.items()]
    return Pairs(tuple(sorted(pairs, key=lambda pair: in_order(pair.cell))),
                 tuple(cell_of(runs[0]) for i, runs in enumerate(olds) if i not in of_old),
                 tuple(cell_of(runs[0]) for j, runs in enumerate(news) if j not in of_old.values()))


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

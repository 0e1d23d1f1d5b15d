"""In what ranks are not alike though their times are compared: what captures record, what steps carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median_low

from .lateness import LONG
from .result import RankResult


def recorded_more(ranks: Sequence[RankResult]) -> list[tuple[str, ...]]:
    """Of each rank what its capture records and most others' do not, of equally many those that record least: a
    profiler that records more slows its host down, and that is nobody's fault."""
    kinds = [frozenset(filter(None, rank.recorded.split(", "))) for rank in ranks]
    counts = Counter(each for each, rank in zip(kinds, ranks, strict=True) if rank.has_trace)
    if not counts:
        return [()] * len(ranks)
    usual = max(counts, key=lambda each: (counts[each], -len(each), sorted(each)))
    return [tuple(sorted(each - usual)) for each in kinds]


def carries_more(ranks: Sequence[RankResult], others: Sequence[RankResult]) -> str:
    """In words, in what the steps of `ranks` carry more than those of the `others`, by as much as makes a rank late;
    empty where they do not, or where names of steps do not tell."""
    parts = []
    for what, mine, theirs in (("requests that decode", [r.requests for r in ranks], [r.requests for r in others]),
                               ("tokens of prompts", [r.tokens for r in ranks], [r.tokens for r in others])):
        known, usual = [n for n in mine if n is not None], [n for n in theirs if n is not None]
        if known and usual and median_low(known) >= LONG * median_low(usual) and median_low(known) > 0:
            parts.append(f"{median_low(known):,.4g} {what} where the others carry {median_low(usual):,.4g}")
    return " and ".join(parts)

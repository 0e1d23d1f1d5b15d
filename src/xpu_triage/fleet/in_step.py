"""Whether ranks went through the same collectives together: the one thing in a trace that two jobs cannot share.

A collective ends on all its ranks at about one moment, so that the ends of matched collectives lie a constant apart on
two ranks of one job: the difference of their clocks, which need not be known. On ranks of two jobs, of two sessions, or
in steps that are not the same, the distance drifts with every difference of their speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .collectives import Matched
from .result import RankResult

Flags = NDArray[np.bool_]

TOGETHER = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "dispatch", "combine", "barrier"})
"""What no rank can leave before all have come. A broadcast's root, a sender, a rank that is reduced from can."""
FEWEST = 4
"""Occurrences from which on a constant distance is no accident."""
NEAR_NS = 50_000
"""Ends of one collective on two devices, by their profilers' clocks, lie no further apart than this. Judgement."""
CLOCK_DRIFT = 1e-4
"""Or than this part of the time looked at, by which two machines' clocks run apart at most."""
OF_ALL = 0.002
"""And than this part of it: in a short capture two paces hardly part. Judgement."""
OF_A_STEP = 0.03
"""Beyond this part of a step as well, they were not the same: far below LONG, by which a straggler has to be longer. In
between nothing is said. Judgement."""
COLUMNS, REFERENCES = 512, 16
"""Occurrences, and ranks that others are held against, that are looked at."""
CLOCKS_NS = 2_000_000_000
"""By how much the clocks of a job's machines may differ before captures count as of another time. Judgement."""


@dataclass(frozen=True, eq=False)
class Pace:
    """Of a group's R ranks. A rank can be neither."""

    together: Flags
    """[R], those whose collectives end at the same moments; nobody where no two do."""
    drifting: Flags
    """[R], those whose collectives end at other moments than most; everybody where no two end near each other."""


def in_step(group: Matched) -> Pace | None:
    """Who goes through the group's collectives together. None where it cannot be told: too few of a kind that ends
    together."""
    if group.end is None:
        return None
    kinds = [place for place, kind in enumerate(group.words) if kind in TOGETHER]
    columns = np.flatnonzero(np.isin(group.word, kinds))
    if len(columns) < FEWEST:
        return None
    columns = columns[_some(len(columns), COLUMNS)]
    end = group.end[:, columns].astype(np.float64)
    span = float(np.median(end.max(axis=1) - end.min(axis=1)))
    near = min(max(NEAR_NS, CLOCK_DRIFT * span), OF_ALL * span)
    far = max(NEAR_NS, CLOCK_DRIFT * span, OF_A_STEP * span / group.steps)
    together = close = np.zeros(len(end), np.bool_)
    for one in _some(len(end), REFERENCES).tolist():
        apart = end - end[one]
        apart = np.abs(apart - np.median(apart, axis=1, keepdims=True))
        usual, most = np.quantile(apart, (0.5, 0.75), axis=1, method="higher")
        if ((most <= near).sum(), (usual <= far).sum()) > (together.sum(), close.sum()):
            together, close = most <= near, usual <= far
    return Pace(_several(together), ~_several(close))


def _several(flags: Flags) -> Flags:
    """The flags, none where there is but one: each rank is near itself."""
    return flags if flags.sum() > 1 else np.zeros(len(flags), np.bool_)


def _some(count: int, most: int) -> NDArray[np.int64]:
    """At most so many places, evenly spread over all."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def at_another_time(ranks: Sequence[RankResult]) -> tuple[Flags, int]:
    """[R], ranks whose captures, by their machines' clocks, do not meet that which most others meet; and the longest
    distance of one of these, ns. A capture that does not tell its time is of none of them."""
    known = [i for i, rank in enumerate(ranks) if rank.began is not None]
    away = np.zeros(len(ranks), np.bool_)
    if len(known) < 2:
        return away, 0
    start = np.array([ranks[i].began for i in known], np.int64)
    end = start + np.array([ranks[i].span_ns for i in known], np.int64)
    best = np.zeros(len(known), np.int64)
    fewest = len(known) + 1
    for one in _some(len(known), REFERENCES).tolist():
        gap = np.maximum(start - end[one], start[one] - end)
        if (far := int((gap > CLOCKS_NS).sum())) < fewest:
            fewest, best = far, gap
    away[np.array(known)] = best > CLOCKS_NS
    return away, max(int(best.max()), 0)

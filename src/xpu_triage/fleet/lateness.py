"""Which ranks are late, in how many steps, and whether the ranks are of two kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .outliers import Values, long_ones, middle
from .result import RankResult

LONG = 1.1
"""A rank's own time from which on it is late, against the median: below it is what batches differ by. Judgement."""
OFTEN = 0.5
"""A rank is late where its median step is, or where it comes last in at least this share of the collectives with
waiting: one that is late once, as each of the others is at another time, is no straggler."""
AT_TIMES = 0.2
"""The least share of steps, two at least, in which a rank that often comes last has to be late. Judgement."""
COLD = 1.5
"""A first step this many times a rank's median of the others is set apart: compilation, first touch. Judgement."""
FEWEST_STEPS = 3
"""Compared steps from which on the first can be set apart."""
MOST_LATE = 0.25
"""More than this part of the ranks (and more than one) late: not stragglers but another kind of rank. Judgement."""
MOST_EARLY = 0.1
"""More than this part of the ranks ahead of the median: those are the ones with less to do. Judgement."""
PEERS = 3
"""Ranks of one group from which on they are compared among themselves."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Lateness:
    """Of R ranks. At most one of `late` and `slower` has entries."""

    ratio: Values
    """[R] own time ÷ the median of those it is compared with."""
    late: Flags
    """[R] stragglers."""
    slower: Flags
    """[R] the slower kind, where ranks are of two kinds; then no rank is late."""
    only_in: dict[int, tuple[int, ...]]
    """Ranks late over all steps together but not without these few: their places among the compared steps, from 0."""
    by_one_step: bool = False
    """Whether no more than one step is known of several ranks, so that a cold start looks the same."""


def is_cold(own: Values) -> bool:
    """Whether the first of the steps (own ms [R, S], NaN unknown) is to be set apart from the others."""
    if own.shape[1] < FEWEST_STEPS:
        return False
    usual = np.array([middle(row) for row in own[:, 1:]])
    with np.errstate(invalid="ignore"):
        return bool(((own[:, 0] >= COLD * usual) & (usual > 0)).any())


def mean(own: Values) -> Values:
    """Over the steps that are known; NaN where none is."""
    known = ~np.isnan(own)
    count = known.sum(axis=1)
    total = np.where(known, own, 0.0).sum(axis=1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan), np.float64)


def lateness(ranks: Sequence[RankResult], own: Values, first: int, last: Values, by_step: bool) -> Lateness:
    """Who is late.

    own      ms [R, S], one column a compared step; NaN unknown
    first    columns set apart from the start (0 or 1)
    last     [R], share of the collectives with waiting in which each rank comes last
    by_step  whether columns are steps: else there is one, of the whole window
    """
    groups = _groups(ranks, mean(own))
    per_step = [_against(groups, own[:, i]) for i in range(own.shape[1])]
    long = np.stack([one[1] for one in per_step], axis=1) if per_step else np.zeros(own.shape, np.bool_)
    step_ratio = np.stack([one[0] for one in per_step], axis=1) if per_step else np.full(own.shape, np.nan)
    rest = own[:, first:]
    count = np.maximum((~np.isnan(rest)).sum(axis=1), 1)
    times = long[:, first:].sum(axis=1)
    ratio, late = _against(groups, mean(rest))
    _, usually = _against(groups, np.array([middle(row) for row in rest]))
    at_times = (times >= 2) & (times / count >= AT_TIMES) & (np.nan_to_num(last) >= OFTEN)
    late &= usually | at_times
    known = int((~np.isnan(ratio)).sum())
    with np.errstate(invalid="ignore"):
        slower = (ratio >= LONG) & ((step_ratio[:, first:] >= LONG).sum(axis=1) / count >= OFTEN)
        faster = (ratio <= 1 / LONG) & ((step_ratio[:, first:] <= 1 / LONG).sum(axis=1) / count >= OFTEN)
    if slower.sum() > max(1.0, MOST_LATE * known):
        late[:] = False
    elif not late.any() and faster.sum() > MOST_EARLY * known:
        slower = ~np.isnan(ratio) & ~faster
    else:
        slower = np.zeros(len(ranks), np.bool_)
    only_in: dict[int, tuple[int, ...]] = {}
    if by_step and not slower.any():
        for i in np.flatnonzero(_against(groups, mean(own))[1] & ~late).tolist():
            if long[i].any():
                only_in[i] = tuple(np.flatnonzero(long[i]).tolist())
    shared = int(((~np.isnan(own)).sum(axis=0) > 1).sum())
    return Lateness(ratio, late, slower, only_in, by_step and shared <= 1)


def _groups(ranks: Sequence[RankResult], own: Values) -> list[tuple[list[int], list[int]]]:
    """Ranks, and those that they are compared with: the others of their group where these are several, else all."""
    groups: dict[str, list[int]] = {}
    for i, rank in enumerate(ranks):
        if not np.isnan(own[i]):
            groups.setdefault(rank.group, []).append(i)
    out = [(members, members) for members in groups.values() if len(members) >= PEERS]
    alone = [i for members in groups.values() if len(members) < PEERS for i in members]
    return [*out, (alone, np.flatnonzero(~np.isnan(own)).tolist())] if alone else out


def _against(groups: Sequence[tuple[list[int], list[int]]], own: Values) -> tuple[Values, Flags]:
    """Own time [R] ÷ the median, and which ranks take long."""
    ratio, long = np.full(len(own), np.nan), np.zeros(len(own), np.bool_)
    for members, peers in groups:
        among = own[peers]
        among = among[~np.isnan(among)]
        if len(among) < 2 or not middle(among) > 0:
            continue
        ratio[members] = own[members] / middle(among)
        limit = among[long_ones(among, LONG)]
        if len(limit):
            with np.errstate(invalid="ignore"):
                long[members] = own[members] >= limit.min()
    return ratio, long

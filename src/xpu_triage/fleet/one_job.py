"""What shows that the evidence is of ranks of one job, without which no rank says anything about another.

Collectives that end together show it (`in_step`): two jobs cannot share them. That captures state different ranks of
one world is as two jobs of one size state it too: such ranks are laid beside each other, and no rank is blamed for
another's time (`waits`). A file's name shows nothing, nor does the order in which files are given. Against it speak
copies, steps of other numbers, captures of another time, and collectives that drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from .collectives import Matched, common_steps, matched
from .in_step import at_another_time, in_step
from .result import RankResult
from .sessions import LeftOut
from .settle import Doubt, Settled, by_evidence


@dataclass(frozen=True)
class _Facts:
    """Positions of ranks."""

    states: frozenset[int]
    """Whose capture states its rank and the world's size."""
    together: frozenset[int]
    """Whose collectives end with those of most of its group."""
    drifting: frozenset[int]
    """Whose collectives do not."""
    elsewhere: frozenset[int]
    """Whose capture is of another time, and whose collectives do not show otherwise."""
    gap_ns: int


def shown(given: Settled) -> Settled:
    """`given` with the ranks that are shown to be of one job, the others left out; with a doubt where these are not at
    least half of them, all then kept: each has its own verdict. Pure."""
    ranks = given.ranks
    if given.doubt is not None or len(ranks) < 2:
        return given
    ranks, copies = _without_copies(ranks)
    if len(ranks) < 2:
        return replace(given, ranks=by_evidence(given.ranks),
                       doubt=Doubt(f"all {len(given.ranks):,} are one capture under several names", True))
    steps, by_name = common_steps(ranks)
    if not by_name and all(rank.steps is not None and rank.steps.counted for rank in ranks):
        return replace(given, ranks=by_evidence(given.ranks),
                       doubt=Doubt("their steps bear other numbers: no step was recorded on most of them", True))
    facts = _facts(ranks, matched(ranks, steps, by_name).groups)
    proven = (facts.states | facts.together) - facts.drifting - facts.elsewhere
    if facts.together and facts.states and not facts.together & facts.states:  # two jobs, each shown by itself
        proven = max(facts.together, facts.states - facts.drifting - facts.elsewhere, key=len)
    if len(proven) < 2 or 2 * len(proven) < len(ranks):
        return replace(given, ranks=by_evidence(given.ranks), doubt=_doubt(ranks, facts))
    out = [LeftOut(rank.label, rank.rank, f"{_why(i, facts)}; by itself it says {rank.said}")
           for i, rank in enumerate(ranks) if i not in proven]
    kept = tuple(rank for i, rank in enumerate(ranks) if i in proven)
    return replace(given, ranks=kept, left_out=(*given.left_out, *copies, *out), one_job=_by(facts, proven))


def _without_copies(ranks: Sequence[RankResult]) -> tuple[tuple[RankResult, ...], list[LeftOut]]:
    """Captures that do not state their rank and have the very events of one before them are that one again."""
    first: dict[int, RankResult] = {}
    kept: list[RankResult] = []
    out: list[LeftOut] = []
    for rank in ranks:
        other = first.setdefault(rank.digest, rank) if rank.digest else rank
        if other is rank or rank.rank_from == "trace":
            kept.append(rank)
        else:
            out.append(LeftOut(rank.label, rank.rank, f"the same capture as {other.label} under another name"))
    return tuple(kept), out


def _facts(ranks: Sequence[RankResult], groups: Sequence[Matched]) -> _Facts:
    together: set[int] = set()
    drifting: set[int] = set()
    for group in groups:
        found = in_step(group)
        if found is None:
            continue
        together |= set(group.ranks[found.together].tolist())
        drifting |= set(group.ranks[found.drifting].tolist())
    drifting -= together
    away, gap = at_another_time(ranks)
    elsewhere = set(np.flatnonzero(away).tolist()) - together
    states = {i for i, rank in enumerate(ranks) if rank.rank_from == "trace" and rank.rank is not None
              and ((rank.world_size or 0) > 1 or (rank.world_size is None and rank.began is not None))}
    return _Facts(frozenset(states), frozenset(together), frozenset(drifting), frozenset(elsewhere), gap)


def _doubt(ranks: Sequence[RankResult], facts: _Facts) -> Doubt:
    count = len(ranks)
    if 2 * len(facts.elsewhere) >= count:
        return Doubt(f"the captures are of different times, up to {_time(facts.gap_ns)} apart", True)
    if 2 * len(facts.drifting) >= count:
        return Doubt("the collectives do not end together, as those of ranks that wait for each other do: other jobs, "
                     "other sessions or other steps", True)
    if any(rank.world_size == 1 for rank in ranks):
        return Doubt("each states a world of one rank: replicas, or jobs of their own", True)
    stated = f"only {len(facts.states):,} of {count:,} captures state" if facts.states else "no capture states"
    return Doubt(f"{stated} a rank of a larger world, and no collectives were found that end together", False)


def _why(place: int, facts: _Facts) -> str:
    if place in facts.elsewhere:
        return "recorded at another time than the others, which its collectives do not contradict"
    if place in facts.drifting:
        return "its collectives do not end with the others': another job, another session or other steps"
    return ("not shown to be of the others' job: it states no rank of a world, and has no collectives that end with "
            "theirs")


def _by(facts: _Facts, proven: Set[int]) -> str:
    stated = f"{len(facts.states & proven):,} captures state rank and world" if facts.states & proven else ""
    if not facts.together & proven:
        return f"taken for one job: {stated}; no collectives show it"
    parts = [stated, f"the collectives of {len(facts.together & proven):,} end together"]
    return f"shown to be of one job: {', '.join(filter(None, parts))}"


def _time(ns: int) -> str:
    seconds = ns / 1e9
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"

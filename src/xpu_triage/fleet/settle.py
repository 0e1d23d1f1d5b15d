"""Who takes part: the number of each rank, and what does not belong to the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import UnusableInput
from .result import RankResult, shared
from .sessions import LeftOut, one_session

BY_ORDER = "neither traces nor names tell the ranks: numbered in the order given"
FEWEST_NAMES = 4
ALIKE = 0.2
"""Ranks with fewer kernel names than this in common with most others (shared ÷ all) run another model: stages of one
pipeline share most of theirs, two models hardly any. Judgement."""


@dataclass(frozen=True)
class Doubt:
    """Why nothing is compared."""

    why: str
    certain: bool
    """Whether they are not of one job; else nothing shows that they are."""


@dataclass(frozen=True)
class Settled:
    ranks: tuple[RankResult, ...]
    """Sorted by rank; those without a number last."""
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    world_size: int | None = None
    """As most ranks say."""
    doubt: Doubt | None = None
    """Then each rank has its own verdict, and nothing else."""
    one_job: str = ""
    """What shows that they are of one job."""


def settled(results: Sequence[RankResult]) -> Settled:
    """The ranks of one job among `results`, each with its number, and what is left out, with the reason."""
    out: list[LeftOut] = []
    notes: list[str] = []
    ranks = _without(results, out, lambda result: result.error)
    ranks = [replace(result, values=shared(result.values)) for result in ranks]
    if any(rank.has_trace for rank in ranks) and any(rank.rank is not None for rank in ranks):
        compute = any(rank.has_device for rank in ranks)
        ranks = _without(ranks, out, lambda one: _is_no_rank(one, compute))
    ranks = _numbered(ranks, notes)
    if doubt := _other_jobs(ranks):
        return Settled(by_evidence(ranks), tuple(out), tuple(notes), doubt=doubt)
    size = _majority([rank.world_size for rank in ranks if rank.world_size is not None])
    ranks = _without(ranks, out, lambda one: _other_world(one, size))
    ranks, doubt = _without_other_models(ranks, out)
    several, left, told = ranks, list[LeftOut](), list[str]()
    ranks = one_session(several, left, told)
    if len(ranks) < 2 <= len(several):
        doubt = Doubt(f"several of the {len(several):,} are captures of one rank, and nothing tells which go together",
                      False)
        return Settled(by_evidence(several), tuple(out), tuple(notes), size, doubt)
    out += left
    notes += told
    seen: dict[int, str] = {}
    ranks = _without(ranks, out, lambda one: _again(one, seen))
    if mixed := [rank.name for rank in ranks if rank.traces > 1]:
        notes.append(f"several traces in the evidence of one rank: {', '.join(mixed[:4])}"
                     + (f" and {len(mixed) - 4} more" if len(mixed) > 4 else "")
                     + ": times are those of one of them, the other signals may be of another: give each capture alone")
    ranks.sort(key=lambda one: (one.rank is None, one.rank or 0))
    ranks = list(by_evidence(ranks)) if doubt else ranks
    return Settled(tuple(ranks), tuple(out), tuple(notes), size, doubt)


def _without(ranks: Sequence[RankResult], out: list[LeftOut], why: Callable[[RankResult], str]) -> list[RankResult]:
    """The ranks that `why` has no reason against; the others are left out."""
    kept: list[RankResult] = []
    for rank in ranks:
        if reason := why(rank):
            out.append(LeftOut(rank.label, rank.rank, reason))
        else:
            kept.append(rank)
    return kept


def _is_no_rank(one: RankResult, with_device: bool) -> str:
    if one.rank is not None:
        return ""
    if not one.has_trace:
        return "no trace and no rank in its name: not of one rank"
    if with_device and not one.has_device:
        return "names no rank and has no device work: a front end or scheduler"
    return ""


def _numbered(ranks: Sequence[RankResult], notes: list[str]) -> list[RankResult]:
    """Ranks by order where none has a number; where some have, the others are called by their evidence."""
    unknown = [one for one in ranks if one.rank is None]
    if unknown and len(unknown) == len(ranks):
        notes.append(BY_ORDER)
        return [replace(one, rank=i, rank_from="order") for i, one in enumerate(ranks)]
    if unknown:
        notes.append(f"{len(unknown):,} of {len(ranks):,} do not tell their rank: called by their evidence")
    return list(ranks)


def by_evidence(ranks: Sequence[RankResult]) -> tuple[RankResult, ...]:
    """Ranks that are none of one job: those that no number of their own tells from the others lose it."""
    count = Counter(rank.rank for rank in ranks)
    return tuple(replace(rank, rank=None, rank_from="") if rank.rank_from == "order" or count[rank.rank] > 1 else rank
                 for rank in ranks)


def _one_number(ranks: Sequence[RankResult]) -> bool:
    return len(ranks) > 1 and None not in (numbers := {rank.rank for rank in ranks}) and len(numbers) == 1


def _other_jobs(ranks: Sequence[RankResult]) -> Doubt | None:
    """What the ranks' own words say against one job of all of them, where no majority is of one."""
    if _one_number(ranks):
        return Doubt(f"{'both' if len(ranks) == 2 else f'all {len(ranks):,}'} say that they are {ranks[0].name}: "
                     "captures of one rank, or of jobs of their own", True)
    sizes = [rank.world_size for rank in ranks if rank.world_size is not None]
    if len(sizes) > 1 and _majority(sizes) is None:
        told = ", ".join(map(str, sorted(set(sizes))))
        return Doubt(f"they state worlds of different sizes ({told}), and no size is that of most", True)
    return None


def _majority(sizes: Sequence[int]) -> int | None:
    """What more than half say; None where nobody says anything, or nobody has more than half."""
    counts = Counter(sizes).most_common(1)
    return counts[0][0] if counts and 2 * counts[0][1] > len(sizes) else None


def _other_world(one: RankResult, size: int | None) -> str:
    if one.world_size is None or size is None:
        return ""
    if one.world_size != size:
        return (f"of another job: its world size is {one.world_size}, that of most ranks {size}; by itself it says "
                f"{one.said}")
    if one.rank is not None and one.rank >= size:
        return f"rank {one.rank} of a world of {size}: its name or its trace is wrong"
    return ""


def _without_other_models(ranks: Sequence[RankResult],
                          out: list[LeftOut]) -> tuple[list[RankResult], Doubt | None]:
    """The ranks that run what most run; nobody is left out where most do not run the same, which is the doubt."""
    named = [one for one in ranks if len(one.kernels) >= FEWEST_NAMES]
    if len(named) < 2:
        return list(ranks), None
    names, count = np.unique(np.concatenate([one.kernels for one in named]), return_counts=True)
    usual = names[2 * count > len(named)]
    if len(usual) < FEWEST_NAMES:
        return list(ranks), Doubt("most have hardly a kernel in common, so that no time of one says anything about "
                                  "another's", True)

    def why(one: RankResult) -> str:
        if len(one.kernels) < FEWEST_NAMES:
            return ""
        both = len(np.intersect1d(one.kernels, usual))
        alike = both / (len(one.kernels) + len(usual) - both)
        return "" if alike >= ALIKE else (
            f"of another model: {both} of its {len(one.kernels)} heaviest kernels run on most ranks; by itself it says "
            f"{one.said}")

    kept = _without(ranks, out, why)
    return kept, None


def _again(one: RankResult, seen: dict[int, str]) -> str:
    if one.rank is None:
        return ""
    first = seen.setdefault(one.rank, one.label)
    return "" if first == one.label else f"rank {one.rank} again, which {first} is already: the first is compared"


def refuse_all(out: Settled, given: int) -> UnusableInput:
    """What to say where no rank is left of so many pieces given."""
    first = out.left_out[0].why if out.left_out else "nothing was found"
    what = f"none of {given:,} pieces of evidence can be compared" if given > 1 else "nothing to compare"
    return UnusableInput(f"{what}: {first}")

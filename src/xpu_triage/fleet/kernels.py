"""Of one rank's kernels beside the others': whether all take longer alike, or a few do more, or one holds a wait.

A slow device runs most of its kernels longer by about the same factor. More work (a hot expert, a larger batch, longer
sequences) lengthens those that do it. And a kernel that is longer on the others by what a rank's own kernels take
longer may be an exchange under a name that tells nobody: they wait in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from .outliers import Values
from .result import RankResult

FEWEST = 3
"""Kernels of different names from which on "most of them" says something. Judgement."""
HEAVY = 0.01
"""Kernels below this part of a rank's own are noise. Judgement."""
ALIKE = 0.5
"""All take longer alike where the median kernel does by at least this part of what their sum does. Judgement."""
AS_OFTEN = 1.05
"""Up to this ratio of its calls a kernel ran as often. Judgement."""
MIRRORS = 0.5
"""A kernel's shortness mirrors the others' length where each is at least this part of the other. Judgement."""
NOTABLE = 0.1
"""From this part of the rank's kernels on. Judgement."""
NAMED = 3


class Why(Enum):
    DEVICE = "most kernels take longer by a like factor"
    WORK = "a few kernels take longer, or run more often"
    UNKNOWN = "too few kernels, or none that ran on the others too"


@dataclass(frozen=True)
class Longer:
    why: Why
    words: str
    """What is longer; empty where nothing is known."""


@dataclass(frozen=True, eq=False)
class Kernels:
    """The heaviest kernels of R ranks, K of different names. ms, calls: [R, K], a step, or a collective where no steps
    were found; 0 where a kernel is none of a rank's heaviest."""

    names: tuple[str, ...]
    ms: Values
    calls: Values


def kernels_of(ranks: Sequence[RankResult], compute: Values | None = None) -> Kernels:
    """Those of all `ranks`; K is 0 where none tells any. `compute` [R] is what kernels take in the steps compared, ms,
    NaN unknown: what travels is the mean of all steps, one that was cut or cold among them, and is scaled to these."""
    place: dict[int, int] = {}
    names: list[str] = []
    for rank in ranks:
        if rank.heaviest is not None:
            for key, name in zip(rank.heaviest.key.tolist(), rank.heaviest.names.split("\n"), strict=False):
                if key not in place:
                    place[key] = len(names)
                    names.append(name)
    ms, calls = np.zeros((len(ranks), len(names))), np.zeros((len(ranks), len(names)))
    for row, rank in enumerate(ranks):
        if rank.heaviest is None or not len(rank.heaviest):
            continue
        at = [place[key] for key in rank.heaviest.key.tolist()]
        scale = 1.0
        if rank.steps is None:
            scale = 1.0 / len(rank.calls) if rank.calls is not None and len(rank.calls) else 1.0
        elif compute is not None and compute[row] > 0 and (mean := float(rank.steps.compute.mean())) > 0:
            scale = float(compute[row]) / mean
        ms[row, at], calls[row, at] = rank.heaviest.ms * scale, rank.heaviest.calls * scale
    return Kernels(tuple(names), ms, calls)


def why_longer(found: Kernels, which: Sequence[int], others: Sequence[int]) -> Longer:
    """Why the kernels of the ranks at `which` places take longer than those of the `others`, if they do: by medians."""
    if not which or not others or not found.names:
        return Longer(Why.UNKNOWN, "")
    mine, usual = _middle(found.ms[list(which)]), _middle(found.ms[list(others)])
    calls, usual_calls = _middle(found.calls[list(which)]), _middle(found.calls[list(others)])
    excess = mine - usual
    if not usual.sum() > 0 or not excess.sum() > 0:
        return Longer(Why.UNKNOWN, "")
    heavy = mine >= HEAVY * mine.sum()
    both = heavy & (usual > 0)
    as_often = both & (calls <= AS_OFTEN * usual_calls)
    ratio = mine / np.where(usual > 0, usual, np.inf)
    least = 1 + ALIKE * (mine.sum() / usual.sum() - 1)
    if both.sum() >= FEWEST and 2 * as_often.sum() > heavy.sum() and float(np.median(ratio[both])) >= least:
        return Longer(Why.DEVICE,
                      f"most of its kernels take longer alike, the median one {np.median(ratio[both]):,.2f} ×")
    top = [int(i) for i in np.argsort(-excess, kind="stable")[:NAMED] if excess[i] >= NOTABLE * excess.sum()]
    named = ", ".join(_said(found.names[i], mine[i], usual[i], calls[i], usual_calls[i]) for i in top)
    if heavy.sum() < FEWEST:
        return Longer(Why.UNKNOWN, f"{named}; so few kernels do not tell a slow device from more work")
    rest = f", while the median one takes {np.median(ratio[both]):,.2f} ×" if both.any() else ""
    return Longer(Why.WORK, f"not all of them alike, as on a slow device, but {named}{rest}")


def _said(name: str, mine: float, usual: float, calls: float, usual_calls: float) -> str:
    if usual <= 0:
        return f"{name} ({mine:,.2f} ms, and none of the others' heaviest)"
    often = calls / usual_calls if usual_calls > 0 else 1.0
    return f"{name} {mine / usual:,.2f} ×" + (f" (run {often:,.2f} × as often)" if often > AS_OFTEN else "")


def mirrored(found: Kernels) -> tuple[int, str, float] | None:
    """The rank, by its place, one of whose kernels is shorter than on the others by about what its other kernels are
    longer, run as often; that kernel's name, and by how many ms. Of several that whose kernel is shortest against the
    others', for a wait varies more than work (of two ranks each mirrors the other). None where there is none."""
    if len(found.ms) < 2 or not found.names:
        return None
    usual = _middle(found.ms) if len(found.ms) > 2 else found.ms[::-1]
    usual_calls = _middle(found.calls)
    change = found.ms - usual
    more = np.where(change > 0, change, 0.0).sum(axis=1)
    as_often = np.abs(found.calls - usual_calls) <= (AS_OFTEN - 1) * usual_calls
    short = np.where(as_often & (found.ms > 0), change, 0.0)
    less = -short.min(axis=1)
    smaller, larger = np.minimum(less, more), np.maximum(less, more)
    holds = (smaller >= NOTABLE * found.ms.sum(axis=1)) & (smaller >= MIRRORS * larger) & (smaller > 0)
    if not holds.any():
        return None
    at = short.argmin(axis=1)
    every = np.arange(len(at))
    part = found.ms[every, at] / np.maximum(np.broadcast_to(usual, found.ms.shape)[every, at], 1e-9)
    rank = int(np.argmin(np.where(holds, part, np.inf)))
    return rank, found.names[int(short[rank].argmin())], float(less[rank])


def _middle(values: Values) -> Values:
    """[K], the median over ranks, of an even number the lower."""
    return np.asarray(np.sort(values, axis=0)[(len(values) - 1) // 2], np.float64)

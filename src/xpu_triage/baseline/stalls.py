"""Requests that took many times as long as is usual: how many now and before, and whether that may be chance.

A few of hundreds move neither a typical request nor, for sure, the slowest tenth, and they are what users complain of.
So they are counted and shown. Nothing is claimed of them: they are no part of the budget of false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..text import counted
from ..units import figure
from .figures import TAILS, slowest_values
from .loads import Pair, words
from .resampling import MIN_REQUESTS, middle_half
from .store import Cell

STALLED = 5.0
"""Of what is usual (the middle half of the requests, of the slower side) a request that counts takes more than so many
times. Judgement: a prefill in between makes some gaps 3 to 6 times as long, in both recordings alike."""

GREW = 5.0
"""Longest now ÷ longest before from which on the count is shown. The longest of two recordings of one server differ by
as much in 1 of 26 where they are as wild as a Pareto of exponent 2: 1 ÷ (1 + 5²)."""

CHANCE = 0.01
"""Of Fisher's test: below it nobody calls it chance."""

_SAID = {"ttft_tail": "waited more than {} for the first token", "itl_tail": "had a gap of more than {} between tokens",
         "e2e_tail": "took more than {}"}


@dataclass(frozen=True)
class Stalls:
    """Of one figure in one load."""

    cell: Cell
    tail: str
    """A name of `figures.TAILS`: what of a request is counted."""
    longer_than_ms: float
    old: int
    of_old: int
    new: int
    of_new: int
    longest_old_ms: float
    longest_new_ms: float

    @property
    def p(self) -> float:
        """One-sided, of Fisher's exact test: how often as many of those that stalled would be new ones if each request
        were as likely to."""
        return together((self,))

    @property
    def ratio(self) -> float:
        """Longest now ÷ longest before."""
        return self.longest_new_ms / self.longest_old_ms

    @property
    def text(self) -> str:
        chance = f"may be chance (p = {self.p:.2g}, Fisher)" if self.p >= CHANCE else f"p = {self.p:.2g} (Fisher)"
        said = _SAID[self.tail].format(_time(self.longer_than_ms))
        return (f"{self.new} of {counted(self.of_new, 'request')} {said} (the longest {_time(self.longest_new_ms)}), "
                f"before {self.old or 'none'} of {self.of_old:,} (the longest {_time(self.longest_old_ms)}), at "
                f"{words(self.cell)}: {chance}")


def together(found: Sequence[Stalls]) -> float:
    """`Stalls.p` of several loads as one."""
    new, old = sum(one.new for one in found), sum(one.old for one in found)
    of_new, of_old = sum(one.of_new for one in found), sum(one.of_old for one in found)
    return at_least(new, old + new, of_new, of_old + of_new)


def stalls(pairs: Sequence[Pair]) -> tuple[Stalls, ...]:
    """Where the longest grew by `GREW` and more, and more requests than before stalled. A stall before the first token
    or between two is one of the whole request too, and is named once."""
    found = [one for pair in pairs for tail in TAILS if (one := _of(pair, tail)) is not None]
    parts = {one.cell for one in found if one.tail != "e2e_tail"}
    return tuple(one for one in found if one.tail != "e2e_tail" or one.cell not in parts)


def _of(pair: Pair, tail: str) -> Stalls | None:
    sides = slowest_values(tail, pair.old, pair.new)
    if sides is None or min(map(len, sides)) < MIN_REQUESTS:
        return None
    old, new = sides
    usual = max(math.exp(float(middle_half(np.log(values)))) for values in sides)
    cut = _rounded(STALLED * usual)
    counts = int((old > cut).sum()), int((new > cut).sum())
    longest = float(old.max()), float(new.max())
    if longest[1] < GREW * longest[0] or counts[1] * len(old) <= counts[0] * len(new):
        return None
    return Stalls(pair.cell, tail, cut, counts[0], len(old), counts[1], len(new), *longest)


def at_least(new: int, stalled: int, of_new: int, of_all: int) -> float:
    """P(X ≥ new) where `stalled` are drawn from `of_all`, of which `of_new` are new ones."""
    whole = _log_choose(of_all, stalled)
    return min(1.0, math.fsum(
        math.exp(_log_choose(of_new, k) + _log_choose(of_all - of_new, stalled - k) - whole)
        for k in range(new, min(stalled, of_new) + 1) if stalled - k <= of_all - of_new))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _rounded(ms: float) -> float:
    """Two digits."""
    unit: float = 10.0 ** (math.floor(math.log10(ms)) - 1)
    return round(ms / unit) * unit


def _time(ms: float) -> str:
    return f"{figure(ms / 1000)} s" if ms >= 1000 else f"{figure(ms)} ms"

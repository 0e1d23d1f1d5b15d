"""How sure a ratio is: block bootstrap over the requests of a run, and Student's t over the blocks.

Requests of one run share the engine's steps, so neighbours are alike and count for less than their number. What is
drawn again is therefore whole blocks of requests in the order of their start (Künsch 1989; circular, Politis and Romano
1992). A run has few blocks, and the tails that many comparisons at once need are out of reach of counting draws: so the
draws give the standard error, and Student's t with as many degrees of freedom as there are independent blocks gives the
interval. Everything is on logarithms: a ratio is a difference there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draws = NDArray[np.intp]

DRAWS = 200
"""The error of a standard error from so many draws is 1 ÷ √(2 · 200) = 5 %."""

MIN_REQUESTS = 12
"""Fewer say nothing about their own spread."""

MIN_BLOCKS = 6

RUN_TO_RUN = 0.01
"""Two runs of one server differ by so much (standard deviation of each) however many requests they have: placement,
clocks, the order in which requests meet. No run shows it of itself, so it is assumed. Repeats of one run on a GPU were
within 0.7 % of each other; with 1 % the promise of `compare` also holds where requests that run together share noise
of 3 % (simulated, 200 pairs each at 1, 8 and 32 in flight: 0, 0 and 2 alarms)."""

OVERLAP = 1.25
"""Degrees of freedom of blocks that begin anywhere, against as many blocks side by side. 1.5 in the limit (Meketon and
Schmeiser 1984), 1.2 to 1.7 in simulated runs of independent requests; less is taken, as requests that share noise have
fewer. With it, and a slow-down of 10 % at 200 requests, 32 in flight: found in 951 of 1,000 pairs, and in pairs of one
server 2 alarms in 1,000 (10 where the shared noise is twice that)."""

_MOST_DF = 200
_LARGEST = 700.0  # of a logarithm whose number a float holds
_AT_ONCE = 2_000_000  # values drawn at once: 16 MB


@dataclass(frozen=True)
class Estimate:
    """The logarithm of a quantity of one run."""

    log: float
    se: float
    """Standard error of it."""
    df: float
    """Degrees of freedom of the standard error: independent blocks less one, times `OVERLAP`."""


@dataclass(frozen=True)
class Difference:
    """new − old on logarithms: the logarithm of a ratio."""

    log: float
    se: float
    df: float

    def within(self, level: float) -> tuple[float, float]:
        """Two-sided interval of the ratio that misses the truth in a share `level` of cases."""
        half = self.half(level)
        return math.exp(min(self.log - half, _LARGEST)), math.exp(min(self.log + half, _LARGEST))

    def half(self, level: float) -> float:
        """Half of that interval's width, on logarithms."""
        return t_quantile(1 - level / 2, self.df) * math.hypot(self.se, RUN_TO_RUN * math.sqrt(2))


def middle_half(logs: Floats) -> Floats:
    """Mean of the middle half along the last axis: (…, n) to (…).

    As deaf to outliers as is needed (a quarter of the requests may be any), with a third less noise than a median in
    normal data, and steady where a latency has two humps, between which a median jumps.
    """
    n = logs.shape[-1]
    cut = n // 4
    if not cut:
        return logs.mean(axis=-1)
    return np.partition(logs, (cut, n - cut - 1), axis=-1)[..., cut:n - cut].mean(axis=-1)


def block_length(requests: int, concurrency: float | None) -> int:
    """Requests that are drawn together: twice those in flight at one time (a block begins anywhere, and of one wave
    alone it would mix two and see two thirds of their spread), and no fewer than the cube root of all (the rate at
    which blocks have to grow, Hall, Horowitz and Jing 1995), but at least six blocks."""
    together = max(0.0 if concurrency is None else min(2 * concurrency, requests), requests ** (1 / 3))
    return max(1, min(math.ceil(together), requests // MIN_BLOCKS))


def typical(values: Floats, block: int) -> Estimate | None:
    """The middle half of positive `values` (n,), in the order of their start; None for too few."""
    logs = np.log(values)
    return resampled(len(logs), block, lambda draws: middle_half(logs[draws]))


def rate(amounts: Floats, times: Floats, block: int) -> Estimate | None:
    """Σ amounts ÷ Σ times, both (n,) and positive in sum; None for too few."""
    return resampled(len(amounts), block, lambda draws: np.log(amounts[draws].sum(-1) / times[draws].sum(-1)))


def resampled(n: int, block: int, statistic: Callable[[Draws], Floats]) -> Estimate | None:
    """`statistic` takes rows of indices (rows, n) and gives one logarithm a row. The draws are the same every time."""
    if n < MIN_REQUESTS:
        return None
    rng = np.random.default_rng(20)
    blocks = math.ceil(n / block)
    rows = max(1, min(DRAWS, _AT_ONCE // n))
    values = []
    for first in range(0, DRAWS, rows):
        starts = rng.integers(n, size=(min(rows, DRAWS - first), blocks, 1))
        draws = ((starts + np.arange(block)) % n).reshape(len(starts), -1)[:, :n]
        values.append(statistic(draws))
    # Drawing from k blocks understates their spread by (k − 1) ÷ k, as any variance around its own mean does.
    independent = n / block
    se = float(np.std(np.concatenate(values), ddof=1)) * math.sqrt(independent / (independent - 1))
    return Estimate(float(statistic(np.arange(n)[None])[0]), se, OVERLAP * (independent - 1))


def difference(old: Estimate, new: Estimate) -> Difference:
    """new − old; degrees of freedom by Welch and Satterthwaite."""
    a, b = old.se ** 2, new.se ** 2
    spread = a * a / old.df + b * b / new.df
    return Difference(new.log - old.log, math.sqrt(a + b), (a + b) ** 2 / spread if spread else old.df + new.df)


def mean_difference(parts: list[Difference]) -> Difference:
    """The mean of independent ones."""
    k = len(parts)
    squares = [part.se ** 2 for part in parts]
    spread = sum(s * s / part.df for s, part in zip(squares, parts, strict=True))
    df = sum(squares) ** 2 / spread if spread else sum(part.df for part in parts)
    return Difference(sum(part.log for part in parts) / k, math.sqrt(sum(squares)) / k, df)


def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t, for `p` above a half. Degrees of freedom are rounded down, and 200 stand for more: both
    make intervals wider, not narrower."""
    return _t_quantile(p, max(1, min(int(df), _MOST_DF)))


@lru_cache(maxsize=4096)
def _t_quantile(p: float, df: int) -> float:
    low, high = 0.0, 1.0
    while _inside(high, df) < 2 * p - 1 and high < 1e12:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, df) < 2 * p - 1 else (low, middle)
    return high


def _inside(t: float, df: int) -> float:
    """P(|T| < t): the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(df))
    square, term, total = math.cos(angle) ** 2, 1.0, 0.0
    if df % 2:
        term = math.cos(angle)
        for k in range(1, df - 1, 2):
            total += term
            term *= square * (k + 1) / (k + 2)
        return 2 / math.pi * (angle + math.sin(angle) * total)
    for k in range(1, df, 2):
        total += term
        term *= square * k / (k + 1)
    return math.sin(angle) * total

"""Time to first token against prompt length: a fixed part, one that grows with the prompt, and the square of attention.

    ttft(L) = a + b·L + c·L²

A prompt of 4,096 tokens is 8 times one of 512 and takes 64 times its quadratic part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..samples import Floats

FEWEST_LENGTHS = 3
FEWEST_POINTS = 6
LEAST_SPREAD = 4.0
"""Distinct lengths, points, and longest ÷ shortest from which on three parts can be told apart: below a factor of four
the square looks like a line within a few percent of noise."""

DRAWS = 500
ROUNDS = 8
HUBER = 2.5
"""Robust standard deviations from which on a point weighs less: a first request that compiles is no prompt length."""


class CannotFitError(ValueError):
    """The points do not tell the three parts apart; the message says why."""


@dataclass(frozen=True, eq=False)
class Fit:
    """ms, with tokens as they are: `c` in ms per token²."""

    a: float
    b: float
    c: float
    a_error: float
    """Standard errors, by bootstrap of the relative residuals."""
    b_error: float
    c_error: float
    points: int
    shortest: float
    longest: float
    spread: float
    """Robust standard deviation of the relative residuals."""
    draws: Floats
    """(DRAWS, 3): a, b, c of each bootstrap draw."""

    def at(self, tokens: float) -> float:
        """ms for a prompt of this length."""
        return self.a + self.b * tokens + self.c * tokens * tokens

    def quadratic_ms(self, tokens: float) -> float:
        """The quadratic part at this length."""
        return self.c * tokens * tokens

    def quadratic_share(self, tokens: float) -> float:
        """Of the whole, at this length."""
        return self.quadratic_ms(tokens) / self.at(tokens)

    def share_interval(self, tokens: float) -> tuple[float, float]:
        """2.5 % to 97.5 % of the bootstrap draws of `quadratic_share`."""
        a, b, c = self.draws.T
        whole = a + b * tokens + c * tokens * tokens
        low, high = np.percentile(c * tokens * tokens / np.where(whole > 0, whole, np.nan), (2.5, 97.5))
        return float(low), float(high)

    @property
    def has_quadratic(self) -> bool:
        """Whether the square can be told from nothing."""
        return float(np.percentile(self.draws[:, 2], 2.5)) > 0

    @property
    def words(self) -> str:
        """For the reader."""
        low, high = self.share_interval(self.longest)
        text = (f"TTFT = {self.a:,.1f} ms + {self.b * 1000:,.2f} ms per 1,000 tokens + {self.c * 1e6:,.3f} ms per "
                f"(1,000 tokens)², from {self.points:,} prompts of {self.shortest:,.0f} to {self.longest:,.0f} tokens")
        if not self.has_quadratic:
            return f"{text}; a square cannot be told from the noise"
        return (f"{text}; at {self.longest:,.0f} tokens the square is {self.quadratic_share(self.longest):.0%} of it "
                f"({max(low, 0):.0%} to {min(high, 1):.0%})")


def fit_ttft(prompt_tokens: Sequence[float] | Floats, ttft_ms: Sequence[float] | Floats, *, seed: int = 0) -> Fit:
    """Fit the three parts to requests of one load (best one at a time: a queue is no part of a prompt).

    Least squares of relative residuals, large ones held back (Huber); errors by bootstrap with `seed`. Points that are
    not known, zero or negative are left out.

    Raises CannotFitError where the lengths do not spread, or too few points are there.
    """
    tokens, times = np.asarray(prompt_tokens, dtype=float), np.asarray(ttft_ms, dtype=float)
    if tokens.shape != times.shape or tokens.ndim != 1:
        raise CannotFitError("prompt lengths and times are not of one number")
    valid = np.isfinite(tokens) & np.isfinite(times) & (tokens > 0) & (times > 0)
    tokens, times = tokens[valid], times[valid]
    _refuse(tokens)
    scale = float(tokens.max())
    columns = np.stack([np.ones_like(tokens), tokens / scale, (tokens / scale) ** 2], axis=1)
    found, fitted, residuals = _robust(columns, times)
    between = np.linspace(tokens.min(), scale, 200) / scale
    if not np.isfinite(found).all() or (found @ np.stack([between**0, between, between**2]) <= 0).any():
        raise CannotFitError("the times do not follow a + b·L + c·L²: the fit is negative inside the range")
    draws = _bootstrap(columns, fitted, residuals, seed)
    units = np.array([1.0, scale, scale * scale])
    errors = draws.std(axis=0, ddof=1) / units
    a, b, c = (found / units).tolist()
    return Fit(a, b, c, float(errors[0]), float(errors[1]), float(errors[2]), points=len(tokens),
               shortest=float(tokens.min()), longest=scale, spread=_deviation(residuals), draws=draws / units)


def _refuse(tokens: Floats) -> None:
    lengths = np.unique(tokens)
    if len(tokens) < FEWEST_POINTS:
        raise CannotFitError(f"{len(tokens)} requests with a known TTFT and prompt length: {FEWEST_POINTS} are wanted")
    if len(lengths) < FEWEST_LENGTHS:
        raise CannotFitError(f"prompts of {len(lengths)} length{'s' * (len(lengths) != 1)}: {FEWEST_LENGTHS} are "
                             "wanted to tell a square from a line")
    if lengths[-1] < LEAST_SPREAD * lengths[0]:
        raise CannotFitError(f"prompts of {lengths[0]:,.0f} to {lengths[-1]:,.0f} tokens: the longest has to be "
                             f"{LEAST_SPREAD:g} times the shortest to tell a square from a line")
    middle = (lengths > 1.3 * lengths[0]) & (lengths < lengths[-1] / 1.3)
    if not middle.any():
        raise CannotFitError(f"prompts near {lengths[0]:,.0f} and near {lengths[-1]:,.0f} tokens and none between: a "
                             "third length is wanted")


def _robust(columns: Floats, times: Floats) -> tuple[Floats, Floats, Floats]:
    """Coefficients, fitted times and relative residuals."""
    weights = 1 / times
    found = _solve(columns, times, weights)
    fitted = columns @ found
    for _ in range(ROUNDS):
        floor = np.maximum(fitted, 0.05 * times.min())
        residuals = (times - fitted) / floor
        limit = HUBER * max(_deviation(residuals), 1e-12)
        held = np.sqrt(np.minimum(1.0, limit / np.maximum(np.abs(residuals), 1e-300)))
        found = _solve(columns, times, held / floor)
        fitted = columns @ found
    return found, fitted, (times - fitted) / np.where(fitted > 0, fitted, np.nan)


def _solve(columns: Floats, times: Floats, weights: Floats) -> Floats:
    found, *_ = np.linalg.lstsq(columns * weights[:, None], times * weights, rcond=None)
    return np.asarray(found, dtype=float)


def _bootstrap(columns: Floats, fitted: Floats, residuals: Floats, seed: int) -> Floats:
    """Coefficients of DRAWS fits to fitted × (1 + a residual drawn anew), outliers cut to the robust range."""
    rng = np.random.default_rng(seed)
    count = len(fitted)
    limit = HUBER * _deviation(residuals)
    drawn = rng.choice(np.clip(residuals, -limit, limit), size=(DRAWS, count)) * np.sqrt(count / (count - 3))
    weighted = columns / fitted[:, None]
    solve = np.linalg.pinv(weighted)
    return np.asarray((1 + drawn) @ solve.T, dtype=float)


def _deviation(residuals: Floats) -> float:
    """Robust standard deviation: 1.4826 × the median distance from the median."""
    return float(1.4826 * np.median(np.abs(residuals - np.median(residuals))))

"""The difference of a cumulative histogram between two scrapes: its count, its mean, its quantiles where the buckets
allow one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MAX_BUCKET_RATIO = 2.51
"""Upper ÷ lower bound of a bucket within which a quantile is interpolated. The 1-2-5 and 10-25-50 series of the
engines stay below; in a wider bucket the place within it is a guess. Judgement."""


@dataclass(frozen=True)
class Spread:
    """What was observed between two scrapes."""

    count: float
    total: float | None
    """Sum of the observations; None where it is not exported."""
    below: Mapping[float, float]
    """Upper bound of a bucket (+Inf among them) to the number of observations at or under it."""

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.total is not None and self.count > 0 else None

    def bucket(self, share: float) -> tuple[float, float] | None:
        """Lower and upper bound of the bucket in which the quantile lies; None without buckets."""
        lower, before = 0.0, 0.0
        for bound in sorted(self.below):
            if self.below[bound] >= share * self.count and self.below[bound] > before:
                return lower, bound
            lower, before = bound, self.below[bound]
        return None

    def quantile(self, share: float) -> float | None:
        """By linear interpolation within its bucket (as PromQL's histogram_quantile); None where the bucket is the
        first, the last or too wide."""
        found = self.bucket(share)
        if found is None:
            return None
        lower, upper = found
        if lower <= 0 or math.isinf(upper) or upper / lower > MAX_BUCKET_RATIO:
            return None
        before = self.below[lower]
        return lower + (upper - lower) * (share * self.count - before) / (self.below[upper] - before)

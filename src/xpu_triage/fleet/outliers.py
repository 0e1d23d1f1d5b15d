"""Values that stand apart from the others', by median and median absolute deviation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

DEVIATIONS = 3.5
"""Robust deviations from which a value stands apart (Iglewicz and Hoaglin, 1993)."""
NORMAL = 1.4826
"""Median absolute deviation of a normal distribution, to its standard deviation."""
NOISE = 0.02
"""Deviations below this part of the median are taken for it: runs of one program differ by as much. Judgement."""


def middle(values: Values) -> float:
    """The median; of an even number the lower of the two in the middle, so that of two the lower is the usual one.
    NaN entries are left out; NaN where nothing is left."""
    known = np.sort(values[~np.isnan(values)])
    return float(known[(len(known) - 1) // 2]) if len(known) else float("nan")


def spread(values: Values, at: float, least: float) -> float:
    """Robust standard deviation around `at`, at least `least`."""
    return max(NORMAL * middle(np.abs(values - at)), least)


def long_ones(values: Values, least_ratio: float) -> NDArray[np.bool_]:
    """Which values are long against the rest: by DEVIATIONS, and by `least_ratio` × the median. NaN is not."""
    at = middle(values)
    if not at > 0:
        return np.zeros(len(values), np.bool_)
    with np.errstate(invalid="ignore"):
        return np.asarray((values - at > DEVIATIONS * spread(values, at, NOISE * at)) & (values >= least_ratio * at))


def apart(values: Values, least: float) -> NDArray[np.bool_]:
    """Which values lie apart from the rest on either side: by DEVIATIONS, and by `least`. None of fewer than three."""
    if np.count_nonzero(~np.isnan(values)) < 3:
        return np.zeros(len(values), np.bool_)
    at = middle(values)
    with np.errstate(invalid="ignore"):
        far = np.abs(values - at)
        return np.asarray((far > DEVIATIONS * spread(values, at, NOISE * abs(at))) & (far >= least))

"""Microseconds of a trace file to integer nanoseconds, without losing one."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..trace import Ints

FLOAT_LIMIT_US = 2.0 ** 43
"""Times from here on (100 days) are decoded exactly. Below it a float is within half a ns of what the file
says; at today's 1.8e15 µs since 1970 floats are 250 ns apart. A *duration* beyond it is damage."""

_MAX_US = (1 << 63) // 1000 - 1


def from_floats(us: NDArray[np.float64]) -> tuple[Ints, NDArray[np.bool_]]:
    """ns, and which are usable. Split before scaling: a large time x 1000 has no exact float."""
    usable = np.abs(us) < FLOAT_LIMIT_US                    # False for NaN
    us = np.where(usable, us, 0.0)
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64), usable


def from_integers(us: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """The same for whole µs."""
    usable = (us < _MAX_US) & (us > -_MAX_US)
    return np.where(usable, us, 0) * 1000, usable


def from_written(us: list[Any]) -> tuple[Ints, NDArray[np.bool_]]:
    """The same for times as they stand in the file: int for a JSON integer, str for other numbers."""
    if not us or (ns := _digits(us)) is None:
        values = [one(value) for value in us]
        ns = np.array([0 if value is None else value for value in values], np.int64)
        return ns, np.array([value is not None for value in values], bool)
    return ns, np.ones(len(us), bool)


def one(us: Any) -> int | None:
    """ns of one time, None where it is none."""
    if isinstance(us, float):
        if not abs(us) < FLOAT_LIMIT_US:
            return None
        whole = math.floor(us)
        return whole * 1000 + round((us - whole) * 1000)
    try:
        exact = Decimal(us) * 1000
        return round(exact) if abs(exact) < 1000 * _MAX_US else None
    except (InvalidOperation, TypeError, ValueError):
        return None


FIRST_CLOCK_NS = 10 ** 18
"""2001: smaller times count from something else than 1970."""


def since_1970(first_ns: int, base: Any = None) -> int | None:
    """ns since 1970 of a capture's first row, None where its times count from an unknown moment.

    `base` is Kineto's `baseTimeNanoseconds`, from which the times of a file that has it count.
    """
    if isinstance(base, int) and not isinstance(base, bool) and base > 0:
        first_ns += base
    return first_ns if FIRST_CLOCK_NS < first_ns < 1 << 63 else None


def _digits(us: list[Any]) -> Ints | None:
    """Texts of one shape, as a profiler writes them: digits, a dot, three digits. They make a matrix."""
    try:
        text = "".join(us).encode("ascii")
    except (TypeError, UnicodeEncodeError):
        return None
    width, rest = divmod(len(text), len(us))
    if rest or not 5 <= width <= 20:
        return None
    chars = np.frombuffer(text, np.uint8).reshape(-1, width)
    digits = np.delete(chars, width - 4, axis=1) - ord("0")     # wraps below '0': all else is above 9
    if (chars[:, width - 4] != ord(".")).any() or digits.max() > 9:
        return None
    if width == 20 and digits[:, 0].max() > 8:                  # beyond int64
        return None
    ns = np.zeros(len(us), np.int64)
    for column in digits.T:
        ns = ns * 10 + column
    return ns

"""Where the figures of a log fall apart in time. A log of a day holds several loads and several states of the machine,
and a mean over them is of none: what matters is the last. Pure: columns in, ranges of rows out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..samples import Floats

APART = 3.0
"""Factor between two levels of speed, or of requests that run, from which on they are two. Judgement: lengths, prompts
and batch sizes of one load move a rate by less."""

WINDOW = 3
"""Lines whose median is a level: one odd line is none."""

LEAST_S, LEAST_LINES = 60.0, 6
"""How long a level holds to be one; in lines where they have no time. Judgement: a long prompt takes as long."""

DRAIN_S = 300.0
"""How long the last requests of a load may take to finish. Judgement."""

MOST_LOOKED_AT = 200
"""Levels, from the end of a log, before which what is left is taken as one."""

SLOWEST, FEWEST = 0.01, 0.3
"""What a rate of 0 tokens/s a request, and 0 requests, are taken as: a logarithm of 0 is none."""


class Part(NamedTuple):
    """Lines of one level, `first` to `last`; medians over them."""

    first: int
    last: int
    lines: int
    since: float
    """Seconds since the epoch; NaN where the lines have no time."""
    seconds: float
    """NaN likewise."""
    running: float
    tokens_per_s: float

    @property
    def speed(self) -> float:
        """Tokens per second of one request."""
        return float(_speed(np.array(self.tokens_per_s), np.array(self.running)))


def parts(time: Floats, running: Floats, tokens_per_s: Floats) -> list[Part]:
    """The levels of lines under load, oldest first; one where the figures do not fall apart. All three of one length;
    `first` and `last` are places in them. A line without a rate or a number of requests counts for none."""
    known = np.flatnonzero(~np.isnan(running) & ~np.isnan(tokens_per_s))
    time, running, tokens_per_s = time[known], running[known], tokens_per_s[known]
    if not len(known):
        return []
    level = np.log(np.stack((_speed(tokens_per_s, running), np.maximum(running, FEWEST))))
    return [_part(edge, known, time, running, tokens_per_s) for edge in _settled(_edges(level), level, time)]


def is_drain(last: Part, before: Part) -> bool:
    """Whether the last level is a load that ran out: few are left, none of them slower, and not for long."""
    few = last.running * APART <= before.running
    return few and last.speed * APART > before.speed and not last.seconds >= DRAIN_S


def _speed(tokens_per_s: Floats, running: Floats) -> Floats:
    return np.maximum(tokens_per_s / np.maximum(running, FEWEST), SLOWEST)


def _edges(level: Floats) -> list[tuple[int, int]]:
    """Ranges of rows that are of one level, from the last line back, each as far as no median of WINDOW lines is APART
    from its end; oldest first."""
    size = level.shape[1]
    if size <= WINDOW:
        return [(0, size)]
    medians = np.median(sliding_window_view(level, WINDOW, axis=1), axis=2)
    found: list[tuple[int, int]] = []
    end = size
    while end > 0 and len(found) < MOST_LOOKED_AT:
        start = _start(level, medians, end)
        found.append((start, end))
        end = start
    if end > 0:
        found.append((0, end))
    return found[::-1]


def _start(level: Floats, medians: Floats, end: int) -> int:
    if end <= WINDOW:
        return 0
    here = medians[:, end - WINDOW]
    far = np.flatnonzero((np.abs(medians[:, :end - WINDOW] - here[:, None]) >= np.log(APART)).any(axis=0))
    if not len(far):
        return 0
    other = int(far[-1])  # the last window that is of another level; the change lies within a window after its start
    until = min(other + 2 * WINDOW, end)
    there = medians[:, other]
    off = [float(np.abs(level[:, other:at] - there[:, None]).sum() + np.abs(level[:, at:until] - here[:, None]).sum())
           for at in range(other + 1, other + WINDOW + 1)]
    return other + 1 + int(np.argmin(off))


def _settled(edges: list[tuple[int, int]], level: Floats, time: Floats) -> list[tuple[int, int]]:
    """Levels that held for a while: what is shorter belongs to what came before, and neighbours that are alike then are
    one."""
    held: list[tuple[int, int]] = []
    for start, end in edges:
        if held and not (_holds(time, *held[-1]) and _holds(time, start, end)):
            held[-1] = (held[-1][0], end)
        else:
            held.append((start, end))
    joined: list[tuple[int, int]] = []
    for start, end in held:
        if joined and not _apart(level, joined[-1], (start, end)):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _holds(time: Floats, start: int, end: int) -> bool:
    if np.isnan(time[start:end]).any():
        return end - start >= LEAST_LINES
    return end - start >= WINDOW and _seconds(time, start, end) >= LEAST_S


def _apart(level: Floats, one: tuple[int, int], other: tuple[int, int]) -> bool:
    first, second = (np.median(level[:, slice(*edge)], axis=1) for edge in (one, other))
    return bool((np.abs(first - second) >= np.log(APART)).any())


def _seconds(time: Floats, start: int, end: int) -> float:
    """Each line stands for the time since the one before."""
    of = time[start:end]
    if np.isnan(of).any() or len(of) < 2:
        return float("nan")
    return float(of[-1] - of[0] + np.median(np.diff(of)))


def _part(edge: tuple[int, int], known: NDArray[np.intp], time: Floats, running: Floats,
          tokens_per_s: Floats) -> Part:
    start, end = edge
    return Part(int(known[start]), int(known[end - 1]), end - start, float(time[start]), _seconds(time, start, end),
                float(np.median(running[start:end])), float(np.median(tokens_per_s[start:end])))

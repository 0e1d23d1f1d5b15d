"""Steps of a capture that nobody annotated: a mark that comes round evenly, once a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..trace import Ints, Kind, Trace
from .host import NameTable
from .patterns import GRAPH_LAUNCH

FEWEST, MOST = 3, 2000
"""How often a mark may recur: twice shows no period, and thousands are layers or kernels."""

UNEVEN = 0.35
"""Largest median deviation of the intervals, as a share of their median. The median, so that one cold step
does no harm."""

SPREAD = 0.5
"""The marks must span this share of the capture, less one interval."""

RARER_SHARE = 0.1
"""At most this share of all names may occur more seldom than once a step. A layer recurs evenly too, but the
embedding, the head and the sampler then occur less often than it does."""

NAMES_TRIED = 64
"""Names tried for one count: those of one step mostly agree, and a capture holds thousands of names."""


@dataclass(frozen=True, eq=False)
class Anchor:
    rows: Ints
    """Rows of the trace that mark the start of a step, in order of time."""


def find_anchor(trace: Trace, names: NameTable) -> Anchor | None:
    """The mark with the smallest count that comes round evenly and that hardly any name falls short of; None
    for none.

    One annotation or one graph launch is enough; of kernels or operators three names must agree on the count.
    """
    device = (Kind.KERNEL, Kind.COPY, Kind.COMM)
    seldom = _Seldom(trace, device)
    is_mark = np.isin(trace.kind, (int(Kind.ANNOTATION),)) | names.rows(GRAPH_LAUNCH, Kind.RUNTIME)
    for mask, agreeing in ((is_mark, 1), (np.isin(trace.kind, device), 3), (trace.kind == Kind.HOST_OP, 3)):
        for count, groups in _by_count(trace, np.flatnonzero(mask)):
            if seldom.share(count) > RARER_SHARE:
                break
            even = [rows for rows in groups if _is_even(trace, rows)]
            if len(even) >= agreeing:
                return Anchor(min(even, key=lambda rows: int(trace.start[rows[0]])))
    return None


class _Seldom:
    """Share of device names, or of operator names if that is less, that occur more seldom than `count` - 1
    times."""

    def __init__(self, trace: Trace, device: tuple[Kind, ...]) -> None:
        self._counts = []
        for mask in (np.isin(trace.kind, device), trace.kind == Kind.HOST_OP):
            if mask.any():
                counts = np.bincount(trace.name[mask])
                self._counts.append(np.sort(counts[counts > 0]))

    def share(self, count: int) -> float:
        return min((float(np.searchsorted(c, count - 1, "left") / len(c)) for c in self._counts), default=1.0)


def _by_count(trace: Trace, rows: Ints) -> Iterator[tuple[int, list[Ints]]]:
    """Rows of one name, grouped by how many there are, smallest count first; names that span too little left
    out."""
    if not len(rows):
        return
    order = rows[np.argsort(trace.name[rows], kind="stable")]
    name = trace.name[order]
    first = np.flatnonzero(np.concatenate(([True], name[1:] != name[:-1])))
    count = np.diff(np.concatenate((first, [len(order)])))
    spans = trace.start[order[first + count - 1]] - trace.start[order[first]]
    good = (count >= FEWEST) & (count <= MOST) & (spans > SPREAD * trace.span * (count - 1) / count)
    for c in np.unique(count[good]).tolist():
        chosen = first[good & (count == c)][:NAMES_TRIED].tolist()
        yield c, [order[at:at + c] for at in chosen]


def _is_even(trace: Trace, rows: Ints) -> bool:
    interval = np.diff(trace.start[rows])
    middle = float(np.median(interval))
    return middle > 0 and float(np.median(np.abs(interval - middle))) < UNEVEN * middle

"""Steps of a capture that nobody annotated: a mark that comes round evenly, once a step.

Layers come round evenly too. They are told by what holds several of them (one call of a module, one compiled region,
one graph replay), and by what a step has once and a layer has not: its own names (the embedding, the choice of the next
tokens, the loss) and the read of its result. A layer may be read too (a router's counts), and then only the names tell:
where they do not, no steps are taken, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..trace import Ints, Kind, Trace
from .host import Host, NameTable
from .intervals import Bools
from .patterns import GRAPH_LAUNCH, MODULE_CALL, ONCE_A_STEP, OPERATOR, REGION, TO_HOST

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


LAYERS = 8
"""A step runs its layers, and what they have in common comes round this often in it at least: models that people serve
have twelve layers and more, and one layer runs few of its kernels more than four times."""

SHARED = 0.5
"""From this share of the periods on that begin and end in one call, the marks are parts of it and no steps."""

READ = 0.5
"""In at least this share of the steps the host waits for the device, or reads from it."""


@dataclass(frozen=True, eq=False)
class Anchor:
    rows: Ints
    """Rows of the trace that mark the start of a step, in order of time; none where nothing marks one."""
    doubt: str = ""
    """What comes round evenly and may be layers as well as steps, in words; else empty."""


def find_anchor(trace: Trace, names: NameTable, host: Host) -> Anchor:
    """The mark with the smallest count that comes round evenly, that hardly any name falls short of, and that lies in
    no call together with others of its kind.

    One annotation or one graph launch is enough. Of kernels or operators three names must agree on the count. Where any
    name falls short of it they must hold what a step has once, and the host must read from the device in most periods.
    Whatever the mark, what a step has once must not come more seldom; where no name tells what a step has once, it must
    hold what could be its layers.
    """
    device = (Kind.KERNEL, Kind.COPY, Kind.COMM)
    seldom, layers, doubt = _Seldom(trace, device), _Layers(trace, names, host), ""
    is_mark = np.isin(trace.kind, (int(Kind.ANNOTATION),)) | names.rows(GRAPH_LAUNCH, Kind.RUNTIME)
    for mask, agreeing in ((is_mark, 1), (np.isin(trace.kind, device), 3), (trace.kind == Kind.HOST_OP, 3)):
        for count, groups in _by_count(trace, np.flatnonzero(mask)):
            if seldom.share(count) > RARER_SHARE:
                break
            even = [rows for rows in groups if _is_even(trace, rows)]
            if len(even) < agreeing:
                continue
            first = min(even, key=lambda rows: int(trace.start[rows[0]]))
            if layers.in_one_call(first) or (ends := layers.ends(count)) is False:
                continue
            if agreeing > 1:
                short = seldom.any(count)
                if short and not layers.are_read(first):
                    continue
                if ends is None and (short or layers.hold_none(count)):
                    doubt = doubt or _may_be_layers(trace, first)
                    continue
            return Anchor(first)
    return Anchor(np.zeros(0, np.int64), doubt)


def _may_be_layers(trace: Trace, marks: Ints) -> str:
    period = float(np.median(np.diff(trace.start[marks])))
    return (f"though {trace.name_of(int(marks[0]))} comes round {len(marks)} times, every {period / 1e6:,.2f} ms (that "
            "may be steps, or layers of one pass, and annotated steps would tell)")


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

    def any(self, count: int) -> bool:
        """Whether any name at all, of the device's or of the operators, does."""
        return any(bool(c[0] < count - 1) for c in self._counts)


class _Layers:
    """Whether marks are layers of one forward pass rather than steps."""

    def __init__(self, trace: Trace, names: NameTable, host: Host) -> None:
        self._trace, self._host = trace, host
        rows = host.row
        call = names.rows(MODULE_CALL, Kind.PYTHON, of=rows) | names.rows(OPERATOR, Kind.HOST_OP, of=rows)
        self._call: Bools = call | names.rows(REGION, Kind.HOST_OP, Kind.ANNOTATION, of=rows)
        read = trace.blocking | names.rows(TO_HOST, Kind.COPY)
        self._read_at = np.sort(trace.start[read])
        told = [names.rows(pattern, Kind.HOST_OP, Kind.KERNEL) for pattern in ONCE_A_STEP]
        work = trace.name[trace.on_device if trace.on_device.any() else trace.kind == Kind.HOST_OP]
        self._most_work = int(np.bincount(work).max()) if len(work) else 0
        self._most = [int(np.bincount(trace.name[rows]).max()) for rows in told if rows.any()]

    def in_one_call(self, marks: Ints) -> bool:
        """Whether most neighbours were launched by one call (a graph's replay), or run in one call of a module, an
        operator or a compiled region."""
        trace = self._trace
        launch = np.where(trace.on_device[marks], trace.launch[marks], marks)
        outermost = self._outermost[self._host.index(launch)]
        same = (launch[1:] == launch[:-1]) & (launch[1:] >= 0)
        same |= (outermost[1:] == outermost[:-1]) & (outermost[1:] >= 0)
        return float(same.mean()) >= SHARED

    @cached_property
    def _outermost(self) -> Ints:
        """int64, forest index of the outermost call that each host row lies in; -1 for none, and at the end for -1."""
        return np.append(self._host.around(self._call), -1)

    def ends(self, count: int) -> bool | None:
        """Whether the ends of a pass come as often as `count` marks do (each by the name that is most frequent): False
        where one of them comes more seldom, so that several periods share it; None where no name tells."""
        return all(most >= count - 1 for most in self._most) if self._most else None

    def hold_none(self, count: int) -> bool:
        """Whether nothing comes round so often between two of `count` marks that they could hold layers themselves:
        then they may be layers. A capture that begins and ends inside one pass has no name that comes more seldom."""
        return self._most_work < LAYERS * count

    def are_read(self, marks: Ints) -> bool:
        """Whether the host reads from the device, or waits for it, in most periods."""
        at = np.searchsorted(self._read_at, self._trace.start[marks], "left")
        return float((np.diff(at) > 0).mean()) >= READ


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

"""Host rows by name: what all calls of one function, operator or span hold together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace import Ints, Kind
from .host import Indices
from .intervals import Bools, Weights
from .patterns import PLUMBING, is_library
from .scene import Scene
from .step_names import is_engine_step, is_profiler_step, template


@dataclass(frozen=True, eq=False)
class Groups:
    """Host rows by name. A group's sums run over its outermost rows, each with all that lies below it.

    code       int64, one entry a host row (forest order): its group
    rows       int64, forest indices of all groups' outermost rows
    kind       int64, one entry a group: its `Kind`; -1 for names that no host row carries
    label      what each group is called
    library, plumbing, is_step   bool, one entry a group: frames of Python or the framework; operators that
                                 nobody calls by name; marks of steps
    """

    code: Ints
    rows: Ints
    kind: Ints
    label: tuple[str, ...]
    library: Bools
    plumbing: Bools
    is_step: Bools

    def __len__(self) -> int:
        return len(self.label)

    def sums(self, inclusive: Weights) -> Weights:
        """Of inclusive sums a host row, those of each group."""
        out: Weights = np.bincount(self.code[self.rows], inclusive[self.rows], len(self)).astype(np.float64)
        return out

    def heaviest(self, group: int, inclusive: Weights) -> int:
        """The outermost row of a group that holds most."""
        rows = self.rows[self.code[self.rows] == group]
        return int(rows[inclusive[rows].argmax()])

    @property
    def nameable(self) -> Bools:
        """bool, one entry a group: whether its name says something to the reader."""
        return ~(self.library | self.plumbing | self.is_step)

    @property
    def operators(self) -> Bools:
        return np.asarray(self.kind == Kind.HOST_OP)

    @property
    def frames(self) -> Bools:
        return np.asarray(self.kind == Kind.PYTHON)


def heaviest_code(code: Ints | Indices, ns: Ints | Weights) -> int:
    """The code with the largest sum, among those that occur (sums may all be 0)."""
    return int(np.where(np.bincount(code) > 0, np.bincount(code, ns), -1.0).argmax())


def group_rows(scene: Scene) -> Groups:
    """Groups by name. Marks of steps are one group, and so are annotations that differ only in their
    numbers."""
    trace, host = scene.trace, scene.host
    names = len(trace.names)
    annotations = scene.host_name[scene.host_kind == Kind.ANNOTATION]
    canon, label, is_step = _canonical(trace.names, np.bincount(annotations, minlength=names) > 0)
    code = canon[scene.host_name]
    narrow = code.astype(np.uint16) if names < 1 << 16 else code  # a radix sort, where it fits
    order = np.argsort(narrow, kind="stable")
    if len(order):
        reach = np.maximum.accumulate(host.last[order] + code[order] * len(host))
        first = np.concatenate(([True], order[1:] + code[order][1:] * len(host) >= reach[:-1]))
        order = order[first]
    kind = np.full(names, -1, np.int64)
    kind[code[::-1]] = scene.host_kind[::-1]
    frame = (kind == Kind.PYTHON).tolist()
    library = np.array([f and is_library(name) for f, name in zip(frame, label, strict=True)], np.bool_)
    plumbing = np.array([bool(PLUMBING.search(name)) for name in label], np.bool_)
    return Groups(code, order, kind, tuple(label), library, plumbing, is_step)


def _canonical(names: tuple[str, ...], annotated: Bools) -> tuple[Ints, list[str], Bools]:
    """Per name: the number of its group, what that is called, and whether it marks steps."""
    canon, label = np.arange(len(names)), list(names)
    is_step = np.zeros(len(names), np.bool_)
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        step = is_profiler_step(name) or is_engine_step(name)
        if not step and not annotated[i]:
            continue
        key = template(name)
        canon[i] = first.setdefault(key, i)
        is_step[canon[i]] |= step
        if canon[i] != i:
            label[canon[i]] = key
    return canon, label, is_step

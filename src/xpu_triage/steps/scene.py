"""One trace, indexed once for all three steps."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from ..trace import NOT_LINKED, Ints, Kind, Trace
from .gap_facts import GapFacts
from .host import Host, NameTable
from .intervals import Bools
from .patterns import COLLECTIVE, COPY_DIRECTION, DEVICE_LAUNCH, HOST_EXCHANGE, QUEUED, TO_DEVICE, TO_HOST
from .results import Steps

FEEDS_SHARE = 0.05
"""A thread with at least this share of the launches feeds the device (autograd's thread beside the main
one)."""


class Scene:
    """A trace with its steps, the forest of its host rows, and what follows from them."""

    def __init__(self, trace: Trace, names: NameTable, host: Host, steps: Steps, lead_rows: Ints) -> None:
        self.trace, self.names, self.host, self.steps = trace, names, host, steps
        self.lead_rows = lead_rows
        """int64, rows of the device that the figures are about: the busiest; empty where there is none."""
        self.end: Ints = trace.end
        self.step_start = np.array([s.start for s in steps.steps], np.int64)
        """int64 ns, start of each step."""
        self.host_kind = trace.kind[host.row]
        self.host_name = trace.name[host.row]
        self.blocked_in: Ints = host.around(trace.blocking[host.row])
        """int64, forest index of the outermost blocking call that each host row is or lies in; -1 for
        none."""

    @property
    def window(self) -> int:
        """ns of the window, at least 1: it divides."""
        return max(self.steps.window, 1)

    @property
    def left(self) -> int:
        return self.steps.start

    @property
    def right(self) -> int:
        return self.steps.end

    def host_rows(self, matches: object, *kinds: Kind) -> Bools:
        """As `NameTable.rows`, in forest order."""
        return self.names.rows(matches, *kinds, of=self.host.row)  # type: ignore[arg-type]

    def step_of(self, at: Ints) -> Ints:
        """Number of the step that each time lies in; -1 before the first."""
        return np.searchsorted(self.step_start, at, "right") - 1

    @cached_property
    def copies_down(self) -> Bools:
        """bool, one entry a row of the trace: copies from device to host, by their own name or that of their
        call."""
        return self._copies(TO_HOST)

    @cached_property
    def copies_up(self) -> Bools:
        """bool, one entry a row of the trace: copies from host to device."""
        return self._copies(TO_DEVICE)

    def _copies(self, direction: re.Pattern[str]) -> Bools:
        trace = self.trace
        found = self.names.rows(direction, Kind.COPY)
        told = self.names.rows(COPY_DIRECTION, Kind.COPY)
        silent = np.flatnonzero((trace.kind == Kind.COPY) & (trace.launch >= 0) & ~told)
        found[silent] = self.names.rows(direction, Kind.RUNTIME, of=trace.launch[silent])
        return found

    @cached_property
    def launched_below(self) -> Bools:
        """bool, one entry a host row in forest order: it, or a row inside it, launched recorded device work."""
        index = self.host.index(self.trace.launch[self.trace.on_device])
        counts = np.bincount(index[index >= 0], minlength=len(self.host))
        return np.asarray(self.host.below(counts) > 0)

    @cached_property
    def lost_launches(self) -> Ints:
        """int64, rows of the trace: launches none of whose device work was recorded, in time order: a profiler that
        drops kernels (of graphs, of a full buffer), or a file cut before its device rows.

        A driver's call lies inside the runtime's of the same launch, and either may carry the link. In complete
        captures there is not one. Where most device rows have no link at all, this cannot be told: then none.
        """
        host, calls = self.host, self.host_rows(DEVICE_LAUNCH, Kind.RUNTIME)
        outermost = host.outermost(np.flatnonzero(calls))
        lost: Ints = np.sort(host.row[outermost[~self.launched_below[outermost]]])
        device = self.trace.launch[self.trace.on_device]
        return lost if 2 * int((device == NOT_LINKED).sum()) < len(device) else lost[:0]

    @cached_property
    def exchanges(self) -> Bools:
        """bool, one entry a host row in forest order: ranks talk to each other through the host in it."""
        found = self.host_rows(HOST_EXCHANGE, Kind.HOST_OP, Kind.PYTHON, Kind.ANNOTATION)
        if len(self.lead_rows):
            queued = np.asarray(self.host.below(self.host_rows(QUEUED, Kind.RUNTIME).astype(np.int64)) > 0)
            found |= self.host_rows(COLLECTIVE, Kind.HOST_OP) & ~self.launched_below & ~queued
        return found

    @cached_property
    def gap_facts(self) -> GapFacts:
        """What the rules of idle ask of the host and of all devices."""
        return GapFacts(self)

    @cached_property
    def self_ns(self) -> Ints:
        """int64 ns, one entry a host row in forest order: its time inside the window without its
        children's."""
        host = self.host
        offset = self.trace.thread[host.row] * host.shift
        inside = np.minimum(host.end, self.right + offset)
        inside -= np.maximum(host.start, self.left + offset)
        np.maximum(inside, 0, out=inside)
        nested = host.parent >= 0
        inside -= np.bincount(host.parent[nested], inside[nested], len(host)).astype(np.int64)
        np.maximum(inside, 0, out=inside)
        own: Ints = inside
        return own

    @cached_property
    def launches_by_thread(self) -> Ints:
        """int64, work of the lead device launched from each thread."""
        return self.launches_of(self.lead_rows)

    def launches_of(self, rows: Ints) -> Ints:
        """int64, how many of these device rows each thread launched."""
        calls = self.trace.launch[rows]
        return np.bincount(self.trace.thread[calls[calls >= 0]], minlength=len(self.trace.threads))

    @cached_property
    def main_thread(self) -> int:
        """The thread that launches most; without launches that of the steps, else the one with most rows."""
        if self.launches_by_thread.sum():
            return int(self.launches_by_thread.argmax())
        return self.step_thread

    @cached_property
    def step_thread(self) -> int:
        """The thread that the steps are marked on; without marks the one with most rows."""
        trace = self.trace
        if self.steps.method == "annotation":
            mark = np.flatnonzero((trace.start == self.left) & (trace.kind <= Kind.ANNOTATION))
            named = [row for row in mark.tolist() if trace.name_of(row) == self.steps.steps[0].name]
            if named:
                return int(trace.thread[named[0]])
        threads = trace.thread[self.host.row]
        return int(np.bincount(threads).argmax()) if len(threads) else 0

    @cached_property
    def feeding_threads(self) -> Ints:
        """Threads that feed the lead device, and the one that the steps run on."""
        launches = self.launches_by_thread
        return np.union1d(np.flatnonzero(launches > FEEDS_SHARE * launches.sum()), [self.step_thread])

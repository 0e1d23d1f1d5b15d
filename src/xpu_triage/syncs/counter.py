"""Counting syncs by step and by line of user code, and forbidding them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from ..text import clean
from .backends import Backend, choose
from .sites import Site, caller, site_of

P = ParamSpec("P")
T = TypeVar("T")

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """The syncs of one line of code by one call."""

    site: Site
    call: str
    """What waited, as the backend names it."""
    device: str
    count: int
    steps: tuple[int, ...]
    """How many in each finished step."""
    wait_ms: float | None
    """Time of all of them together; None where it is not known."""


@dataclass(slots=True)
class _Tally:
    count: int = 0
    wait_ns: int = 0
    timed: int = 0


class Syncs:
    """The syncs of some steps, while they are counted and after. Printed, it is a report.

    Syncs belong to the step that `step()` ends, or to the item that `steps()` gave out. What comes
    after the last mark is `rest`, and without a mark everything is.
    """

    attempts = False

    def __init__(self, backend: Backend, device: str | None = None, skip: Iterable[str] = ()) -> None:
        self.backend = backend
        self.device = device
        self.elsewhere = 0
        """Syncs on threads that were not counted, where the backend sees them."""
        self._skip = tuple(skip)
        self._tallies: dict[tuple[int, Site, str, str], _Tally] = {}
        self._steps = 0
        self._lock = threading.Lock()

    # ---- while counting

    def step(self) -> None:
        """A step ends here."""
        with self._lock:
            self._steps += 1
        self.backend.settle()

    def steps(self, items: Iterable[T]) -> Iterator[T]:
        """`items`, with a step for each. One that is broken off is not a step: its syncs are `rest`."""
        for item in items:
            yield item
            self.step()

    @contextmanager
    def also_here(self) -> Iterator[None]:
        """Count on this thread, too."""
        self.backend.start(self)
        try:
            yield
        finally:
            self.backend.stop(self)

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None:
        """A backend reports a sync of this thread, while the frame that caused it is on the stack."""
        if self.device is not None and device != self.device:
            return
        site = site_of(caller(), self._skip)
        with self._lock:
            tally = self._tallies.setdefault((self._steps, site, call, device), _Tally())
            tally.count += count
            if wait_ns is not None:
                tally.wait_ns += wait_ns
                tally.timed += count

    def heard_elsewhere(self) -> None:
        with self._lock:
            self.elsewhere += 1

    # ---- afterwards

    @property
    def total(self) -> int:
        """All syncs, `rest` included."""
        return sum(tally.count for tally in self._tallies.values())

    @property
    def rest(self) -> int:
        """Those after the last mark."""
        return sum(tally.count for (step, *_), tally in self._tallies.items() if step == self._steps)

    @property
    def by_step(self) -> tuple[int, ...]:
        """How many in each finished step."""
        counts = Counter[int]()
        for (step, *_), tally in self._tallies.items():
            counts[step] += tally.count
        return tuple(counts[step] for step in range(self._steps))

    @property
    def per_step(self) -> float | None:
        """Mean of a finished step; None where no step was marked."""
        return sum(self.by_step) / self._steps if self._steps else None

    @property
    def wait_ms(self) -> float | None:
        """Time of all syncs together; None where it is not known of each."""
        return _milliseconds(self._tallies.values())

    @property
    def by_site(self) -> Counter[Site]:
        """How many at each line of code."""
        counts = Counter[Site]()
        for (_, site, *_), tally in self._tallies.items():
            counts[site] += tally.count
        return counts

    @property
    def rows(self) -> list[Row]:
        """By line of code and call, the most frequent first."""
        by_site: dict[tuple[Site, str, str], dict[int, _Tally]] = {}
        for (step, site, call, device), tally in self._tallies.items():
            by_site.setdefault((site, call, device), {})[step] = tally
        rows = [
            Row(
                site,
                call,
                device,
                sum(t.count for t in steps.values()),
                tuple(steps[i].count if i in steps else 0 for i in range(self._steps)),
                _milliseconds(steps.values()),
            )
            for (site, call, device), steps in by_site.items()
        ]
        return sorted(rows, key=lambda row: (-row.count, row.site.path, row.site.line, row.call))

    def report(self) -> str:
        """What was found, line by line, and what this backend cannot see."""
        lines = [self._headline()]
        for row in self.rows:
            often = f"{sum(row.steps) / self._steps:.2f} a step" if self._steps else f"{row.count}"
            if self._steps and row.count > sum(row.steps):
                often += f" + {row.count - sum(row.steps)} after the last"
            time = "" if row.wait_ms is None else f", {row.wait_ms / row.count:.3f} ms each"
            lines.append(f"  {often}  {row.call} on {row.device}{time}  {row.site}")
            if row.site.text:
                lines.append(f"      {row.site.text}")
        if self.elsewhere:
            lines.append(f"  and {self.elsewhere} on threads that were not counted")
        lines += [f"{self.backend.name} does not see", *(f"  {gap}" for gap in self.backend.cannot_see)]
        return "\n".join(clean(line) for line in lines)

    def _headline(self) -> str:
        noun = "sync" if self.total == 1 else "syncs"
        if not self._steps:
            return f"{self.backend.name}: {self.total} {noun}, no step was marked"
        low, high = min(self.by_step), max(self.by_step)
        spread = f"{low} in each" if low == high else f"{low} to {high}, {self.per_step:.2f} on average"
        rest = f", {self.rest} after the last" if self.rest else ""
        return f"{self.backend.name}: {self.total} {noun} in {self._steps} steps: {spread}{rest}"

    __repr__ = __str__ = report


def _milliseconds(tallies: Iterable[_Tally]) -> float | None:
    tallies = list(tallies)
    known = all(tally.timed == tally.count for tally in tallies)
    return sum(tally.wait_ns for tally in tallies) / _NS_PER_MS if known else None


@contextmanager
def count_syncs(backend: str | None = None, *, device: str | None = None, skip: Iterable[str] = ()) -> Iterator[Syncs]:
    """Count the syncs of this thread inside the `with` block.

    `backend`: `cuda`, `npu`, `xpu`, `lab` or `dispatch` (any device); left out, that of the accelerator
    in this process. `device`: count those of one kind of device alone (`"cuda"`); with `dispatch` CPU
    tensors count otherwise, as stand-ins for the device's. `skip`: packages whose frames are not the
    user's. Raises TriageError where the backend cannot work here.
    """
    syncs = Syncs(choose(backend), device, skip)
    with syncs.also_here():
        yield syncs


class SyncsFound(AssertionError):
    """Code that must not sync did. The message lists where."""

    def __init__(self, found: Iterable[Syncs], allowed: int) -> None:
        self.found = tuple(found)
        permitted = f"at most {allowed}" if allowed else "no"
        super().__init__(f"{permitted} host–device sync is allowed here\n" + "\n".join(map(str, self.found)))


@contextmanager
def forbid_syncs(
    backend: str | None = None, *, device: str | None = None, allowed: int = 0, skip: Iterable[str] = ()
) -> Iterator[None]:
    """Raise SyncsFound at the end of the `with` block if there were more than `allowed` syncs in it.

    Without `backend` two detectors look, `dispatch` and the accelerator's own, and either finds. The
    code runs to its end, so that all places are listed. `device` as for `count_syncs`.
    """
    __tracebackhide__ = True  # pytest shows the test's own lines
    names = dict.fromkeys(("dispatch", choose(None).name)) if backend is None else (backend,)
    with ExitStack() as stack:
        counts = [stack.enter_context(count_syncs(name, device=device, skip=skip)) for name in names]
        yield
    found = [syncs for syncs in counts if syncs.total > allowed]
    if found:
        raise SyncsFound(found, allowed)


def assert_no_sync(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` and return what it returns. Raises SyncsFound if it read anything back from a
    device."""
    __tracebackhide__ = True
    with forbid_syncs():
        return function(*args, **kwargs)

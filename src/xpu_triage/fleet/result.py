"""What one rank's diagnosis leaves behind: a few kilobytes, whatever the size of its trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..signals import Signal, Signals, Value
from ..verdict import Level

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MAX_STEPS = 1024
MAX_CALLS = 4096
"""Steps and collectives of one rank that travel: 24 kB and 112 kB at most. Those from the start of the capture; more
are left out, and the rank says so."""


@dataclass(frozen=True, eq=False)
class StepTable:
    """One entry a step, on the rank's busiest device; ms."""

    key: Ints
    """A hash of the step's name, where names tell a rank's steps apart (`ProfilerStep#7`); else empty."""
    wall: Floats
    own: Floats
    """Wall time without exposed collectives, without idle that waits for another rank and without idle for want of
    work: what the rank itself takes, its host's time included."""
    comm: Floats
    """In collectives with no compute beside them, waiting inside them included."""
    compute: Floats
    """In kernels."""

    counted: bool = False
    """Whether the names count steps: one number in them rises by one from step to step."""

    def __len__(self) -> int:
        return len(self.wall)


class Group(NamedTuple):
    """A process group."""

    name: str
    """The same on all its ranks."""
    ranks: str
    """As `0-7` or `0,8,16`; empty where the capture does not tell."""
    size: int = 0
    """How many ranks it has, as its collectives say; 0 where they do not."""


@dataclass(frozen=True, eq=False)
class KernelTimes:
    """A rank's heaviest kernels by name, heaviest first; collectives and copies are none. K entries each."""

    key: Ints
    """A hash of the whole name."""
    ms: Floats
    """A step; of the whole window where no steps were found."""
    calls: Floats
    """Likewise."""
    names: str
    """Shortened, one a line."""

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, eq=False)
class Calls:
    """Collectives of the rank's busiest device, sorted by step, then by word, then by start."""

    step: NDArray[np.int32]
    word: NDArray[np.int16]
    """Index into `words`."""
    us: Floats
    """Duration, with the waiting in it."""
    words: tuple[str, ...]
    """What they do (`all-reduce`), sorted."""
    steps: int
    """Steps from the start of the capture whose collectives are all here."""
    end: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """ns from the capture's first row; empty where it is not known."""
    group: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    """Index into `groups`, -1 where the capture does not say; empty where it says it of none."""
    groups: tuple[Group, ...] = ()
    elements: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """That this rank puts in, -1 where the capture does not say; empty as `group`."""

    def __len__(self) -> int:
        return len(self.us)


@dataclass(frozen=True, eq=False)
class RankResult:
    """One rank, diagnosed."""

    label: str
    """Its evidence, as given."""
    error: str = ""
    """Why there is no diagnosis; everything below is then empty."""
    rank: int | None = None
    rank_from: str = ""
    """`trace`, `name` of the file or folder, `order`; empty where the rank is not known."""
    world_size: int | None = None
    group: str = ""
    """The ranks it exchanges with, as `0-7` or `0,8,16`; empty where the capture does not tell."""
    groups: int = 0
    """How many different groups the capture tells of: with more than one, `group` is the smallest."""
    level: Level = Level.NOT_ENOUGH
    id: str | None = None
    title: str = ""
    summary: str = ""
    next: str = ""
    where: str = ""
    """What the bisection ended at, and its share."""
    values: tuple[tuple[str, Value, str], ...] = ()
    """Name, value and kind of evidence of each signal."""
    has_trace: bool = False
    has_device: bool = False
    method: str = ""
    """How steps were found, as of `step.method`."""
    steps: StepTable | None = None
    """None where no steps were found."""
    window_own_ms: float = 0.0
    """Own time of the whole window: what can be compared where no steps were found."""
    calls: Calls | None = None
    kernels: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Hashes of the names of its heaviest kernels: whether two ranks run the same model."""
    heaviest: KernelTimes | None = None
    """What the heaviest of all take."""
    recorded: str = ""
    """What its capture records beside calls and device work, each kind of which costs the host time: `operators, Python
    stacks`."""
    requests: float | None = None
    """Requests that decode in a step, and tokens of prompts in it (means), as steps' names tell."""
    tokens: float | None = None
    began: int | None = None
    """ns since 1970, by the recording machine's clock; None where the capture does not tell."""
    span_ns: int = 0
    """From its first row to its end."""
    digest: int = 0
    """Of all its rows' times: the same for copies of one capture. 0 without a trace."""
    traces: int = 0
    """How many its evidence holds; its times are those of one."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`rank 17`, or the evidence where the rank is not known."""
        return self.label if self.rank is None else f"rank {self.rank}"

    @property
    def conclusive(self) -> str | None:
        """The fingerprint, where its level is at least probable."""
        return None if self.level is Level.NOT_ENOUGH else self.id

    @property
    def said(self) -> str:
        """Its own verdict, in words."""
        return f"{self.conclusive} ({self.level})" if self.conclusive else str(self.level)

    def value(self, name: str) -> Value | None:
        """One signal, or None where it is unknown."""
        return next((value for known, value, _ in self.values if known == name), None)

    def number(self, name: str) -> float | None:
        """One signal that is a number, or None."""
        value = self.value(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def signals(self) -> Signals:
        """The rank's signals, as its own diagnosis had them but for their windows."""
        return Signals(Signal(name, value, how, "", self.label) for name, value, how in self.values)


def shared(values: Iterable[tuple[str, Value, str]]) -> tuple[tuple[str, Value, str], ...]:
    """The same values with one copy of each name over all ranks: the client's memory does not grow with them."""
    return tuple((intern(name), value, intern(how)) for name, value, how in values)

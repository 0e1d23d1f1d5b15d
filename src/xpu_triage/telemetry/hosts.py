"""Which files of device readings are of one host.

A tool counts its devices from 0 on every host, and no file says which host it is from. Two files are of two hosts where
something proves it: other device identities, another model or memory size under one index, readings of one moment that
differ, or another folder. Nothing proves it for most files, and they stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from ..samples import Floats, Samples
from ..text import clean

IDENTITY = "identity"
"""Name of the fact that tells devices apart: a number drawn for this run in place of what is engraved on the board."""

FIXED = ("memory_total", "power_rated", "core_clock_max", "memory_clock_max")
"""Quantities that a device does not change."""
MOVING = ("utilization", "memory_activity", "memory_used", "power", "core_clock")

AT_ONCE_S = 0.001
"""Readings this close are of one moment."""
NEAR_S = 0.5
"""Readings this close are of nearly one moment: one device then reads about the same to two programs."""
ENOUGH = 3
"""Pairs of readings that have to agree on a difference."""
TOLERANCE = 0.02
"""Of a value; below it two readings do not differ."""


@dataclass(frozen=True, eq=False)
class Host:
    """The files of one host."""

    label: str
    """How people are told which: the name of its first file; empty where there is one host only."""
    samples: tuple[Samples, ...]


@dataclass(eq=False)
class _File:
    samples: Samples
    folder: str
    devices: frozenset[str]
    fixed: dict[tuple[str, str], str | float]
    identities: dict[str, str]
    start: float
    end: float
    """Of its times; NaN where it has none that can be compared."""


@dataclass(eq=False)
class _Group:
    files: list[_File] = field(default_factory=list)

    def relation(self, other: _File) -> bool | None:
        """True: of this host; False: of another; None: nothing tells."""
        told = [_same(file, other) for file in self.files if file.samples.tool == other.samples.tool]
        if False in told:
            return False
        return True if True in told else None


def hosts(samples: Sequence[Samples]) -> list[Host]:
    """All files by host; empty where none has a reading of a device. The order of `samples` does not matter."""
    files = sorted(map(_file, samples), key=lambda file: (file.samples.source, file.samples.tool))
    groups: list[_Group] = []
    for file in (file for file in files if file.devices):
        _home(file, groups).files.append(file)
    for file in (file for file in files if not file.devices):  # processes, by what the same tool prints elsewhere
        near = [group for group in groups if len(groups) == 1 or any(one.folder == file.folder for one in group.files)]
        if len(near) == 1:
            near[0].files.append(file)
    if len(groups) == 1:
        return [Host("", tuple(file.samples for file in groups[0].files))]
    labels = _labels([group.files[0].samples.source for group in groups])
    return [Host(label, tuple(file.samples for file in group.files))
            for label, group in zip(labels, groups, strict=True)]


def _home(file: _File, groups: list[_Group]) -> _Group:
    """The host of this file: the one that it proves, else the only one that it may be of, else a new one."""
    told = [(group, group.relation(file)) for group in groups]
    for group, same in told:
        if same:
            return group
    possible = [group for group, same in told if same is None]
    if len(groups) > 1:                                 # of which of them it is, only its folder can tell
        possible = [group for group in possible if any(one.folder == file.folder for one in group.files)]
    if len(possible) == 1:
        return possible[0]
    groups.append(_Group())
    return groups[-1]


def _labels(sources: Sequence[str]) -> list[str]:
    names = [PurePath(source).name for source in sources]
    if len(set(names)) < len(names):
        names = ["/".join(PurePath(source).parts[-2:]) for source in sources]
    return [clean(name) for name in names]


def _file(samples: Samples) -> _File:
    fixed: dict[tuple[str, str], str | float] = {}
    spans: list[Floats] = []
    devices = set()
    for series in samples.series:
        if series.kind != "device":
            continue
        devices.add(series.of)
        if series.quantity in FIXED and len(series.known):
            fixed[series.of, series.quantity] = float(np.median(series.known))
        if samples.clock == "epoch" and series.quantity in MOVING and not np.isnan(series.times).all():
            spans.append(series.times[~np.isnan(series.times)])
    facts = [fact for fact in samples.facts if fact.kind == "device"]
    fixed |= {(fact.of, "name"): fact.value.casefold() for fact in facts if fact.name == "name"}
    return _File(samples, str(PurePath(samples.source).parent), frozenset(devices), fixed,
                 {fact.of: fact.value for fact in facts if fact.name == IDENTITY},
                 min((float(times.min()) for times in spans), default=np.nan),
                 max((float(times.max()) for times in spans), default=np.nan))


def _same(one: _File, other: _File) -> bool | None:
    """Whether two files of one tool are of one host; None where nothing tells."""
    both = one.devices & other.devices
    if not both:
        return None
    known = [one.identities[of] == other.identities[of]
             for of in both & one.identities.keys() & other.identities.keys()]
    if known:
        return all(known)
    if any(_differ_in(one.fixed[what], other.fixed[what])
           for what in one.fixed.keys() & other.fixed.keys() if what[0] in both):
        return False
    if one.folder != other.folder:
        return False
    if one.start <= other.end + NEAR_S and other.start <= one.end + NEAR_S:  # False where a time is NaN
        return False if any(_disagree(one.samples, other.samples, of) for of in sorted(both)) else None
    return None


def _differ_in(one: str | float, other: str | float) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one != other
    return abs(one - other) > TOLERANCE * max(abs(one), abs(other))


def _disagree(one: Samples, other: Samples, of: str) -> bool:
    """Whether readings of one moment differ, as those of one device cannot."""
    return any(_apart(*pairs) for quantity in MOVING for pairs in _pairs(one, other, of, quantity))


def _pairs(one: Samples, other: Samples, of: str, quantity: str) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Neighbouring readings of this quantity: how far apart in time, and both values."""
    for mine in one.of(quantity):
        for theirs in other.of(quantity):
            if mine.of == theirs.of == of:
                good = ~(np.isnan(mine.times) | np.isnan(mine.values))
                against = ~(np.isnan(theirs.times) | np.isnan(theirs.values))
                times, values = theirs.times[against], theirs.values[against]
                if not good.any() or not len(times):
                    continue
                order = np.argsort(times, kind="stable")
                times, values = times[order], values[order]
                after = np.searchsorted(times, mine.times[good]).clip(0, len(times) - 1)
                before = (after - 1).clip(0)
                here = mine.times[good]
                nearest = np.where(abs(times[before] - here) <= abs(times[after] - here), before, after)
                yield abs(times[nearest] - here), mine.values[good], values[nearest]


def _apart(distance: Floats, mine: Floats, theirs: Floats) -> bool:
    at_once = distance <= AT_ONCE_S
    if at_once.sum() >= ENOUGH:
        limit = TOLERANCE * np.maximum(abs(mine), abs(theirs))[at_once]
        return bool((abs(mine - theirs)[at_once] > limit).mean() > 0.5)
    near = distance <= NEAR_S
    if near.sum() < ENOUGH:
        return False
    mine, theirs = mine[near], theirs[near]             # not one moment: only ranges without a common value prove it
    gap = max(mine.min() - theirs.max(), theirs.min() - mine.max())
    return bool(gap > 0.2 * max(mine.max(), theirs.max()))

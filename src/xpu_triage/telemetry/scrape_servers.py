"""Which scrapes are of one server. Behind one address there may be several, and one folder may hold dumps of two hosts;
their counters must never be subtracted from each other.

In this order: another engine, other labels, another start of the process or of a counter (`…_created`) are other
servers. What is left is put in order of time. Where a counter falls there, the server was restarted, or another one
answered: after a restart the old series does not come back, two servers go on by turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from .engines import Engine
from .scrape_views import Series, View, Who

AHEAD = 16
"""How many later scrapes are looked at for the one that follows. More servers than that behind one address are not
told apart."""
BY_TURNS = 0.1
"""Rise of the counters along the series of two servers ÷ along the scrapes as they came, below which two servers are
believed. A restart explains a fall as well, and then the rises are alike. Judgement: a server that is a hundred scrapes
older than the other gives 0.01."""


@dataclass(eq=False)
class _Group:
    engine: Engine
    engines: set[Who] = field(default_factory=set)
    starts: set[int] = field(default_factory=set)
    born: dict[Series, float] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)

    def takes(self, view: View) -> bool:
        if self.engine is not view.engine:
            return False
        if view.engines and self.engines and not view.engines & self.engines:
            return False
        if view.starts and self.starts and not view.starts & self.starts:
            return False
        return all(self.born.get(series, began) == began for series, began in view.born.items())

    def add(self, view: View) -> None:
        self.engines |= view.engines
        self.starts |= view.starts
        self.born.update(view.born)
        self.views.append(view)


def servers(views: Sequence[View], notes: list[str]) -> list[list[View]]:
    """The views of each server in their order, no two of them across a restart that can be seen."""
    groups: list[_Group] = []
    for view in views:
        group = next((group for group in groups if group.takes(view)), None)
        if group is None:
            groups.append(group := _Group(view.engine))
        group.add(view)
    found: list[list[View]] = []
    for group in groups:
        told = [view for view in group.views if view.samples] or group.views
        found += [_since_restart(turns, notes) for turns in _by_turns(_ordered(_once(told, notes), notes), notes)]
    return found


def _once(views: Sequence[View], notes: list[str]) -> list[View]:
    """The same dump given twice is one reading."""
    kept: list[View] = []
    seen: dict[float | None, list[View]] = {}
    for view in views:
        same = seen.setdefault(view.time, [])
        if any(view.samples == other.samples for other in same):
            notes.append("a dump was given twice: it counts once")
            continue
        same.append(view)
        kept.append(view)
    return kept


def _ordered(views: list[View], notes: list[str]) -> list[View]:
    """By time; where fewer than two have one, by their counters, which only rise."""
    timed = [view for view in views if view.time is not None]
    if len(timed) >= 2:
        if len(timed) < len(views):
            notes.append(f"{len(views) - len(timed)} of {len(views)} dumps say not when they were taken: left out")
        return sorted(timed, key=lambda view: view.time or 0.0)
    return [_timeless(view) for view in sorted(views, key=_counted)] if len(views) > 1 else views


def _timeless(view: View) -> View:
    """One time among several dumps orders nothing."""
    return replace(view, scrape=replace(view.scrape, time=None))


def _counted(view: View) -> float:
    return sum(view.counters.values())


def _rise(before: View, after: View) -> float | None:
    """By how much all counters rose together; None where one of them fell, or none is in both."""
    earlier, later = before.counters, after.counters
    rises = [later[series] - value for series, value in earlier.items() if series in later]
    return None if not rises or min(rises) < 0 else sum(rises)


def _fell(before: View, after: View) -> bool:
    later = after.counters
    return any(later[series] < value for series, value in before.counters.items() if series in later)


def _by_turns(views: list[View], notes: list[str]) -> list[list[View]]:
    """The series of servers that answered by turns, each in its order; all in one where nothing says so.

    Each scrape is followed by the one to which its counters rise least. That these series overlap, and rise far less
    than the scrapes as they came, is what a restart cannot look like. Series that do not rise at all prove neither.
    """
    falls = [_fell(before, after) for before, after in pairwise(views)]
    if not any(falls) or any(view.time is None for view in views):
        return [views]
    links = sorted((rise, j - i, i, j) for i in range(len(views)) for j in range(i + 1, min(i + AHEAD, len(views)))
                   if views[i].time != views[j].time and (rise := _rise(views[i], views[j])) is not None)
    after: dict[int, int] = {}
    led: set[int] = set()
    cost = 0.0
    for rise, _, i, j in links:
        if i not in after and j not in led:
            after[i] = j
            led.add(j)
            cost += rise
    as_they_came = sum(_rise(*pair) or 0.0 for pair, fell in zip(pairwise(views), falls, strict=True) if not fell)
    chains = []
    for first in (i for i in range(len(views)) if i not in led):
        chain = [first]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        chains.append(chain)
    overlap = any(a[0] < b[0] < a[-1] for a in chains for b in chains)
    if not overlap or not 0 < cost <= BY_TURNS * as_they_came:
        return [views]
    notes.append(f"counters fall and go on where they were: {len(chains)} servers answered by turns, behind one "
                 "address or in mixed files")
    return [[views[i] for i in chain] for chain in chains]


def _since_restart(views: Sequence[View], notes: list[str]) -> list[View]:
    """The scrapes after the last time that a counter went back; before it, if only one is left after it."""
    parts: list[list[View]] = [[views[0]]]
    for before, after in pairwise(views):
        if _fell(before, after):
            parts.append([])
        parts[-1].append(after)
    if len(parts) == 1:
        return list(views)
    kept = next((part for part in reversed(parts) if len(part) > 1), parts[-1])
    notes.append(f"counters went back between scrapes ({len(parts) - 1} times): the server was restarted. The figures "
                 f"are of {len(kept)} of {len(views)} scrapes, with no restart between them")
    return kept

"""The same collective on all its ranks: what it costs, and how long ranks wait for each other in it.

A collective ends on all its ranks at about the same moment, so a rank's duration is its waiting and the exchange, and
the rank that comes last has the exchange alone: the minimum over ranks is (an upper bound of) the true cost, maximum
− minimum the skew. Durations need no common clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .result import Floats, Group, Ints, RankResult

WAITS = 1.5
"""A collective in which the longest is this many times the shortest has ranks that wait for the last. Judgement."""


OF_ONE_SIZE = frozenset({"all-reduce", "all-gather", "reduce-scatter", "broadcast"})
"""To which each rank puts in as much, so that another size is another collective."""
OF_PAIRS = frozenset({"send-receive", "send", "receive"})
"""Between two ranks each, and captures do not tell which: the first send of one rank and the first receive of another
are nothing that could be laid beside each other. An all-to-all of which the capture tells is none of these, though
NCCL's kernel for it bears the same name."""
MOST = 0.5
"""A rank whose collectives are those of most in more than this part of the steps is compared in these. Judgement."""
UNNAMED = "\0"
"""Stands for the collectives that bear no group's name where others do."""


@dataclass(frozen=True, eq=False)
class Matched:
    """One group's collectives.

    ranks       int64 [R], positions in the list given
    us          float32 [R, N], duration of each occurrence
    step        int64 [N], number of the step among those compared
    word, place int64 [N], what it does (index into `words`), and the how many-th of its step
    """

    ranks: Ints
    us: Floats
    step: Ints
    word: Ints
    place: Ints
    words: tuple[str, ...]
    steps: int
    """Steps compared."""
    group: str = ""
    size: int = 0
    """How many ranks the group has, as its collectives say; 0 where they do not."""
    end: Ints | None = None
    """ns [R, N], when each ended, each rank by its own clock; None where a rank does not tell."""

    @property
    def least(self) -> Floats:
        """us [N], the shortest over ranks."""
        return self.us.min(axis=0)

    @property
    def cost_ms(self) -> float:
        """True cost a step."""
        return float(self.least.sum()) / 1e3 / self.steps

    @property
    def skew_ms(self) -> float:
        """Maximum − minimum, summed, a step."""
        return float((self.us.max(axis=0) - self.least).sum()) / 1e3 / self.steps

    @property
    def wait_ms(self) -> Floats:
        """[R], what each rank waits a step."""
        return (self.us - self.least).sum(axis=1) / np.float32(1e3 * self.steps)

    @property
    def last_share(self) -> Floats:
        """[R], share of the collectives with waiting in which this rank came last; NaN where there are none."""
        waits = self.us.max(axis=0) >= WAITS * np.maximum(self.least, np.float32(1e-3))
        if not waits.any():
            return np.full(len(self.ranks), np.nan, np.float32)
        last = self.us[:, waits].argmin(axis=0)
        return (np.bincount(last, minlength=len(self.ranks)) / waits.sum()).astype(np.float32)

    def heaviest(self) -> tuple[str, int, float, float, int]:
        """The collective with most time: what it does, its place in the step (from 1), the shortest and longest us over
        ranks (medians over its occurrences), and how many occurrences."""
        spot = self.word * (int(self.place.max()) + 1) + self.place
        total = self.us.sum(axis=0)
        spots = np.unique(spot)
        top = spots[np.argmax([total[spot == one].sum() for one in spots.tolist()])]
        mine = np.flatnonzero(spot == top)
        shortest, longest = self.us[:, mine].min(axis=0), self.us[:, mine].max(axis=0)
        return (self.words[self.word[mine[0]]], int(self.place[mine[0]]) + 1, float(np.median(shortest)),
                float(np.median(longest)), len(mine))


@dataclass(frozen=True, eq=False)
class Matching:
    groups: tuple[Matched, ...]
    unmatched: tuple[int, ...] = ()
    """Positions of ranks with collectives that could not be laid beside the others'."""
    notes: tuple[str, ...] = ()
    other_steps: Mapping[int, Ints] = field(default_factory=dict)
    """By position of a rank, those of the compared steps in which its collectives are not those of its group, as in the
    last step before a cut."""


def common_steps(ranks: Sequence[RankResult]) -> tuple[list[Ints], bool]:
    """For each rank the numbers of its steps that are compared, in one order, and whether names told them apart.

    By name, those that all ranks have; where these are few, as one rank recorded others, those that more than half
    have. Where names do not tell, all, in their order."""
    keys = [rank.steps.key if rank.steps is not None else np.zeros(0, np.int64) for rank in ranks]
    if ranks and all(len(key) for key in keys):
        names, count = np.unique(np.concatenate(keys), return_counts=True)
        of_all, usual = names[count == len(ranks)], names[2 * count > len(ranks)]
        if 2 * len(of_all) >= len(usual):
            usual = of_all
        if len(usual):
            places = [_places(key, usual) for key in keys]
            order = np.argsort(np.max(places, axis=0), kind="stable")  # hashes have none of their own
            return [place[order] for place in places], True
    return [np.arange(_steps(rank), dtype=np.int64) for rank in ranks], False


def _steps(rank: RankResult) -> int:
    return len(rank.steps) if rank.steps is not None else 1


def _places(key: Ints, usual: Ints) -> Ints:
    """Where in `key` each of `usual` is; -1 where it is not."""
    order = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(key[order], usual), len(key) - 1)
    return np.where(key[order][at] == usual, order[at], -1)


def matched(ranks: Sequence[RankResult], steps: Sequence[Ints], by_name: bool) -> Matching:
    """The collectives of each group of ranks, laid beside each other by step, what they do, and order.

    `steps` as `common_steps` gives them. Where only order can tell, the rank with fewest steps bounds the others. Ranks
    whose steps have other collectives than those of most of their group are left unmatched."""
    groups: list[Matched] = []
    unmatched: list[int] = []
    notes: list[str] = []
    other_steps: dict[int, Ints] = {}
    all_tell = all(len(rank.calls.group) for rank in ranks if rank.calls is not None)
    for key, mine in sorted(_members(ranks, all_tell).items()):
        if len(mine) < 2:
            continue
        counts = {len(steps[i]) for i in mine}
        if not by_name and len(counts) > 1:
            notes.append(f"ranks recorded {min(counts)} to {max(counts)} steps, and names do not tell these apart: "
                         f"collectives are matched by order, over the first {min(counts)}")
        chosen = _covered([ranks[i] for i in mine], [steps[i][:min(counts)] for i in mine])
        tables = {i: table for i, one in zip(mine, chosen, strict=True)
                  if (table := _table(ranks[i], one, key)) is not None}
        if not tables:
            if any(_pairs_only(ranks[i]) for i in mine):
                notes.append(OF_PAIRS_NOTE)
            continue
        same = _same_steps(tables, len(chosen[0]))
        alike, there = sorted(same), np.flatnonzero(np.all(list(same.values()), axis=0))
        unmatched += sorted(set(mine) - set(alike if len(alike) > 1 else ()))
        if len(alike) > 1:
            kept = {i: tables[i].only(there) for i in alike}
            groups.append(_stacked(ranks, kept, alike, len(there), key))
            other_steps |= {i: np.flatnonzero(~each) for i, each in same.items() if not each.all()}
    if not all_tell and any(rank.groups > 1 for rank in ranks if rank.calls is not None):
        notes.append("ranks are in several groups, and the traces do not say which collective is of which: they are "
                     "compared within the smallest, which bounds their true cost all the same")
    return Matching(tuple(groups), tuple(sorted(set(unmatched))), tuple(dict.fromkeys(notes)), other_steps)


OF_PAIRS_NOTE = ("sends and receives are between pairs of ranks, and the captures do not tell whose: they are not laid "
                 "beside each other, so that they show nobody waiting")


def _pairs_only(rank: RankResult) -> bool:
    return rank.calls is not None and {rank.calls.words[i] for i in np.unique(rank.calls.word)} <= OF_PAIRS


def _members(ranks: Sequence[RankResult], all_tell: bool) -> dict[Group, list[int]]:
    """Which ranks have collectives of which group: of the process group that the capture names, where all name them;
    else, and for those that bear no name, the smallest group that the rank is in."""
    members: dict[Group, list[int]] = {}
    unnamed: dict[str, list[int]] = {}
    for i, rank in enumerate(ranks):
        if rank.calls is None:
            continue
        for code in np.unique(rank.calls.group).tolist() if all_tell else [-1]:
            if code >= 0:
                members.setdefault(rank.calls.groups[code], []).append(i)
            else:
                unnamed.setdefault(rank.group, []).append(i)
    if "" in unnamed and len(unnamed) > 1:  # some do not tell: nobody's group is known
        unnamed = {"": sorted(i for group in unnamed.values() for i in group)}
    return members | {Group(UNNAMED if all_tell else "", name): mine for name, mine in unnamed.items()}


def _covered(ranks: Sequence[RankResult], steps: Sequence[Ints]) -> list[Ints]:
    """Those of the compared steps whose collectives travelled on every rank."""
    limits = [rank.calls.steps if rank.calls is not None else 0 for rank in ranks]
    there = np.all([one < limit for one, limit in zip(steps, limits, strict=True)], axis=0)
    return [one[there] for one in steps]


@dataclass(frozen=True, eq=False)
class _Table:
    """One rank's collectives of a group in the compared steps, in order."""

    kind: tuple[str, ...]
    """What there is, and of each collective which of it: the same on ranks that are alike."""
    code: Ints
    elements: Ints
    entry: Ints
    """Entries of `Calls`."""
    step: Ints
    """Number of the compared step."""

    @property
    def layout(self) -> bytes:
        return repr(self.kind).encode() + b"".join(one.tobytes() for one in (self.code, self.elements, self.step))

    def by_step(self, steps: int) -> list[bytes]:
        edges = np.searchsorted(self.step, np.arange(steps + 1)).tolist()
        return [repr([(self.kind[code], size) for code, size in zip(
            self.code[a:b].tolist(), self.elements[a:b].tolist(), strict=True)]).encode()
            for a, b in pairwise(edges)]

    def only(self, steps: Ints) -> _Table:
        there = np.isin(self.step, steps)
        return _Table(self.kind, self.code[there], self.elements[there], self.entry[there], self.step[there])


def _same_steps(tables: Mapping[int, _Table], steps: int) -> dict[int, NDArray[np.bool_]]:
    """Of the ranks that go through the collectives of most, by position, in which steps [S] they do: all their steps,
    or more than MOST of them where one was cut, or did something else once. Of several sets of ranks that with most
    ranks, and of two as large that with most steps in common."""
    layout, count = Counter(table.layout for table in tables.values()).most_common(1)[0]
    whole = {i: np.ones(steps, np.bool_) for i, table in tables.items() if table.layout == layout}
    if count == len(tables):
        return whole
    by_step = {i: table.by_step(steps) for i, table in tables.items()}
    usual = [Counter(of).most_common(1)[0][0] for of in zip(*by_step.values(), strict=True)]
    same = {i: np.array([one == most for one, most in zip(mine, usual, strict=True)], np.bool_)
            for i, mine in by_step.items()}
    same = {i: each for i, each in same.items() if each.mean() > MOST}
    in_common = np.all(list(same.values()), axis=0).mean() if same else 0.0
    return same if in_common > MOST else whole


def _table(rank: RankResult, steps: Ints, group: Group) -> _Table | None:
    """One rank's collectives of a group in the compared steps; None where it lacks one of these steps, or has none."""
    calls = rank.calls
    if calls is None or not len(steps) or (steps < 0).any():
        return None
    number = np.full(max(_steps(rank), int(calls.step.max()) + 1), -1, np.int64)
    number[steps] = np.arange(len(steps))
    there = (number[calls.step] >= 0) & ~np.isin(calls.word, [i for i, w in enumerate(calls.words) if w in OF_PAIRS])
    if group.name == UNNAMED:
        there &= calls.group < 0
    elif group.name:
        there &= calls.group == calls.groups.index(group)
    entry = np.flatnonzero(there)
    step = number[calls.step[entry]]
    order = np.argsort(step, kind="stable")
    entry, step = entry[order], step[order]
    if not len(entry):
        return None
    kinds, kind = np.unique(calls.word[entry], return_inverse=True)
    elements = np.full(len(entry), -1, np.int64)
    if group.name:
        alike = np.isin(calls.word[entry], [i for i, what in enumerate(calls.words) if what in OF_ONE_SIZE])
        elements = np.where(alike, calls.elements[entry], -1)
    return _Table(tuple(calls.words[i] for i in kinds), kind.astype(np.int64), elements, entry, step)


def _stacked(ranks: Sequence[RankResult], tables: Mapping[int, _Table], alike: Sequence[int], steps: int,
             group: Group) -> Matched:
    entry, step = tables[alike[0]].entry, tables[alike[0]].step
    first = ranks[alike[0]].calls
    assert first is not None
    word = first.word[entry].astype(np.int64)
    rows, ends = [], []
    for i in alike:
        calls = ranks[i].calls
        assert calls is not None
        rows.append(calls.us[tables[i].entry])
        if len(calls.end) == len(calls):
            ends.append(calls.end[tables[i].entry])
    new = np.concatenate(([True], (np.diff(step) != 0) | (np.diff(word) != 0)))
    start = np.maximum.accumulate(np.where(new, np.arange(len(step)), 0))
    return Matched(np.array(alike, np.int64), np.stack(rows), step, word, np.arange(len(step)) - start, first.words,
                   steps, group.ranks, group.size, np.stack(ends) if len(ends) == len(alike) else None)

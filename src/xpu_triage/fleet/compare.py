"""Ranks beside each other: who takes long, who differs, and the signals that only several ranks can give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..fingerprints import Fingerprint
from ..signals import Signal
from ..verdict import Level
from .absent import is_bound, missing, named
from .collectives import Matched, Matching, common_steps, matched
from .in_step import in_step
from .kernels import Kernels, kernels_of
from .lateness import is_cold, lateness, mean
from .outliers import Values, apart, middle
from .result import Ints, RankResult
from .sessions import LeftOut
from .settle import BY_ORDER, Doubt, Settled
from .unlike import recorded_more

FEW = 0.1
"""At most this part of the ranks (but one always) can differ from the rest; more are a second kind of rank."""
WATCHED = {"clock.core_fraction": 0.05, "clock.memory_fraction": 0.05,
           "power.draw_fraction": 0.1, "power.limit_fraction": 0.05}
"""Telemetry in which a rank can stand apart, and by how much it has to."""

WAITING = frozenset({"comm", "peer_wait"})
"""Parts of a bisection that are, or contain, waiting for other ranks."""
IN_COLLECTIVES = 0.15
"""Share of the window in collectives and exchanges from which on a rank without a verdict of its own may be one that
waits: one rank's trace gives none because of them (`limits.md`)."""


@dataclass(frozen=True, eq=False)
class RankRow:
    """One rank beside the others. Times are ms a step, or a collective where no steps were found."""

    result: RankResult
    own_ms: float | None = None
    """Without waiting for other ranks; None where it cannot be compared."""
    own_ratio: float | None = None
    """÷ the median of the ranks it is compared with."""
    compute_ms: float | None = None
    wait_ms: float | None = None
    """In collectives, beyond their true cost; None where they could not be matched."""
    last_share: float | None = None
    """Share of the collectives with waiting in which it came last."""
    late: bool = False
    differs: bool = False
    waits_for: str = ""
    """A late rank of its group, or the slower kind, where its own verdict is that it waits."""
    slower_kind: bool = False
    """Of the slower ranks, where ranks are of two kinds; none is then late."""
    only_in: tuple[int, ...] = ()
    """Steps, counted from 0 among those compared, without which it would not be late: so few that it is no straggler.
    """
    telemetry: tuple[str, ...] = ()
    """In what its telemetry stands apart: `clock.core_fraction 0.61, the others 0.98`."""
    recorded_more: tuple[str, ...] = ()
    """What its capture records and most others' do not: its host is slower by it."""

    @property
    def remarkable(self) -> bool:
        return self.late or self.differs or bool(self.only_in) or bool(self.telemetry)


@dataclass(frozen=True, eq=False)
class Comparison:
    rows: tuple[RankRow, ...]
    """In order of rank."""
    left_out: tuple[LeftOut, ...]
    signals: tuple[Signal, ...]
    """`comm.*` over ranks."""
    unknown: dict[str, str]
    groups: tuple[Matched, ...]
    """Collectives matched; `Matched.ranks` are positions in `rows`."""
    verdicts: dict[str, int]
    """How many ranks say what; `not enough evidence` among them."""
    usual: str | None
    """The verdict of more than half of the ranks; None where there is none, or not enough evidence."""
    per: str
    """What the times are of: `step`, `collective`, or empty where they cannot be compared."""
    world_size: int | None = None
    doubt: Doubt | None = None
    """Why nothing is compared, as of `Settled`; the rows then have their own verdicts and nothing else."""
    one_job: str = ""
    """What shows that the ranks are of one job, as of `Settled`."""
    missing: tuple[range, ...] = ()
    """Ranks of the world that are not compared."""
    first_apart: bool = False
    """Whether the first step is left out of all times: it took much longer than the others."""
    by_one_step: bool = False
    """Whether one step alone was compared, in which a cold start looks like a straggler."""
    steps_compared: int = 0
    """One set apart among them."""
    together: frozenset[int] = frozenset()
    """Positions in `rows` of ranks whose matched collectives end with those of most of their group."""
    kernels: Kernels | None = None
    """Of `rows`, in their order; None where nothing is compared."""
    notes: tuple[str, ...] = ()

    @property
    def typical(self) -> RankRow:
        """A rank that stands for all: of those with the usual verdict the one with the median own time."""
        like = [row for row in self.rows if row.result.conclusive == self.usual and not row.late] or list(self.rows)
        timed = sorted((row for row in like if row.own_ms is not None), key=lambda row: row.own_ms or 0.0)
        return timed[(len(timed) - 1) // 2] if timed else like[0]


def compared(given: Settled, pages: Sequence[Fingerprint]) -> Comparison:
    """The ranks of `given` beside each other. Pure."""
    ranks = given.ranks
    steps, by_name = common_steps(ranks)
    notes = list(given.notes)
    own, compute, per = _own(ranks, steps, by_name, notes)
    if given.doubt is not None:
        notes = [note for note in given.notes if note != BY_ORDER]
        own, compute, per = np.full((len(ranks), 1), np.nan), np.full(len(ranks), np.nan), ""
    first = int(per == "step" and is_cold(own))
    if first:
        notes.append("the first step compared took much longer than the others (a warm-up?): it is set apart from all "
                     "times here, not from the ranks' own verdicts")
        compute = _own(ranks, [one[1:] for one in steps], by_name, [])[1]
    matching = matched(ranks, [one[first:] for one in steps], by_name) if given.doubt is None else Matching(())
    notes += matching.notes
    if per == "step" and matching.other_steps:
        steps = [_without(one, first + matching.other_steps.get(i, np.zeros(0, np.int64)))
                 for i, one in enumerate(steps)]
        own, _, per = _own(ranks, steps, by_name, [])
        compute = _own(ranks, [one[first:] for one in steps], by_name, [])[1]
        names = _some([ranks[i].name for i in matching.other_steps])
        notes.append(f"some steps of {names} have other collectives than the same steps of most (a cut, a first or "
                     "last step): they are left out")
    wait, last = _waiting(len(ranks), matching)
    found = lateness(ranks, own, first, last, per == "step")
    own_ms = mean(own[:, first:])
    usual, verdicts = _usual(ranks)
    waits_for = _waits_for(ranks, found.late, own_ms, pages)
    waits_for |= _waits_for(ranks, _only_in(found.only_in, len(ranks)) & ~found.late, own_ms, pages)
    if found.slower.any():
        waits_for = {i: "the slower kind" for i, rank in enumerate(ranks)
                     if not found.slower[i] and _may_wait(rank, waiting_pages(pages))}
    settled_otherwise = {*waits_for, *found.only_in}
    more = recorded_more(ranks) if given.doubt is None else [()] * len(ranks)
    settled_otherwise |= {i for i, rank in enumerate(ranks) if more[i] and rank.level is not Level.CONFIRMED}
    if deep := [f"{rank.name} ({', '.join(more[i])})" for i, rank in enumerate(ranks) if more[i]]:
        notes.append(f"captures were recorded with different options, these with more than most: {_some(deep)}. What "
                     "their hosts take longer may be the profiler")
    differs = _differing(ranks, usual, settled_otherwise) if given.doubt is None else set()
    telemetry = _telemetry(ranks)
    together = {int(group.ranks[i]) for group in matching.groups if (pace := in_step(group)) is not None
                for i in np.flatnonzero(pace.together)}
    rows = tuple(RankRow(
        rank, _known(own_ms[i]), _known(found.ratio[i]), _known(compute[i]), _known(wait[i]), _known(last[i]),
        bool(found.late[i]), i in differs, waits_for.get(i, ""), bool(found.slower[i]), found.only_in.get(i, ()),
        tuple(telemetry[i]), more[i]) for i, rank in enumerate(ranks))
    if matching.unmatched:
        names = _some([ranks[i].name for i in matching.unmatched])
        notes.append(f"collectives of {names} are not those of the others, or of other steps: not matched")
    gaps = missing(ranks, given.world_size) if given.doubt is None else ()
    if gaps:
        notes.append(f"{named(gaps)} of a world of {given.world_size:,} not compared: one that is "
                     "missing may be the late one")
    signals, unknown = _signals(ranks, matching.groups, compute, per, given.world_size)
    if given.doubt is not None:
        unknown = dict.fromkeys(unknown, "nothing shows that these are ranks of one job")
    return Comparison(rows, given.left_out, signals, unknown, matching.groups, verdicts, usual, per, given.world_size,
                      given.doubt, given.one_job, gaps, bool(first), found.by_one_step,
                      own.shape[1] if per == "step" else 0, frozenset(together),
                      kernels_of(ranks, compute) if given.doubt is None else None, tuple(notes))


def _without(steps: Ints, places: Ints) -> Ints:
    """`steps` with -1, which is none, at these places."""
    out = steps.copy()
    out[places] = -1
    return out


def _only_in(places: dict[int, tuple[int, ...]], count: int) -> np.ndarray:
    return np.isin(np.arange(count), list(places))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _own(ranks: Sequence[RankResult], steps: Sequence[Ints], by_name: bool,
         notes: list[str]) -> tuple[Values, Values, str]:
    """Own time of each rank in each of its steps, [R, S], and its mean compute, [R] (ms, NaN where they cannot be
    compared), and what they are of."""
    own = np.full((len(ranks), max(map(len, steps), default=0) or 1), np.nan)
    compute = np.full(len(ranks), np.nan)
    with_device = 2 * sum(rank.has_device for rank in ranks) > sum(rank.has_trace for rank in ranks)
    able = [i for i, rank in enumerate(ranks) if rank.has_trace and rank.has_device == with_device]
    with_steps = [i for i in able if ranks[i].steps is not None]
    without = [rank.name for i, rank in enumerate(ranks) if rank.has_trace and i not in able]
    if without:
        why = "have no device work, as the others do" if with_device else "have device work, as the others do not"
        notes.append(f"{_some(without)} {why}: their times are not compared")
    if 2 * len(with_steps) >= len(able) and with_steps:
        for i in with_steps:
            table = ranks[i].steps
            there = np.flatnonzero(steps[i] >= 0)
            if table is not None and len(there):
                own[i, there] = table.own[steps[i][there]]
                compute[i] = float(table.compute[steps[i][there]].mean())
        lost = [ranks[i].name for i in able if np.isnan(own[i]).all()]
        if lost:
            what = "lack the steps that most others have" if by_name else "have no steps"
            notes.append(f"{_some(lost)} {what}: their times are not compared")
        return own, compute, "step"
    own = own[:, :1]
    for i in able:
        calls = ranks[i].calls
        if calls is not None and ranks[i].steps is None and len(calls):
            own[i, 0] = ranks[i].window_own_ms / len(calls)
    return own, compute, "collective" if not np.isnan(own).all() else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _waiting(count: int, matching: Matching) -> tuple[Values, Values]:
    wait, last = np.full(count, np.nan), np.full(count, np.nan)
    for group in sorted(matching.groups, key=lambda one: one.skew_ms):  # who is last is told by that with most waiting
        wait[group.ranks] = np.nan_to_num(wait[group.ranks]) + group.wait_ms
        last[group.ranks] = group.last_share
    return wait, last


def _usual(ranks: Sequence[RankResult]) -> tuple[str | None, dict[str, int]]:
    counts = Counter(rank.conclusive for rank in ranks)
    verdicts = {"not enough evidence" if one is None else one: n for one, n in counts.most_common()}
    if not counts:
        return None, {}
    most, n = counts.most_common(1)[0]
    return (most if 2 * n > len(ranks) else None), verdicts


def _waits_for(ranks: Sequence[RankResult], late: np.ndarray, own: Values,
               pages: Sequence[Fingerprint]) -> dict[int, str]:
    """Of ranks that wait for others, by their verdict or their figures: the late rank of their group."""
    waiting = waiting_pages(pages)
    slowest: dict[str, int] = {}
    for i in np.flatnonzero(late).tolist():
        group = ranks[i].group
        if group not in slowest or own[i] > own[slowest[group]]:
            slowest[group] = i
    return {i: ranks[slowest[rank.group]].name for i, rank in enumerate(ranks)
            if _may_wait(rank, waiting) and not late[i] and rank.group in slowest}


def _may_wait(rank: RankResult, waiting: Collection[str]) -> bool:
    """Whether its verdict is that it waits for others, or it has none and spends a good part in collectives."""
    inside = (rank.number("device.comm_fraction") or 0.0) + (rank.number("idle.peer_wait_fraction") or 0.0)
    return rank.conclusive in waiting or (rank.conclusive is None and inside >= IN_COLLECTIVES)


def waiting_pages(pages: Sequence[Fingerprint]) -> set[str]:
    """The verdicts that say, or may say, that a rank waits for others."""
    return {page.id for page in pages if page.finding and set(page.finding) <= WAITING}


def _differing(ranks: Sequence[RankResult], usual: str | None, explained: Collection[int]) -> set[int]:
    """Ranks whose verdict is another than that of most, and that only few have. Waiting for a late rank is no verdict
    of one's own; `explained` ranks are left out."""
    counts = Counter(rank.conclusive for rank in ranks)
    most = max(counts.values(), default=0)
    if 2 * most <= len(ranks):
        return set()
    few = max(1, int(FEW * len(ranks)))
    return {i for i, rank in enumerate(ranks)
            if (mine := rank.conclusive) is not None and mine != usual and counts[mine] <= few and i not in explained}


def _telemetry(ranks: Sequence[RankResult]) -> list[list[str]]:
    out: list[list[str]] = [[] for _ in ranks]
    for name, least in WATCHED.items():
        values = np.array([np.nan if (v := rank.number(name)) is None else v for rank in ranks], np.float64)
        for i in np.flatnonzero(apart(values, least)).tolist():
            out[i].append(f"{name} {values[i]:.2f}, the others {middle(values):.2f}")
    return out


def _signals(ranks: Sequence[RankResult], groups: Sequence[Matched], compute: Values,
             per: str, world_size: int | None) -> tuple[tuple[Signal, ...], dict[str, str]]:
    """`comm.*` of the group with most skew; and for those that cannot be told, why."""
    out: list[Signal] = []
    unknown: dict[str, str] = {}
    if groups:
        worst = max(groups, key=lambda group: group.skew_ms)
        where = f"{len(worst.ranks)} ranks" + (f" of group {worst.group}" if worst.group else "")
        if is_bound(worst, world_size):
            where += ", an upper bound of the true cost: ranks are missing"
        kind, place, least, most, times = worst.heaviest()
        words = f"{where}, {kind} number {place} of its step, median of {times}"
        out += [Signal("comm.min_us", least, "trace", words, "all ranks"),
                Signal("comm.max_us", most, "trace", words, "all ranks")]
        if per == "step":
            out.append(Signal("comm.skew_ms", worst.skew_ms, "trace", f"{where}, {worst.steps} steps", "all ranks"))
        else:
            unknown["comm.skew_ms"] = "no steps found"
    else:
        why = "no collective that is the same on several ranks"
        unknown |= dict.fromkeys(("comm.min_us", "comm.max_us", "comm.skew_ms"), why)
    matched_ranks = [i for group in groups for i in group.ranks.tolist()]
    known = compute[matched_ranks]
    known = known[~np.isnan(known)]
    if len(known) > 1 and known.min() > 0:
        out.append(Signal("comm.compute_spread_ratio", float(known.max() / known.min()), "trace",
                          f"kernels of a step, {len(known)} ranks", "all ranks"))
    else:
        unknown["comm.compute_spread_ratio"] = "no compute of the same steps on several ranks"
    return tuple(out), unknown

"""One verdict for the job, and the one rank to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..contradictions import contradictions
from ..fingerprints import Fingerprint
from ..signals import Signal, Signals
from ..text import shorten
from ..verdict import Level, Verdict, judge
from .absent import how_many, is_bound, named
from .collectives import Matched
from .compare import Comparison, RankRow
from .lateness import LONG
from .settle import Doubt
from .summary import spans

STRAGGLER = "straggler"
DIFFERS = "rank-differs"
UNEVEN = "uneven-ranks"
SLOW_STEP = "slow-step"
TAKEN_UP = 0.5
"""The others wait for a late rank where they wait at least this part of its excess longer than it does. Judgement."""
SLOWER = 0.5
"""Where kernels are at least this part of a rank's excess, the device itself is slower. Judgement."""
RANKS_SAID = 8


@dataclass(frozen=True)
class JobVerdict:
    level: Level
    id: str | None
    """`straggler`, `uneven-ranks`, `slow-step`, `rank-differs`, or the fingerprint of the job; None where there is not
    enough evidence."""
    title: str
    summary: str
    next: str
    rank: str
    """The one to look at, by its name: `rank 17`; `ranks 4-7` where the ranks are of two kinds; empty where nothing
    shows that they are of one job."""
    evidence: str
    """Its evidence."""
    fingerprint: str | None = None
    """What that rank's own diagnosis says, where it says something."""
    job: Verdict | None = None
    """The verdict on the job's signals, where no rank stands out."""
    signals: tuple[Signal, ...] = ()
    """Those it was judged by."""


def judged(found: Comparison, pages: Sequence[Fingerprint]) -> JobVerdict:
    """The verdict on `found`, which has at least one rank. Pure.

    A late rank comes first, or two kinds of rank, then one that differs, then one that was late in a few steps only:
    what the others show meanwhile is waiting for it, and communication is not to blame. Otherwise the job is judged by
    a typical rank. `comm.*` over ranks stands in for a rank's own: it
    tells waiting from cost.
    """
    if found.doubt is not None:
        return _not_one_job(found, found.doubt)
    late = sorted((row for row in found.rows if row.late), key=lambda row: -(row.own_ms or 0.0))
    if late:
        return _straggler(found, late, pages)
    if any(row.slower_kind for row in found.rows):
        return _uneven(found)
    if differing := [row for row in found.rows if row.differs]:
        return _differs(found, differing)
    if few := [row for row in found.rows if row.only_in]:
        return _slow_step(found, max(few, key=lambda r: r.result.steps.own.max() if r.result.steps else 0.0))
    return _alike(found, pages)


def _not_one_job(found: Comparison, doubt: Doubt) -> JobVerdict:
    said = [f"{row.result.name}: {row.result.said}" for row in found.rows if row.result.conclusive]
    more = f"; {len(said) - RANKS_SAID:,} more" if len(said) > RANKS_SAID else ""
    parts = [doubt.why, "so nothing of one is held against another's, and none is called late",
             f"each by itself: {'; '.join(said[:RANKS_SAID])}{more}" if said else "by themselves none says anything"]
    return JobVerdict(
        Level.NOT_ENOUGH, None,
        "These are not ranks of one job" if doubt.certain else "Not shown to be ranks of one job", _sentences(parts),
        "Each alone: xpu-triage diagnose. To compare ranks, record all of one job at the same time, over the same "
        "steps, with traces that state rank and world size (torch.profiler does where torch.distributed is in use)",
        "", "")


def _straggler(found: Comparison, late: list[RankRow], pages: Sequence[Fingerprint]) -> JobVerdict:
    row = late[0]
    rank = row.result
    alone = _with_all_ranks(found, row, pages)[0]
    fingerprint, how_sure = rank.conclusive, rank.level
    if alone.level is not Level.NOT_ENOUGH:
        fingerprint, how_sure = alone.id, alone.level
    own = row.own_ms or 0.0
    usual = own / (row.own_ratio or 1.0)
    parts = [f"{rank.name} takes {own:,.2f} ms of its own a {found.per} where {usual:,.2f} ms is the median "
             f"({own / usual:,.2f} ×)"]
    level, waiting = _taken_up(found, [row], own - usual)
    parts.append(waiting)
    usual_ms = _usual_kernels(found)
    slower = False
    if row.compute_ms is not None and usual_ms:
        slower = row.compute_ms - usual_ms >= SLOWER * (own - usual)
        parts.append(f"its kernels take {row.compute_ms / usual_ms:,.2f} × the median: " + (
            "the device is not what is slower" if not slower else "its kernels are what is longer"
            if level is Level.NOT_ENOUGH or found.by_one_step else "the device itself is slower"))
    parts += row.telemetry
    if fingerprint:
        parts.append(f"its own diagnosis: {fingerprint} ({how_sure}), {rank.where or rank.title}")
    parts += _others(found, [r for r in found.rows if r.remarkable and r is not row])
    parts += _not_compared(found)
    said = f" ({fingerprint})" if fingerprint else ""
    if level is Level.NOT_ENOUGH:
        return JobVerdict(level, None, f"{rank.name} takes longer, and the others do not wait for it",
                          _sentences(parts), SAME_TIME, rank.name, rank.label, fingerprint)
    if found.by_one_step:
        parts.insert(1, "one step was compared: a cold start looks the same")
        return JobVerdict(Level.NOT_ENOUGH, None, f"{rank.name} is late in the one step compared", _sentences(parts),
                          PAST_WARM_UP, rank.name, rank.label, fingerprint)
    more = f" and {len(late) - 1:,} more" if len(late) > 1 else ""
    return JobVerdict(level, STRAGGLER, f"straggler: {rank.name}{said}{more}", _sentences(parts),
                      _next_of(row, slower), rank.name, rank.label, fingerprint)


SAME_TIME = ("Record the same steps on all ranks at the same time, in one session, and compare again: ranks that "
             "exchange wait for a slow one, and here they did not")
PAST_WARM_UP = ("Record several steps past the warm-up (the profiler's wait and warmup steps) on all ranks, and "
                "compare again: first steps compile, allocate and load")


def _taken_up(found: Comparison, rows: Sequence[RankRow], excess: float) -> tuple[Level, str]:
    """Whether the others wait for these, in words. Without collectives each rank goes its own way."""
    chosen = {i for i, row in enumerate(found.rows) if any(row is one for one in rows)}
    groups = [group for group in found.groups if chosen.intersection(group.ranks.tolist())]
    together = sorted({i for group in groups for i in group.ranks.tolist()})
    theirs = [found.rows[i].wait_ms or 0.0 for i in together if i in chosen]
    others = [found.rows[i].wait_ms or 0.0 for i in together if i not in chosen]
    them = "it does" if len(rows) == 1 else "these do"
    if not groups and any(row.result.calls is not None for row in found.rows):
        return Level.NOT_ENOUGH, (f"but no collective could be matched that {them.split()[0]} and the others take part "
                                  "in: nothing shows that anybody waits")
    if not others:
        return Level.PROBABLE, f"no collective could be matched to show that the others wait for {them.split()[0]}"
    usual = _median if len(rows) == 1 else fmean
    longer = usual(others) - usual(theirs)
    if found.per == "collective":
        longer /= sum(len(group.step) for group in groups)
    most = "at most " if any(is_bound(group, found.world_size) for group in groups) else ""
    cost = f"whose true cost is {most}{sum(group.cost_ms for group in groups):,.2f} ms"
    if longer >= TAKEN_UP * excess:
        share = rows[0].last_share if len(rows) == 1 else None
        last = f"; it comes last in {share:.0%} of those with waiting" if share else ""
        return Level.PROBABLE, (f"the others wait {longer:,.2f} ms longer than {them} in their collectives, {cost}: "
                                f"communication is not to blame{last}")
    waited = f"wait only {longer:,.2f} ms longer than" if longer > 0 else "wait no longer than"
    return Level.NOT_ENOUGH, (f"but the others {waited} {them} in their collectives, {cost}: their steps "
                              "may not be the same")


def _median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _uneven(found: Comparison) -> JobVerdict:
    """Two kinds of rank: no single one is to blame."""
    slow = [row for row in found.rows if row.slower_kind]
    fast = [row for row in found.rows if not row.slower_kind and row.own_ms is not None]
    long_ms, short_ms = (fmean(row.own_ms or 0.0 for row in rows) for rows in (slow, fast))
    level, waiting = _taken_up(found, slow, long_ms - short_ms)
    others = "the others" if len(fast) > 1 else fast[0].result.name
    parts = [f"{len(slow):,} ranks take {long_ms:,.2f} ms of their own a {found.per} (the mean), {others} "
             f"{short_ms:,.2f} ms ({long_ms / short_ms:,.2f} ×): so many are no stragglers", waiting]
    compute = [_median(known) if (known := [row.compute_ms for row in rows if row.compute_ms is not None]) else 0.0
               for rows in (slow, fast)]
    if all(compute):
        parts.append(f"their kernels take {compute[0] / compute[1]:,.2f} × those of the others")
    said = Counter(row.result.conclusive or "not enough evidence" for row in slow)
    parts.append("by themselves the slower say: " + ", ".join(f"{n:,} {what}" for what, n in said.most_common()))
    parts += _others(found, [row for row in found.rows if row.remarkable])
    parts += _not_compared(found)
    numbers = sorted(row.result.rank for row in slow if row.result.rank is not None)
    names = f"ranks {spans(numbers)}" if len(numbers) == len(slow) else f"{len(slow):,} of {len(found.rows):,} ranks"
    shown = sorted(slow, key=lambda row: row.own_ms or 0.0)[(len(slow) - 1) // 2].result
    title = f"two kinds of rank: {shorten(names, 60)} take longer (work split unevenly?)"
    if level is Level.NOT_ENOUGH:
        return JobVerdict(level, None, f"{shorten(names, 60)} take longer, and the others do not wait for them",
                          _sentences(parts), SAME_TIME, names, shown.label)
    if found.by_one_step:
        parts.insert(1, "one step was compared: a cold start looks the same")
        return JobVerdict(Level.NOT_ENOUGH, None, title, _sentences(parts), PAST_WARM_UP, names, shown.label)
    return JobVerdict(level, UNEVEN, title, _sentences(parts),
                      "Compare what the two kinds are given: stages of the pipeline, experts, tokens and sequence "
                      "lengths. Where all is split evenly, compare what the slower share: host, power limit, clocks, "
                      "kind of device", names, shown.label)


def _slow_step(found: Comparison, row: RankRow) -> JobVerdict:
    """A rank that is late over all its steps together, and not without a few of them."""
    rank, table, places = row.result, row.result.steps, row.only_in
    steps = found.steps_compared
    first = places == (0,)
    where = f"step {places[0]}" if len(places) == 1 else f"{len(places):,} of {steps:,} steps"
    parts = [f"{rank.name} was late in {where} only, of {steps:,} compared (counted from 0)" + (
        ", as in a warm-up: compilation, allocation or loading" if first else "")]
    if table is not None:
        parts.append(f"it took up to {float(table.own.max()):,.2f} ms of its own there, in its median step "
                     f"{_median([float(ms) for ms in table.own]):,.2f} ms; the others waited for it meanwhile, so that "
                     "communication and their own verdicts are not to be read from these traces")
    parts.append(_waiting_words(found))
    parts += _others(found, [r for r in found.rows if r.remarkable and r is not row])
    parts += _not_compared(found)
    how = " (warm-up)" if first else ""
    return JobVerdict(
        Level.PROBABLE, SLOW_STEP, f"slow in {where} only{how}: {rank.name}", _sentences(parts),
        PAST_WARM_UP if first else
        f"Look at that step of {rank.name} (xpu-triage diagnose {rank.label}); record more steps to see whether it "
        "comes again, and on which rank", rank.name, rank.label)


def _not_compared(found: Comparison) -> list[str]:
    parts = [f"{_names(found.left_out)} not compared"] if found.left_out else []
    if found.missing:
        who = named(found.missing)
        parts.append(f"{who} of a world of {found.world_size:,} {'is' if how_many(found.missing) == 1 else 'are'} "
                     "missing, and may be later still")
    return parts


def _usual_kernels(found: Comparison) -> float:
    """Median of the kernels' time, ms a step; 0 where it is not known."""
    known = sorted(row.compute_ms for row in found.rows if row.compute_ms is not None)
    return known[(len(known) - 1) // 2] if known else 0.0


def _next_of(row: RankRow, slower: bool) -> str:
    rank = row.result
    if slower:
        return (f"The other ranks run the same kernels faster. Record clocks, power and limits of {rank.name} beside "
                "another's under load; then swap the two devices: a slowness that moves along is the device's, one "
                "that stays is of the rank's share of the work")
    if rank.conclusive:
        return rank.next or f"xpu-triage diagnose {rank.label}"
    return f"xpu-triage diagnose {rank.label}, and compare its host (CPU binding, other processes) with another's"


def _differs(found: Comparison, differing: list[RankRow]) -> JobVerdict:
    row = max(differing, key=lambda r: (r.result.level is Level.CONFIRMED, r.own_ms or 0.0))
    rank = row.result
    most = found.usual or "not enough evidence"
    parts = [f"{rank.name} differs: {rank.conclusive} ({rank.level}), where {_count(found, most)} say {most}",
             rank.where, *row.telemetry, *_others(found, [r for r in found.rows if r.remarkable and r is not row]),
             *_not_compared(found)]
    return JobVerdict(rank.level, DIFFERS, f"one rank differs: {rank.name} ({rank.conclusive})", _sentences(parts),
                      rank.next, rank.name, rank.label, rank.conclusive)


def _count(found: Comparison, verdict: str) -> str:
    return f"{found.verdicts.get(verdict, 0):,} of {len(found.rows):,}"


def _alike(found: Comparison, pages: Sequence[Fingerprint]) -> JobVerdict:
    row = found.typical
    verdict, signals = _with_all_ranks(found, row, pages)
    shown = next((r for r in found.rows if r.telemetry), row)
    if len(found.rows) == 1:
        parts = ["one rank: nothing to compare it with"]
    elif not found.per:
        parts = [f"{len(found.rows):,} ranks, whose times cannot be compared"]
    else:
        given = " given" if found.missing else ""
        parts = [f"no rank of {len(found.rows):,}{given} is late or differs"]
    who = named(found.missing)
    if found.missing:
        many = how_many(found.missing) > 1
        parts.append(f"{who} of a world of {found.world_size:,} {'are' if many else 'is'} missing, and may be what the "
                     "others wait for in their collectives")
    parts.append(_waiting_words(found))
    if shown.telemetry:
        parts += [f"{shown.result.name}: {text}" for text in shown.telemetry]
    if any(_may_hide(found, group) for group in found.groups):
        parts.append(f"the others by themselves ({verdict.level}): {verdict.title}")
        return JobVerdict(
            Level.NOT_ENOUGH, None, f"{who} missing: the late one may be among them" if how_many(found.missing) > 1 else
            f"{who} missing: may be the late one", _sentences(parts),
            f"Give the evidence of {who} too, of the same steps: only with all ranks is the shortest time in a "
            "collective its true cost", shown.result.name, shown.result.label, None, verdict, tuple(signals.values()))
    parts.append(verdict.summary)
    conclusive = verdict.id if verdict.level is not Level.NOT_ENOUGH else None
    title = verdict.title + (f" ({who} missing)" if found.missing and len(found.rows) > 1 else "")
    return JobVerdict(verdict.level, conclusive, title, _sentences(parts), verdict.next, shown.result.name,
                      shown.result.label, conclusive, verdict, tuple(signals.values()))


def _may_hide(found: Comparison, group: Matched) -> bool:
    """Whether a missing rank could be late by so much that it would be a straggler, for all that its group shows."""
    own = [row.own_ms for i in group.ranks.tolist() if (row := found.rows[i]).own_ms is not None]
    return (bool(found.missing) and found.per == "step" and is_bound(group, found.world_size) and bool(own)
            and group.cost_ms >= (LONG - 1) * _median([ms for ms in own if ms is not None]))


def _with_all_ranks(found: Comparison, row: RankRow, pages: Sequence[Fingerprint]) -> tuple[Verdict, Signals]:
    """What one rank's signals say with `comm.*` over ranks in place of its own, and these signals."""
    replaced = {signal.name for signal in found.signals}
    mine = (signal for signal in row.result.signals().values() if signal.name not in replaced)
    signals = Signals((*found.signals, *mine))
    return judge(signals, pages, contradictions(signals)), signals


def _waiting_words(found: Comparison) -> str:
    """What collectives cost, and how long ranks wait in them though none is always the last."""
    if not found.groups or found.per != "step":
        return ""
    group = max(found.groups, key=lambda g: g.skew_ms)
    most = "at most " if is_bound(group, found.world_size) else ""
    words = f"collectives cost {most}{group.cost_ms:,.2f} ms a step"
    if group.skew_ms > group.cost_ms:
        words += f" and {group.skew_ms:,.2f} ms of skew, now by one rank, now by another"
    return words


def _others(found: Comparison, rows: list[RankRow]) -> list[str]:
    """The other ranks that stand out, in words."""
    said = []
    for row in rows[:RANKS_SAID]:
        what = [f"{row.own_ratio:,.2f} × the median" if row.late and row.own_ratio else "",
                f"late in {len(row.only_in)} of {found.steps_compared} steps only" if row.only_in else "",
                row.result.conclusive or "" if row.late or row.differs else "", *row.telemetry]
        said.append(f"{row.result.name}: {', '.join(filter(None, what))}")
    if len(rows) > RANKS_SAID:
        said.append(f"{len(rows) - RANKS_SAID:,} more stand out")
    return [f"also {'; '.join(said)}"] if said else []


def _names(left_out: Sequence[object]) -> str:
    return f"{len(left_out):,} piece{'s' if len(left_out) > 1 else ''} of evidence"


def _sentences(parts: Sequence[str]) -> str:
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)

"""One verdict for the job, and the one rank to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..contradictions import contradictions
from ..fingerprints import Fingerprint
from ..signals import Signal, Signals
from ..verdict import Level, Verdict, judge
from .compare import Comparison, RankRow

STRAGGLER = "straggler"
DIFFERS = "rank-differs"
TAKEN_UP = 0.5
"""The others wait for a late rank where they wait at least this part of its excess longer than it does. Judgement."""
SLOWER = 0.5
"""Where kernels are at least this part of a rank's excess, the device itself is slower. Judgement."""
RANKS_SAID = 8


@dataclass(frozen=True)
class JobVerdict:
    level: Level
    id: str | None
    """`straggler`, `rank-differs`, or the fingerprint of the job; None where there is not enough evidence."""
    title: str
    summary: str
    next: str
    rank: str
    """The one to look at, by its name: `rank 17`."""
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

    A late rank comes first, then one that differs: what the others show meanwhile is waiting for it, and communication
    is not to blame. Otherwise the job is judged by a typical rank. `comm.*` over ranks stands in for a rank's own: it
    tells waiting from cost.
    """
    if not found.one_model:
        return _of_different_jobs(found)
    late = sorted((row for row in found.rows if row.late), key=lambda row: -(row.own_ms or 0.0))
    if late:
        return _straggler(found, late[0], pages)
    if differing := [row for row in found.rows if row.differs]:
        return _differs(found, differing)
    return _alike(found, pages)


def _of_different_jobs(found: Comparison) -> JobVerdict:
    first = found.rows[0].result
    return JobVerdict(
        Level.NOT_ENOUGH, None, "These are not ranks of one job",
        f"Most of the {len(found.rows):,} ranks have hardly a kernel in common, so that no time of one says anything "
        "about another's.", "Give the ranks of one job, recorded at the same time", first.name, first.label)


def _straggler(found: Comparison, row: RankRow, pages: Sequence[Fingerprint]) -> JobVerdict:
    rank = row.result
    alone = _with_all_ranks(found, row, pages)[0]
    fingerprint, how_sure = rank.conclusive, rank.level
    if alone.level is not Level.NOT_ENOUGH:
        fingerprint, how_sure = alone.id, alone.level
    own = row.own_ms or 0.0
    usual = own / (row.own_ratio or 1.0)
    parts = [f"{rank.name} takes {own:,.2f} ms of its own a {found.per} where {usual:,.2f} ms is the median "
             f"({own / usual:,.2f} ×)"]
    level, waiting = _taken_up(found, row, own - usual)
    parts.append(waiting)
    usual_ms = _usual_kernels(found)
    slower = False
    if row.compute_ms is not None and usual_ms:
        slower = row.compute_ms - usual_ms >= SLOWER * (own - usual)
        parts.append(f"its kernels take {row.compute_ms / usual_ms:,.2f} × the median: "
                     + ("the device itself is slower" if slower else "the device is not what is slower"))
    parts += row.telemetry
    if fingerprint:
        parts.append(f"its own diagnosis: {fingerprint} ({how_sure}), {rank.where or rank.title}")
    parts += _others(found, [r for r in found.rows if r.remarkable and r is not row])
    parts += [f"{_names(found.left_out)} not compared"] if found.left_out else []
    title = f"straggler: {rank.name}" + (f" ({fingerprint})" if fingerprint else "")
    return JobVerdict(level, STRAGGLER if level is not Level.NOT_ENOUGH else None, title, _sentences(parts),
                      _next_of(row, slower), rank.name, rank.label, fingerprint)


def _taken_up(found: Comparison, row: RankRow, excess: float) -> tuple[Level, str]:
    """Whether the others wait for this rank, in words. Without collectives each rank goes its own way."""
    group = next((g for g in found.groups if any(found.rows[i] is row for i in g.ranks.tolist())), None)
    if group is None or row.wait_ms is None:
        return Level.PROBABLE, "no collective could be matched to show that the others wait for it"
    others = sorted(found.rows[i].wait_ms or 0.0 for i in group.ranks.tolist() if found.rows[i] is not row)
    longer = others[(len(others) - 1) // 2] - row.wait_ms
    if found.per == "collective":
        longer /= len(group.step)
    cost = f"whose true cost is {group.cost_ms:,.2f} ms"
    if longer >= TAKEN_UP * excess:
        last = f"; it comes last in {row.last_share:.0%} of those with waiting" if row.last_share else ""
        return Level.PROBABLE, (f"the others wait {longer:,.2f} ms longer than it does in their collectives, {cost}: "
                                f"communication is not to blame{last}")
    return Level.NOT_ENOUGH, (f"but the others wait only {longer:,.2f} ms longer than it does in their collectives, "
                              f"{cost}: their steps may not be the same")


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
             rank.where, *row.telemetry, *_others(found, [r for r in found.rows if r.remarkable and r is not row])]
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
        parts = [f"no rank of {len(found.rows):,} is late or differs"]
    parts.append(_waiting_words(found))
    if shown.telemetry:
        parts += [f"{shown.result.name}: {text}" for text in shown.telemetry]
    parts.append(verdict.summary)
    conclusive = verdict.id if verdict.level is not Level.NOT_ENOUGH else None
    return JobVerdict(verdict.level, conclusive, verdict.title, _sentences(parts), verdict.next, shown.result.name,
                      shown.result.label, conclusive, verdict, tuple(signals.values()))


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
    words = f"collectives cost {group.cost_ms:,.2f} ms a step"
    if group.skew_ms > group.cost_ms:
        words += f" and {group.skew_ms:,.2f} ms of skew, now by one rank, now by another"
    return words


def _others(found: Comparison, rows: list[RankRow]) -> list[str]:
    """The other ranks that stand out, in words."""
    said = []
    for row in rows[:RANKS_SAID]:
        what = [f"{row.own_ratio:,.2f} × the median" if row.late and row.own_ratio else "",
                row.result.conclusive or "" if row.late or row.differs else "", *row.telemetry]
        said.append(f"{row.result.name}: {', '.join(filter(None, what))}")
    if len(rows) > RANKS_SAID:
        said.append(f"{len(rows) - RANKS_SAID:,} more stand out")
    return [f"also {'; '.join(said)}"] if said else []


def _names(left_out: Sequence[object]) -> str:
    return f"{len(left_out):,} piece{'s' if len(left_out) > 1 else ''} of evidence"


def _sentences(parts: Sequence[str]) -> str:
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)

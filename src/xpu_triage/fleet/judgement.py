"""One verdict for the job, and the one rank to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median_low

from ..contradictions import contradictions
from ..fingerprints import Fingerprint
from ..signals import Signal, Signals
from ..text import shorten
from ..verdict import Level, Verdict, judge
from .compare import Comparison, RankRow
from .kernels import Longer, Why, mirrored, why_longer
from .next_steps import (
    IN_TURN,
    PAST_WARM_UP,
    SAME_OPTIONS,
    advised,
    of_missing,
    of_straggler,
    of_unshown,
)
from .settle import Doubt
from .summary import spans
from .unlike import carries_more
from .waits import (
    are_several,
    may_hide,
    most_skew,
    much_waiting,
    taken_up,
    usually_last,
    waiting_words,
    who_is_missing,
)
from .wording import RANKS_SAID, not_compared, others_said, sentences

STRAGGLER = "straggler"
DIFFERS = "rank-differs"
UNEVEN = "uneven-ranks"
SLOW_STEP = "slow-step"
SLOWER = 0.5
"""Where kernels are at least this part of a rank's excess, they are what is longer. Judgement."""


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
        "These are not ranks of one job" if doubt.certain else "Not shown to be ranks of one job", sentences(parts),
        "Each alone: xpu-triage diagnose. To compare ranks, record all of one job at the same time, over the same "
        "steps, with traces that state rank and world size (torch.profiler does where torch.distributed is in use)",
        "", "")


def _straggler(found: Comparison, late: list[RankRow], pages: Sequence[Fingerprint]) -> JobVerdict:
    usual_ms = _usual_kernels(found)
    late = sorted(late, key=lambda row: _by_its_profiler(row, usual_ms))       # else as they are: the latest first
    row = late[0]
    rank = row.result
    alone = _with_all_ranks(found, row, pages)[0]
    fingerprint, how_sure = rank.conclusive, rank.level
    if alone.level is not Level.NOT_ENOUGH:
        fingerprint, how_sure = alone.id, alone.level
    own = row.own_ms or 0.0
    usual = own / (row.own_ratio or 1.0)
    taken = taken_up(found, [row], own - usual)
    parts = [f"{rank.name} takes {own:,.2f} ms of its own a {found.per} where {usual:,.2f} ms is the median "
             f"({own / usual:,.2f} ×)", taken.words]
    kernels = _kernels_explain(row, usual_ms)
    longer, more = _unlike(found, [row])
    if row.compute_ms is not None and usual_ms:
        parts.append(f"its kernels take {row.compute_ms / usual_ms:,.2f} × the median: "
                     + _of_kernels(kernels, longer, more, taken.shown and not found.by_one_step, rank.requests is None))
    if more:
        parts.append(f"its steps carry {more}")
    parts += row.telemetry
    if fingerprint:
        parts.append(f"its own diagnosis: {fingerprint} ({how_sure}), {rank.where or rank.title}")
    parts += others_said(found, [r for r in found.rows if r.remarkable and r is not row])
    parts += not_compared(found)

    def not_enough(title: str, to_do: str) -> JobVerdict:
        return JobVerdict(Level.NOT_ENOUGH, None, title, sentences(parts), to_do, rank.name, rank.label, fingerprint)

    if found.by_one_step and found.groups:
        parts.insert(1, "one step was compared: a cold start looks the same")
        return not_enough(f"{rank.name} is late in the one step compared", PAST_WARM_UP)
    if not taken.shown:
        return not_enough(f"{rank.name} takes longer, and the others do not wait for it" if taken.matched else
                          f"{rank.name} takes longer; nothing shows that the others wait for it", of_unshown(taken))
    if _by_its_profiler(row, usual_ms):
        parts.insert(1, f"its capture records {', '.join(row.recorded_more)}, which those of most others do not: the "
                        "profiler is the first suspect")
        return not_enough(f"{rank.name} is late, and its capture records more than the others'", SAME_OPTIONS)
    said = f" ({fingerprint})" if fingerprint else ""
    several = f" and {len(late) - 1:,} more" if len(late) > 1 else ""
    return JobVerdict(Level.PROBABLE, STRAGGLER, f"straggler: {rank.name}{said}{several}", sentences(parts),
                      of_straggler(row, kernels, longer, more), rank.name, rank.label, fingerprint)


def _kernels_explain(row: RankRow, usual_ms: float) -> bool:
    """Whether its kernels are what a rank takes longer by."""
    own = row.own_ms or 0.0
    return (row.compute_ms is not None and usual_ms > 0
            and row.compute_ms - usual_ms >= SLOWER * (own - own / (row.own_ratio or 1.0)))


def _by_its_profiler(row: RankRow, usual_ms: float) -> bool:
    """Whether that a rank is late may come of what was recorded of it: on its host, and not proven otherwise."""
    return (bool(row.recorded_more) and row.result.level is not Level.CONFIRMED
            and not _kernels_explain(row, usual_ms))


def _unlike(found: Comparison, rows: Sequence[RankRow]) -> tuple[Longer, str]:
    """Why the kernels of these take longer than the others', and what their steps carry more."""
    mine = [i for i, row in enumerate(found.rows) if any(row is one for one in rows)]
    others = [i for i, row in enumerate(found.rows) if i not in mine and not row.late and row.own_ms is not None]
    longer = why_longer(found.kernels, mine, others) if found.kernels is not None else Longer(Why.UNKNOWN, "")
    return longer, carries_more([row.result for row in rows], [found.rows[i].result for i in others])


def _of_kernels(kernels: bool, longer: Longer, more: str, shown: bool, load_unknown: bool) -> str:
    """What the kernels' time says of the device, in words."""
    if not kernels:
        return "the device is not what is slower"
    if longer.why is Why.DEVICE and shown and not more:
        unless = ", unless its steps carry more (batch, sequence lengths), which their names do not tell"
        return f"the device itself is slower ({longer.words}){unless if load_unknown else ''}"
    return "its kernels are what is longer" + (f": {longer.words}" if longer.words else "")


def _uneven(found: Comparison) -> JobVerdict:
    """Two kinds of rank: no single one is to blame."""
    slow = [row for row in found.rows if row.slower_kind]
    fast = [row for row in found.rows if not row.slower_kind and row.own_ms is not None]
    long_ms, short_ms = (fmean(row.own_ms or 0.0 for row in rows) for rows in (slow, fast))
    taken = taken_up(found, slow, long_ms - short_ms)
    others = "the others" if len(fast) > 1 else fast[0].result.name
    parts = [f"{len(slow):,} ranks take {long_ms:,.2f} ms of their own a {found.per} (the mean), {others} "
             f"{short_ms:,.2f} ms ({long_ms / short_ms:,.2f} ×): so many are no stragglers", taken.words]
    compute = [median_low(known) if (known := [row.compute_ms for row in rows if row.compute_ms is not None]) else 0.0
               for rows in (slow, fast)]
    if all(compute):
        parts.append(f"their kernels take {compute[0] / compute[1]:,.2f} × those of the others")
    if more := _unlike(found, slow)[1]:
        parts.append(f"their steps carry {more}")
    said = Counter(row.result.conclusive or "not enough evidence" for row in slow)
    parts.append("by themselves the slower say: " + ", ".join(f"{n:,} {what}" for what, n in said.most_common()))
    parts += others_said(found, [row for row in found.rows if row.remarkable])
    parts += not_compared(found)
    numbers = sorted(row.result.rank for row in slow if row.result.rank is not None)
    names = f"ranks {spans(numbers)}" if len(numbers) == len(slow) else f"{len(slow):,} of {len(found.rows):,} ranks"
    who = shorten(names, 60)
    label = sorted(slow, key=lambda row: row.own_ms or 0.0)[(len(slow) - 1) // 2].result.label

    def verdict(level: Level, title: str, to_do: str) -> JobVerdict:
        return JobVerdict(level, None if level is Level.NOT_ENOUGH else UNEVEN, title, sentences(parts), to_do, names,
                          label)

    title = f"two kinds of rank: {who} take longer (work split unevenly?)"
    if found.by_one_step and found.groups:
        parts.insert(1, "one step was compared: a cold start looks the same")
        return verdict(Level.NOT_ENOUGH, title, PAST_WARM_UP)
    if not taken.shown:
        return verdict(Level.NOT_ENOUGH, f"{who} take longer, and the others do not wait for them" if taken.matched else
                       f"{who} take longer; nothing shows that the others wait for them", of_unshown(taken))
    if all(_by_its_profiler(row, compute[1]) for row in slow):
        parts.insert(1, "their captures record more than the others': the profiler is the first suspect")
        return verdict(Level.NOT_ENOUGH, f"{who} take longer, and their captures record more", SAME_OPTIONS)
    return verdict(Level.PROBABLE, title,
                   "Compare what the two kinds are given: stages of the pipeline, experts, tokens and sequence "
                   "lengths. Where all is split evenly, compare what the slower share: host, power limit, clocks, kind "
                   "of device")


def _slow_step(found: Comparison, row: RankRow) -> JobVerdict:
    """A rank that is late over all its steps together, and not without a few of them."""
    rank, table, places = row.result, row.result.steps, row.only_in
    steps = found.steps_compared
    first = places == (0,)
    where = f"step {places[0]}" if len(places) == 1 else f"{len(places):,} of {steps:,} steps"
    parts = [f"{rank.name} was late in {where} only, of {steps:,} compared (counted from 0)" + (
        ", as in a warm-up: compilation, allocation or loading" if first else "")]
    if table is not None:
        usual = median_low([float(ms) for ms in table.own])
        parts.append(f"it took up to {float(table.own.max()):,.2f} ms of its own there, in its median step "
                     f"{usual:,.2f} ms; the others waited for it meanwhile, so that communication and their own "
                     "verdicts are not to be read from these traces")
    parts.append(waiting_words(found))
    parts += others_said(found, [r for r in found.rows if r.remarkable and r is not row])
    parts += not_compared(found)
    how = " (warm-up)" if first else ""
    return JobVerdict(
        Level.PROBABLE, SLOW_STEP, f"slow in {where} only{how}: {rank.name}", sentences(parts),
        PAST_WARM_UP if first else
        f"Look at that step of {rank.name} (xpu-triage diagnose {rank.label}); record more steps to see whether it "
        "comes again, and on which rank", rank.name, rank.label)


def _usual_kernels(found: Comparison) -> float:
    """Median of the kernels' time, ms a step; 0 where it is not known."""
    known = [row.compute_ms for row in found.rows if row.compute_ms is not None]
    return median_low(known) if known else 0.0


def _differs(found: Comparison, differing: list[RankRow]) -> JobVerdict:
    row = max(differing, key=lambda r: (r.result.level is Level.CONFIRMED, r.own_ms or 0.0))
    rank = row.result
    most = found.usual or "not enough evidence"
    parts = [f"{rank.name} differs: {rank.conclusive} ({rank.level}), where {_count(found, most)} say {most}",
             rank.where, *row.telemetry, *others_said(found, [r for r in found.rows if r.remarkable and r is not row]),
             *not_compared(found)]
    return JobVerdict(rank.level, DIFFERS, f"one rank differs: {rank.name} ({rank.conclusive})", sentences(parts),
                      advised(found, rank.next, row), rank.name, rank.label, rank.conclusive)


def _count(found: Comparison, verdict: str) -> str:
    return f"{found.verdicts.get(verdict, 0):,} of {len(found.rows):,}"


def _alike(found: Comparison, pages: Sequence[Fingerprint]) -> JobVerdict:
    """No rank is late or differs: the job's own verdict, unless a rank that is late may be hidden."""
    row = found.typical
    verdict, signals = _with_all_ranks(found, row, pages)
    shown = next((r for r in found.rows if r.telemetry), row)
    who = who_is_missing(found)
    if len(found.rows) == 1:
        parts = ["one rank: nothing to compare it with"]
    elif not found.per:
        parts = [f"{len(found.rows):,} ranks, whose times cannot be compared"]
    else:
        parts = [f"no rank of {len(found.rows):,}{' given' if who else ''} is late or differs"]
    if who:
        of = f" of a world of {found.world_size:,}" if found.missing else ""
        parts.append(f"{who}{of} {'are' if are_several(found) else 'is'} missing, and may be what the others wait for "
                     "in their collectives")
    parts.append(waiting_words(found))
    if shown.telemetry:
        parts += [f"{shown.result.name}: {text}" for text in shown.telemetry]

    def not_enough(title: str, to_do: str, at: RankRow) -> JobVerdict:
        return JobVerdict(Level.NOT_ENOUGH, None, title, sentences(parts), to_do, at.result.name, at.result.label, None,
                          verdict, tuple(signals.values()))

    if any(may_hide(found, group) for group in found.groups):
        parts.append(f"the others by themselves ({verdict.level}): {verdict.title}")
        return not_enough(f"{who} missing: the late one may be among them" if are_several(found) else
                          f"{who} missing: may be the late one", of_missing(found), shown)
    if found.per and found.kernels is not None and (hidden := mirrored(found.kernels)) is not None:
        at, kernel, ms = found.rows[hidden[0]], *hidden[1:]
        name = at.result.name
        parts.append(f"the kernel {kernel} is {ms:,.2f} ms a {found.per} shorter on {name} than on the others, and "
                     f"the other kernels of {name} are longer by about as much: were it an exchange under a name that "
                     f"does not tell, the others would wait in it for {name}")
        return not_enough(f"{name} may be late: the others may wait for it in {kernel}",
                          f"Find out what {kernel} is. Where ranks exchange in it, look at what {name} does before it: "
                          f"xpu-triage diagnose {at.result.label}", at)
    group = most_skew(found)
    if group is not None and verdict.level is Level.NOT_ENOUGH and much_waiting(found, group):
        one = usually_last(group)
        if one is None:
            return not_enough("ranks are late in turn, and the others wait", IN_TURN, shown)
        at = found.rows[one]
        return not_enough(f"{at.result.name} comes last in most collectives, though its own time is no longer",
                          f"Look at what {at.result.name} does before its collectives, and when it is given its work: "
                          f"xpu-triage diagnose {at.result.label}", at)
    parts.append(verdict.summary)
    conclusive = verdict.id if verdict.level is not Level.NOT_ENOUGH else None
    title = verdict.title + (f" ({who} missing)" if who and len(found.rows) > 1 else "")
    return JobVerdict(verdict.level, conclusive, title, sentences(parts), advised(found, verdict.next, row),
                      shown.result.name, shown.result.label, conclusive, verdict, tuple(signals.values()))


def _with_all_ranks(found: Comparison, row: RankRow, pages: Sequence[Fingerprint]) -> tuple[Verdict, Signals]:
    """What one rank's signals say with `comm.*` over ranks in place of its own, and these signals."""
    replaced = {signal.name for signal in found.signals}
    mine = (signal for signal in row.result.signals().values() if signal.name not in replaced)
    signals = Signals((*found.signals, *mine))
    return judge(signals, pages, contradictions(signals)), signals

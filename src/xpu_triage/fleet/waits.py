"""Whether anybody waits for a rank: what collectives show of it, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median_low

import numpy as np

from .absent import how_many, is_bound, named, size_of
from .collectives import Matched
from .compare import Comparison, RankRow
from .lateness import LONG, OFTEN

TAKEN_UP = 0.5
"""The others wait for a late rank where they wait at least this part of its excess longer than it does. Judgement."""


@dataclass(frozen=True)
class TakenUp:
    """Whether the others wait for some ranks."""

    shown: bool
    matched: bool
    """Whether there are collectives in which it could show."""
    words: str
    apart: bool = False
    """Whether there are, and these are not seen to end together."""


def taken_up(found: Comparison, rows: Sequence[RankRow], excess: float) -> TakenUp:
    """Whether the others wait for these, whose own time is by `excess` ms longer. Only collectives that were matched,
    and that end together, can show it: without these each rank may go its own way."""
    chosen = {i for i, row in enumerate(found.rows) if any(row is one for one in rows)}
    groups = [group for group in found.groups if chosen.intersection(group.ranks.tolist())]
    together = sorted({i for group in groups for i in group.ranks.tolist()})
    theirs = [found.rows[i].wait_ms or 0.0 for i in together if i in chosen]
    others = [found.rows[i].wait_ms or 0.0 for i in together if i not in chosen]
    them = "it does" if len(rows) == 1 else "these do"
    if not groups or not others:
        what = (f"no collective could be matched that {them.split()[0]} and the others take part in"
                if any(row.result.calls is not None for row in found.rows) else "no collectives were recorded")
        return TakenUp(False, False, f"but {what}: these differ, and nothing shows that anybody waits")
    usual = median_low if len(rows) == 1 else fmean
    longer = usual(others) - usual(theirs)
    if found.per == "collective":
        longer /= sum(len(group.step) for group in groups)
    most = "at most " if any(is_bound(group, found.world_size) for group in groups) else ""
    cost = f"whose true cost is {most}{sum(group.cost_ms for group in groups):,.2f} ms"
    if longer < TAKEN_UP * excess:
        waited = f"wait only {longer:,.2f} ms longer than" if longer > 0 else "wait no longer than"
        return TakenUp(False, True, f"but the others {waited} {them} in their collectives, {cost}: their steps may not "
                                    "be the same")
    if not chosen & found.together:
        return TakenUp(False, False, f"the others' collectives take {longer:,.2f} ms longer, but they are not seen to "
                                     f"end at the same moments as those of {_name(rows)}: they may not be the same",
                       apart=True)
    share = rows[0].last_share if len(rows) == 1 else None
    last = f"; it comes last in {share:.0%} of those with waiting" if share else ""
    return TakenUp(True, True, f"the others wait {longer:,.2f} ms longer than {them} in their collectives, {cost}: "
                               f"communication is not to blame{last}")


def _name(rows: Sequence[RankRow]) -> str:
    return rows[0].result.name if len(rows) == 1 else "these"


def most_skew(found: Comparison) -> Matched | None:
    """The group with most waiting, where times are of steps."""
    return max(found.groups, key=lambda group: group.skew_ms) if found.groups and found.per == "step" else None


def usually_last(group: Matched) -> int | None:
    """The position of the rank that comes last in most collectives of a group with waiting; None where it is now this
    one, now that."""
    share = np.nan_to_num(group.last_share)
    return int(group.ranks[share.argmax()]) if share.max() >= OFTEN else None


def much_waiting(found: Comparison, group: Matched) -> bool:
    """Whether ranks wait in a group more than its exchanges take, and by as much as would make a rank late."""
    own = [row.own_ms for row in found.rows if row.own_ms is not None]
    return bool(own) and group.skew_ms > group.cost_ms and group.skew_ms >= (LONG - 1) * median_low(own)


def waiting_words(found: Comparison) -> str:
    """What collectives cost, and how long ranks wait in them though none is late over all."""
    group = most_skew(found)
    if group is None:
        return ""
    most = "at most " if is_bound(group, found.world_size) else ""
    words = f"collectives cost {most}{group.cost_ms:,.2f} ms a step"
    if group.skew_ms > group.cost_ms:
        one = usually_last(group)
        who = "now by one rank, now by another" if one is None else (
            f"for {found.rows[one].result.name} in {found.rows[one].last_share or 0.0:.0%} of those with waiting")
        words += f" and {group.skew_ms:,.2f} ms of skew, {who}"
    return words


def is_whole(found: Comparison) -> bool:
    """Whether all ranks of the groups compared are here, so that true costs are known."""
    return bool(found.groups) and not any(is_bound(group, found.world_size) for group in found.groups)


def who_is_missing(found: Comparison) -> str:
    """The missing ranks, in words; empty where none is known to be."""
    if found.missing:
        return named(found.missing)
    short = max((size_of(group, found.world_size) or 0) - len(group.ranks) for group in found.groups) \
        if found.groups else 0
    return f"{short:,} rank{'s' if short > 1 else ''} of the group" if short > 0 else ""


def are_several(found: Comparison) -> bool:
    """Whether more than one rank is missing."""
    return how_many(found.missing) > 1 if found.missing else not who_is_missing(found).startswith("1 ")


def may_hide(found: Comparison, group: Matched) -> bool:
    """Whether a missing rank could be late by so much that it would be a straggler, for all that its group shows."""
    own = [row.own_ms for i in group.ranks.tolist() if (row := found.rows[i]).own_ms is not None]
    return (found.per == "step" and is_bound(group, found.world_size) and bool(own)
            and group.cost_ms >= (LONG - 1) * median_low([ms for ms in own if ms is not None]))

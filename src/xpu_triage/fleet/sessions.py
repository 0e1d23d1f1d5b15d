"""Several captures of a rank: one session is compared, and sessions are not mixed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from .result import RankResult

_PLACE = re.compile(r"(?:rank[-_ ]?|(?<![a-z])(?:tp|dp|pp|ep|dcp)-?)\d+", re.I)


@dataclass(frozen=True)
class LeftOut:
    """One piece of evidence that is not compared."""

    label: str
    rank: int | None
    why: str


def session_of(label: str, rank: int | None) -> str:
    """The name of a rank's evidence without what tells the rank: the same over the ranks of a session.

    >>> session_of("a/rank3.1111.pt.trace.json", 3), session_of("a/17-TP-5.trace.json", 5)
    ('a/#.1111.pt.trace.json', 'a/17-#.trace.json')
    """
    path = PurePath(label.split(", ")[0])
    if not path.name:
        return label
    name, places = _PLACE.subn("#", path.name)
    if not places and rank is not None:
        name = re.sub(rf"(?<!\d)0{{0,6}}{rank}(?!\d)", "#", name, count=1)
    return str(path.with_name(name))


def one_session(ranks: Sequence[RankResult], out: list[LeftOut], notes: list[str]) -> list[RankResult]:
    """The ranks of one session, where some come more than once.

    Names that are the same but for the rank tell the sessions: that with most ranks is compared, of equal ones the
    first. Where they tell none, and each rank has as many captures, the first of each is; else ranks with several are
    left out, since nobody can say which of theirs goes with the others.
    """
    by_rank: dict[int, list[RankResult]] = {}
    for one in ranks:
        if one.rank is not None:
            by_rank.setdefault(one.rank, []).append(one)
    several = {rank for rank, mine in by_rank.items() if len(mine) > 1}
    if not several:
        return list(ranks)
    sessions: dict[str, set[int]] = {}
    for rank, mine in by_rank.items():
        for one in mine:
            sessions.setdefault(session_of(one.label, rank), set()).add(rank)
    best = max(sessions, key=lambda name: len(sessions[name]))
    told = f"several captures of {len(several):,} of {len(by_rank):,} ranks"
    if 2 * len(sessions[best]) > len(by_rank) and len(sessions[best]) > 1:
        others = {session_of(one.label, rank) for rank in several for one in by_rank[rank]} - {best}
        notes.append(f"{told}: only those of one session are compared, {PurePath(best).name} (# is the rank)")
        return _kept(ranks, out, lambda one: "" if session_of(one.label, one.rank) not in others else _again(
            one, next((o.label for o in by_rank[one.rank or 0] if session_of(o.label, o.rank) == best), "")))
    if len({len(mine) for mine in by_rank.values()}) == 1:
        notes.append(f"{told}, and names do not tell the sessions: the first of each is compared")
        return _kept(ranks, out, lambda one: "" if by_rank[one.rank or 0][0] is one else _again(
            one, by_rank[one.rank or 0][0].label))
    notes.append(f"{told}, and names do not tell which goes with the others': these ranks are not compared")
    return _kept(ranks, out, lambda one: f"one of {len(by_rank[one.rank or 0])} captures of rank {one.rank}, and names "
                 "do not tell which goes with the others'" if one.rank in several else "")


def _again(one: RankResult, first: str) -> str:
    if not first:
        return f"rank {one.rank} of another session than the others: sessions are not mixed"
    return f"rank {one.rank} again, which {first} is already: another capture, and sessions are not mixed"


def _kept(ranks: Sequence[RankResult], out: list[LeftOut], why: Callable[[RankResult], str]) -> list[RankResult]:
    kept = []
    for one in ranks:
        if one.rank is not None and (reason := why(one)):
            out.append(LeftOut(one.label, one.rank, reason))
        else:
            kept.append(one)
    return kept

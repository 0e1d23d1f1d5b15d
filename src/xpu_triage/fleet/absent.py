"""Ranks of the job that nothing was given of: what is seen of the others is a bound without them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .collectives import Matched
from .result import RankResult
from .summary import spans

NAMED = 8
"""Missing ranks up to which they are named."""


def missing(ranks: Sequence[RankResult], world_size: int | None) -> tuple[range, ...]:
    """Numbers between 0 and the world's size that no rank has; nothing where the size or a rank's number is unknown."""
    if world_size is None or any(rank.rank is None or rank.rank_from == "order" for rank in ranks):
        return ()
    out = []
    at = 0
    for number in (*sorted({rank.rank for rank in ranks if rank.rank is not None}), world_size):
        if number > at:
            out.append(range(at, number))
        at = max(at, number + 1)
    return tuple(out)


def how_many(gaps: Sequence[range]) -> int:
    return sum(map(len, gaps))


def named(gaps: Sequence[range]) -> str:
    """`rank 5`, `ranks 5,9`, `252 ranks`.

    >>> named([range(5, 6)]), named([range(0, 2), range(4, 5)]), named([range(4, 256)])
    ('rank 5', 'ranks 0,1,4', '252 ranks')
    """
    count = how_many(gaps)
    if count > NAMED:
        return f"{count:,} ranks"
    return f"rank{'s' if count > 1 else ''} {spans([number for gap in gaps for number in gap])}"


def expected(group: str, world_size: int | None) -> int | None:
    """How many ranks take part in the collectives of a group, written as `spans` writes it; empty is all of them."""
    if not group:
        return world_size
    return sum(int(to or since) - int(since) + 1 for since, to in re.findall(r"(\d+)(?:-(\d+))?", group))


def size_of(group: Matched, world_size: int | None) -> int | None:
    """How many ranks take part in these collectives: as they say themselves, else as the group is written."""
    return group.size or expected(group.group, world_size)


def is_bound(group: Matched, world_size: int | None) -> bool:
    """Whether a rank that takes part in these collectives is not among those compared: the shortest over the others
    is then no more than an upper bound of the true cost."""
    size = size_of(group, world_size)
    return size is not None and len(group.ranks) < size

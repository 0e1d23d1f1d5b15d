"""Parts of a job's verdict in words."""

from __future__ import annotations

from collections.abc import Sequence

from .absent import how_many, named
from .compare import Comparison, RankRow

RANKS_SAID = 8


def not_compared(found: Comparison) -> list[str]:
    """What is left out, and who is missing."""
    count = len(found.left_out)
    parts = [f"{count:,} piece{'s' if count > 1 else ''} of evidence not compared"] if count else []
    if found.missing:
        parts.append(f"{named(found.missing)} of a world of {found.world_size:,} "
                     f"{'is' if how_many(found.missing) == 1 else 'are'} missing, and may be later still")
    return parts


def others_said(found: Comparison, rows: Sequence[RankRow]) -> list[str]:
    """The other ranks that stand out."""
    said = []
    for row in rows[:RANKS_SAID]:
        what = [f"{row.own_ratio:,.2f} × the median" if row.late and row.own_ratio else "",
                f"late in {len(row.only_in)} of {found.steps_compared} steps only" if row.only_in else "",
                row.result.conclusive or "" if row.late or row.differs else "", *row.telemetry]
        said.append(f"{row.result.name}: {', '.join(filter(None, what))}")
    if len(rows) > RANKS_SAID:
        said.append(f"{len(rows) - RANKS_SAID:,} more stand out")
    return [f"also {'; '.join(said)}"] if said else []


def sentences(parts: Sequence[str]) -> str:
    """Parts as sentences; empty ones are left out."""
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)

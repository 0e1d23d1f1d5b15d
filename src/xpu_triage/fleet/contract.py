"""The JSON that `xpu-triage fleet --json` prints: a contract, versioned by `schema`."""

from __future__ import annotations

from typing import Any

from ..signals import Signal
from .absent import is_bound
from .compare import RankRow
from .diagnosis import FleetDiagnosis

SCHEMA = 1
"""Rises when a field changes its meaning or goes; new fields may come without it."""


def to_json(found: FleetDiagnosis) -> dict[str, Any]:
    """`found` in plain types, ready for `json.dumps`. Every rank is in it; unknown is null."""
    verdict, comparison = found.verdict, found.comparison
    return {
        "schema": SCHEMA,
        "verdict": {
            "level": str(verdict.level), "id": verdict.id, "title": verdict.title, "summary": verdict.summary,
            "next": verdict.next, "rank": verdict.rank, "evidence": verdict.evidence,
            "fingerprint": verdict.fingerprint},
        "one_job": {"shown": comparison.doubt is None,
                    "why": comparison.doubt.why if comparison.doubt else comparison.one_job or None},
        "world_size": comparison.world_size,
        "missing": [[gap.start, gap.stop - 1] for gap in comparison.missing],
        "first_step_apart": comparison.first_apart,
        "times_per": comparison.per or None,
        "verdicts": dict(comparison.verdicts),
        "signals": {signal.name: _signal(signal) for signal in comparison.signals},
        "unknown": dict(comparison.unknown),
        "collectives": [
            {"group": group.group, "ranks": len(group.ranks), "steps": group.steps, "matched": len(group.step),
             "cost_ms": group.cost_ms, "cost_is_bound": is_bound(group, comparison.world_size),
             "skew_ms": group.skew_ms} for group in comparison.groups],
        "ranks": [_row(row) for row in comparison.rows],
        "left_out": [{"evidence": left.label, "rank": left.rank, "why": left.why} for left in comparison.left_out],
        "notes": [*found.notes, *comparison.notes],
    }


def _signal(signal: Signal) -> dict[str, Any]:
    return {"value": signal.value, "unit": signal.unit, "how": signal.how, "window": signal.window,
            "source": signal.source}


def _row(row: RankRow) -> dict[str, Any]:
    rank = row.result
    return {
        "rank": rank.rank, "rank_from": rank.rank_from or None, "evidence": rank.label, "group": rank.group or None,
        "verdict": {"level": str(rank.level), "id": rank.id, "title": rank.title, "summary": rank.summary,
                    "next": rank.next, "where": rank.where},
        "own_ms": row.own_ms, "own_ratio": row.own_ratio, "compute_ms": row.compute_ms, "wait_ms": row.wait_ms,
        "last_share": row.last_share, "late": row.late, "differs": row.differs, "waits_for": row.waits_for or None,
        "slower_kind": row.slower_kind, "late_only_in": list(row.only_in),
        "telemetry": list(row.telemetry), "recorded_more": list(row.recorded_more),
        "signals": {name: value for name, value, _ in rank.values},
        "notes": list(rank.notes),
    }

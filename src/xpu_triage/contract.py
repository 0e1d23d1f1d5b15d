"""The JSON that `xpu-triage diagnose --json` prints: a contract, versioned by `schema`, documented in docs/json.md."""

from __future__ import annotations

from typing import Any

from .diagnosis import Diagnosis
from .signals import Signals
from .steps.results import Cause, DeviceUse, Finding, Walk
from .verdict import Hypothesis, Reason, Verdict

SCHEMA = 1
"""Rises when a field changes its meaning or goes; new fields may come without it."""

NS_PER_MS = 1e6


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """`diagnosis` in plain types, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "verdict": _verdict(diagnosis.verdict),
        "hypotheses": [_hypothesis(h) for h in diagnosis.verdict.hypotheses],
        "signals": _signals(diagnosis.signals),
        "unknown": dict(diagnosis.unknown),
        "notes": _notes(diagnosis),
        "steps": _steps(diagnosis.lead),
        "bisection": _bisection(diagnosis.finding, diagnosis.lead),
        "contradictions": [{"text": c.text, "signals": list(c.signals)} for c in diagnosis.verdict.contradictions],
        "conflicts": [
            {"signal": c.kept.name, "used": c.kept.value, "source": c.kept.source,
             "not_used": c.other.value, "other_source": c.other.source} for c in diagnosis.signals.conflicts],
        "evidence": [
            {"path": e.path, "kind": e.kind, "events": e.events, "skipped": e.skipped, "notes": list(e.notes)}
            for e in diagnosis.evidence],
        "others": [
            {"path": o.path, "verdict": _verdict(o.verdict), "signals": _signals(o.signals)} for o in diagnosis.others],
    }


def _notes(diagnosis: Diagnosis) -> list[str]:
    """What the walk of the trace and the telemetry say beside their figures, once each."""
    walked = diagnosis.lead.notes if diagnosis.lead else ()
    return list(dict.fromkeys((*walked, *diagnosis.measured.notes)))


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "level": str(verdict.level), "id": verdict.id, "title": verdict.title, "summary": verdict.summary,
        "next": verdict.next, "fix": verdict.fix, "verify": verdict.verify,
        "ruled_out": [{"id": r.id, "why": r.why} for r in verdict.ruled_out],
    }


def _hypothesis(hypothesis: Hypothesis) -> dict[str, Any]:
    return {
        "id": hypothesis.id, "title": hypothesis.title, "score": hypothesis.score, "share": hypothesis.share,
        "share_of": hypothesis.share_of or None,
        "for": [_reason(r) for r in hypothesis.for_], "against": [_reason(r) for r in hypothesis.against],
        "missing": list(hypothesis.missing), "confirmed_by": hypothesis.confirmed_by,
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"text": reason.text, "signals": list(reason.signals), "weight": reason.weight, "source": reason.source}


def _signals(signals: Signals) -> dict[str, Any]:
    return {name: {"value": s.value, "unit": s.unit, "how": s.how, "window": s.window, "source": s.source}
            for name, s in signals.items()}


def _steps(walked: Walk | None) -> dict[str, Any]:
    """Milliseconds from the trace's first event; `busy_ms` is of the busiest device, `devices` holds them all.

    Where the trace holds no device work the recorded busy time is 0.0, and `unknown` says why there is no
    `device.busy_fraction`. `capture` is about everything recorded, also what lies outside the steps."""
    if walked is None:
        return {"method": None, "detail": "", "notes": [], "list": [], "devices": [], "capture": None}
    busiest, several = walked.busiest, len(walked.devices) > 1
    rows = []
    for i, step in enumerate(walked.steps.steps):
        row: dict[str, Any] = {
            "name": step.name, "start_ms": step.start / NS_PER_MS, "wall_ms": step.wall / NS_PER_MS,
            "busy_ms": int(busiest.busy[i]) / NS_PER_MS if busiest else 0.0, "phase": step.phase}
        if several:
            row["devices"] = {d.device: int(d.busy[i]) / NS_PER_MS for d in walked.devices}
        rows.append(row)
    recorded = int((busiest.busy_end - busiest.busy_start).sum()) if busiest else 0
    return {"method": walked.steps.method, "detail": walked.steps.detail, "notes": list(walked.steps.notes),
            "list": rows, "devices": [_device(d) for d in walked.devices],
            "capture": {"span_ms": walked.trace.span / NS_PER_MS, "busy_ms": recorded / NS_PER_MS}}


def _device(use: DeviceUse) -> dict[str, Any]:
    idle: dict[Cause, int] = use.gaps.by_cause()
    return {
        "device": use.device,
        **{f"{part}_ms": int(getattr(use, part).sum()) / NS_PER_MS for part in ("busy", "compute", "copy", "comm")},
        "idle_ms": {str(cause): ns / NS_PER_MS for cause, ns in idle.items()},
    }


def _bisection(finding: Finding | None, walked: Walk | None) -> dict[str, Any]:
    if finding is None or walked is None:
        return {"path": [], "share": None, "findings": []}
    return {"path": [level.name for level in finding.path], "share": finding.share, **_finding(finding),
            "findings": [_finding(f) | {"path": [level.name for level in f.path], "share": f.share}
                         for f in walked.findings]}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "about": finding.about, "name": finding.name, "total_share": finding.total_share, "spread": finding.spread,
        "calls_per_step": finding.calls_per_step, "line": finding.line, "step_ms": finding.step_ms,
        "step_without_ms": finding.step_without_ms, "others": [list(o) for o in finding.others],
        "levels": [{"name": v.name, "kind": v.kind, "share": v.share, "device_ms": v.device_ms,
                    "host_self_ms": v.host_self_ms} for v in finding.path],
    }

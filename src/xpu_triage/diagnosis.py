"""From evidence to a diagnosis: find it, read it, walk it, judge it. The only place that knows all the parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import fingerprints, telemetry
from .at_hand import at_hand
from .baseline.commands import load as load_baseline
from .contradictions import contradictions
from .errors import UnusableInput
from .evidence import telemetry_readers
from .evidence.ascend.tables import Summary
from .evidence.sheet import SheetEvidence
from .evidence.watch_record import WatchRecord
from .gathering import EvidenceRecord, Progress, parts
from .redact_evidence import as_asked
from .roofline import devices
from .roofline import measure as roofline_of
from .roofline.model_shape import ModelShape
from .samples import Telemetry
from .signals import Signals
from .steps import stages
from .steps.results import Finding, Walk
from .steps.walk import walk
from .telemetry.measured import Measured, joined
from .trace import Trace
from .verdict import Level, Verdict, judge

if TYPE_CHECKING:
    from .baseline.against import Against
    from .baseline.store import Baseline

__all__ = ["LEVELS", "Diagnosis", "EvidenceRecord", "OtherTrace", "Progress", "diagnose"]

LEVELS = (Level.NOT_ENOUGH, Level.PROBABLE, Level.CONFIRMED)


@dataclass(frozen=True)
class OtherTrace:
    """A trace beside the one that leads the walk: its own verdict, so that a disagreement shows."""

    path: str
    verdict: Verdict
    signals: Signals


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Everything that the terminal, the notebook, the report and the JSON show."""

    verdict: Verdict
    signals: Signals
    evidence: tuple[EvidenceRecord, ...]
    lead: Walk | None = None
    """The walk of the trace that the verdict rests on; None where there is no trace."""
    finding: Finding | None = None
    """The bisection that the verdict points to, else the largest."""
    others: tuple[OtherTrace, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)
    """What was read beside traces and sheets."""
    measured: Measured = field(default_factory=Measured)
    """What the telemetry says."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Signals that the evidence at hand should give and cannot, each with the reason."""
    platform: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 for a verdict, 3 for not enough evidence."""
        return 3 if self.verdict.level is Level.NOT_ENOUGH else 0


def diagnose(*evidence: str | PathLike[str], progress: Progress | None = None,
             baseline: str | PathLike[str] | None = None) -> Diagnosis:
    """Read all pieces of evidence (files or folders), walk the three steps and judge; against what the same service did
    while it was well, where a `baseline` is given.

    Raises `UnusableInput` where a piece that was named cannot be read. A file inside a folder that cannot be read is
    noted beside the others.
    """
    if not evidence:
        raise UnusableInput("no evidence given", todo="Name a trace, a sheet, or a folder of them")
    kept = load_baseline(Path(baseline)) if baseline else None
    pages = fingerprints.load()
    records: list[EvidenceRecord] = []
    sheets: list[SheetEvidence] = []
    sampled: list[telemetry_readers.Read] = []
    shapes: list[ModelShape] = []
    summaries: list[Summary] = []
    traces = _Traces(pages)
    for part in parts(evidence, records, progress):
        match part:
            case Trace():
                traces.add(walk(part))
            case SheetEvidence():
                sheets.append(part)
            case ModelShape():
                shapes.append(part)
            case Summary():
                summaries.append(part)
            case _:
                sampled.append(part)
        del part  # a trace is large: only the walk that leads keeps it
    lead = traces.lead
    if not sheets and not summaries and lead is None and all(isinstance(read, WatchRecord) for read in sampled):
        raise UnusableInput("no usable evidence", where=", ".join(fspath(piece) for piece in evidence), todo="; ".join(
            note for record in records for note in record.notes) or "Name a trace, telemetry or a sheet beside it")
    gathered = telemetry_readers.gathered(sampled)
    told = (Measured(tuple(each.signals), each.unknown, tuple(each.notes)) for each in summaries)
    device, why = devices.from_evidence(traces.metas, gathered.samples) if shapes or kept else (None, "")
    held = _against(kept, gathered, device) if kept is not None else None
    measured = joined((*told, telemetry.measure(gathered, held.speaks if held is not None else None)))
    typed = [signal for each in sheets for signal in each.signals]
    signals = Signals((*(lead.signals if lead else ()), *measured.signals, *typed))
    measured = joined((measured, *_derived(signals, lead, shapes, (device, why), gathered, kept, held)))
    signals = Signals((*(lead.signals if lead else ()), *measured.signals, *typed))
    unknown = {**measured.unknown, **(lead.unknown if lead else {})}
    given = at_hand(gathered, [lead.trace.format] if lead else [], _typed(sheets), unknown,
                    [read.server for read in sampled if isinstance(read, WatchRecord)])
    judged = judge(signals, pages, contradictions(signals), given, lead.next if lead else "")
    verdict = _since(_told(judged, lead), held)
    return Diagnosis(
        verdict=verdict,
        signals=signals,
        evidence=tuple(records),
        lead=lead,
        finding=_pointed_at(verdict, lead, pages),
        others=tuple(traces.others),
        telemetry=gathered,
        measured=measured,
        unknown={name: why for name, why in unknown.items() if name not in signals},
        platform={key: text for each in sheets for key, text in each.platform.items()},
    )


def _typed(sheets: Sequence[SheetEvidence]) -> Iterator[str]:
    """What was typed of the platform."""
    return (text for sheet in sheets for text in sheet.platform.values())


def _against(kept: Baseline, gathered: Telemetry, device: devices.Device | None) -> Against:
    """What a baseline needs is loaded where there is one."""
    from .baseline.against import against

    return against(kept, gathered.benches, device=device.name if device else "")


def _derived(signals: Signals, lead: Walk | None, shapes: Sequence[ModelShape], on: tuple[devices.Device | None, str],
             gathered: Telemetry, kept: Baseline | None, held: Against | None) -> Iterator[Measured]:
    """What follows from the evidence together: the stage split of the steps, the model's roofline, the baseline. `on`:
    the device, and why it is not known."""
    device, why = on
    if lead is not None:
        yield stages.measure(lead)
    if len(shapes) > 1:
        yield Measured(notes=(f"{len(shapes)} models are described: that of {shapes[0].source} is taken",))
    if shapes:
        yield roofline_of(shapes[0], signals, device, why_no_device=why)
    if kept is not None:
        from .baseline.fold import fold

        yield as_asked(fold(kept, signals, gathered.benches, held=held))


class _Traces:
    """The walks of several traces: the one that the verdict rests on, whole, and what the others say by themselves."""

    def __init__(self, pages: Sequence[fingerprints.Fingerprint]) -> None:
        self._pages = pages
        self.lead: Walk | None = None
        self.metas: list[Mapping[str, Any]] = []
        """What each trace says about its capture."""
        self._alone: Verdict | None = None
        self.others: list[OtherTrace] = []

    def add(self, walked: Walk) -> None:
        self.metas.append(walked.trace.meta)
        alone = _alone(walked, self._pages)
        if self.lead is None or self._alone is None:
            self.lead, self._alone = walked, alone
            return
        if _leads(walked, alone) > _leads(self.lead, self._alone):
            self.lead, self._alone, walked, alone = walked, alone, self.lead, self._alone
        self.others.append(OtherTrace(walked.trace.source, alone, Signals(walked.signals)))


def _alone(walked: Walk, pages: Sequence[fingerprints.Fingerprint]) -> Verdict:
    """What this trace says by itself."""
    signals = Signals(walked.signals)
    return _told(judge(signals, pages, contradictions(signals), capture=walked.next), walked)


def _leads(walked: Walk, alone: Verdict) -> tuple[int, bool, bool, float, float]:
    """Which of several traces the verdict rests on: the one that says most by itself, with device work, with named
    steps; then the rank that the others wait for (least time in exchanges), then the one with most idle to explain."""
    values = {signal.name: signal.value for signal in walked.signals}

    def share(*names: str) -> float:
        return sum(float(values.get(name) or 0.0) for name in names)

    return (LEVELS.index(alone.level), bool(walked.devices), walked.steps.method == "annotation",
            -round(share("device.comm_fraction", "idle.peer_wait_fraction"), 2), -share("device.busy_fraction"))


def _told(verdict: Verdict, lead: Walk | None) -> Verdict:
    """The verdict, with the walk's own word for why there is no device work: a CPU run, a rank that launched nothing
    and events that were dropped are three different things."""
    why = "" if lead is None or lead.devices else lead.unknown.get("device.busy_fraction", "")
    if not why:
        return verdict
    return replace(verdict, summary=f"{why[0].upper()}{why[1:]}. {verdict.summary}")


def _since(verdict: Verdict, held: Against | None) -> Verdict:
    """Where no cause can be named, what the baseline knows: that it is slower, and in which dimension."""
    if held is None or verdict.level is not Level.NOT_ENOUGH or not held.says:
        return verdict
    return replace(verdict, summary=f"{held.says} {verdict.summary}")


def _pointed_at(verdict: Verdict, lead: Walk | None, pages: Sequence[fingerprints.Fingerprint]) -> Finding | None:
    if lead is None or not lead.findings:
        return None
    first = verdict.id or (verdict.hypotheses[0].id if verdict.hypotheses else None)
    wanted = next((page.finding for page in pages if page.id == first), ())
    return next((found for about in wanted if (found := lead.finding(about))), lead.findings[0])

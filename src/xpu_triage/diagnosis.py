"""From evidence to a diagnosis: find it, read it, walk it, judge it. The only place that knows all the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path

from . import fingerprints, telemetry
from .baseline.records import BenchRecord
from .contradictions import contradictions
from .errors import UnusableInput
from .evidence import detect, kineto, sheet, telemetry_readers
from .evidence.watch_record import WatchRecord
from .samples import EngineLog, Samples, Scrape, Stacks, Telemetry
from .signals import Signal, Signals
from .steps.results import Finding, Walk
from .steps.walk import walk
from .telemetry.measured import Measured
from .trace import Trace
from .verdict import Level, Verdict, judge

Progress = Callable[[str, int, int], None]
"""Called with (path, bytes read, bytes in all) while a long file is read."""


LEVELS = (Level.NOT_ENOUGH, Level.PROBABLE, Level.CONFIRMED)


@dataclass(frozen=True)
class EvidenceRecord:
    """What became of one piece of evidence."""

    path: str
    kind: str
    events: int = 0
    """Events in the file; figures in a sheet; readings, samples, requests, lines with figures in telemetry."""
    skipped: int = 0
    """Those that could not be placed, decoded or matched."""
    notes: tuple[str, ...] = ()


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


def diagnose(*evidence: str | PathLike[str], progress: Progress | None = None) -> Diagnosis:
    """Read all pieces of evidence (files or folders), walk the three steps and judge.

    Raises `UnusableInput` where a piece that was named cannot be read. A file inside a folder that cannot be read is
    noted beside the others.
    """
    if not evidence:
        raise UnusableInput("no evidence given", todo="Name a trace, a sheet, or a folder of them")
    pages = fingerprints.load()
    records: list[EvidenceRecord] = []
    typed: list[Signal] = []
    platform: dict[str, str] = {}
    sampled: list[telemetry_readers.Read] = []
    traces = _Traces(pages)
    for piece, from_folder in _pieces(evidence, records):
        path = str(piece.path)
        try:
            if piece.kind == "sheet":
                read = sheet.read(piece.path)
                typed += read.signals
                platform.update(read.platform)
                records.append(EvidenceRecord(path, "sheet", len(read.signals), 0, tuple(read.notes)))
            elif piece.reader is not None:
                sampled.append(piece.reader.read(piece.path))
                records.append(_sampled(path, piece.kind, sampled[-1]))
            else:
                trace = kineto.read(piece.path, progress=_for(path, progress))
                records.append(_record(path, trace))
                traces.add(walk(trace))
                del trace  # the table is let go: memory follows one trace
        except UnusableInput as error:
            if not from_folder:
                raise
            records.append(EvidenceRecord(path, piece.kind, notes=(f"not used: {error}",)))
    lead = traces.lead
    if not typed and lead is None and all(isinstance(read, WatchRecord) for read in sampled):
        raise UnusableInput("no usable evidence", where=", ".join(fspath(piece) for piece in evidence), todo="; ".join(
            note for record in records for note in record.notes))
    gathered = telemetry_readers.gathered(sampled)
    measured = telemetry.measure(gathered)
    signals = Signals((*(lead.signals if lead else ()), *measured.signals, *typed))
    verdict = _told(judge(signals, pages, contradictions(signals)), lead)
    unknown = {**measured.unknown, **(lead.unknown if lead else {})}
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
        platform=platform,
    )


class _Traces:
    """The walks of several traces: the one that the verdict rests on, whole, and what the others say by themselves."""

    def __init__(self, pages: Sequence[fingerprints.Fingerprint]) -> None:
        self._pages = pages
        self.lead: Walk | None = None
        self._alone: Verdict | None = None
        self.others: list[OtherTrace] = []

    def add(self, walked: Walk) -> None:
        alone = _alone(walked, self._pages)
        if self.lead is None or self._alone is None:
            self.lead, self._alone = walked, alone
            return
        if _leads(walked, alone) > _leads(self.lead, self._alone):
            self.lead, self._alone, walked, alone = walked, alone, self.lead, self._alone
        self.others.append(OtherTrace(walked.trace.source, alone, Signals(walked.signals)))


def _pieces(
    evidence: Sequence[str | PathLike[str]], records: list[EvidenceRecord]
) -> Iterator[tuple[detect.Found, bool]]:
    """Every piece once, with whether it was found in a folder. What a folder holds and nobody can read is recorded."""
    seen: set[Path] = set()
    for given in evidence:
        found = detect.find(given)
        for piece in found:
            if (real := piece.path.resolve()) in seen:
                continue
            seen.add(real)
            if piece.skipped:
                records.append(EvidenceRecord(str(piece.path), piece.kind, notes=(f"not used: {piece.skipped}",)))
            else:
                yield piece, Path(given).is_dir()


def _for(path: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(path, done, total)


def _record(path: str, trace: Trace) -> EvidenceRecord:
    counts = trace.counts
    return EvidenceRecord(path, trace.format, counts.events, counts.unplaced + counts.unreadable + counts.unmatched,
                          trace.notes)


def _sampled(path: str, kind: str, read: telemetry_readers.Read) -> EvidenceRecord:
    parts = read if isinstance(read, tuple) else (read,)
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    tool = next((part.tool for part in parts if isinstance(part, Samples | Stacks | BenchRecord)), "")
    skipped = sum(part.failed or 0 if isinstance(part, BenchRecord) else part.skipped for part in parts)
    return EvidenceRecord(path, f"{kind}: {tool}" if tool else kind, sum(_size(part) for part in parts), skipped, notes)


def _size(part: Samples | Scrape | Stacks | EngineLog | WatchRecord | BenchRecord) -> int:
    match part:
        case BenchRecord():
            return part.completed or 0
        case WatchRecord():
            return part.samples
        case Samples():
            return part.readings
        case Scrape():
            return sum(map(len, part.values.values()))
        case Stacks():
            return sum(stack.samples for stack in part.stacks)
        case EngineLog():
            rows = (max(map(len, table.values()), default=0) for table in (part.iterations, part.stats))
            return sum(rows) + len(part.facts)


def _alone(walked: Walk, pages: Sequence[fingerprints.Fingerprint]) -> Verdict:
    """What this trace says by itself."""
    signals = Signals(walked.signals)
    return _told(judge(signals, pages, contradictions(signals)), walked)


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


def _pointed_at(verdict: Verdict, lead: Walk | None, pages: Sequence[fingerprints.Fingerprint]) -> Finding | None:
    if lead is None or not lead.findings:
        return None
    first = verdict.id or (verdict.hypotheses[0].id if verdict.hypotheses else None)
    wanted = next((page.finding for page in pages if page.id == first), ())
    return next((found for about in wanted if (found := lead.finding(about))), lead.findings[0])

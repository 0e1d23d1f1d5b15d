"""The pieces of evidence, found and read, one at a time; and what became of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from .baseline.records import BenchRecord
from .errors import UnusableInput
from .evidence import ascend, detect, kineto, nsys, sheet
from .evidence.ascend.tables import Summary
from .evidence.sheet import SheetEvidence
from .evidence.telemetry_readers import Read
from .evidence.watch_record import WatchRecord
from .redact_evidence import as_asked, asked, learn_hosts, name_pieces
from .roofline import config_json
from .roofline.model_shape import ModelShape
from .samples import EngineLog, Samples, Scrape, Stacks
from .trace import Trace

Progress = Callable[[str, int, int], None]
"""Called with (path, bytes read, bytes in all) while a long file is read."""

Part = Trace | SheetEvidence | ModelShape | Summary | Read
"""What a piece of evidence was read to."""

TRACES: dict[str, Callable[..., Trace]] = {"kineto": kineto.read, "ascend": ascend.read, "nsys": nsys.read}
"""The readers of traces by kind: `read(path, progress=…) -> Trace`."""


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


def parts(evidence: Sequence[str | PathLike[str]], records: list[EvidenceRecord], progress: Progress | None = None
          ) -> Iterator[Part]:
    """Read piece after piece, each once; what became of it is appended to `records`. Where names are to be taken out
    (`redact_evidence`) no part and no record has one.

    Raises `UnusableInput` where a piece that was named cannot be read. A file inside a folder that cannot be read is
    noted beside the others.
    """
    for piece, from_folder in _pieces(evidence, records):
        try:
            part = _read(piece, progress)
        except UnusableInput as error:
            if not from_folder:
                raise
            records.append(_unused(piece, str(error)))
            continue
        records.append(as_asked(_record(str(piece.path), piece.kind, part)))
        part = as_asked(part)
        yield part
        del part  # a trace is large: it is let go before the next is read


def _pieces(
    evidence: Sequence[str | PathLike[str]], records: list[EvidenceRecord]
) -> Iterator[tuple[detect.Found, bool]]:
    """Every piece once, with whether it was found in a folder. What a folder holds and nobody can read is recorded."""
    seen: set[str] = set()
    for top, found in _found(evidence):
        for piece in found:
            real = os.path.realpath(piece.path)  # `Path.resolve` raises at a link to itself
            if real in seen:
                continue
            seen.add(real)
            if piece.skipped:
                records.append(_unused(piece, piece.skipped))
            else:
                yield piece, piece.path != top


def _found(evidence: Sequence[str | PathLike[str]]) -> Iterator[tuple[Path, list[detect.Found]]]:
    """What lies at each of them."""
    redactor = asked()
    if redactor is None:
        yield from ((Path(os.fsdecode(given)), detect.find(given)) for given in evidence)
        return
    every = [(Path(os.fsdecode(given)), detect.find(given)) for given in evidence]
    for top, found in every:  # all of them, before one is named in a note of another
        name_pieces(redactor, [piece.path for piece in found], top)
        learn_hosts(redactor, [piece.path for piece in found])
    yield from every


def _unused(piece: detect.Found, why: str) -> EvidenceRecord:
    return as_asked(EvidenceRecord(str(piece.path), piece.kind, notes=(f"not used: {why}",)))


def _read(piece: detect.Found, progress: Progress | None) -> Part:
    """What the piece says. Raises `UnusableInput`, also for one that has gone since it was found."""
    try:
        return _part(piece, progress)
    except OSError as error:
        raise UnusableInput(detect.why(error), where=piece.path) from None


def _part(piece: detect.Found, progress: Progress | None) -> Part:
    if piece.reader is not None:
        return piece.reader.read(piece.path)
    if piece.kind == "sheet":
        return sheet.read(piece.path)
    if piece.kind == "model":
        return config_json.read(piece.path)
    if piece.kind == "ascend-summary":
        return ascend.tables.read(piece.path)
    path = str(piece.path)
    told = None if progress is None else lambda done, total: progress(path, done, total)
    try:
        return TRACES[piece.kind](piece.path, progress=told)
    except kineto.AscendTraceError:  # told by its layers, which may be named anywhere in the file
        return ascend.read(piece.path, progress=told)


def _record(path: str, kind: str, part: Part) -> EvidenceRecord:
    match part:
        case Trace():
            counts = part.counts
            left = counts.unplaced + counts.unreadable + counts.unmatched
            return EvidenceRecord(path, part.format, counts.events, left, part.notes)
        case SheetEvidence():
            return EvidenceRecord(path, "sheet", len(part.signals), 0, part.notes)
        case Summary():
            return EvidenceRecord(path, part.kind, part.rows, part.skipped, tuple(part.notes))
        case ModelShape():
            return EvidenceRecord(path, "model", part.layers, 0, part.notes)
        case _:
            return _sampled(path, kind, part)


def _sampled(path: str, kind: str, read: Read) -> EvidenceRecord:
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

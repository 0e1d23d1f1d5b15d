"""A baseline on disk: runs of one server, by load, as plain JSON with a schema version.

    {"baseline_schema": 1, "environment": {…}, "cells": [{"concurrency": 4, …, "records": [{…}]}]}

A record is a line of its own, so that two files can be compared by eye. Times of requests are kept to a microsecond.
Texts, URLs and host names of a run never get here: records have none.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..errors import UnusableInput
from ..evidence.chunks import pieces
from ..text import clean
from .doubted import units_doubted
from .records import LATENCIES, BenchRecord, Environment, Floats, Requests, Stat

SCHEMA = 1

MAX_BYTES = 512 << 20
"""Inflated bytes of one file."""

SERVER_PARTS = ("model", "engine", "engine_version", "device")
"""Of an environment, what has to be one in a file. Clients may differ."""

_COLUMNS = {"ttft_ms": 3, "e2e_ms": 3, "tpot_ms": 3, "prompt_tokens": 0, "output_tokens": 0, "start_s": 6}
"""Of the requests, and the decimals that are kept."""


class Cell(NamedTuple):
    """A load. None: unknown, or (concurrency, request_rate) not what was set."""

    concurrency: float | None
    request_rate: float | None
    prompt_tokens: float | None
    output_tokens: float | None


@dataclass(frozen=True, eq=False)
class Baseline:
    environment: Environment
    """What the records know about the server, put together."""
    records: tuple[BenchRecord, ...]
    source: str = ""
    recorded: str = ""
    """When, as whoever recorded it wrote it."""

    @property
    def cells(self) -> dict[Cell, tuple[BenchRecord, ...]]:
        """Records by load, smallest load first."""
        found: dict[Cell, list[BenchRecord]] = {}
        for record in sorted(self.records, key=lambda record: _order(cell_of(record))):
            found.setdefault(cell_of(record), []).append(record)
        return {cell: tuple(records) for cell, records in found.items()}


def cell_of(record: BenchRecord) -> Cell:
    return Cell(record.concurrency, record.request_rate, record.prompt_tokens, record.output_tokens)


def matches(head: str) -> bool:
    """Whether a text that begins like this is such a file."""
    return head.lstrip()[:1] == "{" and '"baseline_schema"' in head[:1000]


def baseline(records: Sequence[BenchRecord], *, source: str = "", recorded: str = "") -> Baseline:
    """Records of one server. Raises UnusableInput where what they know about it differs, or where there is none."""
    if not records:
        raise UnusableInput("no run to keep", where=source, todo="Give result files with completed requests")
    together = Environment()
    for record in records:
        if why := units_doubted(record):
            raise UnusableInput(why, where=record.source or source, todo="Give the file as its tool wrote it")
        for part in SERVER_PARTS:
            known, new = getattr(together, part), getattr(record.environment, part)
            if known and new and known != new:
                raise UnusableInput(f"runs of two servers: {part} {known} and {new}", where=record.source or source,
                                    todo="Keep a file for each")
            together = replace(together, **{part: known or new})
    clients = {(record.environment.client, record.environment.client_version) for record in records}
    if len(clients) == 1:
        client, version = clients.pop()
        together = replace(together, client=client, client_version=version)
    return Baseline(together, tuple(records), source, recorded)


def save(path: str | PathLike[str], records: Sequence[BenchRecord], *, recorded: str = "") -> None:
    """Write a file that `load` reads; one that is there is replaced, and is whole at any moment. Raises UnusableInput
    where the records are of two servers, where there is none, or where nothing can be written."""
    path = Path(path)
    content = _text(baseline(records, source=str(path), recorded=recorded))
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UnusableInput(f"cannot be written: {error.strerror or error}", where=path) from None


def load(path: str | PathLike[str]) -> Baseline:
    """Read a file of `save`. Raises UnusableInput for another schema version, a damaged file, and what is none."""
    path = Path(path)
    content = _content(path)
    try:
        schema = msgspec.json.decode(content, type=_Schema).baseline_schema
        if schema != SCHEMA:
            raise UnusableInput(f"baseline_schema {schema} is not known", where=path,
                                todo=f"This version reads {SCHEMA}: record or import again")
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnusableInput(f"no baseline: {error}", where=path,
                            todo="Write one with xpu-triage baseline record or import") from None
    records = [_read(cell, record, path) for cell in file.cells for record in cell.records]
    return baseline(records, source=str(path), recorded=clean(file.recorded))


class _Schema(msgspec.Struct):
    baseline_schema: int


class _Requests(msgspec.Struct):
    ttft_ms: list[float | None]
    e2e_ms: list[float | None]
    tpot_ms: list[float | None]
    prompt_tokens: list[float | None]
    output_tokens: list[float | None]
    start_s: list[float | None]
    itl_ms: list[list[float]] = []


class _Record(msgspec.Struct):
    tool: str
    latencies: dict[str, dict[str, float | None]] = {}
    environment: dict[str, str] = {}
    duration_s: float | None = None
    completed: int | None = None
    failed: int | None = None
    output_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    invalid_ttft: int = 0
    definitions: list[str] = []
    notes: list[str] = []
    extra: dict[str, float] = {}
    requests: _Requests | None = None


class _Cell(msgspec.Struct):
    records: list[_Record]
    concurrency: float | None = None
    request_rate: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None


class _File(msgspec.Struct):
    cells: list[_Cell]
    recorded: str = ""


def _content(path: Path) -> bytes:
    content = bytearray()
    notes: list[str] = []
    try:
        for piece in pieces(path, notes):
            content += piece
            if len(content) > MAX_BYTES:
                raise UnusableInput(f"more than {MAX_BYTES >> 20} MiB for a baseline", where=path)
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    if notes:
        raise UnusableInput(notes[0], where=path, todo="Copy the file again")
    return bytes(content.removeprefix(b"\xef\xbb\xbf"))


def _read(cell: _Cell, record: _Record, path: Path) -> BenchRecord:
    known = {one.name for one in fields(Environment)}
    environment = Environment(**{part: clean(text) for part, text in record.environment.items() if part in known})
    return BenchRecord(
        source=str(path), tool=clean(record.tool), environment=environment, concurrency=cell.concurrency,
        request_rate=cell.request_rate, prompt_tokens=cell.prompt_tokens, output_tokens=cell.output_tokens,
        latencies={latency: _stat(figures) for latency, figures in record.latencies.items() if latency in LATENCIES},
        duration_s=record.duration_s, completed=record.completed, failed=record.failed,
        output_tokens_per_s=record.output_tokens_per_s, requests_per_s=record.requests_per_s,
        prompt_tokens_per_s=record.prompt_tokens_per_s, invalid_ttft=record.invalid_ttft,
        requests=_requests(record.requests, path), definitions=tuple(map(clean, record.definitions)),
        notes=tuple(map(clean, record.notes)), extra={clean(name): value for name, value in record.extra.items()})


def _stat(figures: Mapping[str, float | None]) -> Stat:
    n = figures.get("n")
    return Stat(figures.get("mean"), figures.get("p50"), figures.get("p90"), figures.get("p99"),
                None if n is None else round(n), figures.get("max"))


def _requests(columns: _Requests | None, path: Path) -> Requests | None:
    if columns is None:
        return None
    sizes = {len(getattr(columns, name)) for name in _COLUMNS}
    if len(sizes) > 1 or (columns.itl_ms and {len(columns.itl_ms)} != sizes):
        raise UnusableInput("no baseline: the columns of its requests have different lengths", where=path,
                            todo="Write one with xpu-triage baseline record or import")
    found = {name: np.array([np.nan if one is None else one for one in getattr(columns, name)], dtype=float)
             for name in _COLUMNS}
    return Requests(**found, itl_ms=tuple(np.array(gaps, dtype=float) for gaps in columns.itl_ms))


def _text(kept: Baseline) -> str:
    """The file: a record a line."""
    cells = []
    for cell, records in kept.cells.items():
        load = json.dumps(_plain(cell._asdict()))[:-1]
        cells.append(f'{load}, "records": [\n' + ",\n".join(_compact(_written(record)) for record in records) + "\n]}")
    return (f'{{"baseline_schema": {SCHEMA}, "recorded": {json.dumps(kept.recorded)},\n'
            f'"environment": {json.dumps(_filled(asdict(kept.environment)))},\n"cells": [\n' + ",\n".join(cells)
            + "\n]}\n")


def _written(record: BenchRecord) -> dict[str, Any]:
    """What of a record its cell does not say."""
    figures = {"tool": record.tool, "environment": _filled(asdict(record.environment)),
               "latencies": {latency: _filled(asdict(stat)) for latency, stat in record.latencies.items()},
               "definitions": record.definitions, "notes": record.notes, "extra": dict(record.extra)}
    for name in ("duration_s", "completed", "failed", "output_tokens_per_s", "requests_per_s", "prompt_tokens_per_s",
                 "invalid_ttft"):
        figures[name] = getattr(record, name)
    if record.requests is not None:
        requests = record.requests
        figures["requests"] = {
            **{name: _column(getattr(requests, name), digits) for name, digits in _COLUMNS.items()},
            "itl_ms": [_column(gaps, 3) for gaps in requests.itl_ms]}
    return _filled(_plain(figures))


def _column(values: Floats, digits: int) -> list[float | None]:
    return [None if math.isnan(value) else (int(value) if value.is_integer() else value)
            for value in np.round(values, digits).tolist()]


def _filled(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is unknown or empty."""
    return {name: value for name, value in figures.items() if value not in (None, "", (), {}, [])}


def _plain(value: Any) -> Any:
    """Numbers that JSON has: what is not finite is unknown, what is whole is written so."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return None if not math.isfinite(value) else (int(value) if value.is_integer() else value)
    return value


def _compact(figures: Mapping[str, Any]) -> str:
    return json.dumps(figures, separators=(",", ":"), ensure_ascii=False)


def _order(cell: Cell) -> tuple[float, ...]:
    return tuple(-1.0 if part is None else part for part in cell)

"""Profiles of Ascend NPUs: text and databases of torch_npu's profiler and of msprof, at every level.

    read(path)        a Trace of trace_view.json, of a database, or of kernel_details.csv alone
    tables.read(path) plain signals of a summary whose trace is lost
    members(files)    which files of a folder are one run, and which of them is read for it
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from ...errors import UnusableInput
from ...trace import Trace
from ..chunks import Progress
from ..sqlite_file import MAGIC
from . import about, assemble, cores, csv_table, database, tables, trace_view

TRACE, DATABASE, OPERATIONS, SUMMARY = "trace_view.json", "database", "kernel_details.csv", "summary"
_ORDER = (TRACE, DATABASE, OPERATIONS)
_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_PART = re.compile(r"PROF_\d|device_\d+$")
_SLICE = re.compile(r"_slice_\d+")
_SNIFFED = 1 << 16


def kind_of(path: Path, head: bytes) -> str:
    """What a file that begins with `head` is: TRACE for JSON of trace events (its layers are looked for when it is
    read), DATABASE, OPERATIONS, SUMMARY; empty for nothing of Ascend's. Raises OSError where it cannot be read."""
    if head.startswith(MAGIC):
        return DATABASE if database.is_profile(path) else ""
    text = head[:_SNIFFED].decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    if text.startswith("[") or (text.startswith("{") and '"traceEvents"' in text):
        return TRACE
    columns = csv_table.header(text)
    if cores.is_table(columns) and any(name in columns for name in cores.CORE):
        return OPERATIONS
    return SUMMARY if tables.kind_of(columns) else ""


def read(path: str | PathLike[str], *, progress: Progress | None = None) -> Trace:
    """The trace in `path`: a file, or the folder of one run.

    Raises UnusableInput where there is nothing to work with."""
    path = Path(path)
    try:
        if path.is_dir():
            path = _lead_of(path)
        with path.open("rb") as file:
            head = file.read(_SNIFFED)
        if not head:
            raise UnusableInput("empty", where=path, todo=trace_view.TODO)
        kind = kind_of(path, head)
        if kind == DATABASE or head.startswith(MAGIC):
            return assemble.trace(path, database.read(path), about.of(path, DATABASE))
        if kind == OPERATIONS:
            return assemble.trace(path, cores.read(path), about.of(path, OPERATIONS))
        if kind == SUMMARY:
            raise UnusableInput("a summary without times of single operations, so no trace", where=path)
        return assemble.trace(path, trace_view.read(path, progress), about.of(path, TRACE))
    except FileNotFoundError:
        raise UnusableInput("no such file", where=path, todo="Check the path") from None
    except PermissionError:
        raise UnusableInput("no permission to read it", where=path, todo="Check its owner and mode") from None
    except OSError as error:
        raise UnusableInput(f"cannot be read ({error.strerror or error})", where=path) from None


def members(files: Iterable[tuple[Path, str]]) -> dict[Path, Path]:
    """For files of Ascend kinds (path, kind) the file that is read in their stead: itself for the one that leads its
    run. The trace leads, else the database, else the operations; the others say the same again, except for the slices
    that msprof cuts a long trace into. Summaries that no trace or database lies beside stand for themselves."""
    runs: dict[Path, list[tuple[Path, str]]] = {}
    for path, kind in files:
        runs.setdefault(_run_of(path), []).append((path, kind))
    out: dict[Path, Path] = {}
    for found in runs.values():
        kinds = dict(found)
        leads = sorted((path for path in kinds if kinds[path] in _ORDER),
                       key=lambda path: (_ORDER.index(kinds[path]), path.parent.name != _OUTPUT, path))
        for path, kind in found:
            lead = leads[0] if leads else path
            own = kind == SUMMARY and not {TRACE, DATABASE} & set(kinds.values())
            own |= kind == kinds[lead] and bool(_SLICE.search(path.name) and _SLICE.search(lead.name))
            out[path] = path if own else lead
    return out


def _run_of(path: Path) -> Path:
    """The folder of the run that a file belongs to: torch_npu's or MindSpore's, which holds what msprof wrote below it;
    else what msprof wrote of one device, or of one process; else the folder that it lies in."""
    above = path.absolute().parents
    whole = [folder for folder in above if folder.name.endswith(about.RUN)]
    part = [folder for folder in above if _PART.match(folder.name)]
    return (whole[-1:] or part[:1] or [path.absolute().parent])[0]


def _lead_of(folder: Path) -> Path:
    """The file that is read for the run in a folder, or in its ASCEND_PROFILER_OUTPUT."""
    for place in (folder, folder / _OUTPUT):
        files = sorted(path for path in place.iterdir() if path.is_file()) if place.is_dir() else []
        found = []
        for path in files:
            with path.open("rb") as file:
                head = file.read(_SNIFFED)
            kind = kind_of(path, head)
            if kind and kind != SUMMARY and not (kind == TRACE and b'"ph"' not in head):
                found.append((path, kind))
        leads = [path for wanted in _ORDER for path, kind in found if kind == wanted]
        if leads:
            return leads[0]
    raise UnusableInput("no trace_view.json, no database and no kernel_details.csv in this folder", where=folder,
                        todo="If it holds PROF_* and FRAMEWORK, run torch_npu.profiler.profiler.analyse on it first")


__all__ = ["DATABASE", "OPERATIONS", "SUMMARY", "TRACE", "kind_of", "members", "read", "tables"]

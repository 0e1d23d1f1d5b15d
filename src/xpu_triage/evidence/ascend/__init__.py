"""Profiles of Ascend NPUs: text and databases of torch_npu's profiler and of msprof, at every level.

    read(path)        a Trace of trace_view.json, of a database, or of kernel_details.csv alone
    tables.read(path) plain signals of a summary whose trace is lost
    members(files)    which files of a folder are one run, and which of them is read for it
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from ...errors import UnusableInput
from ...trace import Trace
from ..chunks import Progress
from . import about, assemble, cores, csv_table, database, tables, trace_view
from .sqlite_file import MAGIC, opened

TRACE, DATABASE, OPERATIONS, SUMMARY = "trace_view.json", "database", "kernel_details.csv", "summary"
_ORDER = (TRACE, DATABASE, OPERATIONS)
_SNIFFED = 1 << 16


def kind_of(path: Path, head: bytes) -> str:
    """What a file that begins with `head` is: TRACE for a JSON list (its layers are looked for when it is read),
    DATABASE, OPERATIONS, SUMMARY; empty for nothing of Ascend's. Raises OSError where it cannot be read."""
    if head.startswith(MAGIC):
        try:
            with opened(path) as found:
                return DATABASE if database.is_profile(found) else ""
        except UnusableInput:
            return ""
    text = head[:_SNIFFED].decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    if text.startswith("["):
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
    """For files of Ascend kinds (path, kind) the file that is read in their stead, by folder: itself for the one that
    leads its run. The trace leads, else the database, else the operations; the others say the same again. Summaries
    that no trace or database lies beside stand for themselves."""
    by_folder: dict[Path, list[tuple[Path, str]]] = {}
    for path, kind in files:
        by_folder.setdefault(path.parent, []).append((path, kind))
    out: dict[Path, Path] = {}
    for found in by_folder.values():
        leads = [path for wanted in _ORDER for path, kind in found if kind == wanted]
        kinds = {kind for _, kind in found}
        for path, kind in found:
            own = not leads or (kind == SUMMARY and not kinds & {TRACE, DATABASE})
            out[path] = path if own else leads[0]
    return out


def _lead_of(folder: Path) -> Path:
    """The file that is read for the run in a folder, or in its ASCEND_PROFILER_OUTPUT."""
    for place in (folder, folder / "ASCEND_PROFILER_OUTPUT"):
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

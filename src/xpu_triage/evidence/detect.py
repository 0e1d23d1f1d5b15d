"""What kind of evidence a path is, told by its content.

To add a reader, add a line to FORMATS: a kind, a test on the first bytes, and no refusal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path

from ..errors import UnusableInput
from ..roofline import config_json
from . import ascend, lines, nsys
from .chunks import is_gzip, pieces
from .telemetry_readers import READERS, Reader

SNIFFED = 1 << 18
"""Inflated bytes of a file that are looked at. (What a trace says about its capture can fill 100 KB.)"""

MAX_DEPTH = 8
MAX_FILES = 5000
"""Levels of folders, and files of one folder, that are looked at; what lies beyond is listed as skipped."""

KNOWN = ("a profiler trace, SMI output, a /metrics dump, a py-spy dump, an engine log, a benchmark's result, a model's "
         "config.json or an evidence sheet (.yaml), or a folder of them")


@dataclass(frozen=True)
class Found:
    path: Path
    kind: str
    """`kineto`, `sheet` or a kind of telemetry; a format that is recognised but not read has its own name; else
    `unknown`."""
    reader: Reader | None = None
    """Of telemetry."""
    skipped: str = ""
    """Why it cannot be used; empty where it can. Only what a folder holds is skipped, a file alone is
    refused."""


@dataclass(frozen=True, eq=False)
class _Head:
    """The beginning of a file, as far as it is needed to tell what it is."""

    path: Path
    content: bytes
    """Inflated, without a byte-order mark or white space in front."""
    whole: bool
    """The file has no more."""

    @cached_property
    def text(self) -> str:
        return lines.head_text(self.content)

    @property
    def is_text(self) -> bool:
        return lines.is_text(self.content)

    def has(self, pattern: bytes) -> bool:
        return re.search(pattern, self.content) is not None


@dataclass(frozen=True)
class _Format:
    kind: str
    matches: Callable[[_Head], bool]
    refusal: str = ""
    """What it is and what to do; empty where a reader exists."""
    reader: Reader | None = None
    """Of telemetry."""


def _is_ascend(head: _Head) -> bool:
    """A list whose processes are the layers of the Ascend profiler; they may be named anywhere in the
    file."""
    if not head.content.startswith(b"[") or not head.has(rb'"ts"\s*:\s*"'):
        return False
    layer = re.compile(rb'"name"\s*:\s*"(Ascend Hardware|CANN)"')
    before = b""
    for piece in pieces(head.path, []):
        if layer.search(before + piece):
            return True
        before = piece[-64:]
    return False


def _is_kineto(head: _Head) -> bool:
    if head.content.startswith(b"["):
        return head.has(rb'"ph"\s*:')
    return head.content.startswith(b"{") and (head.has(rb'(?<!\\)"traceEvents"\s*:\s*\[') or (
        not head.whole and head.has(rb'"(deviceProperties|distributedInfo|schemaVersion)"\s*:')))


def _is_diagnosis(head: _Head) -> bool:
    return head.content.startswith(b"{") and head.has(rb'"schema"\s*:') and head.has(rb'"hypotheses"\s*:')


def _is_sheet(head: _Head) -> bool:
    if head.content.startswith(b"{"):
        return head.is_text and head.has(rb"""[{,]\s*["']?(signals|schema)["']?\s*:""")
    return head.is_text and head.has(rb"""(?m)^["']?(signals|schema)["']?\s*:""")


def _is_archive(head: _Head) -> bool:
    return head.content[:4] == b"PK\3\4" or head.content[257:262] == b"ustar"


def _starts(*magic: bytes) -> Callable[[_Head], bool]:
    return lambda head: head.content.startswith(magic)


def _of_ascend(head: _Head) -> str:
    return ascend.kind_of(head.path, head.content)


def _is_csv(head: _Head) -> bool:
    return head.is_text and "," in head.text.partition("\n")[0]


def _of(reader: Reader) -> Callable[[_Head], bool]:
    return lambda head: head.is_text and reader.matches(head.text)


_DATABASE = b"SQLite format 3\0"
_SQLITE = "an SQLite database of no profiler that is read (Ascend's and Nsight Systems' are)"
_NSIGHT = "an Nsight Systems report, which only nsys itself reads. Export it: nsys export --type sqlite"
_ARCHIVE = "an archive. Unpack it and give what is in it"
_PACKED = "compressed in a way that is not read. Unpack it, or pack it with gzip"
_OURS = "the JSON of an earlier diagnosis. Give the evidence that it was made from"

FORMATS: tuple[_Format, ...] = (
    _Format("ascend", lambda head: head.content.startswith(_DATABASE) and _of_ascend(head) == ascend.DATABASE),
    _Format("nsys", lambda head: head.content.startswith(_DATABASE) and nsys.is_export(head.path)),
    _Format("sqlite", _starts(_DATABASE), _SQLITE),
    _Format("nsys-rep", lambda head: head.path.suffix in (".nsys-rep", ".qdrep", ".qdstrm"), _NSIGHT),
    _Format("archive", _is_archive, _ARCHIVE),
    _Format("packed", _starts(b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"), _PACKED),
    _Format("ascend", _is_ascend),
    _Format("ascend", lambda head: _is_csv(head) and _of_ascend(head) == ascend.OPERATIONS),
    _Format("ascend-summary", lambda head: _is_csv(head) and _of_ascend(head) == ascend.SUMMARY),
    _Format("diagnosis", _is_diagnosis, _OURS),
    _Format("lab", lambda head: head.is_text and re.match(r"fault [\w-]+: .*\nclock: ", head.text) is not None,
            "the lab's own words about its run, which are no evidence"),
    _Format("model", lambda head: head.is_text and config_json.matches(head.text)),
    _Format("kineto", _is_kineto),
    *(_Format(reader.kind, _of(reader), reader=reader) for reader in READERS),
    _Format("sheet", _is_sheet),
)
"""The first that matches decides."""


def find(path: str | PathLike[str]) -> list[Found]:
    """The evidence at `path`: the file itself, or everything in a folder and below, sorted by path. Folders
    that are hidden or symbolic links are not entered.

    Raises UnusableInput for a file that no reader reads, a folder with nothing to read, and anything else.
    """
    given = os.fsdecode(path)
    if re.match(r"[A-Za-z][\w+.-]*://", given):
        raise UnusableInput("a URL, and only files are read", where=given, todo="Download it first")
    if not given:
        raise UnusableInput("no path given", todo=f"Give {KNOWN}")
    if not _can_be_a_path(given):
        raise UnusableInput("no path: it holds characters that no file's name can hold", where=given)
    path = Path(given)
    try:
        if path.is_dir():
            return _in_folder(path)
        found = _look(path)
    except OSError as error:
        raise UnusableInput(why(error), where=path, todo="Check the path and its permissions") from None
    if found.skipped:
        todo = f"Give {KNOWN}" if found.kind == "unknown" else ""
        raise UnusableInput(found.skipped, where=path, todo=todo)
    return [found]


def _in_folder(folder: Path) -> list[Found]:
    found: list[Found] = []
    for file in islice(_walk(folder, MAX_DEPTH), MAX_FILES + 1):
        if len(found) == MAX_FILES:
            found.append(Found(file, "unknown", skipped=f"more than {MAX_FILES:,} files: left out from here on"))
            break
        try:
            found.append(_look(file))
        except OSError as error:
            found.append(Found(file, "unknown", skipped=why(error)))
        except UnusableInput as error:              # one that inflates without end costs itself alone
            found.append(Found(file, "unknown", skipped=error.what))
    found = _one_a_run(found)
    if all(piece.skipped for piece in found):
        detail = "it is empty"
        if found:
            first = next((piece for piece in found if piece.kind != "unknown"), found[0])
            detail = f"{len(found):,} files, {first.path.name} among them: {first.skipped}"
        raise UnusableInput(f"no evidence in this folder ({detail})", where=folder, todo=f"Give {KNOWN}")
    return found


def _one_a_run(found: list[Found]) -> list[Found]:
    """An Ascend profile is several files that say the same: one of them is read, the others are skipped."""
    of_runs = [piece for piece in found if piece.kind.startswith("ascend") and not piece.skipped]
    leads = ascend.members((piece.path, kind) for piece in of_runs if (kind := _ascend_kind(piece)))
    return [Found(piece.path, piece.kind, skipped=f"the same run as {lead.name}, which is read")
            if (lead := leads.get(piece.path, piece.path)) != piece.path else piece for piece in found]


def _ascend_kind(piece: Found) -> str:
    """Which file of a run it is; empty for one that has gone since it was found, and reading it says so."""
    if piece.kind == "ascend-summary":
        return ascend.SUMMARY
    try:
        return ascend.kind_of(piece.path, _head(piece.path).content)
    except OSError:
        return ""


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        yield folder                                # reading it says why
        return
    for entry in entries:
        try:
            is_folder = entry.is_dir()
        except OSError:                             # a link to itself: reading it says why
            is_folder = False
        if not is_folder:
            yield Path(entry)
        elif not entry.is_symlink() and not entry.name.startswith("."):
            if depth:
                yield from _walk(Path(entry), depth - 1)
            else:
                yield Path(entry)


def _look(path: Path) -> Found:
    """What one file is. Raises OSError where it cannot be read."""
    if path.is_dir():
        os.scandir(path).close()
        return Found(path, "unknown", skipped=f"a folder more than {MAX_DEPTH} levels down: not entered")
    if not path.is_file() and path.exists():
        return Found(path, "unknown", skipped="neither a file nor a folder")
    head = _head(path)
    if not head.content:
        return Found(path, "unknown", skipped="empty" if head.whole else "damaged gzip, or nothing but white space")
    for known in FORMATS:
        if known.matches(head):
            return Found(path, known.kind, known.reader, known.refusal)
    if head.content[:1] in (b"{", b"["):
        return Found(path, "unknown", skipped="JSON of no known kind")
    return Found(path, "unknown", skipped="text of no known kind" if head.is_text else "binary data of no known kind")


def _head(path: Path) -> _Head:
    with path.open("rb") as file:
        raw = file.read(SNIFFED)
        whole = not file.read(1)
    if is_gzip(raw):
        raw, whole = b"".join(islice(pieces(path, []), 1)), False
    return _Head(path, raw[:SNIFFED].removeprefix(b"\xef\xbb\xbf").lstrip(), whole)


def _can_be_a_path(given: str) -> bool:
    """Whether the system can be asked for it: without NUL, and with what its encoding can write."""
    try:
        return b"\0" not in os.fsencode(given)
    except UnicodeEncodeError:
        return False


def why(error: OSError) -> str:
    """Why a file cannot be read, in a few words."""
    known = {FileNotFoundError: "no such file", PermissionError: "no permission to read it"}
    return known.get(type(error), f"cannot be read ({error.strerror or error})")

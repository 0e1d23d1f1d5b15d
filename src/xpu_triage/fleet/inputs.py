"""Which pieces of evidence belong to which rank: paths, folders, globs and URLs, through fsspec.

Contents are not looked at here, only names: a listing costs the same on a local disk and in a bucket. A file is one
rank; so is a folder, unless it holds several ranks: entries numbered as ranks, only subfolders, or several traces.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..errors import MissingExtra, UnusableInput
from ..text import clean

SCHEMES = ("file", "local", "s3", "s3a", "gs", "gcs", "hdfs", "webhdfs", "abfs", "abfss", "az", "http", "https",
           "memory")
"""What a URL may begin with. Caches, archives and chains of them are left out: evidence is read where it lies."""

MAX_RANKS = 20_000
MAX_DEPTH = 4
"""Folders that hold one folder and nothing else are entered so far."""

_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://")
_MAGIC = re.compile(r"[*?\[]")
_RANK = re.compile(r"(?:^|[^a-z])rank[-_ ]?(\d{1,6})(?!\d)", re.I)
_PARALLEL = re.compile(r"(?<![A-Za-z])(TP|DP|PP|EP)-(\d{1,6})(?!\d)")
"""As SGLang names its traces: places in each kind of parallelism. (`tp8` in a name is how many there are.)"""
_TRACE = re.compile(r"\.(json|json\.gz|sqlite|nsys-rep)$", re.I)
_ONE_RUN = re.compile(r"_ascend_pt$|^PROF_|^ASCEND_PROFILER_OUTPUT$")
"""Folders that a profiler writes for one rank."""


@dataclass(frozen=True)
class Piece:
    """One rank's evidence."""

    label: str
    """As a person names it."""
    paths: tuple[str, ...]
    """Absolute paths or URLs, of files or folders."""
    rank: int | None = None
    """What the names say."""


@dataclass(frozen=True)
class Found:
    pieces: tuple[Piece, ...]
    notes: tuple[str, ...] = ()


def rank_of(name: str) -> int | None:
    """The rank that a file's or folder's name states: `rank_3`; `TP-3` where it is the first in everything else.

    >>> rank_of("dp0_pp0_tp1_dcp0_ep1_rank3.1767189312.pt.trace.json.gz"), rank_of("1767189312-TP-3.trace.json.gz")
    (3, 3)
    """
    if found := _RANK.search(name):
        return int(found[1])
    parts = {kind: int(number) for kind, number in _PARALLEL.findall(name)}
    tensor = parts.pop("TP", None)
    return None if any(parts.values()) else tensor


def find_ranks(evidence: Sequence[str]) -> Found:
    """The ranks in what was named, in that order; ranks that one folder or glob holds, in order of their number.

    Raises UnusableInput where nothing was named, a glob matches nothing, or a URL is not one that is read; MissingExtra
    where fsspec is not installed. A path that does not exist is a piece like others: its rank says so.
    """
    pieces: list[Piece] = []
    notes: list[str] = []
    for given in evidence:
        pieces += _expanded(given, notes)
        if len(pieces) > MAX_RANKS:
            raise UnusableInput(f"more than {MAX_RANKS:,} pieces of evidence", where=given, todo="Name fewer ranks")
    if not pieces:
        raise UnusableInput("no evidence given", todo="Name the ranks' traces, a folder of them, or a glob in quotes")
    first: dict[tuple[str, ...], Piece] = {}
    for piece in pieces:
        first.setdefault(piece.paths, piece)
    return Found(tuple(first.values()), tuple(notes))


def filesystem(given: str) -> tuple[Any, str]:
    """The file system that a path or URL is on, and its path there.

    Raises UnusableInput for URLs that are not read, or whose package is not installed; MissingExtra without fsspec.
    """
    try:
        url_to_fs = importlib.import_module("fsspec.core").url_to_fs
    except ImportError as error:
        raise MissingExtra("fsspec", "fleet") from error
    scheme = _SCHEME.match(given)
    if scheme is None:
        given = os.path.abspath(given)
    elif "::" in given or scheme[1].lower() not in SCHEMES:
        raise UnusableInput("a URL of a kind that is not read", where=given, todo=f"Known: {', '.join(SCHEMES)}")
    try:
        fs, path = url_to_fs(given if scheme else f"file://{given}")
    except (ImportError, ValueError) as error:
        kind = scheme[1] if scheme else "file"
        raise UnusableInput(f"{kind}:// cannot be opened ({_one_line(error)})", where=given,
                            todo=f"pip install 'fsspec[{kind}]'") from None
    return fs, path


def _expanded(given: str, notes: list[str]) -> list[Piece]:
    if not given:
        raise UnusableInput("no path given", todo="Name the ranks' traces, a folder of them, or a glob in quotes")
    fs, path = filesystem(given)
    try:
        if _MAGIC.search(path) and not fs.exists(path):
            matches = sorted(map(str, fs.glob(path)), key=_natural)
            if not matches:
                raise UnusableInput("matches nothing", where=given, todo="Check the pattern")
            return [_piece(fs, match, given) for match in matches]
        if fs.isdir(path):
            return _in_folder(fs, path, given, notes, MAX_DEPTH)
    except UnusableInput:
        raise
    except Exception as error:  # each file system has errors of its own: no permission, no such bucket, no network
        raise UnusableInput(f"cannot be listed ({_one_line(error)})", where=given,
                            todo="Check the address and your access") from None
    return [_piece(fs, path, given, label=given)]


def _in_folder(fs: Any, folder: str, given: str, notes: list[str], depth: int) -> list[Piece]:
    """The ranks of one folder."""
    whole = _piece(fs, folder, given)
    if _ONE_RUN.search(_base(folder)):
        return [whole]
    entries = sorted((entry for entry in fs.ls(folder, detail=True) if not _base(entry["name"]).startswith(".")),
                     key=lambda entry: _natural(str(entry["name"])))
    folders = [str(entry["name"]) for entry in entries if entry["type"] == "directory"]
    files = [str(entry["name"]) for entry in entries if entry["type"] != "directory"]
    traces = [file for file in files if _TRACE.search(file)]
    numbered: dict[int, list[str]] = {}
    for name in (*folders, *files):
        if (rank := rank_of(_base(name))) is not None:
            numbered.setdefault(rank, []).append(name)
    if any(_ONE_RUN.search(_base(name)) and not _base(name).endswith("_ascend_pt") for name in folders):
        return [whole]
    if len(numbered) > 1:
        named = {name for names in numbered.values() for name in names}
        others = [name for name in (*folders, *traces) if name not in named]
        _leave_out([file for file in files if file not in named and file not in traces], given, notes)
        return [*(_piece(fs, names, given, rank=rank) for rank, entries in sorted(numbered.items())
                  for names in _captures(entries, folders, given, notes)),
                *(_piece(fs, name, given) for name in others)]
    runs = [name for name in folders if _ONE_RUN.search(_base(name))]
    if len(runs) > 1 or (not traces and len(folders) > 1):
        _leave_out([file for file in files if file not in traces], given, notes)
        return [_piece(fs, name, given) for name in (*folders, *traces)]
    if not files and len(folders) == 1 and depth:
        return _in_folder(fs, folders[0], given, notes, depth - 1)
    if len(traces) > 1 and not folders:
        _leave_out([file for file in files if file not in traces], given, notes)
        return [_piece(fs, name, given) for name in traces]
    return [whole]


def _captures(names: Sequence[str], folders: Sequence[str], given: str, notes: list[str]) -> list[list[str]]:
    """A rank's entries in a folder, by capture: traces are not read together, unless they are one file in two formats.
    Files beside a single trace are read with it; which of several they belong to is not known."""
    captures: dict[str, list[str]] = {}
    with_files = any(_TRACE.search(name) for name in names if name not in folders)
    for name in names:
        if _TRACE.search(name) or (name in folders and (_ONE_RUN.search(_base(name)) or not with_files)):
            captures.setdefault(_TRACE.sub("", name), []).append(name)
    if len(captures) < 2:
        return [list(names)]
    taken = {name for capture in captures.values() for name in capture}
    _leave_out([name for name in names if name not in taken], given, notes, "one capture of several")
    return list(captures.values())


def _leave_out(names: Sequence[str], given: str, notes: list[str], whose: str = "no rank") -> None:
    if names:
        shown = ", ".join(clean(_base(name)) for name in names[:3]) + (", …" if len(names) > 3 else "")
        notes.append(f"{clean(given)}: {len(names):,} files belong to {whose} and were not read ({shown})")


def _piece(fs: Any, names: str | Sequence[str], given: str, *, label: str = "", rank: int | None = None) -> Piece:
    names = (names,) if isinstance(names, str) else tuple(names)
    if rank is None:
        rank = rank_of(_base(names[0]))
    is_url = _SCHEME.match(given) is not None
    paths = tuple(_url(fs, name, given) if is_url else name for name in names)
    return Piece(label or ", ".join(_labels(paths, given, is_url)), paths, rank)


def _url(fs: Any, name: str, given: str) -> str:
    """The URL of a path on `fs`, with what stands in `given` between the slashes: a file system's own paths, and what
    it makes URLs of them, may lack the host (HDFS) or the account (Azure), without which no worker finds it."""
    scheme, _, rest = given.partition("://")
    authority = rest.partition("/")[0]
    root = str(fs._strip_protocol(f"{scheme}://{authority}/")).rstrip("/")
    if not authority or _MAGIC.search(authority) or not name.startswith(f"{root}/"):
        return str(fs.unstrip_protocol(name))
    return f"{scheme}://{authority}/{name.removeprefix(root).lstrip('/')}"


def _labels(paths: Iterable[str], given: str, is_url: bool) -> Iterator[str]:
    """Paths as a person gave them: relative where the argument was."""
    relative = not is_url and not os.path.isabs(given)
    for path in paths:
        yield os.path.relpath(path) if relative else path


def _base(path: str) -> str:
    return PurePosixPath(path.rstrip("/")).name


def _natural(path: str) -> list[tuple[int, str]]:
    """`rank10` after `rank9`."""
    return [(int(part), "") if part.isdecimal() and len(part) <= 18 else (-1, part)
            for part in re.split(r"(\d+)", path)]


def _one_line(error: BaseException) -> str:
    return clean(" ".join(str(error).split())[:200]) or type(error).__name__

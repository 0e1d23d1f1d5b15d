"""A rank's evidence as files on this machine: local paths as they are, remote ones copied while they are read."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import UnusableInput
from .inputs import Piece, filesystem

MAX_BYTES = 16 << 30
MAX_FILES = 5000
"""Of one rank's remote evidence."""

_LOCAL = re.compile(r"(?:file|local)://")


@dataclass(frozen=True)
class Here:
    paths: tuple[Path, ...]
    as_given: Callable[[str], str]
    """Text with the paths of copies written as the URLs that they are copies of."""


@contextmanager
def fetched(piece: Piece) -> Iterator[Here]:
    """The piece's files and folders. Raises UnusableInput where they cannot be had."""
    if not any("://" in path and not _LOCAL.match(path) for path in piece.paths):
        yield Here(tuple(Path(_LOCAL.sub("", path)) for path in piece.paths), lambda text: text)
        return
    with tempfile.TemporaryDirectory(prefix="xpu-triage-") as folder:
        copies: dict[str, str] = {}
        for number, url in enumerate(piece.paths):
            target = Path(folder) / str(number)
            copies[str(_copied(url, target))] = url

        def as_given(text: str) -> str:
            for copy, url in copies.items():
                text = text.replace(copy, url)
            return text

        yield Here(tuple(map(Path, copies)), as_given)


def _copied(url: str, target: Path) -> Path:
    """The file or folder at `url`, copied below `target` under its own name."""
    fs, path = filesystem(url)
    to = target / (PurePosixPath(path.rstrip("/")).name or "evidence")
    try:
        files = _listed(fs, path, url)
        for name in files:
            inside = name.removeprefix(path.rstrip("/")).strip("/")
            here = to / inside if inside else to
            if not here.resolve().is_relative_to(target.resolve()):
                raise UnusableInput(f"{name!r} leads out of its folder", where=url)
            here.parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(name, str(here))
    except FileNotFoundError:
        raise UnusableInput("no such file or folder", where=url, todo="Check the path") from None
    except PermissionError:
        raise UnusableInput("no permission to read it", where=url, todo="Check the worker's access") from None
    return to


def _listed(fs: Any, path: str, url: str) -> list[str]:
    found = fs.find(path, detail=True) if fs.isdir(path) else {path: fs.info(path)}
    size = sum(int(entry.get("size") or 0) for entry in found.values())
    if len(found) > MAX_FILES or size > MAX_BYTES:
        raise UnusableInput(f"{len(found):,} files of {size / 1e9:,.1f} GB in all: more than one rank's evidence has",
                            where=url, todo="Name the trace itself")
    return sorted(map(str, found))

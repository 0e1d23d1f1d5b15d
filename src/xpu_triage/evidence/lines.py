"""The lines of a text file as people paste, redirect and log it: any encoding a shell writes, colours taken out."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from ..errors import UnusableInput
from .chunks import pieces

MAX_LINE = 1 << 20
"""Characters of one line; what is longer is handed out in pieces of this length."""

MAX_TEXT = 64 << 20
"""Bytes that `text` holds at once; formats that need all of a file have small files."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def lines(path: str | PathLike[str], notes: list[str]) -> Iterator[str]:
    """Every line without its end, terminal colours and carriage-return overprints left out. gzip is inflated; UTF-16
    is told by its byte-order mark; bytes that are no text are replaced. Damage is written to `notes`.

    Raises UnusableInput where the file cannot be opened or read.
    """
    path = Path(path)
    decoder: codecs.IncrementalDecoder | None = None
    rest = ""
    try:
        for piece in pieces(path, notes):
            if decoder is None:
                decoder = codecs.getincrementaldecoder(_encoding(piece))("replace")
            parts = (rest + decoder.decode(piece)).split("\n")
            rest = parts.pop()
            while len(rest) > MAX_LINE:
                parts.append(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
            yield from map(_plain, parts)
        if decoder is not None:
            rest += decoder.decode(b"", final=True)
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    if rest:
        yield _plain(rest)


def text(path: str | PathLike[str], notes: list[str]) -> str:
    """All lines of a file of at most MAX_TEXT bytes. Raises UnusableInput where it is larger or cannot be read."""
    kept: list[str] = []
    size = 0
    for line in lines(path, notes):
        size += len(line) + 1
        if size > MAX_TEXT:
            raise UnusableInput(f"more than {MAX_TEXT >> 20} MiB of text for a format that has small files",
                                where=path, todo="Cut out the part that matters")
        kept.append(line)
    return "\n".join(kept)


def head_text(head: bytes) -> str:
    """The beginning of a file, cut anywhere, as `lines` would give it."""
    return _ESCAPES.sub("", codecs.getincrementaldecoder(_encoding(head))("replace").decode(head))


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def _plain(line: str) -> str:
    line = line.removesuffix("\r")
    if "\r" in line:  # a progress bar overprints: its last state counts
        line = line.rpartition("\r")[2]
    return _ESCAPES.sub("", line) if "\x1b" in line else line

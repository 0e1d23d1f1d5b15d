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

LOOKED_AT = 4096
"""Bytes by which an encoding without a mark is told."""
FEWEST_PAIRS = 8
MOST_CONTROLS = 0.03
"""Share of control characters up to which a file with a NUL in it is text: one in a line. Programs and databases have
ten times as many."""
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\f\x08\x1b")

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def lines(path: str | PathLike[str], notes: list[str]) -> Iterator[str]:
    """Every line without its end, terminal colours and carriage-return overprints left out. gzip is inflated; UTF-16
    is told by its byte-order mark, or by its NULs; bytes that are no text are replaced. Damage is written to `notes`.

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


def is_text(head: bytes) -> bool:
    """Whether a file that begins so is text in one of the encodings that `lines` reads. A NUL here and there, as a
    damaged label or a torn write leaves it, makes no text binary."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" not in head:
        return True
    if _utf_16(head):
        return True
    return len(head) - len(head.translate(None, _CONTROLS)) <= MOST_CONTROLS * len(head)


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return _utf_16(head) or "utf-8-sig"


def _utf_16(head: bytes) -> str:
    """UTF-16 without a byte-order mark: what tools print is Latin for the most part, and then every other byte is NUL.
    Empty for anything else."""
    low, high = head[0:LOOKED_AT:2], head[1:LOOKED_AT:2]
    if len(high) < FEWEST_PAIRS:
        return ""
    first, second = low.count(0) / len(low), high.count(0) / len(high)
    if second > 0.8 and first < 0.01:
        return "utf-16-le"
    return "utf-16-be" if first > 0.8 and second < 0.01 else ""


def _plain(line: str) -> str:
    line = line.removesuffix("\r")
    if "\r" in line:  # a progress bar overprints: its last state counts
        line = line.rpartition("\r")[2]
    return _ESCAPES.sub("", line) if "\x1b" in line else line

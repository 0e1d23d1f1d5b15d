"""The bytes of an evidence file, inflated if they are gzip, in pieces, within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from ..errors import UnusableInput

PIECE = 1 << 19
"""Bytes handed out at a time: small enough to stay in the cache while they are decoded."""

MAX_INFLATED = 64 << 30
"""Inflated bytes of one file after which it is refused."""

MAX_RATIO = 300
"""Inflated ÷ compressed bytes above which a gzip file is refused. Deflate reaches 1,032 on a run of one byte;
the most repetitive profiler traces stay near 100."""

RATIO_FREE = 256 << 20
"""Inflated bytes up to which any ratio is allowed: a small file does no harm, however well it packs."""

Progress = Callable[[int, int], None]
"""Called with the bytes read of the file and the bytes it has."""

_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]


def pieces(path: Path, notes: list[str], progress: Progress | None = None) -> Iterator[bytes]:
    """The content of `path`, at most PIECE bytes at a time; gzip is told by its magic, not by the name.

    Damage in a gzip stream ends the pieces and is written to `notes`. A file that inflates beyond the limits
    raises UnusableInput, one that cannot be opened or read OSError.
    """
    with path.open("rb") as file:
        raw = _reported(file, path.stat().st_size, progress)
        if is_gzip(file.peek(2)):
            yield from _inflated(raw, path, notes)
        else:
            yield from raw


def small_file(path: Path, most_bytes: int, what: str) -> bytes:
    """All of a small file, as it lies there. Raises UnusableInput where it is larger than `what` (`an evidence sheet`)
    may be, or cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    if len(raw) > most_bytes:
        raise UnusableInput(f"{what} has at most {most_bytes:,} bytes", where=path)
    return raw


def is_gzip(head: bytes) -> bool:
    return head[:2] == b"\x1f\x8b"


def _reported(file: BinaryIO, size: int, progress: Progress | None) -> Iterator[bytes]:
    while raw := file.read(PIECE):
        if progress:
            progress(file.tell(), size)
        yield raw


def _inflated(raws: Iterator[bytes], path: Path, notes: list[str]) -> Iterator[bytes]:
    """gzip members, one after the other. What one call can inflate is bounded, so no bomb fills the
    memory."""
    member, begun, total, read = _member(), False, 0, 0
    for raw in raws:
        read += len(raw)
        while raw:
            if not begun and not raw.strip(b"\0"):
                break                                   # zeros after a member are padding
            if not begun and len(raw) > 1 and not is_gzip(raw):
                notes.append(f"what follows the gzip stream at byte {read - len(raw):,} is not gzip: left out")
                return
            try:
                piece = member.decompress(raw, PIECE)
            except _IsalError as error:
                notes.append(f"gzip damaged near byte {read - len(raw):,} of the file ({error}): read up to there")
                return
            begun = True
            if piece:
                total += len(piece)
                _check(path, total, read)
                yield piece
            if member.eof:
                raw, member, begun = member.unused_data, _member(), False
            else:
                raw = member.unconsumed_tail
    while begun and (piece := member.decompress(b"", PIECE)):
        total += len(piece)
        _check(path, total, read)
        yield piece
    if begun and not member.eof:
        notes.append(f"gzip has no end: cut at byte {read:,} of the file, while it was written or copied")


def _member() -> isal_zlib.Decompress:
    return isal_zlib.decompressobj(zlib.MAX_WBITS | 16)


def _check(path: Path, inflated: int, read: int) -> None:
    if inflated > MAX_INFLATED or (inflated > RATIO_FREE and inflated > MAX_RATIO * read):
        raise UnusableInput(
            f"{read:,} bytes inflate to more than {inflated:,}; the limits are {MAX_INFLATED >> 30} GiB, and"
            f" {MAX_RATIO} times the file beyond {RATIO_FREE >> 20} MiB",
            where=path, todo="If it is a real trace, unpack it and give the .json")

"""JSON as benchmark tools leave it: one document, one a line, or appended one after the other; whole or cut.

Infinity and NaN, which these tools write and JSON does not have, are read.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import UnusableInput
from ..chunks import pieces

MAX_BYTES = 256 << 20
"""Inflated bytes of one result file. A run of 10,000 requests of 1,000 tokens with every gap has about 200 MB."""

MAX_DOCUMENTS = 1_000_000

MAX_DEPTH = 100
"""Levels of a file that breaks off which are kept; no tool writes a quarter of them."""

_SPACE = re.compile(r"[\s,\x1e]*")
_NEXT = re.compile(r"\n(?=\{)")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder()
_REFUSED = (ValueError, RecursionError)


@dataclass(frozen=True)
class Documents:
    found: tuple[dict[str, Any], ...]
    """Every object, in order; those of a list at the root one by one."""
    notes: tuple[str, ...] = ()
    """What could not be read."""
    cut: bool = False
    """The last of `found` is the whole part of one that breaks off."""


def load(path: str | PathLike[str]) -> Documents:
    """Every JSON object of a file. Raises UnusableInput where the file cannot be read or there is none."""
    path = Path(path)
    notes: list[str] = []
    documents = parse(text(path, notes))
    if not documents.found:
        raise UnusableInput("no whole JSON object in it", where=path, todo="Copy the result file again")
    return Documents(documents.found, (*notes, *documents.notes), documents.cut)


def text(path: Path, notes: list[str]) -> str:
    """The file as text; gzip is inflated, UTF-16 told by its byte-order mark, damage written to `notes`."""
    content = bytearray()
    try:
        for piece in pieces(path, notes):
            content += piece
            if len(content) > MAX_BYTES:
                raise UnusableInput(f"more than {MAX_BYTES >> 20} MiB for a result file", where=path,
                                    todo="Save the run without generated texts, or in parts")
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8-sig", "replace")


def parse(content: str) -> Documents:
    """Every object in `content`: what lies between two that are whole and is not JSON is counted, the whole part of
    a last one that breaks off is kept."""
    found: list[dict[str, Any]] = []
    skipped, others, at, cut = 0, 0, 0, False
    while len(found) < MAX_DOCUMENTS:
        space = _SPACE.match(content, at)
        at = space.end() if space else at
        if at >= len(content):
            break
        try:
            value, at = _DECODER.raw_decode(content, at)
        except _REFUSED:
            following = _NEXT.search(content, at)
            while following and not _begins_one(content, following.end()):
                following = _NEXT.search(content, following.end())
            if following:
                skipped, at = skipped + 1, following.end()
                continue
            value, at, cut = whole_part(content[at:]), len(content), True
        before = len(found)
        found += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
        others += isinstance(value, list) and len(value) - (len(found) - before)
        cut = cut and len(found) > before
    notes = []
    if skipped:
        notes.append(f"{skipped:,} damaged {'object' if skipped == 1 else 'objects'} left out")
    if others:
        notes.append(f"{others:,} list entries that are no objects left out")
    if cut:
        notes.append("the file breaks off: what is whole was read")
    elif found and at < len(content) and content[at:].strip():
        notes.append(f"more than {MAX_DOCUMENTS:,} objects: left out from there on")
    return Documents(tuple(found), tuple(notes), cut)


def _begins_one(content: str, at: int) -> bool:
    """Whether a whole object begins here, rather than a part of a damaged one."""
    try:
        _DECODER.raw_decode(content, at)
    except _REFUSED:
        return False
    return True


def whole_part(content: str) -> Any:
    """What is whole of a JSON value that breaks off; None where nothing is.

    An object keeps its whole members and a list its whole entries. Of a list in a list nothing is kept unless it is
    whole: half the gaps of a request are not its gaps.
    """
    brackets: list[str] = []
    inner = 0               # how many of the open brackets belong to a list in a list
    cut, depth = 0, 0       # where the whole part ends, and how many brackets are open there
    for token in _TOKEN.finditer(content):
        sign, end = token[0], token.end()
        if sign in _CLOSING:
            inner += bool(inner) or (sign == "[" and brackets[-1:] == ["["])
            brackets.append(sign)
        elif sign in ("}", "]"):
            if not brackets or _CLOSING[brackets[-1]] != sign:
                break
            brackets.pop()
            inner -= bool(inner)
        elif sign == ",":
            end = token.start()
        else:
            continue
        if not inner and len(brackets) <= MAX_DEPTH:
            cut, depth = end, len(brackets)
            if not brackets:
                break
    closers = "".join(_CLOSING[bracket] for bracket in reversed(brackets[:depth]))
    try:
        return json.loads(content[:cut] + closers) if cut else None
    except _REFUSED:
        return None

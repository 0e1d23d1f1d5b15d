"""Text that came from evidence, made harmless. Names are data: nothing in them may reach a terminal,
a page or a plot as a command."""

from __future__ import annotations

import re

# C0 and C1 controls (newline and escape among them), DEL, zero-width and bidirectional marks, line and
# paragraph separators, the BOM, lone surrogates: everything that moves a cursor or hides text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]")


def clean(text: str) -> str:
    r"""`text` with every unsafe character written out, as in ``\x1b``: visible, and without effect.

    >>> clean("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _UNSAFE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


_PLACE = re.compile(r"/?[^/\s]*\.py(\(\d+\)|:\d+)")
"""A Python file with a line, as a profiler and as a traceback write it."""


def shorten(text: str, width: int) -> str:
    """`text` cut in its middle to at most `width` characters: both ends of a kernel name tell something. A Python file
    with a line stays whole as long as there is room for it: what lies before the file's name goes first.

    >>> shorten("site/models/video/image_processing.py(178): preprocess", 48)
    'site/model…/image_processing.py(178): preprocess'
    """
    if len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    *_, place = (None, *_PLACE.finditer(text))
    if place is not None and head < place.end() and place.start() < len(text) - (width - 1 - head):
        file, after = place[0].removeprefix("/"), text[place.end():]
        if len(file) >= width:
            return f"…{file[len(file) - (width - 1):]}"
        if len(place[0] + after) >= width:
            return f"{file}{after}"[:width - 1] + "…"
        head = width - 1 - len(place[0] + after)
    return f"{text[:head]}…{text[len(text) - (width - 1 - head):]}"


def counted(count: int, one: str, many: str = "") -> str:
    """`count` things in words, `many` being `one` with an s where it is not given.

    >>> counted(1, "reading"), counted(2376, "event"), counted(2, "entry", "entries")
    ('1 reading', '2,376 events', '2 entries')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"

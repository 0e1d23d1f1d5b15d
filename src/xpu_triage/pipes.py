"""Printing to whoever reads it: as wide as a terminal is, and to a reader that may leave before the end (`| head`)."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

WIDTH_WITHOUT_TERMINAL = 100
NARROWEST, WIDEST = 20, 1000
"""Columns that COLUMNS may ask for."""


def columns(file: TextIO | None = None) -> int:
    """How wide to print to `file` (stdout): as its terminal, as COLUMNS says where it is none, else a fixed width."""
    file = file or sys.stdout
    if file.isatty():
        return shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns
    asked = os.environ.get("COLUMNS", "")
    # int() takes what isdigit() takes only in ASCII
    width = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
    return width if NARROWEST <= width <= WIDEST else WIDTH_WITHOUT_TERMINAL


def wrapped(line: str, width: int, *, indent: int = 2) -> str:
    """`line` over as many lines as it takes, the later ones indented. Its own indentation and the spaces in it stay;
    a word that is longer than a line is left whole, since it may be a path."""
    return textwrap.fill(line, max(width, indent + 1), subsequent_indent=" " * indent, break_long_words=False,
                         break_on_hyphens=False, replace_whitespace=False)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Printing that whoever reads it may cut short (`| head`): what follows is done all the same."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

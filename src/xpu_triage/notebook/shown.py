"""Things that a notebook displays: each as HTML and as plain text, from the same rows. Every text is data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ..errors import TriageError
from ..resources import shipped
from ..text import clean, shorten

TEXT_WIDTH = 110
WIDEST_CELL = 100

# Jupyter would typeset `$…$` in a page as mathematics; these classes tell its engines to leave it alone.
_BOX = (
    '<div class="mathjax_ignore tex2jax_ignore xt" style="font-family:system-ui,sans-serif;line-height:1.45">'
)
_CELL = "text-align:left;padding:2px 14px 2px 0;vertical-align:top;border:none;white-space:normal"
_NUMBER = (
    "text-align:right;padding:2px 14px 2px 0;vertical-align:top;border:none;font-variant-numeric:tabular-nums"
)


@dataclass(frozen=True)
class Shown:
    """Something to display: `html` for a page, `text` for everything else."""

    html: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": f"{_BOX}{self.html}</div>", "text/plain": self.text}


def safe(text: object) -> str:
    """Text from evidence as HTML that shows it and does nothing."""
    return escape(clean(str(text)), quote=True)


def label(path: str) -> str:
    """A path to show: what ships with the project by its place in it, so that outputs are the same on
    every machine."""
    try:
        return str(Path("playbook") / Path(path).resolve().relative_to(shipped("playbook").resolve()))
    except (ValueError, OSError, TriageError):
        return clean(path)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (),
          title: str = "", note: str = "") -> Shown:
    """Rows under column names; the columns with an index in `numbers` are set to the right."""
    rows = [[shorten(clean(cell), WIDEST_CELL) for cell in row] for row in rows]
    style = [_NUMBER if i in numbers else _CELL for i in range(len(columns))]
    head = "".join(
        f'<th style="{style[i]};font-weight:600;color:#6b7380">{safe(c)}</th>' for i, c in enumerate(columns)
    )
    body = "".join(
        "<tr>" + "".join(f'<td style="{style[i]}">{safe(cell)}</td>' for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    html = (f"<p style=\"margin:4px 0;font-weight:600\">{safe(title)}</p>" if title else "") + \
        f'<table style="border-collapse:collapse;font-size:13px;margin:0"><thead><tr>{head}</tr></thead>' \
        f"<tbody>{body}</tbody></table>" + (_note(note) if note else "")
    return Shown(html, _as_text(columns, rows, set(numbers), title, note))


def _note(text: str) -> str:
    return f'<p style="margin:6px 0;color:#6b7380;font-size:13px">{safe(text)}</p>'


def _as_text(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int], title: str, note: str
) -> str:
    grid = [list(columns), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in grid) for i in range(len(columns))]
    lines = ["  ".join(cell.rjust(widths[i]) if i in numbers else cell.ljust(widths[i])
                       for i, cell in enumerate(row)).rstrip() for row in grid]
    return "\n".join(
        [
            *([clean(title)] if title else []),
            *lines,
            *(textwrap.wrap(clean(note), TEXT_WIDTH) if note else []),
        ]
    )


def lines(title: str, items: Sequence[str], *, empty: str = "") -> Shown:
    """A title and a list; `empty` stands in its place where there is nothing to list."""
    if not items:
        return said(empty or f"{title}: nothing")
    listed = "".join(f'<li style="margin:2px 0">{safe(item)}</li>' for item in items)
    html = (
        f'<p style="margin:4px 0;font-weight:600">{safe(title)}</p>'
        f'<ul style="margin:2px 0 6px 18px;padding:0">{listed}</ul>'
    )
    text = "\n".join(
        [
            clean(title),
            *(
                textwrap.fill(clean(item), TEXT_WIDTH, initial_indent="· ", subsequent_indent="  ")
                for item in items
            ),
        ]
    )
    return Shown(html, text)


def pairs(rows: Sequence[tuple[str, str]], *, title: str = "") -> Shown:
    """Short names with a sentence each, none cut."""
    name_style = f"{_CELL};font-weight:600;white-space:nowrap"
    body = "".join(
        f'<tr><td style="{name_style}">{safe(name)}</td><td style="{_CELL}">{safe(text)}</td></tr>'
        for name, text in rows
    )
    head = f'<p style="margin:8px 0 2px;font-weight:600">{safe(title)}</p>' if title else ""
    html = f'{head}<table style="border-collapse:collapse;font-size:14px;margin:0"><tbody>{body}</tbody></table>'
    width = max((len(name) for name, _ in rows), default=0)
    text = [
        textwrap.fill(
            clean(text),
            TEXT_WIDTH,
            initial_indent=f"{clean(name).ljust(width)}  ",
            subsequent_indent=" " * (width + 2),
        )
        for name, text in rows
    ]
    return Shown(html, "\n".join([*([clean(title)] if title else []), *text]))


def counted(number: int, one: str) -> str:
    """`1 step`, `12 steps`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def said(*sentences: str) -> Shown:
    """Plain sentences, a paragraph each."""
    kept = [sentence for sentence in sentences if sentence]
    return Shown("".join(f'<p style="margin:4px 0">{safe(s)}</p>' for s in kept),
                 "\n".join(textwrap.fill(clean(s), TEXT_WIDTH) for s in kept))


def stacked(*parts: Shown) -> Shown:
    """Several displays as one, in order."""
    return Shown("".join(part.html for part in parts), "\n\n".join(part.text for part in parts))

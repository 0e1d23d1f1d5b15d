"""Lines that wrap well in a narrow terminal, and lists that do not run away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .text import clean

SHOWN = 6
"""Lines of one list. One more than that is shown rather than announced."""


def folded(lines: Iterable[str], shown: int = SHOWN) -> Iterator[str]:
    """The first of the lines, and how many more there are. Whatever is folded has to be in the JSON.

    >>> list(folded("abcd", 2)), list(folded("abc", 2))
    (['a', 'b', 'and 2 more (--json shows all)'], ['a', 'b', 'c'])
    """
    every = list(lines)
    if len(every) <= shown + 1:
        yield from every
        return
    yield from every[:shown]
    yield f"and {len(every) - shown} more (--json shows all)"


def item(line: str, mark: str) -> RenderableType:
    """One line of a list: what follows the mark wraps beside it."""
    return hanging(f"{mark:>3} ", clean(line))


def hanging(head: str, rest: str) -> RenderableType:
    """`head`, which never wraps, and `rest`, which wraps beside it."""
    row = Table.grid()
    row.add_column(no_wrap=True)
    row.add_column()
    row.add_row(Text(head), Text(rest))
    return row


def listed(title: str, lines: Iterable[str], *, shown: int = SHOWN) -> Iterator[RenderableType]:
    """A title, and a list below it."""
    yield Text(title, style="bold")
    yield from (item(line, "·") for line in folded(lines, shown))

"""What was read, in the terminal: each piece with how much of it could be used, and what was left aside and why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rich.console import RenderableType
from rich.text import Text

from .diagnosis import Diagnosis
from .gathering import EvidenceRecord
from .render_lines import folded, item
from .text import clean
from .words import read_words

SHOWN_NAMES = 8
LONG_PATH = 70
"""Characters from which on a path is named by its end in the verdict. The whole of it is in the list of evidence."""

ENDS_NAMED = 3
_NOT_USED = "not used: "


def lines(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """The list of evidence, what lies in one folder named from there, and the verdicts of traces beside the first."""
    records = diagnosis.evidence
    folder = shared_folder([record.path for record in records])
    if folder:
        yield Text(f"in {clean(folder)}:")
    ends = [PurePath(record.path).name for record in records]
    aside: dict[str, list[str]] = {}
    for record in records:
        name = clean(record.path[len(folder):].lstrip("/") if folder else record.path)
        if reason := _why_not_used(record):
            last = PurePath(name).name
            aside.setdefault(reason, []).append(last if ends.count(last) == 1 else name)
            continue
        skipped = f", {record.skipped:,} skipped" if record.skipped else ""
        yield Text(f"{name}: {clean(record.kind)}, {read_words(record.kind, record.events)}{skipped}")
        yield from (item(note, "·") for note in folded(record.notes))
    for reason, names in aside.items():
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        yield Text(f"not used: {clean(reason)} ({', '.join(names[:SHOWN_NAMES])}{more})")
    for other in diagnosis.others:
        first = other.verdict.hypotheses[0].id if other.verdict.hypotheses else "nothing"
        yield Text(f"{clean(other.path)} on its own: {other.verdict.level}, {other.verdict.id or f'{first} in front'}")


def _why_not_used(record: EvidenceRecord) -> str:
    """The reason; empty for a piece that was read."""
    told = record.notes[0] if len(record.notes) == 1 and not record.events else ""
    return told.removeprefix(_NOT_USED) if told.startswith(_NOT_USED) else ""


def shared_folder(paths: Sequence[str]) -> str:
    """The folder in which all of several paths lie; empty where that is none, or the working directory.

    >>> shared_folder(["/a/b/c.json", "/a/b/d/e.csv"]), shared_folder(["/a/b"]), shared_folder(["a", "b"])
    ('/a/b', '', '')
    """
    if len(paths) < 2 or len({path.startswith("/") for path in paths}) > 1:
        return ""
    return os.path.commonpath([os.path.dirname(path) for path in paths]).rstrip("/")


def by_its_end(path: str) -> str:
    """A long path by its last parts.

    >>> by_its_end("/data/a.json"), by_its_end("/" + "x" * 80 + "/run/out/a.json")
    ('/data/a.json', '…/run/out/a.json')
    """
    parts = PurePath(path).parts
    return path if len(path) <= LONG_PATH or len(parts) <= ENDS_NAMED else f"…/{'/'.join(parts[-ENDS_NAMED:])}"

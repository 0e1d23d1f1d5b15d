"""What `xpu-triage watch` wrote about itself: which probes ran, and what they could not do. No evidence, but whoever
reads the folder has to know it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from ..errors import UnusableInput
from ..text import clean, shorten
from .lines import text

MAX_NOTES = 40
MAX_ADDRESS = 300

_ADDRESS = re.compile(r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[\w.-]+)*")


@dataclass(frozen=True)
class WatchRecord:
    source: str
    samples: int
    """Of all probes together."""
    notes: tuple[str, ...]
    """How long it ran, and what failed, by probe."""
    skipped: int = 0
    server: str = ""
    """The address that was watched (`http://127.0.0.1:8000`); empty where it is not known, or hidden."""


def matches(head: str) -> bool:
    """Whether a file that begins like this is such a record."""
    return head.startswith("{") and re.search(r'"watch"\s*:\s*\d', head) is not None and '"probes"' in head


def read(path: str | PathLike[str]) -> WatchRecord:
    """Raises UnusableInput where it is not the JSON that it was written as."""
    try:
        record = json.loads(text(path, []))
        probes = [(str(probe["name"]), int(probe["samples"]), [str(line) for line in probe.get("failed", ())])
                  for probe in record["probes"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnusableInput("a damaged record of a watch", where=path) from None
    notes = [_lasted(record)]
    notes += [f"{name}: {line}" for name, _, failed in probes for line in failed]
    notes += [str(line) for line in _list(record.get("notes"))]
    kept = tuple(clean(shorten(" ".join(note.split()), 300)) for note in notes[:MAX_NOTES] if note)
    return WatchRecord(fspath(path), sum(count for _, count, _ in probes), kept, server=_server(record))


def _server(record: dict[str, Any]) -> str:
    """It becomes part of commands that people paste: an address and nothing else."""
    asked = record.get("asked")
    server = asked.get("server") if isinstance(asked, dict) else None
    return server if isinstance(server, str) and len(server) <= MAX_ADDRESS and _ADDRESS.fullmatch(server) else ""


def _lasted(record: dict[str, Any]) -> str:
    seconds = record.get("seconds")
    if not isinstance(seconds, int | float):
        return "the watch did not come to its end: the files hold what it had until then"
    return f"watched for {seconds:,.1f} s" + (", then interrupted" if record.get("interrupted") is True else "")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []

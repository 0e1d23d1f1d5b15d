"""Small profiler files for the tests, written event by event."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xpu_triage.trace import Trace

Event = dict[str, Any]


def span(cat: str, name: str, ts: Any, dur: Any, *, pid: Any = 100, tid: Any = 100, **args: Any) -> Event:
    """A complete event; arguments with blanks in their name are given as `External_id`."""
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return event | ({"args": {key.replace("_id", " id"): value for key, value in args.items()}} if args else {})


def kernel(name: str, ts: Any, dur: Any, *, device: Any = 0, stream: Any = 7, cat: str = "kernel",
           **args: Any) -> Event:
    return span(cat, name, ts, dur, pid=device, tid=stream, **{"device": device, "stream": stream} | args)


def text_of(events: Sequence[Event], **root: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **root, "traceEvents": list(events)}).encode()


def written(path: Path, text: bytes, pack: bool = False) -> Path:
    path.write_bytes(gzip.compress(text, 1) if pack else text)
    return path


def names_at(trace: Trace, rows: Any) -> list[str]:
    return [trace.name_of(int(row)) for row in rows]


def rows_named(trace: Trace, name: str) -> list[int]:
    return [row for row in range(len(trace)) if trace.name_of(row) == name]


def row_named(trace: Trace, name: str) -> int:
    (row,) = rows_named(trace, name)
    return row


Reading = Callable[..., Trace]

"""Recorded rows as a file in the form of PyTorch's profiler (Kineto's Chrome trace)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cost_model import DeviceModel
from .record import Recorder, Row

_HOST, _THREAD, _DEVICE, _STREAM = 1000, 1000, 0, 7  # neither process nor machine is told


def trace(recorder: Recorder, model: DeviceModel) -> dict[str, Any]:
    """The trace. Times are µs with three decimals, from the first row's start."""
    rows = recorder.rows
    zero = min((row.start for row in rows), default=0)
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": _DEVICE, "name": f"xpulab ({model.name})", "totalGlobalMem": int(model.memory_gb * 1e9)}
        ],
        "displayTimeUnit": "ms",
        "traceEvents": [*_names(model), *(_event(row, zero) for row in rows)],
    }


def write(path: Path, recorder: Recorder, model: DeviceModel) -> None:
    """Write the trace as gzip. The same rows give the same bytes."""
    text = json.dumps(trace(recorder, model), separators=(",", ":"))
    with path.open("wb") as file, gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=0) as packed:
        packed.write(text.encode())


def _event(row: Row, zero: int) -> dict[str, Any]:
    event: dict[str, Any] = {
        "ph": "X",
        "cat": row.category,
        "name": row.name,
        "pid": _DEVICE if row.on_device else _HOST,
        "tid": _STREAM if row.on_device else _THREAD,
        "ts": (row.start - zero) / 1e3,
        "dur": (row.end - row.start) / 1e3,
    }
    args: dict[str, Any] = {}
    if row.on_device:
        args = {"device": _DEVICE, "stream": _STREAM}
    if row.correlation:
        args["correlation"] = row.correlation
    if row.nbytes:
        args["bytes"] = row.nbytes
    if args:
        event["args"] = args
    return event


def _names(model: DeviceModel) -> Iterable[dict[str, Any]]:
    for pid, label, name in ((_HOST, "CPU", "python"), (_DEVICE, "xpulab 0", f"xpulab ({model.name})")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0.0, "args": {"name": name}}
        yield {
            "ph": "M",
            "name": "process_labels",
            "pid": pid,
            "tid": 0,
            "ts": 0.0,
            "args": {"labels": label},
        }
    yield {
        "ph": "M",
        "name": "thread_name",
        "pid": _HOST,
        "tid": _THREAD,
        "ts": 0.0,
        "args": {"name": "engine"},
    }
    yield {
        "ph": "M",
        "name": "thread_name",
        "pid": _DEVICE,
        "tid": _STREAM,
        "ts": 0.0,
        "args": {"name": f"stream {_STREAM}"},
    }

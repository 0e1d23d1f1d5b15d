"""One recorded run in the forms of three profilers: as PyTorch's profiler wrote it, as torch_npu's, as Nsight's.

The run is the lab's Kineto trace. Its rows are written again, each at its own time, in the words, layers and tables of
the other two formats; what a format has no row for is left out.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ascend_files import AscendRun, Host
from nsys_exports import Export

HOST_KINDS = ("cpu_op", "user_annotation", "python_function", "privateuse1_runtime")

_CANN = {"LaunchKernel": "Node@launch", "GraphLaunch": "AscendCL@aclmdlRIExecuteAsync",
         "MemcpyAsync": "AscendCL@aclrtMemcpyAsync", "StreamSynchronize": "AscendCL@aclrtSynchronizeStream",
         "EventSynchronize": "AscendCL@aclrtSynchronizeEvent"}
_CUDA = {call: f"cuda{call}_v{version}" for call, version in zip(_CANN, (7000, 10000, 3020, 3020, 3020), strict=True)}
_WAYS = {"HtoD": (1, "host to device"), "DtoH": (2, "device to host"), "DtoD": (8, "device to device")}
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_NSYS_START = 10**12


_VENDOR = re.compile("|".join(map(re.escape, sorted((*_CANN.values(), *(name.rpartition("_v")[0] for name in
                                                                       _CUDA.values())), key=len, reverse=True))))
_CALLS = {**{name: call for call, name in _CANN.items()},
          **{name.rpartition("_v")[0]: call for call, name in _CUDA.items()}}


def neutral(value: object) -> object:
    """A value without a vendor's words: calls by what they do, kernels without their core, figures to nine digits."""
    if isinstance(value, str):
        value = _VENDOR.sub(lambda found: _CALLS[found[0]], value.replace("xpulab", ""))
        return value.replace(" (AI_VECTOR_CORE)", "")
    return float(f"{value:.9g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Row:
    """A complete event; times in ns."""

    category: str
    name: str
    start: int
    dur: int
    correlation: int = 0

    @property
    def end(self) -> int:
        return self.start + self.dur

    @property
    def call(self) -> str:
        """A runtime call without the vendor before its name."""
        return self.name.removeprefix("xpulab")

    @property
    def is_copy(self) -> bool:
        return self.category == "gpu_memcpy"


def rows_of(trace: Path) -> list[Row]:
    """The complete events of a Kineto file, in the order of their starts, outer ones first."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    rows = [Row(event["cat"], event["name"], round(event["ts"] * 1000), round(event["dur"] * 1000),
                event.get("args", {}).get("correlation", 0)) for event in events if event["ph"] == "X"]
    return sorted(rows, key=lambda row: (row.start, -row.end))


def without_frames(source: Path, target: Path) -> Path:
    """The same Kineto trace without Python stacks."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") != "python_function"]
    target.write_text(json.dumps(document))
    return target


def as_ascend(rows: list[Row], *, queue: bool = False) -> AscendRun:
    """What torch_npu's profiler would have recorded of the run; `queue`: with the task queue on, which is its default.

    Marks of the program are operators there. Each device row is joined to its call, and to the operator around it."""
    run = AscendRun()
    calls: dict[int, tuple[Host, Host | None]] = {}
    open_: list[tuple[int, Host]] = []
    for row in rows:
        if row.category not in HOST_KINDS:
            continue
        while open_ and open_[-1][0] <= row.start:
            open_.pop()
        if row.category != "privateuse1_runtime":
            category = "python_function" if row.category == "python_function" else "cpu_op"
            host = run.row(row.name, row.start / 1000, row.dur / 1000, category)
            if row.category == "cpu_op":
                open_.append((row.end, host))
            continue
        asker = open_[-1][1] if open_ else None
        if queue and row.call in ("LaunchKernel", "MemcpyAsync"):
            call = _queued(run, row, asker)
        else:
            call = run.call(_CANN[row.call], row.start / 1000, row.dur / 1000)
        calls[row.correlation] = call, asker
    for row in rows:
        if row.category in HOST_KINDS:
            continue
        call, asker = calls[row.correlation]
        if row.is_copy:
            way = _WAYS[_COPY.match(row.name)[1]][1]  # type: ignore[index]
            run.copy(call, asker, row.start / 1000, row.dur / 1000, way)
        else:
            replayed = {"model": 7} if "Execute" in call.name else {}
            run.kernel(call, asker, row.start / 1000, row.dur / 1000, row.name, "AI_VECTOR_CORE", row.name, **replayed)
    return run


def _queued(run: AscendRun, row: Row, asker: Host | None) -> Host:
    """The operator hands over in the time that its launch took; the queue's thread calls in that same time."""
    start, dur = row.start / 1000, row.dur / 1000
    run._next += 1
    run.host.append(Host("Enqueue", start, dur, 4000, "enqueue", run._next))
    run.host.append(Host(f"Dequeue@{row.call}", start + 0.2, max(dur - 0.3, 0.1), 4001, "dequeue", run._next))
    return run.call(_CANN[row.call], start + 0.3, max(dur - 0.5, 0.05), 4001)


def as_nsight(rows: list[Row], path: Path, year: int = 2026) -> Path:
    """What Nsight Systems would have exported of the run, with PyTorch's NVTX ranges on. It has no Python frames."""
    export = Export(path, year)
    for i, row in enumerate(rows):
        start, end = row.start + _NSYS_START, row.end + _NSYS_START
        match row.category:
            case "cpu_op":
                export.range(f"{row.name}, seq = {i}, op_id = {i + 7}", start, end)
            case "user_annotation":
                export.range(row.name, start, end, registered=True)
            case "privateuse1_runtime":
                export.call(_CUDA[row.call], start, end, row.correlation)
            case "kernel":
                export.kernel(start, end, row.correlation, row.name)
            case "gpu_memcpy":
                way, source, target = _COPY.match(row.name).groups()  # type: ignore[union-attr]
                export.copy(start, end, row.correlation, _WAYS[way][0], _MEMORY[source], _MEMORY[target])
    return export.done()

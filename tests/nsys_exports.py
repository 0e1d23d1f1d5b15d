"""Small Nsight Systems exports for the tests, written row by row, in nanoseconds.

The layouts are those of the schema reference in the Nsight Systems documentation: of 2019 (NOT NULL throughout, with
defaults where there is no value, and no enumerations), of early 2021 (devices as CUDA numbers them), and of 2026.
Tables are created with their first row, as the exporter does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

PROCESS, THREAD = 4000, 4001

_CUPTI = "start end deviceId contextId {green} streamId correlationId globalPid"
_LAYOUT = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_CUPTI} demangledName shortName {{mangled}} gridX gridY gridZ {{graph}}",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_CUPTI} bytes copyKind srcKind dstKind {{graph}}",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_CUPTI} value bytes memKind {{graph}}",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_CUPTI} syncType eventId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_CUPTI} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue {calls}",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end eventClass globalTid correlationId nameId overheadType",
    "PROFILER_OVERHEAD": "start end globalTid nameId {overhead}",
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId {json}",
    "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
    "MPI_COLLECTIVES_EVENTS": "start end globalTid textId",
    "CUBLAS_EVENTS": "start end eventClass globalTid nameId",
    "ThreadNames": "nameId priority globalTid",
    "PROCESSES": "globalPid pid name",
    "TARGET_INFO_GPU": "vmId id name busLocation memoryBandwidth smCount",
    "TARGET_INFO_CUDA_GPU": "deviceId name memoryBandwidth",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
    "ENUM_CUDA_MEM_KIND": "id name label",
    "ENUM_CUDA_MEMCPY_OPER": "id name label",
    "ENUM_NSYS_EVENT_TYPE": "id name label",
    "ENUM_CUPTI_OVERHEAD_TYPE": "id name label",
}
_NEWER = {
    2019: {},
    2021: {"json": "jsonText", "calls": "callchainId", "graph": "graphNodeId"},
    2026: {"json": "jsonText", "calls": "callchainId", "graph": "graphNodeId", "green": "greenContextId",
           "mangled": "mangledName", "overhead": "overheadType"},
}
YEARS = tuple(_NEWER)
_TEXTS = {"value", "text", "name", "label", "jsonText", "busLocation", "uuid"}


def process(pid: int = PROCESS) -> int:
    """globalPid: hardware and VM in the high bytes, then 24 bits of process, then 24 of thread."""
    return 1 << 48 | pid << 24


def thread(tid: int = THREAD, pid: int = PROCESS) -> int:
    """globalTid."""
    return process(pid) | tid


class Export:
    """An export in the making; `path` holds it after `done()`."""

    def __init__(self, path: Path, year: int = 2026) -> None:
        self.path, self.year = path, year
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("BEGIN")
        self._columns: dict[str, list[str]] = {}
        self._strings: dict[str, int] = {}

    def done(self) -> Path:
        self.connection.execute("COMMIT")
        self.connection.close()
        return self.path

    def create(self, table: str) -> list[str]:
        """The table, empty."""
        if table not in self._columns:
            fields = {key: _NEWER[self.year].get(key, "") for key in ("green", "mangled", "graph", "calls", "json",
                                                                      "overhead")}
            columns = self._columns[table] = _LAYOUT[table].format(**fields).split()
            kind = "NOT NULL" if self.year == 2019 else ""
            self.connection.execute("CREATE TABLE {} ({})".format(table, ", ".join(
                f'"{name}" {"TEXT" if name in _TEXTS else "INTEGER"} {kind}' for name in columns)))
        return self._columns[table]

    def row(self, table: str, **values: Any) -> None:
        """One row. What is not given is NULL; in the layout of 2019, where nothing can be, a default."""
        columns = self.create(table)
        unset = {name: ("" if name in _TEXTS else 0) if self.year == 2019 else None for name in columns}
        whole = [{**unset, **values}[name] for name in columns]
        self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(whole))})", whole)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = 100 + len(self._strings)
            self.row("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def kernel(self, start: int, end: int, correlation: int, name: str = "void gemm<float>(float*)", *,
               device: int = 0, stream: int = 7, pid: int = PROCESS, **more: Any) -> None:
        self.row("CUPTI_ACTIVITY_KIND_KERNEL", **{
            "start": start, "end": end, "correlationId": correlation, "deviceId": device, "streamId": stream,
            "globalPid": process(pid), "demangledName": self.string(name),
            "shortName": self.string(name.partition("<")[0]), **more})

    def copy(self, start: int, end: int, correlation: int, kind: int = 1, source: int | None = 0,
             target: int | None = 2, *, device: int = 0, stream: int = 7, pid: int = PROCESS) -> None:
        self.row("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, correlationId=correlation, copyKind=kind,
                 srcKind=source, dstKind=target, deviceId=device, streamId=stream, globalPid=process(pid))

    def graph(self, start: int, end: int, correlation: int, number: int | None = 12, *, device: int = 0) -> None:
        self.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=start, end=end, correlationId=correlation, deviceId=device,
                 streamId=7, globalPid=process(), graphId=number)

    def call(self, name: str, start: int, end: int, correlation: int, *, tid: int = THREAD,
             pid: int = PROCESS) -> None:
        self.row("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, correlationId=correlation,
                 globalTid=thread(tid, pid), nameId=self.string(name))

    def os_call(self, name: str, start: int, end: int, *, tid: int = THREAD) -> None:
        self.row("OSRT_API", start=start, end=end, globalTid=thread(tid), nameId=self.string(name))

    def range(self, text: str, start: int, end: int | None, *, tid: int = THREAD, pid: int = PROCESS,
              event_type: int = 59, registered: bool = False, **more: Any) -> None:
        """An NVTX event: 59 push/pop, 60 start/end, 34 mark. `registered`: the text lies in StringIds."""
        said = {"textId": self.string(text)} if registered else {"text": text}
        more = {"end": end, **said, **more} if end is not None else {**said, **more}
        self.row("NVTX_EVENTS", start=start, eventType=event_type, globalTid=thread(tid, pid), **more)

    def gpu(self, number: int, name: str, bandwidth: int | None) -> None:
        if self.year == 2026:
            self.row("TARGET_INFO_GPU", id=number, name=name, memoryBandwidth=bandwidth)
        else:
            self.row("TARGET_INFO_CUDA_GPU", deviceId=number, name=name, memoryBandwidth=bandwidth)


def simple(path: Path, year: int = 2026, *, left_out: tuple[str, ...] = ()) -> Path:
    """Two launches, a read-back that waits, and the step around them; some tables dropped at the end.

    On device 0, stream 7: gemm 1000–3000 and 3500–4000, a copy to the host 4000–4200. Busy: 2,700 ns.
    """
    export = Export(path, year)
    export.range("step 1", 100, 4400)
    export.range("aten::mm, seq = 7, op_id = 9", 150, 950)
    export.call("cudaLaunchKernel_v7000", 200, 900, 1)
    export.call("cudaLaunchKernel_v7000", 1000, 1100, 2)
    export.call("cudaMemcpyAsync_v3020", 1200, 4300, 3)
    export.kernel(1000, 3000, 1)
    export.kernel(3500, 4000, 2)
    export.copy(4000, 4200, 3, kind=2, source=2, target=0)
    export.gpu(0, "NVIDIA H100", 3_350_000_000_000)
    for table in left_out:
        export.connection.execute(f"DROP TABLE IF EXISTS {table}")
    return export.done()

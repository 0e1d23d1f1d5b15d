"""One made-up run on an Ascend NPU, written in every form its profilers export: trace_view.json at each level, the
database, kernel_details.csv. Times are µs from the run's own start; files carry ns since 1970, as the profilers write
them. Layers, columns and words are those of the profilers' documentation."""

from __future__ import annotations

import csv
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH_NS = 1_736_408_883_000_000_000
PID = 4000
MAIN, QUEUE = 4000, 4001
HARDWARE, CANN, HCCL, OVERLAP = 800, 801, 802, 803
NO_MODEL = 4294967295

_HARDWARE_WORD = {"AI_VECTOR_CORE": "AI_CORE"}          # the hardware's log does not tell vector cores
_DATABASE_WORD = {"AI_CORE": "KERNEL_AICORE", "AI_VECTOR_CORE": "KERNEL_AIVEC", "AI_CPU": "KERNEL_AICPU",
                  "MIX_AIV": "KERNEL_MIX_AIV"}
_LEVELS = {"AscendCL": 20000, "Node": 10000, "Runtime": 5000, "Hccl": 5500}


@dataclass
class Host:
    name: str
    start: float
    dur: float
    thread: int
    category: str
    """cpu_op, python_function, enqueue, dequeue or call."""
    link: int = -1


@dataclass
class Task:
    name: str
    start: float
    dur: float
    kind: str
    """kernel, copy, mark, collective, or member of a collective."""
    type: str = ""
    core: str = ""
    word: str = ""
    """As the hardware calls a task that is no kernel."""
    link: int = -1
    asker: Host | None = None
    call: Host | None = None
    stream: int = 2
    way: str = ""
    model: int = NO_MODEL


@dataclass
class AscendRun:
    host: list[Host] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    _next: int = 1000

    def row(self, name: str, start: float, dur: float, category: str = "cpu_op", thread: int = MAIN) -> Host:
        """A row of the program."""
        self.host.append(Host(name, start, dur, thread, category))
        return self.host[-1]

    def call(self, name: str, start: float, dur: float, thread: int = MAIN) -> Host:
        """A call of CANN (`AscendCL@aclrtSynchronizeStream`)."""
        self._next += 1
        self.host.append(Host(name, start, dur, thread, "call", self._next))
        return self.host[-1]

    def queued(self, asker: Host, what: str, enqueue: float, dequeue: float, dur: float = 10,
               launch: str = "Node@launch") -> Host:
        """`asker` hands work to the queue, whose thread calls the device. Returns that call."""
        self._next += 1
        self.host.append(Host("Enqueue", enqueue, 5, asker.thread, "enqueue", self._next))
        self.host.append(Host(f"Dequeue@{what}", dequeue, dur, QUEUE, "dequeue", self._next))
        return self.call(launch, dequeue + 2, dur - 4, QUEUE)

    def kernel(self, call: Host | None, asker: Host | None, start: float, dur: float, op_type: str = "MatMul",
               core: str = "AI_CORE", name: str = "", stream: int = 2, model: int = NO_MODEL) -> Task:
        return self._task(Task(name or f"aclnn{op_type}_{op_type}", start, dur, "kernel", op_type, core, call=call,
                               asker=asker, stream=stream, model=model))

    def copy(self, call: Host | None, asker: Host | None, start: float, dur: float, way: str = "") -> Task:
        return self._task(Task("MEMCPY_ASYNC", start, dur, "copy", word="PCIE_DMA_SQE", call=call, asker=asker,
                               way=way))

    def mark(self, name: str, start: float, dur: float) -> Task:
        return self._task(Task(name, start, dur, "mark", word=f"{name}_SQE"))

    def collective(self, call: Host | None, asker: Host | None, start: float, dur: float, number: int = 0) -> Task:
        whole = self._task(Task(f"hcom_allReduce__868_{number}_1", start, dur, "collective", "hcom_allReduce_",
                                call=call, asker=asker))
        for name, at, ns in (("Notify Wait", start, dur / 2), ("SDMA", start + dur / 2, dur / 2)):
            self.tasks.append(Task(name, at, ns, "member", word=name, link=whole.link, stream=4))
        return whole

    def _task(self, task: Task) -> Task:
        task.link = task.call.link if task.call else -1
        self.tasks.append(task)
        return task

    # -- text
    def events(self, level: int = 1) -> list[dict[str, Any]]:
        """The events of trace_view.json."""
        out = [_meta(PID, "process_name", name="Python"), _meta(PID, "process_labels", labels="CPU"),
               _meta(HARDWARE, "process_name", name="Ascend Hardware"),
               _meta(HCCL, "process_name", name="HCCL"), _meta(HCCL, "thread_name", 0, name="Group 0 Communication"),
               _meta(HCCL, "thread_name", 1, name="Plane 0"), _meta(OVERLAP, "process_name", name="Overlap Analysis")]
        out += [_meta(CANN, "process_name", name="CANN")] * (level > 0)
        out.append(_x(OVERLAP, 0, "Computing", 0, 1e6))
        for row in self.host:
            if row.category != "call":
                args = {} if row.link < 0 else {"correlation_id": row.link}
                out.append({**_x(PID, row.thread, row.name, row.start, row.dur, **args), "cat": row.category})
            elif level:
                out.append(_x(CANN, row.thread, row.name, row.start, row.dur, connection_id=row.link))
        for task in self.tasks:
            out += self._task_events(task, level)
        return out

    def _task_events(self, task: Task, level: int) -> list[dict[str, Any]]:
        pid, tid = (HCCL, 0) if task.kind == "collective" else (HARDWARE, task.stream)
        args: dict[str, Any] = {"connection_id": task.link, "Model Id": task.model}
        if task.kind != "collective":
            args["Task Type"] = task.word or _HARDWARE_WORD.get(task.core, task.core)
        if task.way and level > 1:
            args["memcpy direction"] = task.way
        out = [_x(pid, tid, task.name, task.start, task.dur, **args)]
        if task.kind == "member":
            out.append(_x(HCCL, 1, "Notify_Wait", task.start, task.dur, **{"task type": "Notify_Wait"}))
        if task.call:
            at = _us(task.call.start + 0.5)
            flow: dict[str, Any] = {"cat": "HostToDevice", "id": str(task.link << 32), "name": "HostToDevice"}
            out += [{**flow, "ph": "s", "pid": CANN, "tid": task.call.thread, "ts": at},
                    {**flow, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _us(task.start)}]
        if task.asker:
            flow = {"cat": "async_npu", "id": EPOCH_NS + round(task.start * 1000), "name": "torch_to_npu"}
            out += [{**flow, "ph": "s", "pid": PID, "tid": task.asker.thread, "ts": _us(task.asker.start)},
                    {**flow, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _us(task.start)}]
        return out

    def text(self, folder: Path, level: int = 1, table: bool = True) -> Path:
        """trace_view.json in `folder`, with kernel_details.csv beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "trace_view.json"
        path.write_text(json.dumps(self.events(level)))
        if table:
            self.operations(folder / "kernel_details.csv", level)
        return path

    def operations(self, path: Path, level: int = 1) -> Path:
        """kernel_details.csv."""
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Stream ID"])
            for task in self.tasks:
                if task.kind in ("kernel", "collective"):
                    core = task.core if task.kind == "kernel" else "HCCL"
                    known = (task.type, core) if level else ("N/A", "N/A")
                    out.writerow([1, task.name, *known, _us(task.start) + "\t", f"{task.dur:.3f}", task.stream])
        return path

    # -- the database
    def database(self, path: Path, *, text_times: bool = True, program: bool = True,
                 directions: bool = False) -> Path:
        """ascend_pytorch_profiler_<rank>.db; without `program` what msprof writes; `directions` of copies at Level2."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        strings: dict[str, int] = {}

        def known(text: str) -> int:
            return strings.setdefault(text, len(strings))

        db = sqlite3.connect(path)
        tables = {"NPU_INFO": ("id", "name"), "ENUM_API_TYPE": ("id", "name"), "STRING_IDS": ("id", "value"),
                  "CANN_API": ("startNs", "endNs", "type", "globalTid", "connectionId", "name"),
                  "TASK": ("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "taskType", "streamId",
                           "modelId"),
                  "COMPUTE_TASK_INFO": ("globalTaskId", "name", "taskType", "opType"),
                  "COMMUNICATION_TASK_INFO": ("globalTaskId", "name"),
                  "COMMUNICATION_OP": ("opName", "startNs", "endNs", "connectionId", "groupName", "opType")}
        kind = "TEXT" if text_times else "INTEGER"
        for name, columns in tables.items():
            db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        if directions:
            db.execute("CREATE TABLE MEMCPY_INFO (globalTaskId, size, memcpyOperation)")
            db.execute("CREATE TABLE ENUM_MEMCPY_OPERATION (id INTEGER, name TEXT)")
            ways = {"host to device": 1, "device to host": 2, "device to device": 3}
            db.executemany("INSERT INTO ENUM_MEMCPY_OPERATION VALUES (?, ?)", [(i, way) for way, i in ways.items()])
        if program:
            db.execute(f"CREATE TABLE PYTORCH_API (startNs {kind}, endNs {kind}, globalTid INTEGER,"
                       " connectionId INTEGER, name INTEGER, type INTEGER)")
            db.execute("CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER)")
        db.execute("INSERT INTO NPU_INFO VALUES (0, 'Ascend910B')")
        db.executemany("INSERT INTO ENUM_API_TYPE VALUES (?, ?)", [
            (5000, "runtime"), (5500, "hccl"), (10000, "node"), (20000, "acl"), (50001, "op"), (50002, "queue"),
            (50003, "trace")])
        number = {id(row): i for i, row in enumerate(self.host)}
        for i, row in enumerate(self.host):
            level, _, name = row.name.partition("@")
            if row.category == "call":
                db.execute("INSERT INTO CANN_API VALUES (?, ?, ?, ?, ?, ?)", (
                    _ns(row.start), _end(row), _LEVELS[level], PID << 32 | row.thread, row.link, known(name)))
            elif program:
                what = {"cpu_op": 50001, "python_function": 50003}.get(row.category, 50002)
                db.execute("INSERT INTO PYTORCH_API VALUES (?, ?, ?, ?, ?, ?)", (
                    _ns(row.start), _end(row), PID << 32 | row.thread, i, known(row.name), what))
                if row.link >= 0:
                    db.execute("INSERT INTO CONNECTION_IDS VALUES (?, ?)", (i, row.link))
        for i, task in enumerate(self.tasks):
            if task.asker and program:
                db.execute("INSERT INTO CONNECTION_IDS VALUES (?, ?)", (number[id(task.asker)], task.link))
            start, end = _ns(task.start), _end(task)
            if task.kind == "collective":
                db.execute("INSERT INTO COMMUNICATION_OP VALUES (?, ?, ?, ?, ?, ?)", (
                    known(task.name), start, end, task.link, known("group"), known(task.type)))
                continue
            word = _DATABASE_WORD.get(task.core, task.core) or (task.name if task.kind != "member" else task.word)
            db.execute("INSERT INTO TASK VALUES (?, ?, 0, ?, ?, ?, ?, ?)", (
                start, end, task.link, i, known(word), task.stream, task.model))
            if task.kind == "kernel":
                db.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (?, ?, ?, ?)", (
                    i, known(task.name), known(task.core), known(task.type)))
            elif task.kind == "copy" and directions:
                db.execute("INSERT INTO MEMCPY_INFO VALUES (?, ?, ?)", (i, 4096, ways[task.way]))
            elif task.kind == "member":
                db.execute("INSERT INTO COMMUNICATION_TASK_INFO VALUES (?, ?)", (i, known(task.name)))
        db.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(i, text) for text, i in strings.items()])
        db.commit()
        db.close()
        return path


def _ns(us: float) -> int:
    return EPOCH_NS + round(us * 1000)


def _end(row: Host | Task) -> int:
    return _ns(row.start) + round(row.dur * 1000)


def _us(us: float) -> str:
    ns = _ns(us)
    return f"{ns // 1000}.{ns % 1000:03d}"


def _x(pid: int, tid: int, name: str, start: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": _us(start), "dur": dur, "args": args}


def _meta(pid: int, what: str, tid: int = 0, **args: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def serving_run(steps: int = 4, ai_cpu_us: float = 0.0) -> AscendRun:
    """Decode steps of 2 ms: two kernels through the queue, a collective half under the second, a read-back that waits.

    Each step (µs): kernel MatMul 100–510, hcom_allReduce 400–800, Add 900–1000; sync 1100–1130, aclrtMemcpy 1130–1180.
    With `ai_cpu_us` a MaskedScatter on AI_CPU from 1200 on."""
    run = AscendRun()
    for step in range(steps):
        t = 2000.0 * step
        run.row(f"ProfilerStep#{step + 1}", t, 1990)
        mm = run.row("aten::mm", t + 20, 60)
        run.kernel(run.queued(mm, "aclnnMm", t + 60, t + 80), mm, t + 100, 410)
        reduce = run.row("c10d::allreduce_", t + 90, 60)
        run.collective(run.queued(reduce, "HcclAllreduce", t + 130, t + 150), reduce, t + 400, 400, step)
        run.mark("EVENT_WAIT", t + 500, 400)
        add = run.row("aten::add", t + 160, 60)
        run.kernel(run.queued(add, "aclnnAdd", t + 200, t + 220), add, t + 900, 100, "Add", "AI_VECTOR_CORE")
        run.row("aten::item", t + 300, 900)
        run.row("aten::_local_scalar_dense", t + 310, 880)
        run.call("AscendCL@aclrtSynchronizeStreamWithTimeout", t + 320, 810)
        run.call("AscendCL@aclrtMemcpy", t + 1130, 50)
        if ai_cpu_us:
            scatter = run.row("aten::masked_scatter_", t + 1204, 60)
            call = run.queued(scatter, "aclnnMaskedScatter", t + 1210, t + 1216)
            run.kernel(call, scatter, t + 1230, ai_cpu_us, "MaskedScatter", "AI_CPU")
    return run

"""`kernel_details.csv`, msprof's `op_summary_*.csv` and `task_time*.csv`: work of the device, with its kind of core."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import UnusableInput
from ...text import clean
from ...trace import Kind
from .. import times
from . import csv_table
from .run import Codes, Run, device_rows, host_rows
from .words import COLLECTIVES, REPEATED, collective_name, core_of, kernel_name, task_kind

FILE = "kernel_details.csv"
START = ("Start Time(us)", "Task Start Time(us)", "task_start(us)")
DURATION = ("Duration(us)", "Task Duration(us)", "task_time(us)")
NAME = ("Name", "Op Name", "kernel_name")
TYPE = ("Type", "OP Type")
CORE = ("Accelerator Core", "Accelerator", "Task Type", "kernel_type")
DEVICE = ("Device_id", "Device ID", "Device Id", "device_id")
STREAM = ("Stream ID", "Stream Id", "stream_id")
STEP = ("Step Id", "Step ID")
"""The iteration that a row belongs to: in the table where the program marks its steps to the profiler
(hiascend.com, Ascend PyTorch Profiler, kernel_details.csv)."""


class Operation(NamedTuple):
    start: int
    dur: int
    name: str
    type: str
    core: str
    """As the file says, empty for N/A."""
    device: str
    stream: str
    step: str


def is_table(columns: list[str]) -> bool:
    """Whether a CSV file with these columns lists operations with their times."""
    return all(any(name in columns for name in wanted) for wanted in (START, DURATION, NAME))


def operations(path: Path) -> Iterator[Operation | None]:
    """The operations in a file; None for a row that cannot be read."""
    for row in csv_table.rows(path):
        start, dur = times.one(csv_table.value(row, *START)), csv_table.number(row, *DURATION)
        if start is None or dur is None or not 0 <= dur < times.FLOAT_LIMIT_US:
            yield None
            continue
        yield Operation(start, round(dur * 1000), *(csv_table.value(row, *names)
                                                    for names in (NAME, TYPE, CORE, DEVICE, STREAM, STEP)))


def join(run: Run, folder: Path) -> None:
    """Give the kernels of a trace the type and core that `kernel_details.csv` beside it names, found by their start.

    Names of `run.device` change, and kernels whose type is an exchange become one. A table that cannot be read is
    noted: the trace stands by itself."""
    path = folder / FILE
    if not path.is_file():
        return
    try:
        known = {(op.start, op.name): op for op in operations(path) if op is not None}
    except (UnusableInput, OSError) as error:
        run.notes.append(f"{FILE} beside it could not be read ({error}): kinds of core are those of the trace")
        return
    names, device = list(run.names), run.device
    found = told = 0
    kernels = np.flatnonzero(device.kind == Kind.KERNEL)
    for row in kernels.tolist():
        shown = names[device.name[row]]
        op = known.get((int(device.start[row]), shown.removesuffix(" (AI_CPU)")))
        if op is None:
            continue
        found += 1
        told += bool(op.core)
        core = core_of(op.core) or ("AI_CPU" if shown.endswith(" (AI_CPU)") else "")
        if task_kind(op.core, op.name, op.type)[0] == Kind.COMM:
            device.kind[row], device.name[row] = Kind.COMM, run.names[clean(collective_name(op.name, op.type))]
            continue
        device.name[row] = run.names[clean(kernel_name(op.name, op.type, core))]
    if found:
        run.cores_known = told > 0
    if len(kernels) and found < len(kernels):
        run.notes.append(f"{FILE} beside it names {found:,} of the {len(kernels):,} kernels")


def read(path: Path) -> Run:
    """The operations of a file alone: the device's side of a run, without its host."""
    names, devices, streams = Codes(), Codes(), Codes()
    rows: list[tuple[int, ...]] = []
    steps: dict[str, tuple[int, int]] = {}
    unreadable = events = repeated = 0
    told = False
    for op in operations(path):
        events += 1
        if op is None:
            unreadable += 1
            continue
        kind, _ = task_kind(op.core, op.name, op.type)
        if kind == REPEATED:
            repeated += 1
            continue
        comm = kind == Kind.COMM
        core = core_of(op.core) if kind == Kind.KERNEL else ""
        told |= bool(core)
        shown = collective_name(op.name, op.type) if comm else kernel_name(op.name, op.type, core)
        label = f"NPU {op.device}" if op.device else "NPU"
        lane = f"{label}/{COLLECTIVES[0] if comm else op.stream or '?'}"
        rows.append((op.start, op.dur, names[clean(shown)], kind,
                     devices[clean(label)], streams[clean(lane)]))
        if op.step:
            first, last = steps.get(op.step, (op.start, op.start))
            steps[op.step] = (min(first, op.start), max(last, op.start + op.dur))
    table = np.array(rows, np.int64).reshape(-1, 6)
    device = device_rows(table[:, 0].copy(), table[:, 1].copy(), table[:, 2], table[:, 3], table[:, 4], table[:, 5],
                         np.full(len(table), -1, np.int64))
    missing = "the host is" if (table[:, 3] == Kind.COPY).any() else "copies and the host are"
    notes = [f"a table of device operations alone: {missing} not in it, so that idle time has no cause"]
    if unreadable:
        notes.append(f"{unreadable:,} rows could not be read: left out")
    return Run(host=host_rows([]), device=device, names=names, threads=(), devices=tuple(devices),
               streams=tuple(streams), cores_known=told, events=events, repeated=repeated,
               unreadable=unreadable, notes=notes,
               steps=tuple((f"ProfilerStep#{clean(step)}", *span) for step, span in steps.items()))

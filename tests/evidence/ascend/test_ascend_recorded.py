"""The reader against recorded profiles of others: the vendor's own sums of the same run, and raw rows."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from xpu_triage.evidence import ascend
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind, Trace

WITHIN = 0.001


@pytest.fixture
def recorded(shared: Path) -> Path:
    return shared / "traces" / "ascend"


def values(trace: Trace) -> dict[str, Any]:
    return {signal.name: signal.value for signal in walk(trace).signals}


def parts_ms(trace: Trace) -> dict[str, float]:
    """Milliseconds of the one step, and idle between the first and last of compute and communication."""
    found = values(trace)
    work = (trace.kind == Kind.KERNEL) | (trace.kind == Kind.COMM)
    first, last = int(trace.start[work].min()), int(trace.end[work].max())
    wall = found["step.wall_ms"]
    compute, comm = found["device.compute_fraction"] * wall, found["device.comm_fraction"] * wall
    stage = (last - first) / 1e6
    return {"compute": compute, "comm": comm, "stage": stage, "free": stage - compute - comm}


def vendors_ms(folder: Path) -> dict[str, float]:
    """The same as the vendor adds it up: step_trace_time.csv, or analysis.db."""
    table = folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    if table.is_file():
        with table.open() as file:
            row = next(csv.DictReader(file))
        names = {"compute": "Computing", "comm": "Communication(Not Overlapped)", "free": "Free", "stage": "Stage"}
        return {part: float(row[name]) / 1e3 for part, name in names.items()}
    db = sqlite3.connect(f"file:{folder / 'ASCEND_PROFILER_OUTPUT' / 'analysis.db'}?mode=ro&immutable=1", uri=True)
    row = db.execute("SELECT computing, communication_not_overlapped, free, stage FROM StepTraceTime").fetchone()
    db.close()
    return dict(zip(("compute", "comm", "free", "stage"), (value / 1e3 for value in row), strict=True))


@pytest.mark.parametrize("name", ["text-level0", "text-level1", "text-level2", "db-level1"])
def test_the_step_divides_as_the_vendor_divides_it(recorded: Path, name: str) -> None:
    folder = recorded / f"{name}-rank0_ascend_pt"
    assert parts_ms(ascend.read(folder)) == pytest.approx(vendors_ms(folder), rel=WITHIN)


def test_the_step_divides_as_the_index_says(recorded: Path) -> None:
    found = parts_ms(ascend.read(recorded / "text-level1-rank0_ascend_pt"))
    assert {part: round(ms, 1) for part, ms in found.items()} == {
        "compute": 8.9, "comm": 102.0, "free": 25.7, "stage": 136.6}


@pytest.mark.parametrize("name", ["text-level0", "text-level1", "text-level2", "db-level1"])
def test_nothing_is_left_unplaced_or_unlinked(recorded: Path, name: str) -> None:
    trace = ascend.read(recorded / f"{name}-rank0_ascend_pt")
    assert trace.counts.unplaced == trace.counts.unreadable == 0
    assert (trace.launch[trace.on_device] >= 0).all()
    assert (trace.kind == Kind.COMM).sum() == 4
    assert (trace.kind == Kind.KERNEL).sum() == 187
    assert trace.format.split()[-1] == f"Level{name[-1]}"


def test_text_and_database_of_the_same_program_count_the_same(recorded: Path) -> None:
    """Two runs of one program, 28 minutes apart: what is counted is equal, what is timed is not."""
    folders = (recorded / f"{name}-rank0_ascend_pt" for name in ("text-level1", "db-level1"))
    text, database = (values(ascend.read(folder)) for folder in folders)
    assert text.keys() - {"comm.host_ms"} == database.keys() - {"comm.host_ms"}     # there where an operator was slow
    for name in ("step.method", "step.count", "kernel.recorded", "kernel.per_step", "kernel.graph_fraction",
                 "kernel.top_name", "comm.calls_per_step", "sync.per_step", "sync.site", "fallback.op",
                 "warmup.compiles", "idle.host_op"):
        assert text[name] == database[name], name
    assert database["device.compute_fraction"] * database["step.wall_ms"] == pytest.approx(
        text["device.compute_fraction"] * text["step.wall_ms"], rel=0.01)


def test_level0_is_honest_about_cores_and_synchronizations(recorded: Path) -> None:
    trace = ascend.read(recorded / "text-level0-rank0_ascend_pt")
    assert {"fallback.op", "kernel.top_core", "sync.per_step"} <= set(trace.meta["cannot"])
    assert "sync.per_step" not in values(trace)


def test_the_synchronizations_of_the_step_are_those_in_the_file(recorded: Path) -> None:
    folder = recorded / "text-level1-rank0_ascend_pt"
    events = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    step = next(event for event in events if event["name"] == "ProfilerStep#50")
    start, end = float(step["ts"]), float(step["ts"]) + step["dur"]
    calls = [event for event in events if event["name"].startswith("AscendCL@aclrtSynchronize")
             and start <= float(event["ts"]) < end]
    assert values(ascend.read(folder))["sync.per_step"] == len(calls) == 7


def test_two_ai_cpu_tasks_are_found_in_the_trace_with_45_items(recorded: Path) -> None:
    trace = ascend.read(recorded / "trace_view-45-item-2-aicpu.json")
    on_cpu = [row for row in range(len(trace)) if "(AI_CPU)" in trace.name_of(row)]
    assert len(on_cpu) == 2
    assert sum(trace.dur[on_cpu].tolist()) == pytest.approx(327_600, rel=WITHIN)
    assert [trace.name_of(row) for row in range(len(trace))].count("aten::item") == 45
    found = values(trace)
    assert found["kernel.top_core"] == "AI_CPU"
    assert found["step.wall_ms"] == pytest.approx(14.092, rel=WITHIN)
    assert found["device.compute_fraction"] * found["step.wall_ms"] == pytest.approx(1.78825, rel=WITHIN)


def test_seven_ai_cpu_casts_are_found_among_591_operations(recorded: Path) -> None:
    trace = ascend.read(recorded / "kernel_details-7-aicpu-rows.csv")
    casts = [row for row in range(len(trace)) if trace.name_of(row) == "Cast (AI_CPU)"]
    assert (len(trace), len(casts)) == (591, 7)
    assert sum(trace.dur[casts].tolist()) / 1000 == pytest.approx(785, rel=WITHIN)
    assert values(trace)["fallback.op"] == "Cast (AI_CPU)"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_file_of_a_folder_is_read_through_its_trace_or_is_none_of_ascends(recorded: Path, level: int) -> None:
    folder = recorded / f"text-level{level}-rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    files = [(path, ascend.kind_of(path, path.read_bytes()[:1 << 16])) for path in sorted(folder.iterdir())]
    known = {path.name: kind for path, kind in files if kind}
    assert known["trace_view.json"] == ascend.TRACE
    assert known["kernel_details.csv"] == ascend.OPERATIONS
    assert {"step_trace_time.csv", "operator_details.csv"} <= {n for n, kind in known.items() if kind == ascend.SUMMARY}
    leads = ascend.members([(path, kind) for path, kind in files if kind])
    assert {path.name for path in leads.values()} == {"trace_view.json"}

"""Which row launched a piece of device work, where a queue lies between the operator and the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_files import AscendRun
from xpu_triage.evidence import ascend
from xpu_triage.steps.walk import walk
from xpu_triage.trace import BEFORE_CAPTURE, NOT_LINKED, Kind, Trace


def launch_of(trace: Trace, name: str) -> str:
    row = next(row for row in range(len(trace)) if trace.name_of(row).startswith(name) and trace.kind[row] >= 5)
    return trace.name_of(int(trace.launch[row])) if trace.launch[row] >= 0 else ""


def both(run: AscendRun, folder: Path) -> list[Trace]:
    return [ascend.read(run.text(folder / "text")), ascend.read(run.database(folder / "run.db"))]


def test_where_the_queue_was_empty_the_operator_sets_the_pace(tmp_path: Path) -> None:
    run = AscendRun()
    op = run.row("aten::mm", 1000, 60)
    run.kernel(run.queued(op, "aclnnMm", 1040, 1060), op, 1080, 50)
    assert [launch_of(trace, "MatMul") for trace in both(run, tmp_path)] == ["Enqueue", "Enqueue"]


def test_where_the_queues_thread_works_off_a_backlog_its_call_is_the_launch(tmp_path: Path) -> None:
    """The second piece is handed over at 1,010 while the first holds the queue's thread until 1,150."""
    run = AscendRun()
    first, second = run.row("aten::conv2d", 990, 15), run.row("aten::mm", 1006, 15)
    run.kernel(run.queued(first, "Conv2D", 1000, 1020, 130), first, 1030, 5, "Conv2D")
    run.kernel(run.queued(second, "aclnnMm", 1010, 1150, 20), second, 1160, 50)
    assert [launch_of(trace, "MatMul") for trace in both(run, tmp_path)] == ["Node@launch"] * 2


def test_where_the_queues_thread_takes_long_its_call_is_the_launch(tmp_path: Path) -> None:
    """The operator is compiled on the queue's thread: its call begins 900 µs after it was handed over."""
    run = AscendRun()
    op = run.row("aten::conv2d", 1000, 60)
    run.queued(op, "Conv2D", 1040, 1060, 1000, launch="AscendCL@aclopCompileAndExecute")
    run.kernel(run.call("Node@launch", 1950, 10, 4001), op, 1970, 50)
    assert [launch_of(trace, "MatMul") for trace in both(run, tmp_path)] == ["Node@launch"] * 2


def test_where_the_device_never_waited_the_operator_is_the_launch(tmp_path: Path) -> None:
    """The same backlog under a kernel that runs until 2,000: idle time hangs on neither, and the operator names it."""
    run = AscendRun()
    first, second = run.row("aten::conv2d", 990, 15), run.row("aten::mm", 1006, 15)
    run.kernel(run.queued(first, "Conv2D", 1000, 1020, 130), first, 1030, 970, "Conv2D")
    run.kernel(run.queued(second, "aclnnMm", 1010, 1150, 20), second, 2001, 50)
    assert [launch_of(trace, "MatMul") for trace in both(run, tmp_path)] == ["Enqueue"] * 2


def test_work_called_without_a_queue_belongs_to_the_call(tmp_path: Path) -> None:
    run = AscendRun()
    op = run.row("aten::mm", 0, 60)
    run.kernel(run.call("Node@launch", 20, 10), op, 40, 50)
    for trace in both(run, tmp_path):
        assert launch_of(trace, "MatMul") == "Node@launch"
        assert trace.kind[trace.launch[trace.on_device]].tolist() == [Kind.RUNTIME]


def test_a_call_that_launches_many_kernels_is_no_graph(tmp_path: Path) -> None:
    run = AscendRun()
    op = run.row("aten::addmm", 0, 200)
    call = run.call("AscendCL@aclnnAddmm", 20, 100)
    for i in range(12):
        run.kernel(call, op, 40 + 10 * i, 5)
    for trace in both(run, tmp_path):
        found = {signal.name: signal.value for signal in walk(trace).signals}
        assert found["kernel.graph_fraction"] == 0.0


def test_a_graph_that_is_executed_is_one(tmp_path: Path) -> None:
    run = AscendRun()
    op = run.row("npu::graph_replay", 0, 200)
    call = run.call("AscendCL@aclmdlRIExecuteAsync", 20, 10)
    for i in range(12):
        run.kernel(call, op, 40 + 10 * i, 5)
    for trace in both(run, tmp_path):
        found = {signal.name: signal.value for signal in walk(trace).signals}
        assert found["kernel.graph_fraction"] == 1.0


def test_work_whose_id_lies_below_all_calls_was_launched_before_the_capture(tmp_path: Path) -> None:
    run = AscendRun()
    early = run.kernel(None, None, 5, 10, "Early")
    early.link = 3
    late = run.kernel(None, None, 600, 10, "Late")
    late.link = 10**6
    for i in range(4):
        run.call("AscendCL@aclnnX", 100 * i, 10)
    for trace in both(run, tmp_path):
        by_name = {trace.name_of(row): int(trace.launch[row]) for row in trace.on_device.nonzero()[0].tolist()}
        assert by_name == {"Early (AI_CORE)": BEFORE_CAPTURE, "Late (AI_CORE)": NOT_LINKED}


@pytest.mark.parametrize("skew", [-15.0, 15.0])
def test_clocks_that_differ_by_some_microseconds_do_not_part_work_from_its_call(tmp_path: Path, skew: float) -> None:
    run = AscendRun()
    op = run.row("aten::mm", 100, 60)
    run.kernel(run.call("Node@launch", 120, 10), op, 121 + skew, 8)
    assert [launch_of(trace, "MatMul") for trace in both(run, tmp_path)] == ["Node@launch"] * 2

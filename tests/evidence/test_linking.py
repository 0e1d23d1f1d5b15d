"""Which call launched what, and which calls block. Rows are written as tables, in order of start."""

from __future__ import annotations

import numpy as np
import pytest

from kineto_files import Event, Reading, kernel, row_named, span
from xpu_triage.evidence.linking import blocking_calls, launches
from xpu_triage.trace import BEFORE_CAPTURE, NOT_LINKED, Kind, Trace

OP, CALL, WORK, COPY = Kind.HOST_OP, Kind.RUNTIME, Kind.KERNEL, Kind.COPY


def launch_of(*rows: tuple[Kind, int, int, int, int]) -> list[int]:
    """Rows of (kind, start, process or device, correlation, external)."""
    kind, start, owner, correlation, external = (np.array(column) for column in zip(*rows, strict=True))
    on_device = kind >= WORK
    return launches(kind.astype(np.int8), start.astype(np.int64), np.where(on_device, owner, -1).astype(np.int32),
                    np.where(on_device, -1, owner).astype(np.int32), correlation.astype(np.int64),
                    external.astype(np.int64)).tolist()


def test_correlation_goes_before_external_id() -> None:
    assert launch_of((OP, 0, 0, -1, 5), (CALL, 1, 0, 9, 5), (WORK, 2, 0, 9, 5)) == [-1, -1, 1]


def test_external_id_joins_work_without_a_call_to_its_operator() -> None:
    assert launch_of((OP, 0, 0, -1, 5), (CALL, 1, 0, 9, -1), (WORK, 2, 0, 11, 5)) == [-1, -1, 0]


def test_an_external_id_that_only_repeats_the_correlation_is_no_link() -> None:
    assert launch_of((OP, 0, 0, -1, 11), (CALL, 1, 0, 9, -1), (WORK, 2, 0, 11, 11))[2] == NOT_LINKED


def test_an_operator_that_starts_after_the_work_did_not_launch_it() -> None:
    assert launch_of((WORK, 0, 0, -1, 5), (OP, 1, 0, -1, 5))[0] == NOT_LINKED


def test_ids_of_zero_and_none_join_nothing() -> None:
    assert launch_of((OP, 0, 0, 0, 0), (CALL, 1, 0, 0, 0), (WORK, 2, 0, 0, 0), (WORK, 3, 0, -1, -1))[2:] == [-1, -1]


def test_ids_that_do_not_grow_with_time_do_not_tell_what_was_launched_before() -> None:
    growing = [(CALL, t, 0, 100 + t, -1) for t in range(20)]
    shuffled = [(CALL, t, 0, 100 + (t * 7) % 20, -1) for t in range(20)]
    work = (WORK, 30, 0, 50, -1)
    assert launch_of(*growing, work)[-1] == BEFORE_CAPTURE
    assert launch_of(*shuffled, work)[-1] == NOT_LINKED


def test_two_ranks_in_one_file_keep_to_their_own_ids() -> None:
    """Both count from 1; rank 1 lags by 10. Device 0 starts 5 after rank 0's calls, device 1 5 after rank 1's."""
    rows = sorted((row for rank in (0, 1) for i in range(1, 6) for row in (
        (CALL, 100 * i + 10 * rank, rank, i, -1), (WORK, 100 * i + 10 * rank + 5, rank, i, -1))), key=lambda r: r[1])
    launch = launch_of(*rows)
    for row, call in enumerate(launch):
        if rows[row][0] == WORK:
            assert rows[call][2] == rows[row][2]
            assert rows[call][3] == rows[row][3]


def merged(mark: str) -> list[Event]:
    """Captures of two ranks in one file, both of which count from 1. Rank 0's work starts 20 µs after its own calls and
    5 after those of rank 1: by the time between them it would be rank 1's."""
    rows: list[Event] = []
    for i in range(1, 6):
        for rank, (call, work) in enumerate(((0, 20), (15, 25))):
            before = mark.format(rank)
            pid = f"{before}{70 + rank}"
            rows += [span("cuda_runtime", f"launch {rank}", 100 * i + call, 1, pid=pid, correlation=i),
                     kernel(f"gemm {rank}", 100 * i + work, 3, device=f"{before}{rank}", correlation=i)]
    return rows


def linked(trace: Trace) -> set[tuple[str, str]]:
    return {(trace.name_of(row), trace.name_of(int(trace.launch[row])))
            for row in np.flatnonzero(trace.on_device).tolist()}


def test_in_merged_captures_the_ranks_mark_before_the_pids_tells_whose_call_it_was(reading: Reading) -> None:
    assert linked(reading(*merged("[TP{:02d}] "))) == {("gemm 0", "launch 0"), ("gemm 1", "launch 1")}


def test_without_such_marks_or_with_some_the_time_between_tells(reading: Reading) -> None:
    assert ("gemm 0", "launch 1") in linked(reading(*merged("")))
    unmarked = span("cuda_runtime", "cudaMalloc", 1, 1, pid=9)
    assert ("gemm 0", "launch 1") in linked(reading(unmarked, *merged("[TP{:02d}] ")))


def test_one_process_may_drive_several_devices() -> None:
    assert launch_of((CALL, 0, 0, 1, -1), (CALL, 1, 0, 2, -1), (WORK, 2, 0, 1, -1), (WORK, 3, 1, 2, -1))[2:] == [0, 1]


def test_the_first_of_two_calls_with_one_id_is_the_launch() -> None:
    assert launch_of((CALL, 0, 0, 4, -1), (CALL, 1, 0, 4, -1), (WORK, 2, 0, 4, -1))[2] == 0


@pytest.mark.parametrize(("call", "blocks"), [
    ("cudaStreamSynchronize", True), ("hipDeviceSynchronize", True), ("cuCtxSynchronize", True),
    ("urEventWait", True), ("zeEventHostSynchronize", True), ("aclrtSynchronizeStreamWithTimeout", True),
    ("hipMemcpyWithStream", True), ("cudaMemcpy", True),
    ("cudaMemcpyAsync", False), ("cudaStreamWaitEvent", False), ("cudaEventRecord", False),
    ("urEnqueueEventsWait", False), ("cudaLaunchKernel", False),
])
def test_calls_that_wait_by_their_name(reading: Reading, call: str, blocks: bool) -> None:
    trace = reading(span("cuda_runtime", call, 0, 5), span("cpu_op", f"my {call}", 9, 5))
    assert trace.blocking.tolist() == [blocks, False]


@pytest.mark.parametrize(("returns_at", "blocks"), [(30.0, True), (29.0, True), (28.9, False), (8.0, False)])
def test_a_copy_call_that_returns_when_its_copy_ends_waited_for_it(
        reading: Reading, returns_at: float, blocks: bool) -> None:
    trace = reading(span("cuda_runtime", "cudaMemcpyAsync", 5, returns_at - 5, correlation=1),
                    kernel("Memcpy DtoH (Device -> Pageable)", 20, 10, cat="gpu_memcpy", correlation=1))
    assert bool(trace.blocking[row_named(trace, "cudaMemcpyAsync")]) is blocks


def test_a_launch_that_outlasts_its_kernel_is_no_wait(reading: Reading) -> None:
    trace = reading(span("cuda_runtime", "cudaLaunchKernel", 5, 50, correlation=1), kernel("k", 20, 10, correlation=1))
    assert not trace.blocking.any()


def test_no_rows_block_nothing() -> None:
    empty = np.zeros(0, np.int64)
    assert not len(blocking_calls(empty.astype(np.int8), empty, empty.astype(np.int32), (), empty))

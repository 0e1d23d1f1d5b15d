"""The reader of Nsight Systems exports: every table, every layout, worked by hand."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kineto_files import names_at, row_named, rows_named
from nsys_exports import PROCESS, THREAD, YEARS, Export, process, simple, thread
from xpu_triage.evidence import nsys
from xpu_triage.roofline import devices
from xpu_triage.steps.walk import walk
from xpu_triage.trace import BEFORE_CAPTURE, NOT_LINKED, Kind, Trace


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "run.sqlite")


def read(export: Export) -> Trace:
    return nsys.read(export.done())


def signals(trace: Trace) -> dict[str, Any]:
    return {signal.name: signal.value for signal in walk(trace).signals}


def launcher(trace: Trace, row: int) -> str:
    return trace.name_of(int(trace.launch[row]))


# -- layouts
@pytest.mark.parametrize("year", YEARS)
def test_every_layout_gives_the_same_rows(tmp_path: Path, year: int) -> None:
    trace = nsys.read(simple(tmp_path / "run.sqlite", year))
    assert [(trace.name_of(i), Kind(int(trace.kind[i])), int(trace.start[i]), int(trace.dur[i]))
            for i in range(len(trace))] == [
        ("step 1", Kind.ANNOTATION, 0, 4300),
        ("aten::mm", Kind.HOST_OP, 50, 800),
        ("cudaLaunchKernel", Kind.RUNTIME, 100, 700),
        ("void gemm<float>(float*)", Kind.KERNEL, 900, 2000),
        ("cudaLaunchKernel", Kind.RUNTIME, 900, 100),
        ("cudaMemcpyAsync", Kind.RUNTIME, 1100, 3100),
        ("void gemm<float>(float*)", Kind.KERNEL, 3400, 500),
        ("Memcpy DtoH (Device -> Pageable)", Kind.COPY, 3900, 200)]
    assert trace.launch.tolist() == [-1, -1, -1, 2, -1, -1, 4, 5]
    assert trace.blocking.tolist() == [False] * 5 + [True, False, False]
    assert trace.devices == ("0 NVIDIA H100",)
    assert trace.streams == ("0/7",)
    assert trace.threads == (f"{PROCESS}/{THREAD}",)
    assert trace.notes == ()
    assert (trace.counts.events, trace.counts.kept) == (8, 8)


def test_the_versions_are_told(export: Export) -> None:
    export.kernel(0, 10, 1)
    export.row("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.2.1.210")
    export.row("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="4.0.1")
    trace = read(export)
    assert trace.format == "nsys 2026.2.1.210"
    assert trace.meta["schema"] == "4.0.1"
    assert any("schema 4.0.1 of the export is newer" in note for note in trace.notes)


def test_environment_and_command_line_stay_in_the_file(export: Export) -> None:
    export.kernel(0, 10, 1)
    export.row("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value='TOKEN="hush"')
    export.row("META_DATA_EXPORT", name="EXPORT_HOST", value="hush.example.org")
    trace = read(export)
    assert "hush" not in repr((trace.meta, trace.notes, trace.names, trace.threads))


# -- tables that are not there
def test_without_calls_nothing_is_linked_and_syncs_are_unknown(tmp_path: Path) -> None:
    trace = nsys.read(simple(tmp_path / "run.sqlite", left_out=("CUPTI_ACTIVITY_KIND_RUNTIME",)))
    assert trace.launch[trace.on_device].tolist() == [NOT_LINKED] * 3
    assert any("no CUDA calls in the export" in note for note in trace.notes)
    walked = walk(trace)
    assert "no CUDA calls" in walked.unknown["sync.wait_fraction"]
    assert "no CUDA calls" in walked.unknown["fallback.op"]         # its copies would have no launches
    assert not {"sync.wait_fraction", "fallback.op"} & signals(trace).keys()
    assert {"idle.after_sync_fraction", "idle.launching_fraction", "host.top_op"} <= trace.cannot.keys()


def test_without_strings_calls_have_no_names_and_none_of_them_is_said_not_to_wait(tmp_path: Path) -> None:
    trace = nsys.read(simple(tmp_path / "run.sqlite", left_out=("StringIds",)))
    found = walk(trace)
    assert "no StringIds" in found.unknown["sync.per_step"]
    assert "sync.per_step" not in {signal.name for signal in found.signals}
    assert {"sync.wait_fraction", "idle.after_sync_fraction", "host.top_op_fraction"} <= trace.cannot.keys()


def test_without_device_tables_busy_is_unknown_and_not_zero(tmp_path: Path) -> None:
    gone = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY"))
    trace = nsys.read(simple(tmp_path / "run.sqlite", left_out=gone))
    walked = walk(trace)
    assert "device.busy_fraction" not in signals(trace)
    assert "the profiler dropped them" in walked.unknown["device.busy_fraction"]
    assert any("no kernels in the export" in note for note in trace.notes)


def test_a_profiler_that_was_not_asked_for_cuda_is_named(export: Export) -> None:
    export.range("step 1", 0, 100)
    export.row("META_DATA_CAPTURE", name="CAPTURE_EVENT_TYPE", value="NvtxEvents")
    assert any("was not asked for CUDA" in note for note in read(export).notes)


def test_an_empty_table_is_a_missing_one(tmp_path: Path) -> None:
    for table in ("CUPTI_ACTIVITY_KIND_MEMSET", "OSRT_API", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        one = Export(tmp_path / f"{table}.sqlite")
        one.create(table)
        one.kernel(0, 10, 1)
        assert len(read(one)) == 1


def test_without_string_ids_the_rows_stay_and_say_so(tmp_path: Path) -> None:
    trace = nsys.read(simple(tmp_path / "run.sqlite", left_out=("StringIds",)))
    assert trace.on_device.sum() == 3
    assert any("no StringIds" in note for note in trace.notes)
    assert any("is not in the file" in name for name in trace.names)


def test_a_kernel_without_its_long_name_takes_the_short_one(export: Export) -> None:
    export.kernel(0, 10, 1, "gemm<8>", demangledName=77)
    export.kernel(20, 30, 2, "softmax<8>", demangledName=None)
    assert read(export).names == ("gemm", "softmax")


# -- names
def test_a_synchronous_copy_waits_whatever_its_version(export: Export) -> None:
    for i, name in enumerate(("cudaMemcpy_v3020", "cudaMemcpy_ptds_v7000", "cuMemcpyDtoH_v2",
                              "cudaStreamSynchronize_ptsz_v7000", "cudaLaunchKernel_v7000")):
        export.call(name, 100 * i, 100 * i + 50, i + 1)
    trace = read(export)
    assert names_at(trace, range(5)) == ["cudaMemcpy", "cudaMemcpy", "cuMemcpyDtoH_v2", "cudaStreamSynchronize",
                                         "cudaLaunchKernel"]
    assert trace.blocking.tolist() == [True, True, True, True, False]


def test_copies_are_spelled_by_the_files_own_numbers(export: Export) -> None:
    export.row("ENUM_CUDA_MEMCPY_OPER", id=1, name="CUDA_MEMCPY_KIND_DTOH", label="Device-to-Host")
    export.row("ENUM_CUDA_MEMCPY_OPER", id=40, name="CUDA_MEMCPY_KIND_UVM_HTOD", label="Unified Host-to-Device")
    export.row("ENUM_CUDA_MEM_KIND", id=0, name="CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC", label="")
    export.row("ENUM_CUDA_MEM_KIND", id=9, name="CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", label="")
    export.copy(0, 10, 1, kind=1, source=0, target=1)
    export.copy(20, 30, 2, kind=40, source=None, target=None)
    export.copy(40, 50, 3, kind=8, source=9, target=2)
    assert names_at(read(export), range(3)) == [
        "Memcpy DtoH (Device Static -> Pinned)", "Memcpy HtoD (unified memory)", "Memcpy DtoD"]


def test_setting_memory_takes_its_time_from_the_kernels(export: Export) -> None:
    export.row("CUPTI_ACTIVITY_KIND_MEMSET", start=0, end=10, deviceId=0, streamId=7, correlationId=1,
               globalPid=process(), memKind=2)
    trace = read(export)
    assert (trace.names, trace.kind.tolist()) == (("Memset (Device)",), [Kind.KERNEL])


def test_threads_and_processes_bear_their_names(export: Export) -> None:
    export.call("cudaMalloc_v3020", 0, 10, 1)
    export.call("cudaMalloc_v3020", 20, 30, 2, tid=THREAD + 1)
    export.row("ThreadNames", nameId=export.string("pt_autograd_0"), globalTid=thread(THREAD + 1))
    export.row("PROCESSES", globalPid=process(), pid=PROCESS, name="python3")
    assert read(export).threads == (f"{PROCESS}/{THREAD} python3", f"{PROCESS}/{THREAD + 1} pt_autograd_0")


# -- NVTX
@pytest.mark.parametrize(("text", "name", "kind"), [
    ("aten::addmm, seq = 45339, op_id = 990761", "aten::addmm", Kind.HOST_OP),
    ("aten::addmm, seq = 3, sizes = [[640, 256], [256]]", "aten::addmm", Kind.HOST_OP),
    ("aten::empty, op_id = 5", "aten::empty", Kind.HOST_OP),
    ("aten::empty", "aten::empty", Kind.HOST_OP),
    ("AllToAll4D, seq = 45440, op_id = 1", "AllToAll4D", Kind.HOST_OP),
    ("AddmmBackward0, stashed seq = 4, op_id = 1", "AddmmBackward0", Kind.HOST_OP),
    ("autograd::engine::evaluate_function: AddmmBackward0, op_id = 1",
     "autograd::engine::evaluate_function: AddmmBackward0", Kind.HOST_OP),
    ("FSDP::pre_forward (blocks.3), op_id = 12", "FSDP::pre_forward (blocks.3)", Kind.ANNOTATION),
    ("nccl:all_to_all, op_id = 12", "nccl:all_to_all", Kind.ANNOTATION),
    ("forward", "forward", Kind.ANNOTATION),
    ("lr = 0.1", "lr = 0.1", Kind.ANNOTATION),
])
@pytest.mark.parametrize("registered", [False, True])
def test_operators_are_told_from_annotations(export: Export, text: str, name: str, kind: Kind,
                                             registered: bool) -> None:
    export.range(text, 0, 10, registered=registered)
    export.range(text.replace("= 5", "= 6"), 20, 30, registered=registered)
    trace = read(export)
    assert trace.names == (name,)
    assert trace.kind.tolist() == [kind, kind]


def test_a_name_that_ends_where_another_has_a_number_keeps_it(export: Export) -> None:
    export.range("rank", 0, 10)
    export.range("rank = 3", 20, 30)
    export.range("rank = 4", 40, 50)
    assert names_at(read(export), range(3)) == ["rank", "rank = 3", "rank = 4"]


def test_ranges_named_as_steps_are_the_steps(export: Export) -> None:
    for i in range(4):
        at = 10_000_000 * i
        export.range(f"step {i}", at, at + 9_000_000, registered=i % 2 == 0)
        export.call("cudaLaunchKernel_v7000", at + 1000, at + 2000, i + 1)
        export.kernel(at + 3000, at + 3000 + 6_000_000, i + 1)
    walked = walk(read(export))
    found = {signal.name: signal.value for signal in walked.signals}
    assert found["step.method"] == "annotation"
    assert found["step.count"] == 4
    assert found["step.wall_ms"] == 10.0
    # 4 kernels of 6 ms in three steps of 10 ms and a last of 9
    assert found["device.busy_fraction"] == pytest.approx(24 / 39)


def test_an_engines_steps_are_known_by_their_name(export: Export) -> None:
    for i in range(3):
        export.range("execute_context_0(0)_generation_32(32)", 1_000_000 * i, 1_000_000 * i + 900_000)
        export.call("cudaLaunchKernel_v7000", 1_000_000 * i + 10, 1_000_000 * i + 20, i + 1)
        export.kernel(1_000_000 * i + 100, 1_000_000 * i + 500_100, i + 1)
    assert signals(read(export))["serving.running"] == 32


def test_marks_and_names_are_no_rows_and_open_ranges_are_counted(export: Export) -> None:
    export.range("a mark", 5, None, event_type=34)
    export.range("a domain", 0, None, event_type=75, domainId=1)
    export.range("never popped", 6, None)
    export.range("never ended", 7, None, event_type=60, rangeId=3)
    export.range("whole", 8, 9)
    trace = read(export)
    assert trace.names == ("whole",)
    assert (trace.counts.events, trace.counts.kept, trace.counts.unmatched) == (5, 1, 2)
    assert any("2 NVTX ranges have no end" in note for note in trace.notes)


def test_an_open_range_of_a_layout_without_null_is_open_too(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite", 2019)
    export.range("whole", 100, 200)
    export.range("never popped", 150, None)                 # its end reads 0
    trace = read(export)
    assert trace.names == ("whole",)
    assert trace.counts.unmatched == 1


def test_start_end_ranges_that_nest_stay_on_their_thread(export: Export) -> None:
    export.range("request", 0, 1000, event_type=60)
    export.range("step 1", 100, 900)
    export.range("phase", 200, 300, event_type=60)
    trace = read(export)
    assert trace.threads == (f"{PROCESS}/{THREAD}",)


def test_start_end_ranges_that_cross_a_stack_lie_beside_it(export: Export) -> None:
    export.range("step 1", 0, 100)
    export.range("step 2", 100, 200)
    export.range("request 1", 50, 150, event_type=60)       # across both steps
    export.range("request 2", 120, 400, event_type=60)      # out of step 2, and across the end of request 1
    export.range("request 3", 160, 180, event_type=60)      # in step 2, nests
    trace = read(export)
    on = {trace.name_of(i): trace.threads[trace.thread[i]] for i in range(len(trace))}
    own = f"{PROCESS}/{THREAD}"
    assert on == {"step 1": own, "step 2": own, "request 3": own,
                  "request 1": f"{PROCESS} ranges", "request 2": f"{PROCESS} ranges 2"}


def test_a_stack_that_outlives_a_start_end_range_stays_whole(export: Export) -> None:
    export.range("request", 0, 100, event_type=60)
    export.range("step 1", 50, 150)                         # begun in the request, ended after it
    export.range("step 2", 160, 200)
    export.range("crossing", 170, 210)                      # two of the thread's own that cross are left as they are
    trace = read(export)
    lane = trace.threads.index(f"{PROCESS} ranges")
    assert names_at(trace, np.flatnonzero(trace.thread == lane)) == ["request"]
    assert trace.counts.kept == 4


@settings(max_examples=40, deadline=None)
@given(spans=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60), st.booleans()), max_size=12))
def test_ranges_of_a_thread_nest_once_the_crossing_ones_are_gone(tmp_path_factory: pytest.TempPathFactory,
                                                                 spans: list[tuple[int, int, bool]]) -> None:
    export = Export(tmp_path_factory.mktemp("nsys") / "run.sqlite")
    export.range("step", 20, 40)
    for start, dur, on_lane in spans:
        export.range("lane" if on_lane else "range", start, start + dur, event_type=60,
                     endGlobalTid=thread(9) if on_lane else thread())
    trace = read(export)
    assert len(trace) == 1 + len(spans)
    for number, name in enumerate(trace.threads):
        rows = np.flatnonzero(trace.thread == number).tolist()
        pairs = [(int(trace.start[i]), int(trace.end[i])) for i in rows]
        for a, b in itertools.combinations(pairs, 2):
            (_, a_end), (b_start, b_end) = sorted((a, b), key=lambda pair: (pair[0], -pair[1]))
            apart = a_end <= b_start
            assert apart or (b_end <= a_end and "ranges" not in name)


def test_a_range_that_ends_on_another_thread_is_the_processs(export: Export) -> None:
    export.range("handed over", 0, 100, event_type=60, endGlobalTid=thread(THREAD + 1))
    export.range("own", 200, 300, event_type=60, endGlobalTid=thread())
    trace = read(export)
    assert trace.threads[trace.thread[row_named(trace, "handed over")]] == f"{PROCESS} ranges"
    assert trace.threads[trace.thread[row_named(trace, "own")]] == f"{PROCESS}/{THREAD}"


def test_event_types_go_by_the_files_own_numbers(export: Export) -> None:
    export.row("ENUM_NSYS_EVENT_TYPE", id=7, name="NvtxPushPopRange", label="")
    export.range("renumbered", 0, 10, event_type=7)
    export.range("something else now", 20, 30, event_type=59)
    assert read(export).names == ("renumbered",)


# -- graphs
def test_a_graph_recorded_as_one_piece_is_busy_time(export: Export) -> None:
    export.call("cudaGraphLaunch_v10000", 0, 50, 5)
    export.graph(100, 900, 5)
    export.call("cudaLaunchKernel_v7000", 60, 70, 6)
    export.kernel(900, 1000, 6)
    trace = read(export)
    (row,) = rows_named(trace, "CUDA graph 12")
    assert (Kind(int(trace.kind[row])), int(trace.dur[row]), launcher(trace, row)) == (
        Kind.KERNEL, 800, "cudaGraphLaunch")
    found = signals(trace)
    assert found["device.busy_fraction"] == 0.9             # 100–1000 of 0–1000
    hidden = {"kernel.per_step", "kernel.median_us", "kernel.graph_fraction"}       # how many kernels run inside
    assert not hidden & found.keys()
    assert hidden == trace.cannot.keys()
    assert any("1 graph replays are recorded as one piece" in note for note in trace.notes)


def test_a_graph_whose_kernels_are_recorded_counts_once(export: Export) -> None:
    export.call("cudaGraphLaunch_v10000", 0, 50, 5)
    export.graph(100, 900, 5)
    for at in (100, 300, 500):
        export.kernel(at, at + 100, 5, graphNodeId=at)
    trace = read(export)
    assert "CUDA graph 12" not in trace.names
    assert trace.counts.repeated == 1
    assert {launcher(trace, row) for row in np.flatnonzero(trace.on_device).tolist()} == {"cudaGraphLaunch"}
    assert not any("one piece" in note for note in trace.notes)


def test_a_copy_of_a_graph_leaves_the_graph_as_it_is(export: Export) -> None:
    export.call("cudaGraphLaunch_v10000", 0, 50, 5)
    export.graph(100, 900, 5, number=None)
    export.copy(200, 300, 5)
    assert "CUDA graph" in read(export).names


# -- processes and devices
def test_ids_count_within_a_process(export: Export) -> None:
    for rank, pid in enumerate((10, 20)):
        export.call(f"cuLaunchKernel{rank}", 100 + rank, 200, 1, pid=pid, tid=pid)
        export.call("cudaMalloc_v3020", 300, 310, 2, pid=pid, tid=pid)
        export.kernel(400, 500, 1, f"gemm{rank}", device=rank, pid=pid)
    export.kernel(450, 460, 2, "late", device=1, pid=20)
    trace = read(export)
    assert launcher(trace, row_named(trace, "gemm0")) == "cuLaunchKernel0"
    assert launcher(trace, row_named(trace, "gemm1")) == "cuLaunchKernel1"
    assert launcher(trace, row_named(trace, "late")) == "cudaMalloc"
    assert trace.devices == ("0", "1")


def test_work_of_before_the_capture_is_told_for_each_process(export: Export) -> None:
    export.call("cudaLaunchKernel_v7000", 0, 10, 1000, pid=10)
    export.call("cudaLaunchKernel_v7000", 0, 10, 5, pid=20)
    export.kernel(100, 200, 7, "early", pid=10)             # below all ids of its process, above those of the other
    export.kernel(100, 200, 5, "own", pid=20, device=1)
    trace = read(export)
    assert int(trace.launch[row_named(trace, "early")]) == BEFORE_CAPTURE
    assert launcher(trace, row_named(trace, "own")) == "cudaLaunchKernel"


def test_work_that_does_not_say_its_process_is_still_joined(export: Export) -> None:
    export.call("cudaLaunchKernel_v7000", 0, 10, 1)
    export.kernel(100, 200, 1, globalPid=None)
    trace = read(export)
    assert launcher(trace, int(np.flatnonzero(trace.on_device)[0])) == "cudaLaunchKernel"


def test_ranks_that_each_call_their_device_0_are_on_two_gpus(export: Export) -> None:
    for gpu, pid in ((3, 10), (5, 20)):
        export.kernel(0, 100, 1, pid=pid)
        export.gpu(gpu, f"NVIDIA H100 #{gpu}", None)
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    trace = read(export)
    assert trace.devices == ("3 NVIDIA H100 #3", "5 NVIDIA H100 #5")
    assert trace.streams == ("3/7", "5/7")
    assert not any("taken as one" in note for note in trace.notes)


def test_ranks_whose_device_0_is_not_told_apart_are_taken_as_one_and_that_is_said(export: Export) -> None:
    export.kernel(0, 100, 1, pid=10)
    export.kernel(50, 150, 1, pid=20)
    trace = read(export)
    assert trace.devices == ("0",)
    assert trace.streams == ("0/7 of process 10", "0/7 of process 20")
    assert any("2 processes (10, 20)" in note and "taken as one" in note for note in trace.notes)


def test_a_number_translated_for_one_process_says_nothing_of_anothers(export: Export) -> None:
    export.kernel(0, 100, 1, pid=10)
    export.kernel(0, 100, 1, pid=20)
    export.kernel(0, 100, 1, pid=10, device=1)
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=10)
    export.row("TARGET_INFO_CUDA_DEVICE", gpuId=6, cudaId=1, pid=0)             # of every process
    assert read(export).devices == ("0", "3", "6")


# -- other host rows
def test_waiting_in_the_system_is_waiting_for_work(export: Export) -> None:
    for i in range(3):
        at = 10_000_000 * i
        export.range(f"step {i}", at, at + 10_000_000)
        export.os_call("pthread_cond_timedwait", at + 1000, at + 8_000_000)
        export.call("cudaLaunchKernel_v7000", at + 8_000_000, at + 8_010_000, i + 1)
        export.kernel(at + 8_020_000, at + 9_990_000, i + 1)
    found = signals(read(export))
    assert found["idle.no_work_fraction"] == pytest.approx(0.8, abs=0.01)
    assert found["idle.host_op_fraction"] == 0


def test_reading_a_file_is_work_of_the_host(export: Export) -> None:
    for i in range(3):
        at = 10_000_000 * i
        export.range(f"step {i}", at, at + 10_000_000)
        export.os_call("read", at + 1000, at + 8_000_000)
        export.call("cudaLaunchKernel_v7000", at + 8_000_000, at + 8_010_000, i + 1)
        export.kernel(at + 8_020_000, at + 9_990_000, i + 1)
    found = signals(read(export))
    assert found["idle.host_op_fraction"] == pytest.approx(0.8, abs=0.01)
    assert found["idle.host_op"] == "read"


def test_what_a_call_does_inside_is_that_call(export: Export) -> None:
    export.call("cudaStreamSynchronize_v3020", 0, 100, 1)
    export.os_call("poll", 10, 90)
    export.range("aten::linear", 200, 300)
    export.os_call("sem_wait", 210, 290)
    export.os_call("sem_wait", 310, 390)
    export.os_call("poll", 10, 90, tid=THREAD + 1)          # another thread's
    trace = read(export)
    assert len(rows_named(trace, "sem_wait: waiting")) == len(rows_named(trace, "poll: waiting")) == 1
    assert trace.counts.repeated == 2


def test_the_profilers_overhead_is_told_from_cudas(export: Export) -> None:
    export.kernel(0, 10, 1)
    for table, name, kind in (("PROFILER_OVERHEAD", "CUPTI Buffer flush", 3),
                              ("PROFILER_OVERHEAD", "CUDA profiling initialization", 0),
                              ("CUPTI_ACTIVITY_KIND_OVERHEAD", "Lazy Function Loading", 7),
                              ("CUPTI_ACTIVITY_KIND_OVERHEAD", "CUPTI Instrumentation", 4)):
        export.row(table, start=20, end=30, globalTid=thread(), nameId=export.string(name), overheadType=kind)
    trace = read(export)
    overhead = np.flatnonzero(trace.kind == Kind.OVERHEAD)
    assert sorted(names_at(trace, overhead)) == [
        "CUDA profiling initialization", "CUPTI Buffer flush", "CUPTI Instrumentation"]
    assert trace.counts.repeated == 1


def test_overhead_without_a_type_is_the_profilers(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite", 2021)
    export.kernel(0, 10, 1)
    export.row("PROFILER_OVERHEAD", start=20, end=30, globalTid=thread(), nameId=export.string("Buffer flush"))
    assert read(export).kind.tolist() == [Kind.KERNEL, Kind.OVERHEAD]


def test_synchronization_rows_repeat_their_calls(export: Export) -> None:
    export.call("cudaStreamSynchronize_v3020", 0, 100, 1)
    export.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=5, end=95, deviceId=0, streamId=7, correlationId=1,
               globalPid=process(), syncType=3)
    trace = read(export)
    assert (len(trace), trace.counts.events, trace.counts.repeated) == (1, 2, 1)
    assert trace.blocking.tolist() == [True]


def test_ranks_that_meet_through_mpi_meet_on_the_host(export: Export) -> None:
    for i in range(3):
        at = 10_000_000 * i
        export.range(f"step {i}", at, at + 10_000_000)
        export.row("MPI_COLLECTIVES_EVENTS", start=at + 1000, end=at + 8_000_000, globalTid=thread(),
                   textId=export.string("MPI_Allreduce"))
        export.call("cudaLaunchKernel_v7000", at + 8_000_000, at + 8_010_000, i + 1)
        export.kernel(at + 8_020_000, at + 9_990_000, i + 1)
    found = signals(read(export))
    assert found["idle.peer_wait_fraction"] == pytest.approx(0.8, abs=0.01)
    assert found["comm.host_ms"] == pytest.approx(7.999)


def test_a_librarys_calls_are_operators(export: Export) -> None:
    export.row("CUBLAS_EVENTS", start=0, end=100, globalTid=thread(), nameId=export.string("cublasGemmEx"))
    export.call("cudaLaunchKernel_v7000", 10, 20, 1)
    export.kernel(30, 90, 1)
    trace = read(export)
    assert Kind(int(trace.kind[row_named(trace, "cublasGemmEx")])) is Kind.HOST_OP


# -- collectives
def test_collectives_are_known_by_their_kernel_or_by_nccls_ranges(export: Export) -> None:
    export.kernel(0, 10, 99, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)")
    export.range("ncclAllGather", 100, 200, domainId=1)
    export.call("cuLaunchKernelEx", 110, 120, 1)
    export.row("CUPTI_ACTIVITY_KIND_MEMSET", start=300, end=310, deviceId=0, streamId=7, correlationId=2,
               globalPid=process(), memKind=2)
    export.call("cudaMemsetAsync_v3020", 130, 140, 2)
    export.kernel(320, 400, 1, "renamed_device_function")
    export.range("ncclCommInitRank", 500, 600, domainId=1)
    export.call("cudaLaunchKernel_v7000", 510, 520, 3)
    export.kernel(610, 620, 3, "set_up")
    trace = read(export)
    kinds = {trace.name_of(int(row)): Kind(int(trace.kind[row])) for row in np.flatnonzero(trace.on_device)}
    assert kinds == {
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)": Kind.COMM,
        "Memset (Device)": Kind.KERNEL, "renamed_device_function": Kind.COMM, "set_up": Kind.KERNEL}


# -- the device's bandwidth
def test_the_bandwidth_that_the_driver_tells_is_the_devices_peak(tmp_path: Path) -> None:
    trace = nsys.read(simple(tmp_path / "run.sqlite"))
    device, why = devices.from_trace(trace.meta)
    assert why == ""
    assert device is not None
    assert (device.gbps, device.how) == (3350.0, "trace")


@pytest.mark.parametrize("bandwidth", [None, 0, 3_350_000_000, -1, 1 << 60], ids=str)
def test_a_bandwidth_that_is_none_is_left_out(export: Export, bandwidth: int | None) -> None:
    export.kernel(0, 10, 1)
    export.gpu(0, "Some GPU", bandwidth)                    # 3,350,000,000: kB/s, of another tool
    trace = read(export)
    assert trace.meta["deviceProperties"] == [{"id": 0, "name": "Some GPU"}]
    assert devices.from_trace(trace.meta)[0] is None


def test_a_gpu_that_did_nothing_says_nothing_of_the_one_that_worked(export: Export) -> None:
    export.kernel(0, 10, 1, device=1)
    export.gpu(0, "Display", 100_000_000_000)
    export.gpu(1, "NVIDIA H100", 3_350_000_000_000)
    trace = read(export)
    assert [gpu["id"] for gpu in trace.meta["deviceProperties"]] == [1]


# -- what the profiler says, and rows without a place
def test_warnings_of_the_profiler_reach_the_reader(export: Export) -> None:
    export.kernel(0, 10, 1)
    for severity, text in ((1, "Profiling has started."), (2, "Not all CUDA events\nmight have been collected."),
                           (2, "Not all CUDA events\nmight have been collected."), (3, "Out of memory.")):
        export.row("DIAGNOSTIC_EVENT", timestamp=0, severity=severity, text=text)
    assert read(export).notes[:-1] == (
        "the profiler itself says: Not all CUDA events might have been collected. (2 times)",
        "the profiler itself says: Out of memory.")


def test_activities_that_no_rule_knows_are_counted_and_named(export: Export) -> None:
    export.kernel(0, 10, 1)
    export.connection.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS (start INTEGER, end INTEGER, deviceId INTEGER)")
    export.connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS VALUES (20, 30, 0)")
    trace = read(export)
    assert trace.counts.unplaced == 1
    assert trace.counts.unknown_categories == ("CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS",)
    assert any("that this reader does not know" in note for note in trace.notes)


def test_every_row_is_kept_or_counted(export: Export) -> None:
    day = 86_400 * 10**9
    export.kernel(1000, 2000, 1, "good")
    export.kernel(2000, 1000, 2, "ends before it starts")
    export.kernel(0, 0, 3, "never timed")
    export.kernel(3000, 3000, 4, "took no time")
    export.kernel(90 * day, 90 * day + 5, 5, "of another capture")
    export.kernel(4000, 90 * day, 6, "of 90 days")
    export.kernel(5000, 6000, 7, "also good")
    for start, end in ((None, 9), (9, None), ("soon", 9), (1.5, 9), (b"\0", 9)):
        export.row("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=0, globalPid=process())
    trace = read(export)
    assert trace.names == ("good", "took no time", "also good")
    assert (trace.counts.events, trace.counts.kept, trace.counts.unreadable) == (12, 3, 9)
    assert any("9 rows have no start or no end" in note for note in trace.notes)


def test_times_since_1970_are_times_like_others(export: Export) -> None:
    now = 1_780_000_000_123_456_789
    export.call("cudaLaunchKernel_v7000", now, now + 7, 1)
    export.kernel(now + 11, now + 14, 1)
    trace = read(export)
    assert trace.start.tolist() == [0, 11]
    assert trace.dur.tolist() == [7, 3]


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = simple(tmp_path / "run.sqlite")
    said: list[tuple[int, int]] = []
    nsys.read(path, progress=lambda done, total: said.append((done, total)))
    assert said[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in said] == sorted(done for done, _ in said)


def test_an_export_is_known_by_its_tables(tmp_path: Path) -> None:
    assert nsys.is_export(simple(tmp_path / "run.sqlite"))
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE STRING_IDS (id INTEGER, value TEXT)")
    assert not nsys.is_export(tmp_path / "other.db")
    (tmp_path / "text").write_bytes(b"SQLite format 3")
    assert not nsys.is_export(tmp_path / "text")


# -- properties
_WORK = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 400), st.integers(0, 60)), min_size=1,
                 max_size=30)


@settings(max_examples=30, deadline=None)
@given(work=_WORK)
def test_busy_time_and_launches_are_those_of_the_rows(tmp_path_factory: pytest.TempPathFactory,
                                                      work: list[tuple[int, int, int, int]]) -> None:
    """Kernels of several processes on two devices each, ids shared by all processes."""
    export = Export(tmp_path_factory.mktemp("nsys") / "run.sqlite")
    busy: dict[int, set[int]] = {0: set(), 1: set()}
    for i, (rank, device, start, dur) in enumerate(work):
        pid = 10 + rank
        export.call(f"call {pid} {i // 2}", 1000 * i, 1000 * i + 1, i // 2 + 1, pid=pid)
        export.kernel(100_000 + start, 100_000 + start + dur, i // 2 + 1, f"kernel {pid} {i // 2}", device=device,
                      pid=pid)
        busy[device] |= set(range(start, start + dur))
    trace = read(export)
    device = np.flatnonzero(trace.on_device)
    assert len(device) == len(work)
    for row in device.tolist():
        assert launcher(trace, row) == trace.name_of(row).replace("kernel", "call")
    for use in walk(trace).devices:
        assert int(use.busy.sum()) == len(busy[int(use.device)])

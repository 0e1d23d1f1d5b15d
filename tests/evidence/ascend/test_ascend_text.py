"""trace_view.json: what becomes of its layers, times and flows, at each level."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_files import EPOCH_NS, AscendRun, serving_run
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import ascend
from xpu_triage.evidence.ascend import words
from xpu_triage.steps.walk import walk
from xpu_triage.trace import NOT_LINKED, Kind, Trace


def rows(trace: Trace, name: str) -> list[int]:
    return [row for row in range(len(trace)) if trace.name_of(row) == name]


def values(trace: Trace) -> dict[str, Any]:
    return {signal.name: signal.value for signal in walk(trace).signals}


def test_times_written_as_text_keep_their_nanoseconds(tmp_path: Path) -> None:
    run = AscendRun()
    op = run.row("aten::mm", 0.0, 12.345)
    run.kernel(None, op, 20.001, 1.002)
    trace = ascend.read(run.text(tmp_path))
    assert trace.start.tolist() == [0, 20_001]
    assert trace.dur.tolist() == [12_345, 1_002]


def test_a_kernel_bears_its_kind_of_operation_and_its_core_as_the_table_beside_the_trace_says(tmp_path: Path) -> None:
    run = AscendRun()
    run.kernel(None, run.row("aten::add", 0, 10), 20, 5, "Add", "AI_VECTOR_CORE", name="aclnnAdd_AddAiCore_Add")
    assert "Add (AI_VECTOR_CORE)" in ascend.read(run.text(tmp_path / "a")).names
    alone = ascend.read(run.text(tmp_path / "b", table=False))
    assert "aclnnAdd_AddAiCore_Add" in alone.names  # the hardware's log says AI_CORE of vector cores too


def test_the_steps_of_a_made_up_run_divide_as_worked_by_hand(tmp_path: Path) -> None:
    """Window: three steps of 2,000 µs and the last one's own 1,990. Each computes 410 + 100 µs; its collective of
    400 lies under the first kernel for 110; nothing else is work, neither the marks nor the drawings of overlap."""
    found = values(ascend.read(serving_run(4).text(tmp_path)))
    assert found["step.count"] == 4
    assert found["step.wall_ms"] == 2.0
    assert found["device.compute_fraction"] == pytest.approx(4 * 510 / 7990)
    assert found["device.comm_fraction"] == pytest.approx(4 * 290 / 7990)
    assert found["device.busy_fraction"] == pytest.approx(4 * 800 / 7990)
    assert found["kernel.recorded"] == 12
    assert found["comm.calls_per_step"] == 1
    assert found["comm.max_us"] == 400


def test_the_tasks_a_collective_is_made_of_are_not_counted_beside_it(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(1).text(tmp_path))
    assert trace.kind[trace.on_device].tolist().count(Kind.COMM) == 1
    assert not {"SDMA", "Notify Wait", "EVENT_WAIT", "Notify_Wait", "Computing"} & set(trace.names)
    assert trace.counts.repeated == 2 + 2 + 1 + 1       # its tasks, twice; a mark; a drawing of the overlap
    assert trace.counts.unplaced == 0


def test_calls_of_cann_and_the_program_share_their_threads(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(1).text(tmp_path))
    sync, item = rows(trace, "AscendCL@aclrtSynchronizeStreamWithTimeout")[0], rows(trace, "aten::item")[0]
    assert trace.thread[sync] == trace.thread[item]
    assert sorted(trace.threads) == ["4000/4000", "4000/4001"]


def test_a_read_back_is_one_synchronization_and_not_two(tmp_path: Path) -> None:
    """aclrtSynchronizeStream and the aclrtMemcpy right after it: the second waits for nothing more."""
    trace = ascend.read(serving_run(4).text(tmp_path))
    assert values(trace)["sync.per_step"] == 1
    assert values(trace)["sync.site"] == "aten::item (AscendCL@aclrtSynchronizeStreamWithTimeout)"
    assert trace.blocking[rows(trace, "AscendCL@aclrtMemcpy")].tolist() == [False] * 4


def test_a_blocking_copy_alone_is_a_synchronization(tmp_path: Path) -> None:
    run = AscendRun()
    run.kernel(None, run.row("aten::mm", 0, 10), 20, 5)
    run.row("aten::_local_scalar_dense", 30, 100)
    run.call("AscendCL@aclrtMemcpy", 40, 60)
    trace = ascend.read(run.text(tmp_path))
    assert trace.blocking[rows(trace, "AscendCL@aclrtMemcpy")].tolist() == [True]
    copy = rows(trace, "AscendCL@aclrtMemcpy device to host")[0]
    assert (trace.start[copy], trace.dur[copy], trace.kind[copy]) == (100_000, 0, Kind.COPY)
    assert any("left no device row" in note for note in trace.notes)


def test_calls_of_the_runtime_below_other_calls_are_the_same_calls(tmp_path: Path) -> None:
    run = serving_run(3)
    for row in [row for row in run.host if row.name == "AscendCL@aclrtSynchronizeStreamWithTimeout"]:
        run.call("Runtime@StreamSynchronize", row.start + 2, row.dur - 4)
    trace = ascend.read(run.text(tmp_path / "2", 2))
    assert "Runtime@StreamSynchronize" not in trace.names
    assert trace.format.endswith("Level2")
    plain = values(ascend.read(serving_run(3).text(tmp_path / "1", 1)))
    assert values(trace) == plain


@pytest.mark.parametrize("name", ["AscendCL@aclrtLaunchKernelWithHostArgs", "Runtime@LaunchKernel", "Node@launch"])
def test_no_launch_is_taken_for_lost_because_the_queue_lies_between(tmp_path: Path, name: str) -> None:
    run = AscendRun()
    for i in range(6):
        t = 1000.0 * i
        run.row(f"ProfilerStep#{i}", t, 990)
        op = run.row("aten::mm", t + 10, 40)
        run.kernel(run.queued(op, "aclnnMm", t + 30, t + 45, launch=name), op, t + 60, 100)
    found = values(ascend.read(run.text(tmp_path)))
    assert found["idle.hidden_fraction"] == 0.0


def test_a_launch_without_device_work_is_lost_on_the_queues_thread_too(tmp_path: Path) -> None:
    run = AscendRun()
    for i in range(6):
        t = 1000.0 * i
        run.row(f"ProfilerStep#{i}", t, 990)
        op = run.row("aten::mm", t + 10, 40)
        call = run.queued(op, "aclnnMm", t + 30, t + 45, launch="AscendCL@aclrtLaunchKernelWithHostArgs")
        if i != 3:
            run.kernel(call, op, t + 60, 100)
    notes = walk(ascend.read(run.text(tmp_path))).notes
    assert any("1 launch has no device work in the capture" in note for note in notes)


# -- levels
def test_level0_says_what_it_cannot_show_and_which_level_does(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(4).text(tmp_path, level=0))
    assert trace.format == "ascend trace_view.json Level0"
    cannot = trace.meta["cannot"]
    assert {"sync.per_step", "sync.wait_fraction", "fallback.op", "fallback.fraction", "kernel.top_core"} <= set(cannot)
    assert all("Level0" in why and "profiler_level=Level1" in why for why in cannot.values())
    assert set(cannot.values()) <= set(trace.notes)


def test_level0_gives_no_count_of_synchronizations(tmp_path: Path) -> None:
    found = walk(ascend.read(serving_run(4).text(tmp_path, level=0)))
    assert not {signal.name for signal in found.signals} & {"sync.per_step", "sync.wait_fraction", "host.launch_us"}
    assert {"sync.per_step", "sync.wait_fraction", "sync.gain_bound_fraction"} <= set(found.unknown)


def test_level0_still_divides_the_step(tmp_path: Path) -> None:
    """Device rows, operators and flows are there at every level."""
    found, full = (values(ascend.read(serving_run(4).text(tmp_path / str(level), level))) for level in (0, 1))
    for name in ("device.compute_fraction", "device.comm_fraction", "step.wall_ms", "kernel.per_step"):
        assert found[name] == full[name]


def test_level0_does_not_exclude_a_fallback(tmp_path: Path) -> None:
    run = serving_run(4)
    op = run.row("aten::copy_", 1300, 50)
    run.copy(run.queued(op, "acl_memcpy_host_to_device", 1310, 1325), op, 1340, 5)
    found = walk(ascend.read(run.text(tmp_path, level=0)))
    assert "fallback.op" not in {signal.name for signal in found.signals}
    assert "Level1" in found.unknown["fallback.op"]


def test_level1_shows_the_cores_it_has_and_no_reason_against_it(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(4).text(tmp_path))
    assert set(trace.cannot) == {"sync.copy_ms"}            # the blocking copies down have no length
    assert values(trace)["kernel.top_core"] == "AI_CORE"


def test_the_level_and_rank_come_from_profiler_info_where_it_lies_above(tmp_path: Path) -> None:
    run = tmp_path / "host_1_20250101_ascend_pt"
    serving_run(2).text(run / "ASCEND_PROFILER_OUTPUT")
    (run / "profiler_info_6.json").write_text(json.dumps(
        {"rank_id": 6, "config": {"experimental_config": {"_profiler_level": "Level2"}}}))
    trace = ascend.read(run)
    assert trace.meta["distributedInfo"]["rank"] == 6
    assert trace.meta["profilerLevel"] == "Level2"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"config": 3}', '{"rank_id": "x"}', "\0\0", "[" * 100_000])
def test_a_damaged_profiler_info_changes_nothing(tmp_path: Path, content: str) -> None:
    serving_run(2).text(tmp_path)
    (tmp_path / "profiler_info_3.json").write_text(content)
    assert ascend.read(tmp_path).meta["profilerLevel"] == "Level1"


def test_copies_go_where_the_profiler_or_the_operator_says(tmp_path: Path) -> None:
    run = AscendRun()
    op = run.row("aten::copy_", 0, 50)
    run.copy(run.queued(op, "acl_memcpy_host_to_device", 10, 20), op, 40, 5)
    run.copy(run.queued(run.row("aclnnX", 60, 20), "aclnnX", 70, 80), None, 100, 5, way="host to device ex")
    assert ascend.read(run.text(tmp_path / "1", 1)).names.count("MEMCPY_ASYNC") == 1
    second = ascend.read(run.text(tmp_path / "2", 2))
    assert "MEMCPY_ASYNC" not in second.names
    assert len(rows(second, "MEMCPY_ASYNC host to device")) == 2


def copies_between(waited: bool) -> AscendRun:
    """Steps in which an operator computes between two copies; the host waits for the first of them, or launches on."""
    run = serving_run(4)
    run.host = [row for row in run.host if not row.name.endswith("@aclrtMemcpy")]
    for step in range(4):
        t = 2000.0 * step + 1300
        for at in (t, t + 500):
            op = run.row("aten::copy_", at, 30)
            run.copy(run.call("AscendCL@aclrtMemcpyAsync", at + 5, 10), op, at + 12, 20)
            if waited:
                run.call("AscendCL@aclrtSynchronizeStream", at + 16, 17)
        if not waited:
            op = run.row("aten::add", t + 40, 20)
            run.kernel(run.call("Node@launch", t + 45, 10), op, t + 60, 10)
        run.row("aten::exponential_", t + 80, 400)
    return run


def test_a_copy_that_the_host_waits_for_could_feed_an_operator_on_the_host(tmp_path: Path) -> None:
    found = walk(ascend.read(copies_between(waited=True).text(tmp_path, 1)))
    assert "fallback.op" not in {signal.name for signal in found.signals}
    assert "Level2" in found.unknown["fallback.op"]


def test_copies_after_which_the_host_launches_on_feed_none(tmp_path: Path) -> None:
    trace = ascend.read(copies_between(waited=False).text(tmp_path, 1))
    assert "fallback.op" not in trace.cannot
    assert "8 copies do not say where they go" in trace.cannot["sync.copy_ms"]


# -- fallbacks
def test_an_ai_cpu_task_is_a_fallback_that_keeps_the_device_busy(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(4, ai_cpu_us=600).text(tmp_path))
    found = values(trace)
    assert found["fallback.op"] == "aten::masked_scatter_"
    assert found["fallback.fraction"] == pytest.approx(4 * 600 / 7990)
    assert found["kernel.top_core"] == "AI_CPU"
    assert any("AI_CPU" in note and "2.400 ms" in note for note in trace.notes)


def test_a_fallback_to_the_host_is_told_apart_from_it(tmp_path: Path) -> None:
    """aten::isin brings its input down (_to_cpu), computes 700 µs, and puts its result up."""
    run = serving_run(4)
    for step in range(4):
        t = 2000.0 * step + 1205
        run.row("aten::isin", t, 780)
        run.row("aten::_to_cpu", t + 2, 60)
        run.call("AscendCL@aclrtSynchronizeStreamWithTimeout", t + 4, 5)
        run.call("AscendCL@aclrtMemcpy", t + 10, 45)
        up = run.row("aten::copy_", t + 750, 28)
        run.copy(run.queued(up, "acl_memcpy_host_to_device", t + 755, t + 762), up, t + 768, 5)
    found = values(ascend.read(run.text(tmp_path)))
    assert found["fallback.op"] == "aten::isin"
    assert found["fallback.fraction"] > 4 * 650 / 7990
    assert found["kernel.top_core"] == "AI_CORE"


def test_copies_that_do_not_tell_their_direction_leave_a_fallback_open(tmp_path: Path) -> None:
    run = serving_run(4)
    run.row("aten::copy_", 1300, 200)
    run.call("AscendCL@aclrtMemcpy", 1310, 100)
    trace = ascend.read(run.text(tmp_path))
    assert "1 blocking copies" in trace.meta["cannot"]["fallback.op"]


# -- dialects and damage
def test_newer_names_of_layers_are_known(tmp_path: Path) -> None:
    events = serving_run(2).events()
    for event in events:
        if event.get("args", {}).get("name") == "HCCL":
            event["args"]["name"] = "Communication"
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    assert values(ascend.read(path))["comm.calls_per_step"] == 1


def test_layers_may_be_named_after_their_rows(tmp_path: Path) -> None:
    events = serving_run(2).events()
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events[::-1]))
    assert len(ascend.read(path)) == len(ascend.read(serving_run(2).text(tmp_path / "x", table=False)))


def test_an_unknown_task_type_on_a_devices_stream_is_device_work_and_is_said(tmp_path: Path) -> None:
    run = serving_run(2)
    run.tasks.append(run.mark("NEW_UNIT", 1500, 100))
    trace = ascend.read(run.text(tmp_path))
    assert rows(trace, "NEW_UNIT")
    assert any("NEW_UNIT_SQE" in note for note in trace.notes)


def test_gzip_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json.gz"
    path.write_bytes(gzip.compress(json.dumps(serving_run(2).events()).encode()))
    assert values(ascend.read(path))["step.count"] == 2


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9, 0.99])
def test_a_truncated_file_is_read_to_the_cut_and_names_no_cause(tmp_path: Path, part: float) -> None:
    text = json.dumps(serving_run(20).events())
    path = tmp_path / "trace_view.json"
    path.write_text(text[:int(len(text) * part)])
    trace = ascend.read(path)
    assert trace.incomplete
    assert any("breaks off" in note for note in trace.notes)


def test_names_cannot_do_anything(tmp_path: Path) -> None:
    run = serving_run(2)
    run.row("aten::\x1b[31m<script>", 1500, 10)
    run.kernel(None, None, 1800, 10, "\u202eX", "AI_\x07CPU", name="k\x1b]0;x\x07")
    trace = ascend.read(run.text(tmp_path))
    everything = "".join((*trace.names, *trace.notes, *trace.devices, *trace.streams, *trace.threads))
    assert not set(everything) & set("\x1b\x07\u202e")


DAMAGED: list[tuple[str, Any]] = [
    ("ts", "x"), ("ts", None), ("ts", []), ("ts", "9" * 40), ("ts", True), ("dur", "x"), ("dur", 1e300), ("dur", None),
    ("name", 7), ("args", []), ("args", "x"), ("pid", None), ("cat", 5)]


@pytest.mark.parametrize(("field", "value"), DAMAGED)
def test_one_damaged_event_does_not_take_the_others_with_it(tmp_path: Path, field: str, value: Any) -> None:
    events = serving_run(2).events()
    good = ascend.read(serving_run(2).text(tmp_path / "good", table=False))
    bad = dict(next(event for event in events if event["name"] == "aten::add"))
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([*events[:20], {**bad, field: value}, *events[20:]]))
    trace = ascend.read(path)
    assert len(good) <= len(trace) <= len(good) + 1
    assert trace.counts.events == len(events) + 1


def test_bare_nan_is_no_number_and_no_end(tmp_path: Path) -> None:
    text = json.dumps(serving_run(2).events()).replace('"dur": 60', '"dur": NaN', 1)
    path = tmp_path / "trace_view.json"
    path.write_text(text)
    trace = ascend.read(path)
    assert trace.counts.unreadable == 1


def test_a_row_at_time_0_does_not_stretch_the_capture(tmp_path: Path) -> None:
    events = serving_run(2).events()
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([*events, {**events[-1], "ph": "X", "ts": "0.000", "dur": 1, "pid": 4000, "tid": 4000,
                                          "cat": "cpu_op", "name": "aten::stray"}]))
    trace = ascend.read(path)
    assert trace.span < 10 * 10**6
    assert trace.counts.unreadable == 1


@pytest.mark.parametrize("content", [b"", b"[]", b"[1, 2]", b"{}", b"[{}]", b"\0" * 100, b"[" * 50_000, b'{"a": [1,2]}',
                                     b'[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": "1", "dur": 1}]'])
def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace_view.json"
    path.write_bytes(content)
    with pytest.raises(UnusableInput) as refusal:
        ascend.read(path)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no such file"):
        ascend.read(tmp_path / "trace_view.json")


def test_device_rows_without_flows_and_ids_are_kept_unlinked(tmp_path: Path) -> None:
    run = AscendRun()
    run.row("aten::mm", 0, 10)
    run.kernel(None, None, 20, 5)
    trace = ascend.read(run.text(tmp_path))
    assert trace.launch[trace.on_device].tolist() == [NOT_LINKED]


@pytest.mark.parametrize("form", [lambda events: {"traceEvents": events}, lambda events: [
    {**event, "ts": float(event["ts"])} if "ts" in event else event for event in events]])
def test_an_object_of_events_and_times_as_numbers_are_read_too(tmp_path: Path, form: Any) -> None:
    run = serving_run(4)
    path = tmp_path / "rewritten.json"
    path.write_text(json.dumps(form(run.events())))
    found, plain = values(ascend.read(path)), values(ascend.read(run.text(tmp_path / "plain", table=False)))
    assert found["step.count"] == plain["step.count"]
    assert found["device.busy_fraction"] == pytest.approx(plain["device.busy_fraction"], abs=1e-3)


# -- words
@pytest.mark.parametrize("name", ["aten::mm", "AddmmBackward0", "aclnnMm", "npu::npu_fusion_attention", "detach",
                                  "autograd::engine::evaluate_function: MmBackward0", "record_param_comms"])
def test_what_is_called_as_operators_are_is_one(name: str) -> None:
    assert words.program_place("cpu_op", name) == words.Place.OPERATOR


@pytest.mark.parametrize("name", ["execute_context_0(0)_generation_8(8)", "step[DECODE bs=32]", "## forward ##",
                                  "Optimizer.step#Adam.step", "ProfilerStep#3", "iteration 7", "execute_model",
                                  "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "nn.Module: Linear_0"])
def test_a_range_that_the_program_marks_is_filed_under_operators_and_is_none(name: str) -> None:
    assert words.program_place("cpu_op", name) == words.Place.ANNOTATION


@pytest.mark.parametrize(("task", "name", "kind"), [
    ("AI_CORE", "x", Kind.KERNEL), ("AI_CPU", "x", Kind.KERNEL), ("MIX_AIC", "x", Kind.KERNEL), ("DSA_SQE", "x", 5),
    ("KERNEL_AICPU", "x", Kind.KERNEL), ("AIV_SQE", "x", Kind.KERNEL), ("Other", "aclnnAdd_Add", Kind.KERNEL),
    ("PCIE_DMA_SQE", "MEMCPY_ASYNC", Kind.COPY), ("SDMA_SQE", "MEMCPY_ASYNC", Kind.COPY),
    ("Other", "MEMCPY_ASYNC", Kind.COPY), ("MEMCPY_ASYNC", "MEMCPY_ASYNC", Kind.COPY),
    ("HCCL", "hcom_broadcast_", Kind.COMM), ("COMMUNICATION", "x", Kind.COMM), ("AI_CORE", "hcom_send_", Kind.COMM),
    ("EVENT_WAIT_SQE", "EVENT_WAIT", words.REPEATED), ("Notify Wait", "Notify Wait", words.REPEATED),
    ("WRITE_VALUE_SQE", "x", words.REPEATED), ("PLACE_HOLDER_SQE", "x", words.REPEATED),
    ("Other", "EVENT_RECORD", words.REPEATED), ("PROFILING_ENABLE", "PROFILING_ENABLE", words.REPEATED),
    ("Writeback Data Context", "x", words.REPEATED), ("DAVID_EVENT_WAIT", "x", words.REPEATED),
    ("Other", "DAVID_EVENT_RECORD", words.REPEATED), ("IPC_WAIT", "x", words.REPEATED), ("CCU_LAUNCH", "x", Kind.COMM),
    ("AICPU_INFO_LOAD", "x", words.REPEATED), ("UB_DB_SEND", "x", Kind.COPY), ("UBDMA", "x", Kind.COPY),
    ("MIX_AIV", "MoeDistributeDispatchV2", Kind.COMM), ("AI_CPU", "MatmulAllReduceAicpu", Kind.COMM),
    ("MIX_AIC", "MatmulAllReduce", Kind.KERNEL), ("AI_CPU", "aclnnReduceSum_CastAiCpu_Cast", Kind.KERNEL),
    ("FUSION_KERNEL", "x", Kind.KERNEL), ("communication", "AllGather", Kind.COMM), ("AI_Core", "x", Kind.KERNEL)])
def test_task_types_are_what_the_profiler_means_by_them(task: str, name: str, kind: int) -> None:
    assert words.task_kind(task, name) == (kind, True)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_words_make_a_kind(task: str, name: str) -> None:
    kind, _ = words.task_kind(task, name)
    assert kind in (Kind.KERNEL, Kind.COPY, Kind.COMM, words.REPEATED)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), min_size=1, max_size=40))
def test_kernels_keep_every_nanosecond_of_the_file(tmp_path_factory: pytest.TempPathFactory,
                                                   spans: list[tuple[int, int]]) -> None:
    path = tmp_path_factory.mktemp("t") / "trace_view.json"
    meta = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "Ascend Hardware"}}
    events = [meta, *({"ph": "X", "name": "k", "pid": 1, "tid": 2, "dur": dur / 1000, "args": {"Task Type": "AI_CORE"},
                       "ts": f"{(EPOCH_NS + ns) // 1000}.{(EPOCH_NS + ns) % 1000:03d}"} for ns, dur in spans)]
    path.write_text(json.dumps(events))
    trace = ascend.read(path)
    first = min(ns for ns, _ in spans)
    assert sorted(zip(trace.start.tolist(), trace.dur.tolist(), strict=True)) == sorted(
        (ns - first, dur) for ns, dur in spans)
    assert np.all(np.diff(trace.start) >= 0)


# -- operators that exchange
def fused_run(steps: int = 4) -> AscendRun:
    """Of each ms a fused matrix product and all-reduce runs for 600 µs on the cores, and for as long the half of it
    that carries out the exchange, on AI_CPU and a stream of its own."""
    run = AscendRun()
    for step in range(steps):
        at = 1000.0 * step
        op = run.row("npu::npu_mm_all_reduce_base", at + 10, 30)
        run.kernel(run.call("Node@launch", at + 12, 5), op, at + 100, 600, "MatmulAllReduce", "MIX_AIC")
        run.kernel(run.call("Node@launch", at + 20, 5), op, at + 100, 600, "MatmulAllReduceAicpu", "AI_CPU", stream=9)
        run.row(f"ProfilerStep#{step}", at, 990)
    return run


@pytest.mark.parametrize("form", ["text", "database", "table"])
def test_the_half_of_a_fused_operator_that_exchanges_is_no_fallback(tmp_path: Path, form: str) -> None:
    run = fused_run()
    path = {"text": lambda: run.text(tmp_path), "database": lambda: run.database(tmp_path / "run.db"),
            "table": lambda: run.operations(tmp_path / "kernel_details.csv")}[form]()
    trace = ascend.read(path)
    names = {Kind(kind).name: trace.names[name] for kind, name in zip(trace.kind, trace.name, strict=True)}
    found = values(trace)

    assert "Aicpu" in names["COMM"]
    assert "Aicpu" not in names["KERNEL"]
    assert found["device.comm_fraction"] == 0                           # all of it beside the cores
    assert found["comm.fused_fraction"] == pytest.approx(found["device.compute_fraction"])
    assert found.get("fallback.op", "none") == "none"
    assert not any("AI_CPU" in note for note in trace.notes)


def test_what_a_graph_names_as_it_likes_is_an_exchange_by_its_type(tmp_path: Path) -> None:
    run = AscendRun()
    run.row("ProfilerStep#1", 0, 900)
    run.kernel(run.call("Node@launch", 5, 5), None, 100, 600, "MoeDistributeDispatch", "MIX_AIV", name="layer_3/node")
    table = tmp_path / "kernel_details.csv"
    for path in (run.text(tmp_path), run.database(tmp_path / "run.db"), run.operations(table)):
        trace = ascend.read(path)
        assert [trace.name_of(row) for row in np.flatnonzero(trace.kind == Kind.COMM).tolist()] == [
            "MoeDistributeDispatch"]

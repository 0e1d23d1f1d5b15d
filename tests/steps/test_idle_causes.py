"""Every cause of idle, from a capture of a few rows drawn so that one rule decides.

The device works 0–100 µs and from `then` on; what the host does in between is drawn. All times in µs.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Rows
from xpu_triage.steps.results import CAUSES, Cause, Gaps, Walk
from xpu_triage.steps.walk import walk
from xpu_triage.trace import BEFORE_CAPTURE, Kind, Trace


def opened() -> Rows:
    """The first 100 µs of device work, launched from the main thread."""
    rows = Rows()
    rows.launch(0, "gemm", 10, 90)
    return rows


def gaps_of(rows: Rows) -> Gaps:
    walked = walk(rows.trace())
    assert walked.busiest is not None
    return walked.busiest.gaps


def cause_of_gap_at(rows: Rows, at: float) -> Cause:
    gaps = gaps_of(rows)
    hit = np.flatnonzero(gaps.start == round(at * 1000))
    assert len(hit) == 1, f"no gap at {at}: {(gaps.start / 1000).tolist()}"
    return CAUSES[gaps.cause[hit[0]]]


# -- one drawing a cause
def test_hidden_work_handed_to_a_dry_device_that_does_not_start() -> None:
    rows = opened()
    rows.launch(110, "late", 900, 50)              # returned at 114: stalls 786 of 800 µs
    assert cause_of_gap_at(rows, 100) is Cause.HIDDEN


def test_hidden_work_of_a_graph_launch_that_left_no_device_rows() -> None:
    rows = opened()
    rows.call("cudaGraphLaunch", 110, 60)
    rows.down(180, 900, 2, call_dur=725)           # in the wait for the graph
    assert cause_of_gap_at(rows, 100) is Cause.HIDDEN


def test_a_call_that_is_slow_in_every_step_is_no_first_use() -> None:
    rows = Rows()
    for i in range(4):
        rows.annotation(f"ProfilerStep#{i}", 4000 * i, 4000)
        rows.call("cudaMalloc", 4000 * i + 10, 3000)
        rows.launch(4000 * i + 3020, "gemm", 4000 * i + 3030, 900)
    gaps = gaps_of(rows)
    assert {CAUSES[c] for c in gaps.cause[gaps.dur > 2_000_000]} == {Cause.HOST_OP}


def test_a_collective_that_launches_nothing_waits_for_a_peer() -> None:
    rows = opened()
    rows.op("c10d::allreduce_", 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.PEER_WAIT


def test_a_short_stall_is_no_hidden_work() -> None:
    rows = opened()
    rows.launch(110, "soon", 300, 50)              # stalls 186 µs: within what devices take
    assert cause_of_gap_at(rows, 100) is Cause.LAUNCHING


def test_hidden_work_behind_a_blocking_call_on_a_dry_device() -> None:
    rows = opened()
    rows.sync(50, 5000)                            # the device is dry from 100 on, the call returns at 5050
    rows.launch(5060, "next", 5070, 50)
    assert cause_of_gap_at(rows, 100) is Cause.HIDDEN


def test_turnaround_between_pieces_already_queued() -> None:
    rows = opened()
    rows.launch(20, "queued", 105, 50)
    assert cause_of_gap_at(rows, 100) is Cause.TURNAROUND


def test_queued_before_the_capture_is_turnaround_too() -> None:
    rows = opened()
    rows.kernel("queued long ago", 103, 50, by=BEFORE_CAPTURE)
    assert cause_of_gap_at(rows, 100) is Cause.TURNAROUND


def test_the_profilers_own_overhead() -> None:
    rows = opened()
    rows.overhead("Buffer Flush", 110, 2500)
    rows.op("aten::mm", 2700, 20)
    rows.launch(2705, "next", 2715, 50)
    assert cause_of_gap_at(rows, 100) is Cause.PROFILER


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cuModuleLoadData", "cudaMalloc", "hipModuleLoad"])
def test_first_use_in_a_call_that_is_quick_but_for_the_first_time(call: str) -> None:
    rows = opened()
    rows.op("aten::mm", 110, 3000)
    rows.call(call, 120, 2950)
    rows.launch(3080, "next", 3090, 50)
    assert cause_of_gap_at(rows, 100) is Cause.FIRST_USE


def test_first_use_in_a_slow_launch_of_the_next_piece_itself() -> None:
    rows = opened()
    rows.launch(110, "next", 6620, 50, call_dur=6500)
    assert cause_of_gap_at(rows, 100) is Cause.FIRST_USE


def test_a_slow_launch_of_a_kernel_that_ran_before_loads_nothing() -> None:
    rows = opened()
    rows.launch(110, "gemm", 6620, 50, call_dur=6500)
    assert cause_of_gap_at(rows, 100) is Cause.LAUNCHING


@pytest.mark.parametrize("frame", [
    "torch/_inductor/compile_fx.py(77): compile_fx", "triton/compiler/compiler.py(9): compile"])
def test_first_use_while_something_compiles(frame: str) -> None:
    rows = opened()
    rows.python(frame, 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.FIRST_USE


def test_compiled_code_that_runs_is_not_compiling() -> None:
    rows = opened()
    rows.python("torch/_inductor/output_code.py(5): __call__", 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.HOST_OP


@pytest.mark.parametrize("name", ["gloo:all_reduce", "c10d::barrier", "mpi:allgather"])
def test_waiting_for_a_peer_rank_through_the_host(name: str) -> None:
    rows = opened()
    rows.op(name, 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.PEER_WAIT


def test_waiting_for_the_other_device_of_a_model_split_over_two() -> None:
    rows = opened()
    for i in range(30):                            # the same thread feeds the other device, layer by layer
        rows.op("aten::mm", 110 + 50 * i, 20)
        rows.launch(115 + 50 * i, "gemm", 120 + 50 * i, 48, device="1")
    rows.launch(1620, "next", 1630, 5000)
    assert cause_of_gap_at(rows, 100) is Cause.PEER_WAIT


def test_waiting_for_the_other_devices_of_a_model_split_over_four() -> None:
    rows = opened()
    for device, start in (("1", 120), ("2", 420), ("3", 720)):     # each for a third of the time: none for most of it
        rows.launch(start - 15, "gemm", start, 290, device=device, call_dur=4)
    rows.launch(1_005, "gemm", 1_020, 800)
    assert cause_of_gap_at(rows, 100) is Cause.PEER_WAIT


def test_a_sync_on_the_other_device_waits_for_it_and_hides_nothing() -> None:
    rows = opened()
    rows.launch(110, "gemm", 120, 4000, device="1")
    rows.sync(130, 3995)
    rows.launch(4130, "next", 4140, 9000)
    assert cause_of_gap_at(rows, 100) is Cause.PEER_WAIT


def in_turns(beside: float = 0) -> Rows:
    """Two devices with half a model each, fed far ahead by one thread: 1,000 µs on one, then as long on the other,
    which begins `beside` µs earlier."""
    rows = Rows()
    for i in range(6):
        for device in (0, 1):
            at = 2_000.0 * i + 1_000 * device
            rows.launch(10 * (2 * i + device), "gemm", at + 10 - beside * device, 990, call_dur=4, device=str(device))
    return rows


def test_devices_that_take_turns_wait_for_each_other_and_hide_nothing() -> None:
    walked = walk(in_turns().trace())
    found = {signal.name: signal.value for signal in walked.signals}
    # device 0 from 10 on, five gaps of 1,010 µs between its kernels and one of 1,000 at the end, of 12,000
    assert found["idle.other_device_fraction"] == pytest.approx((5 * 1_010 + 1_000) / 12_000, abs=0.001)
    for use in walked.devices:
        by_cause = use.gaps.by_cause()
        assert by_cause[Cause.PEER_WAIT] > 0.7 * sum(by_cause.values())
        assert by_cause[Cause.HIDDEN] == 0


def test_beside_a_device_that_works_at_the_same_time_a_long_stall_is_still_work_that_the_capture_lacks() -> None:
    walked = walk(in_turns(beside=700).trace())
    assert all(use.gaps.by_cause()[Cause.HIDDEN] > 0 for use in walked.devices)


def test_a_busy_device_of_another_engine_explains_nothing() -> None:
    rows = opened()
    rows.op("aten::sort", 110, 3000)
    rows.launch(0, "gemm", 5, 3000, device="1", thread="other engine")
    rows.launch(3120, "next", 3130, 5000)
    assert cause_of_gap_at(rows, 100) is Cause.HOST_OP


@pytest.mark.parametrize("frame", [
    "<built-in method poll of select.epoll object>", "zmq/sugar/poll.py(99): poll", "queue.py(154): get",
    "vllm/distributed/device_communicators/shm_broadcast.py(5): dequeue"])
def test_no_work_while_the_thread_waits_to_be_handed_some(frame: str) -> None:
    rows = opened()
    rows.python(frame, 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.NO_WORK


def test_unrecorded_where_the_launching_thread_has_no_rows() -> None:
    rows = opened()
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.UNRECORDED


def test_host_work_that_launches_nothing() -> None:
    rows = opened()
    rows.python("engine/scheduler.py(12): schedule", 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    gaps = gaps_of(rows)
    at = np.flatnonzero(gaps.start == 100_000)[0]
    assert CAUSES[gaps.cause[at]] is Cause.HOST_OP
    assert gaps.host_ns[at] == 3_000_000


def test_one_operator_of_200_us_that_holds_half_of_the_gap_is_host_work() -> None:
    rows = opened()
    rows.op("aten::sort", 110, 210)
    rows.launch(330, "next", 340, 50)
    assert cause_of_gap_at(rows, 100) is Cause.HOST_OP


def test_many_short_operators_are_launching() -> None:
    rows = opened()
    for i in range(6):
        rows.op(f"aten::view{i}", 110 + 40 * i, 35)
    rows.launch(360, "next", 370, 50)
    assert cause_of_gap_at(rows, 100) is Cause.LAUNCHING


def test_a_bubble_after_a_synchronization() -> None:
    rows = opened()
    sync = rows.sync(20, 85)                       # returns at 105, the device ran dry at 100
    rows.op("aten::mm", 120, 30)
    rows.launch(125, "next", 140, 50)
    trace = rows.trace()
    gaps = gaps_of(rows)
    at = np.flatnonzero(gaps.start == 100_000)[0]
    assert CAUSES[gaps.cause[at]] is Cause.AFTER_SYNC
    assert trace.name_of(int(gaps.sync_row[at])) == "cudaStreamSynchronize"
    assert sync >= 0


def test_a_long_sync_on_a_busy_device_is_no_idle_at_all() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 50_000)
    rows.sync(10, 50_005)
    rows.launch(50_020, "next", 50_030, 50_000)
    assert gaps_of(rows).by_cause()[Cause.AFTER_SYNC] == 20_000 + 0  # 50,010 to 50,030 µs; waiting costs nothing


def test_launching_as_fast_as_the_host_can() -> None:
    rows = opened()
    rows.op("aten::mm", 110, 60)
    rows.launch(150, "next", 165, 50)
    assert cause_of_gap_at(rows, 100) is Cause.LAUNCHING


# -- one drawing a precedence: what wins where two rules hold
def test_host_work_after_a_sync_is_host_work_and_not_a_bubble() -> None:
    rows = opened()
    rows.sync(20, 85)
    rows.op("aten::sort", 110, 3000)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.HOST_OP


def test_compiling_wins_over_host_work_and_waiting_for_a_peer_over_no_work() -> None:
    compiling = opened()
    compiling.python("torch/_inductor/codecache.py(1): load", 110, 1600)
    compiling.python("engine/loop.py(1): prepare", 1710, 1400)
    compiling.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(compiling, 100) is Cause.FIRST_USE
    peer = opened()
    peer.op("gloo:broadcast", 110, 3000)
    peer.python("selectors.py(1): select", 115, 2900)
    peer.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(peer, 100) is Cause.PEER_WAIT


def test_the_profiler_wins_over_first_use() -> None:
    rows = opened()
    rows.overhead("Buffer Flush", 110, 2500)
    rows.call("cudaMalloc", 110, 2900)
    rows.launch(3120, "next", 3130, 50)
    assert cause_of_gap_at(rows, 100) is Cause.PROFILER


def test_hidden_wins_over_host_work_before_the_launch() -> None:
    rows = opened()
    rows.op("aten::sort", 110, 1300)
    rows.launch(1420, "late", 5000, 50)            # host work 1,320 µs, stall 3,576 µs
    assert cause_of_gap_at(rows, 100) is Cause.HIDDEN


def test_a_thread_without_rows_waited_for_the_main_one() -> None:
    rows = Rows()
    for i in range(5):
        rows.launch(10 * i, "gemm", 15 + 10 * i, 9)                # the main thread launches most: 15–64
    rows.python("engine/loop.py(1): prepare", 70, 3000)
    rows.launch(3080, "next", 3090, 50, thread="autograd")
    assert cause_of_gap_at(rows, 64) is Cause.HOST_OP


def test_without_host_rows_no_cause_is_made_up() -> None:
    rows = Rows()
    rows.kernel("a", 0, 10)
    rows.kernel("b", 40, 10)
    gaps = gaps_of(rows)
    assert [CAUSES[c] for c in gaps.cause] == [Cause.UNRECORDED]


def test_after_the_last_work_of_the_window_idle_goes_on_to_its_end() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#1", 0, 4000)
    rows.launch(0, "gemm", 10, 90)
    rows.python("engine/loop.py(1): post", 110, 3800)
    gaps = gaps_of(rows)
    assert (gaps.start[-1], gaps.end[-1]) == (100_000, 4_000_000)
    assert CAUSES[gaps.cause[-1]] is Cause.HOST_OP


# -- properties
def drawn_trace(draw: st.DrawFn) -> Rows:
    """Anything: host rows on two threads, device rows on two devices, launched by a call, by nothing, or before."""
    rows = Rows()
    rows.annotation("ProfilerStep#1", 0, draw(st.integers(50, 9000)))
    calls: list[tuple[int, int]] = []
    times = st.integers(0, 9000)
    names = st.sampled_from(["aten::mm", "gloo:x", "cudaMalloc", "queue.py(1): get", "a.py(1): f"])
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["op", "python", "annotation", "overhead"]))
        getattr(rows, kind)(draw(names), draw(times), draw(st.integers(0, 3000)), thread=draw(st.sampled_from("ab")))
    for _ in range(draw(st.integers(0, 8))):
        name, at = draw(st.sampled_from(["cudaLaunchKernel", "cudaMemcpyAsync", "cudaDeviceSynchronize"])), draw(times)
        dur, thread, blocking = draw(st.integers(0, 2000)), draw(st.sampled_from("ab")), draw(st.booleans())
        calls += [(at, rows.call(name, at, dur, thread, blocking))]
    for _ in range(draw(st.integers(1, 12))):
        at, call = draw(st.sampled_from([(0, BEFORE_CAPTURE), (0, -1), *calls]))
        rows.kernel(draw(st.sampled_from(["gemm", "Memcpy DtoH", "ncclAllReduce"])), at + draw(st.integers(0, 4000)),
                    draw(st.integers(0, 1500)), call, draw(st.sampled_from("01")), draw(st.sampled_from("78")),
                    draw(st.sampled_from([Kind.KERNEL, Kind.COPY, Kind.COMM])))
    return rows


def causes_by_device(walked: Walk) -> dict[str, list[int]]:
    return {use.device: list(use.gaps.by_cause().values()) for use in walked.devices}


def moved(trace: Trace, ns: int) -> Trace:
    """The same capture, its clock set `ns` later, with a row at the new zero on a thread of its own."""
    rows = {name: getattr(trace, name) for name in ("start", "dur", "name", "kind", "device", "stream", "thread",
                                                    "correlation", "launch", "blocking")}
    first = {"start": 0, "dur": 0, "name": len(trace.names), "kind": Kind.ANNOTATION, "device": -1, "stream": -1,
             "thread": len(trace.threads), "correlation": -1, "launch": -1, "blocking": False}
    rows["start"] = rows["start"] + ns
    rows["launch"] = np.where(rows["launch"] >= 0, rows["launch"] + 1, rows["launch"])
    columns = {name: np.concatenate((np.array([first[name]], column.dtype), column)) for name, column in rows.items()}
    return Trace(**columns, names=(*trace.names, "zero"), devices=trace.devices, streams=trace.streams,
                 threads=(*trace.threads, "clock"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_busy_and_the_causes_of_idle_add_up_to_the_window_exactly(data: st.DataObject) -> None:
    walked = walk(drawn_trace(data.draw).trace())
    for use in walked.devices:
        assert int(use.busy.sum()) + sum(use.gaps.by_cause().values()) == walked.steps.window
        assert (use.compute + use.copy + use.comm == use.busy).all()
        assert (use.gaps.dur > 0).all()
        assert (use.gaps.start[1:] >= use.gaps.end[:-1]).all()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.integers(1, 10**9))
def test_a_later_clock_changes_no_cause(data: st.DataObject, later: int) -> None:
    trace = drawn_trace(data.draw).trace()
    first, second = walk(trace), walk(moved(trace, later))
    assert causes_by_device(first) == causes_by_device(second)
    assert [s.wall for s in first.steps.steps] == [s.wall for s in second.steps.steps]
    assert [(f.about, f.name, f.share) for f in first.findings] == [(f.about, f.name, f.share) for f in second.findings]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_other_names_of_kernels_change_no_sum(data: st.DataObject) -> None:
    trace = drawn_trace(data.draw).trace()
    other = Trace(**{**trace.__dict__, "names": tuple("mul" if n == "gemm" else n for n in trace.names)})
    assert causes_by_device(walk(trace)) == causes_by_device(walk(other))

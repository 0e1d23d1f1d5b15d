"""Signals by the catalogue's definitions, worked out by hand. Times in µs."""

from __future__ import annotations

import pytest

from builders import Rows
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.steps.prefill_runs import prefill_runs
from xpu_triage.steps.results import Step, Walk
from xpu_triage.steps.walk import walk
from xpu_triage.trace import BEFORE_CAPTURE, Counts


def values(walked: Walk) -> dict[str, object]:
    return {signal.name: signal.value for signal in walked.signals}


def served() -> Rows:
    """Four steps of 1 ms, the first of them 3 ms: a prefill of 2 requests, then three decodes of 4.

    Each step: a gemm of 400 µs, a copy up of 50 beside nothing, an all-reduce of 100 half beside the gemm, a read-back
    that blocks the host for 300 µs.
    """
    rows = Rows()
    for i, at in enumerate((0, 3_000, 4_000, 5_000)):
        name = "execute_context_2(512)_generation_0(0)" if i == 0 else "execute_context_0(0)_generation_4(4)"
        rows.annotation(name, at, 1_000 if i else 3_000)
        rows.op("aten::mm", at + 5, 30)
        rows.launch(at + 10, "gemm", at + 30, 400, call_dur=6)
        rows.comm("ncclAllReduce", at + 380, 100, rows.call("cudaLaunchKernel", at + 20, 4))
        rows.up(at + 30, at + 500, 50, call_dur=4)
        rows.op("aten::item", at + 300, 305)
        rows.down(at + 302, at + 590, 10, call_dur=300)
    return rows


def test_the_device_and_its_parts() -> None:
    got = values(walk(served().trace()))
    window = 6_000
    assert got["device.busy_fraction"] == pytest.approx(4 * (450 + 50 + 10) / window)
    assert got["device.compute_fraction"] == pytest.approx(4 * 400 / window)
    assert got["device.comm_fraction"] == pytest.approx(4 * 50 / window)   # its half beside the gemm is compute
    assert got["device.copy_fraction"] == pytest.approx(4 * 60 / window)


def test_busy_and_the_causes_add_up_to_one() -> None:
    got = values(walk(served().trace()))
    idle = sum(v for n, v in got.items()                          # type: ignore[misc]
               if n.startswith("idle.") and n.endswith("_fraction") and n != "idle.before_unlinked_fraction")
    assert got["device.busy_fraction"] + idle == pytest.approx(1.0)        # type: ignore[operator]


def test_the_step_is_a_decode_step_where_names_tell() -> None:
    walked = walk(served().trace())
    got = values(walked)
    assert (got["step.wall_ms"], got["step.count"], got["step.method"]) == (1.0, 4, "annotation")
    signal = next(s for s in walked.signals if s.name == "step.wall_ms")
    assert (signal.how, signal.window, signal.source) == ("trace", "median of 3 decode steps", "drawn.json")
    assert next(s for s in walked.signals if s.name == "step.count").window == "4 whole steps, 6.00 ms"


def test_the_batch_is_read_off_the_names() -> None:
    got = values(walk(served().trace()))
    assert (got["serving.running"], got["serving.prefill_run_steps"]) == (4.0, 0)


def test_a_first_step_of_another_phase_is_no_warm_up() -> None:
    assert "nothing to compare it with" in walk(served().trace()).unknown["warmup.first_step_excess_fraction"]


def test_the_first_steps_excess_over_the_median_of_the_others() -> None:
    rows = Rows()
    for i, (at, dur) in enumerate(((0, 5_000), (5_000, 1_000), (6_000, 1_200), (7_200, 800))):
        rows.annotation(f"ProfilerStep#{i}", at, dur)
    assert values(walk(rows.trace()))["warmup.first_step_excess_fraction"] == pytest.approx(4_000 / 8_000)


def test_a_first_step_that_is_shorter_exceeds_nothing() -> None:
    rows = Rows()
    for i, at in enumerate((0, 500, 1_500, 2_500)):
        rows.annotation(f"ProfilerStep#{i}", at, 500 if not i else 1_000)
    assert values(walk(rows.trace()))["warmup.first_step_excess_fraction"] == 0.0


def test_kernels_copies_left_out() -> None:
    got = values(walk(served().trace()))
    assert got["kernel.per_step"] == 2.0                          # the gemm and the all-reduce
    assert got["kernel.median_us"] == 250.0                       # 100 and 400, four times each
    assert got["kernel.graph_fraction"] == 0.0
    assert got["kernel.launch_to_start_us"] == (20 + 360) / 2
    assert (got["kernel.top_name"], got["kernel.top_ms"], got["kernel.top_core"]) == ("gemm", 0.4, "SM")
    assert got["kernel.top_fraction"] == pytest.approx(400 / 510)
    assert got["host.launch_us"] == 5.0                           # 6 and 4


def test_the_mean_launch_call_leaves_out_calls_that_move_data() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.launch(0, "gemm", 10, 90, call_dur=4)
    rows.launch(20, "gemm", 110, 90, call_dur=8)
    rows.launch(100, "copy_kernel", 210, 90, call_dur=500, call="hipMemcpyWithStream")
    assert values(walk(rows.trace()))["host.launch_us"] == 6.0


def test_collectives() -> None:
    got = values(walk(served().trace()))
    assert (got["comm.calls_per_step"], got["comm.min_us"], got["comm.max_us"]) == (1.0, 100.0, 100.0)


def test_synchronizations_wait_and_bound_what_removing_them_can_win() -> None:
    got = values(walk(served().trace()))
    assert got["sync.per_step"] == 1.0
    assert got["sync.wait_fraction"] == pytest.approx(1_200 / 6_000)
    idle = 1 - 4 * 510 / 6_000
    assert got["sync.gain_bound_fraction"] == pytest.approx(min(0.2, idle))
    assert got["sync.copy_ms"] == pytest.approx(0.06)             # 50 up and 10 down
    assert got["sync.site"] == "aten::item (cudaMemcpyAsync)"


def test_a_call_inside_a_blocking_call_is_not_counted_again_nor_a_watchdogs() -> None:
    rows = served()
    rows.sync(310, 200)                                           # inside the read-back of the first step
    rows.sync(0, 5_900, thread="watchdog")
    got = values(walk(rows.trace()))
    assert got["sync.per_step"] == 1.0
    assert got["sync.wait_fraction"] == pytest.approx(0.2)


def test_no_blocking_call_is_zero_where_calls_were_recorded_and_unknown_where_not() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 500)
    rows.launch(0, "gemm", 10, 400)
    assert values(walk(rows.trace()))["sync.per_step"] == 0.0
    bare = Rows()
    bare.annotation("ProfilerStep#0", 0, 500)
    bare.kernel("gemm", 10, 400)
    walked = walk(bare.trace())
    assert "sync.per_step" not in values(walked)
    assert "no runtime calls" in walked.unknown["sync.wait_fraction"]


def test_the_gap_between_steps_is_from_last_work_to_first_work() -> None:
    assert values(walk(served().trace()))["idle.step_gap_ms"] == pytest.approx((1_030 - 600) / 1_000)


def test_idle_before_unlinked_work() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.launch(0, "gemm", 0, 100)
    rows.kernel("unlinked", 300, 100)
    rows.kernel("before the capture", 450, 50, by=BEFORE_CAPTURE)
    assert values(walk(rows.trace()))["idle.before_unlinked_fraction"] == pytest.approx((200 + 50) / 1_000)


def test_the_share_of_kernels_from_graph_replays() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    graph = rows.call("hipGraphLaunch", 0, 20)
    unnamed = rows.call("launchEverything", 30, 20)
    for i in range(3):
        rows.kernel("in graph", 50 + 10 * i, 5, graph)
    for i in range(9):
        rows.kernel("in unnamed graph", 100 + 10 * i, 5, unnamed)
    for i in range(4):
        rows.launch(200 + 10 * i, "single", 205 + 10 * i, 4)
    assert values(walk(rows.trace()))["kernel.graph_fraction"] == pytest.approx(12 / 16)


def test_an_operator_that_launches_many_kernels_replays_nothing() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    by_external_id = rows.op("aten::_foreach_add_", 0, 200)
    for i in range(9):
        rows.kernel("k", 50 + 10 * i, 5, by_external_id)
    assert values(walk(rows.trace()))["kernel.graph_fraction"] == 0.0


def test_the_programs_heaviest_own_time() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.launch(0, "gemm", 10, 900)
    rows.python("engine/loop.py(3): run", 20, 700)
    rows.python("torch/functional.py(1): f", 30, 300)             # counts for the program's frame around it
    rows.python("queue.py(154): get", 400, 250)                   # waits
    got = values(walk(rows.trace()))
    assert got["host.top_op"] == "engine/loop.py(3): run"
    assert got["host.top_op_ms"] == pytest.approx(0.45)
    assert got["host.top_op_fraction"] == pytest.approx(0.45)


def test_exchanges_on_the_host_and_compilations() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 10_000)
    rows.launch(0, "gemm", 10, 900)
    rows.op("gloo:broadcast", 1_000, 400)
    rows.python("torch/_inductor/compile_fx.py(77): compile_fx", 2_000, 3_000)
    rows.python("torch/_inductor/codecache.py(5): load", 2_100, 900)       # inside the first
    got = values(walk(rows.trace()))
    assert got["comm.host_ms"] == pytest.approx(0.4)
    assert got["warmup.compiles"] == 1


def test_compilations_are_unknown_where_stacks_are() -> None:
    assert "warmup.compiles" not in values(walk(served().trace()))


def longest(steps: list[Step]) -> int:
    return max(map(len, prefill_runs(steps)), default=0)


@pytest.mark.parametrize(("phases", "run"), [
    ("ppppd", 0),            # nothing surely waits while the first prompts run
    ("dpppd", 3),
    ("dppdpd", 2),
    ("dpp", 0),              # what came after is not in the capture
    ("mpppmppd", 3),
    ("dddd", 0),
])
def test_a_run_of_prefills_counts_between_steps_that_decode(phases: str, run: int) -> None:
    words = {"p": "prefill", "d": "decode", "m": "mixed"}
    assert longest([Step(p, 0, 1, words[p]) for p in phases]) == run


@pytest.mark.parametrize(("before", "prompts", "after", "run"), [
    (32, [(1, 2048)] * 20, 33, 20),                       # one prompt in chunks, and 32 that wait
    (4, [(1, 3456)] * 58, 5, 58),                         # fewer of them than there are chunks
    (4, [(1, 3456)] * 57 + [(1, 100)], 5, 58),            # the last chunk is the rest of the prompt
    (8, [(1, 700)] * 12, 12, 0),                          # twelve prompts of one length, and nobody else after them
    (8, [(1, 300), (2, 900), (1, 500)], 4, 0),            # four prompts of their own, and nobody else
    (8, [(1, 300), (2, 900), (1, 500)], 9, 3),
    (8, [(None, None)] * 5, 8, 5),                        # the names do not count prompts
    (None, [(1, 300)] * 5, None, 5),                      # nor decodes
])
def test_decodes_were_pending_where_more_run_after_prefills_than_these_brought_in(
        before: int | None, prompts: list[tuple[int | None, int | None]], after: int | None, run: int) -> None:
    steps = [Step("d", 0, 1, "decode", decode_requests=before),
             *(Step("p", 0, 1, "prefill", requests, tokens, 0) for requests, tokens in prompts),
             Step("d", 0, 1, "decode", decode_requests=after)]
    assert longest(steps) == run


def test_one_window_has_no_step_time_and_says_so() -> None:
    rows = Rows()
    rows.op("aten::mm", 0, 5)
    rows.launch(1, "gemm", 10, 100)
    walked = walk(rows.trace())
    got = values(walked)
    assert got["step.method"] == "window"
    for name in ("step.wall_ms", "step.count", "kernel.per_step", "sync.per_step"):
        assert name not in got
        assert "no steps found" in walked.unknown[name]


def test_values_are_plain_and_names_are_the_catalogues() -> None:
    for signal in walk(served().trace()).signals:
        assert type(signal.value) in (float, int, bool, str)
        assert signal.name in CATALOGUE
        if CATALOGUE[signal.name].unit == "fraction":
            assert 0 <= float(signal.value) <= 1


def required() -> list[str]:
    return [name for name, spec in CATALOGUE.items() if spec.from_trace]


@pytest.mark.parametrize("drawn", ["served", "device only", "host only", "one window", "nothing inside"])
def test_every_signal_a_trace_owes_is_there_or_said_to_be_unknown(drawn: str) -> None:
    rows = Rows()
    if drawn == "served":
        rows = served()
    elif drawn == "device only":
        rows.kernel("a", 0, 10)
        rows.kernel("b", 40, 10)
    elif drawn == "host only":
        rows.op("aten::mm", 0, 100)
    elif drawn == "one window":
        rows.launch(0, "gemm", 10, 100)
    else:
        rows.launch(0, "gemm", 10, 100)
        rows.annotation("ProfilerStep#0", 500, 100)
    walked = walk(rows.trace())
    got = values(walked)
    missing = [name for name in required() if name not in got and not walked.unknown.get(name)]
    assert missing == []
    assert not set(got) & set(walked.unknown)


def test_without_host_rows_what_the_host_did_is_unknown_and_not_zero() -> None:
    rows = Rows()
    rows.kernel("a", 0, 10)
    rows.kernel("b", 40, 10)
    walked = walk(rows.trace())
    assert values(walked)["idle.unrecorded_fraction"] == pytest.approx(0.6)
    for cause in ("launching", "after_sync", "host_op", "no_work", "peer_wait"):
        assert "no host rows" in walked.unknown[f"idle.{cause}_fraction"]


# -- no device rows: told apart
def test_a_run_on_the_cpu() -> None:
    rows = Rows()
    rows.op("aten::mm", 0, 100)
    walked = walk(rows.trace())
    assert "a CPU run" in walked.unknown["device.busy_fraction"]
    assert walked.devices == ()
    assert walked.finding("host") is not None


def test_a_rank_whose_launches_left_no_device_rows() -> None:
    rows = Rows()
    rows.op("aten::mm", 0, 100)
    for i in range(3):
        rows.call("cudaLaunchKernel", 10 + 10 * i, 5)
    note = " ".join(walk(rows.trace()).notes)
    assert "3 launch calls" in note
    assert "Record again" in note


def test_a_rank_of_a_job_on_accelerators_that_launched_nothing() -> None:
    rows = Rows()
    rows.op("aten::mm", 0, 100)
    rows.annotation("nccl:all_reduce", 200, 10)
    assert "launched nothing here" in " ".join(walk(rows.trace()).notes)
    plain = Rows()
    plain.op("aten::mm", 0, 100)
    assert "launched nothing here" in " ".join(walk(plain.trace(meta={"deviceProperties": [{"id": 0}]})).notes)


def test_read_backs_that_wait_betray_a_device_that_was_not_recorded() -> None:
    rows = Rows()
    rows.annotation("nccl:all_reduce", 0, 10)
    for i in range(3):
        rows.op("aten::item", 100 + 2_000 * i, 1_000)
        rows.op("aten::_local_scalar_dense", 101 + 2_000 * i, 998)
    note = " ".join(walk(rows.trace()).notes)
    assert "3 read-backs take 2.99 ms" in note
    assert "there is a device" in note


def test_device_rows_that_nobody_could_place() -> None:
    rows = Rows()
    rows.op("aten::mm", 0, 100)
    counts = Counts(events=100, kept=1, unplaced=50, unknown_categories=("npu_task",))
    walked = walk(rows.trace(counts=counts))
    assert "50 spans are of unknown categories (npu_task)" in " ".join(walked.notes)
    assert "a CPU run" not in " ".join(walked.notes)


def test_a_front_end() -> None:
    rows = Rows()
    rows.python("uvicorn/server.py(60): serve", 0, 1_000)
    rows.python("selectors.py(452): select", 100, 800)
    walked = walk(rows.trace())
    assert "front end" in walked.unknown["device.busy_fraction"]
    assert any("waits for 80% of the window" in note for note in walked.notes)


# -- notes
def test_hidden_work_makes_busy_a_lower_bound_and_says_so() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 90)
    rows.launch(110, "late", 5_000, 50)
    assert any("busy is a lower bound" in note for note in walk(rows.trace()).notes)


def test_kernels_dropped_inside_a_replay_are_said_to_be() -> None:
    rows = Rows()
    call = rows.call("cudaGraphLaunch", 0, 10)
    for i in range(4):
        rows.kernel("k", 20 + 1_000 * i, 10, call)
    note = " ".join(walk(rows.trace()).notes)
    assert "graph replays, where profilers drop kernels" in note


def test_a_hidden_synchronization_is_named_with_its_line() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.launch(0, "gemm", 10, 900)
    rows.python("engine/post.py(7): to_list", 20, 900)
    rows.down(30, 910, 2, call_dur=885)
    note = " ".join(walk(rows.trace()).notes)
    assert "1 call named asynchronous holds the host for 0.89 ms" in note
    assert "engine/post.py(7): to_list" in note


def test_waits_drawn_as_device_work_are_said_to_be() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.launch(0, "gemm", 10, 300)
    rows.launch(5, "event_wait", 310, 600, stream="9")
    assert any("60% of the window is busy only with event_wait" in note for note in walk(rows.trace()).notes)


def test_of_two_devices_the_busiest_is_measured_and_that_is_said() -> None:
    rows = served()
    for i in range(4):
        rows.launch(6_100 + 10 * i, "tiny", 6_105 + 10 * i, 2, device="1")
    walked = walk(rows.trace())
    assert [use.device for use in walked.devices] == ["0", "1"]
    assert any("2 devices: the figures are those of 0" in note for note in walked.notes)


def test_work_without_a_launch_is_said_to_count() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 10)
    rows.kernel("unlinked", 30, 20)
    assert any("50% of the device rows have no launch" in note for note in walk(rows.trace()).notes)


# -- the same collective, waits in queues, captures without steps
def with_two_sizes(steps: int = 4) -> Rows:
    """Every step: one large collective (1,000 µs; 3,000 in the last step) and one small one (20 µs), of one name."""
    rows = Rows()
    for i in range(steps):
        at = 5000 * i
        rows.annotation(f"ProfilerStep#{i}", at, 5000)
        rows.comm("ncclAllReduce", at + 10, 3000 if i == steps - 1 else 1000)
        rows.comm("ncclAllReduce", at + 4000, 20)
    return rows


def test_a_small_message_is_no_measure_of_a_large_one() -> None:
    taken = {s.name: s.value for s in walk(with_two_sizes().trace()).signals}
    assert (taken["comm.min_us"], taken["comm.max_us"]) == (1000, 3000)


def test_collectives_of_one_step_have_nothing_to_be_compared_with() -> None:
    walked = walk(with_two_sizes(1).trace())
    assert "comm.min_us" not in {s.name for s in walked.signals}
    assert "comm.min_us" in walked.unknown


def test_a_wait_of_the_queue_is_not_the_largest_kernel() -> None:
    rows = Rows()
    rows.launch(0, "event_wait", 10, 900)
    rows.launch(20, "gemm", 920, 50)
    taken = {s.name: s.value for s in walk(rows.trace()).signals}
    assert taken["kernel.top_name"] == "gemm"


def test_a_capture_without_steps_promises_no_step_time() -> None:
    rows = Rows()
    rows.op("aten::mm", 0, 20)
    rows.launch(5, "gemm", 10, 1000)
    walked = walk(rows.trace())
    assert walked.steps.method == "window"
    assert [f.step_without_ms for f in walked.findings] == [None]


def test_the_largest_kernel_is_no_collective_and_no_copy_though_one_takes_longer() -> None:
    rows = Rows()
    for at in (0, 1_000):
        rows.annotation("ProfilerStep#1", at, 1_000)
        rows.launch(at + 10, "gemm", at + 30, 200)
        rows.launch(at + 20, "norm", at + 230, 50)
        rows.comm("ncclDevKernel_AllReduce", at + 280, 500, rows.call("cudaLaunchKernel", at + 25, 4))
    got = values(walk(rows.trace()))
    assert got["kernel.top_name"] == "ncclDevKernel_AllReduce"
    assert got["kernel.top_compute_name"] == "gemm"


def test_copies_over_the_link_are_told_from_those_on_the_device_and_from_what_kernels_hide() -> None:
    rows = Rows()
    for at in (0, 1_000):
        rows.annotation("ProfilerStep#1", at, 1_000)
        rows.launch(at + 5, "gemm", at + 30, 200)
        rows.up(at + 10, at + 180, 120, call_dur=4)                                    # 50 beside the gemm, 70 alone
        rows.copy("Memcpy DtoD (Device -> Device)", at + 400, 300, rows.call("cudaMemcpyAsync", at + 20, 4))
    got = values(walk(rows.trace()))
    assert got["device.copy_fraction"] == pytest.approx((70 + 300) / 1_000)
    assert got["device.link_copy_fraction"] == pytest.approx(70 / 1_000)
    assert got["sync.copy_ms"] == pytest.approx(0.120)


def test_where_no_copy_says_that_it_crosses_the_links_part_is_unknown_and_without_copies_none() -> None:
    rows = Rows()
    for at in (0, 1_000):
        rows.annotation("ProfilerStep#1", at, 1_000)
        rows.launch(at + 5, "gemm", at + 30, 200)
    assert values(walk(rows.trace()))["device.link_copy_fraction"] == 0
    rows.copy("memcpy", 400, 300, rows.call("copy", 20, 4))
    assert "device.link_copy_fraction" not in values(walk(rows.trace()))

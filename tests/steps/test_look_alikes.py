"""From a drawn trace to its verdict, where one failure wears the figures of another. Times in µs."""

from __future__ import annotations

import pytest

from builders import Rows
from xpu_triage import fingerprints
from xpu_triage.contradictions import contradictions
from xpu_triage.signals import Signal, Signals
from xpu_triage.steps.results import Walk
from xpu_triage.steps.walk import walk
from xpu_triage.verdict import Level, Verdict, judge

DECODE = "execute_context_0(0)_generation_8(8)"
LOOP = "sglang/srt/managers/scheduler.py"


def judged(rows: Rows, **beside: float) -> tuple[Walk, Verdict]:
    """The walk, and its verdict with signals from other evidence beside it."""
    walked = walk(rows.trace())
    typed = [Signal(name, value, "metrics", "", "typed") for name, value in beside.items()]
    signals = Signals((*walked.signals, *typed))
    return walked, judge(signals, fingerprints.load(), contradictions(signals))


def value(walked: Walk, name: str) -> float:
    return float(next(s.value for s in walked.signals if s.name == name))


def eager(rows: Rows, at: float, kernels: int = 20, pace: float = 100, dur: float = 80) -> None:
    """Kernels launched one by one, each done before the next."""
    for i in range(kernels):
        rows.op("aten::mm", at + i * pace - 2, 12)
        rows.launch(at + i * pace, f"k{i % 5}", at + i * pace + 10, dur)


# -- an engine without requests
def spinning(pass_us: float = 200, ranks: bool = False, between: str = "", mark: str = "step[DECODE bs=1]") -> Rows:
    """Eight steps of 1.5 ms, and 20 ms after each in which the loop asks for requests, finds none and asks again."""
    rows = Rows()
    rows.python(f"{LOOP}(620): event_loop_normal", 0, 8 * 21_500)
    for i in range(8):
        at = 21_500.0 * i
        rows.python(f"{LOOP}(640): recv_requests", at, 100)
        rows.annotation(mark, at + 250, 1_200)
        eager(rows, at + 300, kernels=8)
        rows.sync(at + 1_150, 100)
        for start in range(1_500, 21_500 - int(pass_us) + 1, int(pass_us)):
            begin = at + start
            rows.python(f"{LOOP}(640): recv_requests", begin, (0.05 if between else 0.5) * pass_us)
            if between:
                rows.op(between, begin + 0.06 * pass_us, 0.9 * pass_us)
                continue
            rows.python("zmq/sugar/socket.py(970): recv_pyobj", begin + 1, 0.2 * pass_us)
            if ranks:
                rows.python("sglang/srt/utils.py(900): broadcast_pyobj", begin + 0.25 * pass_us, 0.24 * pass_us)
            rows.python(f"{LOOP}(1500): get_next_batch_to_run", begin + 0.6 * pass_us, 0.2 * pass_us)
            rows.python(f"{LOOP}(1300): self_check_during_idle", begin + 0.82 * pass_us, 0.15 * pass_us)
    return rows


@pytest.mark.parametrize("pass_us", [50, 200, 1_600])
@pytest.mark.parametrize("ranks", [False, True], ids=["one rank", "several ranks"])
def test_a_scheduler_that_spins_through_empty_passes_has_nothing_to_do(pass_us: float, ranks: bool) -> None:
    walked, verdict = judged(spinning(pass_us, ranks))
    assert value(walked, "idle.no_work_fraction") > 0.85
    assert value(walked, "idle.host_op_fraction") < 0.05
    assert verdict.id is None
    assert "serving.running and serving.waiting" in verdict.next


def test_with_the_engines_own_count_it_is_no_fault() -> None:
    _, verdict = judged(spinning(mark="ProfilerStep#1"), **{"serving.running": 0.0, "serving.waiting": 0.0})
    assert verdict.id == "no-fault"
    assert "no requests:" in verdict.summary


def test_ranks_that_keep_telling_each_other_that_there_is_nothing_do_not_communicate_on_a_steps_path() -> None:
    walked, _ = judged(spinning(ranks=True))
    assert value(walked, "comm.host_ms") == 0


def test_passes_that_run_operators_are_not_empty() -> None:
    assert value(judged(spinning(between="aten::sort"))[0], "idle.no_work_fraction") < 0.05


def test_one_long_piece_of_host_work_between_two_questions_is_work() -> None:
    rows = Rows()
    for i in range(6):
        at = 10_000.0 * i
        rows.annotation(DECODE, at, 9_900)
        rows.python(f"{LOOP}(640): recv_requests", at + 1, 20)
        rows.python(f"{LOOP}(700): build_batch", at + 100, 7_000)
        eager(rows, at + 7_500)
    assert judged(rows)[1].id == "host-bound"


# -- small frames after a sync
def bookkeeping(frame: str = "engine/scheduler.py(80): schedule", small: int = 30, launches: bool = False) -> Rows:
    """Ten steps: 1,200 µs of kernels, a wait for them, then `small` calls of 20 µs in one frame; none of them is long,
    and all of them together are less than a millisecond."""
    rows = Rows()
    for i in range(10):
        at = 2_050.0 * i
        rows.annotation(DECODE, at, 2_040)
        eager(rows, at + 5, kernels=12, pace=100, dur=98)
        rows.sync(at + 1_180, 40)
        if frame:
            rows.python(frame, at + 1_230, 22.0 * small + 120)
        for k in range(small):
            rows.python(f"engine/scheduler.py({90 + k}): part_{k}", at + 1_240 + 22 * k, 20)
            if launches and k % 10 == 0:
                rows.launch(at + 1_242 + 22 * k, "fill", at + 1_250 + 22 * k, 3)
    return rows


def test_many_small_frames_of_one_function_after_a_sync_are_host_work() -> None:
    walked, verdict = judged(bookkeeping())
    assert value(walked, "idle.host_op_fraction") > 0.3
    assert value(walked, "idle.after_sync_fraction") < 0.03
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "host-bound")


@pytest.mark.parametrize("how", [{"frame": ""}, {"launches": True}], ids=str)
def test_small_frames_of_no_one_function_or_of_one_that_launches_refill_the_device(how: dict[str, object]) -> None:
    walked, _ = judged(bookkeeping(**how))
    assert value(walked, "idle.host_op_fraction") < 0.03


# -- copies beside idle compute
def copies_beside(kernels: int = 200, fill: float = 0.95) -> Rows:
    """Kernels of 4 µs launched every 20, and one copy on its own stream that fills the step. Nobody waits for it."""
    rows, wall = Rows(), kernels * 20 + 200.0
    for i in range(10):
        at = i * wall
        rows.annotation(DECODE, at, wall - 1)
        rows.copy("Memcpy HtoD (Pinned -> Device)", at + 5, wall * fill, rows.call("cudaMemcpyAsync", at + 1, 3),
                  stream="99")
        eager(rows, at + 12, kernels, pace=20, dur=4)
    return rows


def copies_ahead(host_waits: bool) -> Rows:
    """Twenty layers a step, whose kernels come after a copy of 1 ms each: the queue waits for it, or the host does."""
    rows, device, host = Rows(), 50.0, 0.0
    for _ in range(6):
        begin = host
        for _ in range(20):
            start = max(device, host + 5)
            rows.copy("Memcpy HtoD (Pinned -> Device)", start, 1_000, rows.call("cudaMemcpyAsync", host + 1, 3),
                      stream="99")
            device = start + 1_000
            if host_waits:
                rows.sync(host + 5, device - host - 2)
                host = device + 4
            for i in range(5):
                device = max(device, host + 8) + 1
                rows.launch(host + 6, f"k{i}", device, 40)
                device, host = device + 40, host + 8
            host += 8
        rows.sync(host + 1, max(device - host, 1) + 3)
        host = max(host, device) + 6
        rows.annotation(DECODE, begin, host - begin - 1)
    return rows


@pytest.mark.parametrize("fill", [1.0, 0.95, 0.6])
def test_copies_that_nobody_waits_for_do_not_hide_that_the_host_launches_too_slowly(fill: float) -> None:
    walked, verdict = judged(copies_beside(fill=fill))
    assert value(walked, "device.copy_fraction") > 0.4
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "launch-bound")
    assert "bandwidth-bound" not in {h.id for h in verdict.hypotheses if h.score > 0}


def test_copies_beside_kernels_of_which_most_were_queued_together_still_hide_that_the_rest_come_late() -> None:
    """A copy fills the step; 120 kernels are launched in one go, and 80 one by one every 40 µs. The median kernel waits
    in its queue for other kernels, and none waits for the copy."""
    rows, wall = Rows(), 120 * 6 + 80 * 40 + 300.0
    for i in range(8):
        at = i * wall
        rows.annotation(DECODE, at, wall - 1)
        rows.copy("Memcpy HtoD (Pinned -> Device)", at + 5, wall * 0.97, rows.call("cudaMemcpyAsync", at + 1, 3),
                  stream="99")
        for k in range(120):
            rows.launch(at + 12 + 2.5 * k, f"b{k % 7}", at + 20 + 6 * k, 5, call_dur=2)
        for k in range(80):
            rows.launch(at + 745 + 40 * k, f"p{k % 5}", at + 754 + 40 * k, 4)
    walked, verdict = judged(rows)
    assert value(walked, "device.copy_fraction") > 0.7
    assert value(walked, "device.copy_wait_fraction") == 0
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "launch-bound")


@pytest.mark.parametrize("host_waits", [False, True], ids=["the queue waits", "the host waits"])
def test_copies_that_kernels_wait_for_are_the_limit_of_the_link(host_waits: bool) -> None:
    _, verdict = judged(copies_ahead(host_waits))
    assert (verdict.level, verdict.id) == (Level.CONFIRMED, "bandwidth-bound")


def test_copies_that_the_host_carries_out_itself_are_waited_for_though_no_call_says_so() -> None:
    rows, at = Rows(), 0.0
    for _ in range(8):
        begin = at
        call = rows.call("cudaMemcpyAsync", at + 5, 2_990)       # pageable memory: it returns a little early
        rows.copy("Memcpy HtoD (Pageable -> Device)", at + 10, 3_000, call, stream="99")
        eager(rows, at + 3_020, kernels=100, pace=12, dur=9)
        at += 4_300
        rows.annotation(DECODE, begin, at - begin - 5)
    assert judged(rows)[1].id == "bandwidth-bound"


# -- one rank of several
def one_rank(steps: int, wait: float = 900, name: str = "ncclDevKernel_AllReduce_Sum_bf16") -> Rows:
    """Four layers a step: 400 µs of kernels, then a collective of `wait`."""
    rows, at = Rows(), 0.0
    for i in range(steps):
        begin, host = at, at + 1
        for _ in range(4):
            for k in range(4):
                rows.launch(host, f"gemm{k}", at + 5, 100, call_dur=3)
                at, host = at + 101, host + 4
            rows.comm(name, at + 6, wait, rows.call("cudaLaunchKernel", host, 3))
            at, host = at + wait + 1, host + 4
        rows.annotation(f"ProfilerStep#{i}", begin, at - begin)
        at += 20
    return rows


def test_one_step_of_one_rank_cannot_tell_an_exchange_from_waiting_for_the_others() -> None:
    single, alone = judged(one_rank(steps=1, wait=3_000))
    assert value(single, "device.comm_fraction") > 0.8
    assert (alone.level, alone.id) == (Level.NOT_ENOUGH, None)
    assert alone.hypotheses[0].id == "comm-bound"


def test_collectives_that_are_short_at_times_were_waiting_and_their_share_is_not_laid_on_the_host() -> None:
    rows, at = Rows(), 0.0
    for i in range(9):
        begin, wait = at, 9_000 if i % 3 else 20
        eager(rows, at + 10, kernels=6)
        rows.python("engine.py(3): prepare", at + 620, 2_200)
        rows.comm("ncclDevKernel_AllReduce", at + 2_850, wait, rows.call("cudaLaunchKernel", at + 2_830, 4))
        at += 2_900 + wait
        rows.annotation(f"ProfilerStep#{i}", begin, at - begin)
    walked, verdict = judged(rows)
    assert value(walked, "comm.min_us") == 20
    assert value(walked, "idle.host_op_fraction") > 0.2
    assert verdict.id is None
    assert {h.id for h in verdict.hypotheses if h.score > 0} >= {"comm-bound", "host-bound"}


@pytest.mark.parametrize("name", ["ncclDevKernel_AllReduce_Sum_bf16", "hcom_allReduce_", "ncclKernel_AllGather"])
def test_steady_calls_of_one_rank_may_all_wait_for_the_same_late_rank(name: str) -> None:
    walked, verdict = judged(one_rank(steps=8, name=name))
    assert value(walked, "comm.min_us") == value(walked, "comm.max_us") == 900
    assert (verdict.level, verdict.id) == (Level.NOT_ENOUGH, None)
    assert "xpu-triage fleet" in verdict.next
    over_ranks = {"comm.skew_ms": 0.1, "comm.min_us": 890.0}
    _, verdict = judged(one_rank(steps=8, name=name), **over_ranks)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "comm-bound")
    assert judged(one_rank(steps=8, name=name), **{"comm.skew_ms": 3.5})[1].id is None  # of the 3.6 ms in them


@pytest.mark.parametrize("name", ["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "hcom_receive__12_0"])
def test_a_receive_lasts_until_its_sender_is_done_and_is_no_cost_that_one_rank_knows(name: str) -> None:
    rows = one_rank(steps=8, name=name)
    assert judged(rows)[1].id is None
    assert judged(rows, **{"comm.skew_ms": 0.1, "comm.min_us": 890.0})[1].id == "comm-bound"


# -- prefills that decodes wait for
def serving(run: int, after: int = 33) -> Rows:
    """Ten decode steps of 1.5 ms, `run` prefills of 10 ms of one prompt in chunks, ten decodes; the device is full."""
    rows, at = Rows(), 0.0
    names = [("execute_context_0(0)_generation_32(32)", 1_500.0)] * 10
    names += [("execute_context_1(2048)_generation_0(0)", 10_000.0)] * run
    names += [(f"execute_context_0(0)_generation_{after}({after})", 1_500.0)] * 10
    for name, dur in names:
        rows.annotation(name, at, dur)
        each = (dur - 30) / 10
        for i in range(10):
            rows.launch(at + 5 + 4 * i, f"k{i}", at + 15 + each * i, each - 1, call_dur=3)
        rows.sync(at + 60, dur - 62)
        at += dur + 5
    return rows


def test_a_long_run_of_prefills_before_pending_decodes_is_not_hidden_by_a_full_device() -> None:
    walked, verdict = judged(serving(run=20))
    assert value(walked, "device.busy_fraction") > 0.95
    assert value(walked, "serving.prefill_run_steps") == 20
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "prefill-starves-decode")
    assert "Second: kernel-bound" in verdict.summary


def test_a_shorter_run_of_prefills_that_takes_most_of_the_time_is_the_fault_too() -> None:
    walked, verdict = judged(serving(run=9))
    assert value(walked, "serving.prefill_run_fraction") == pytest.approx(90 / 120, abs=0.01)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "prefill-starves-decode")
    assert value(judged(serving(run=1))[0], "serving.prefill_run_fraction") == 0      # one between two decodes


def test_a_burst_of_short_prompts_that_takes_less_than_two_decode_steps_leaves_a_full_device_what_it_is() -> None:
    """Forty decode steps of 20 ms, ten prefills of 3 ms each with one prompt, forty decodes."""
    rows, at = Rows(), 0.0
    steps = [("execute_context_0(0)_generation_64(64)", 20_000.0)] * 40
    steps += [("execute_context_1(100)_generation_0(0)", 3_000.0)] * 10
    steps += [("execute_context_0(0)_generation_74(74)", 20_000.0)] * 40
    for name, dur in steps:
        rows.annotation(name, at, dur)
        for i in range(10):
            rows.launch(at + 5 + 4 * i, f"k{i}", at + 15 + dur / 10 * i, dur / 10 - 4, call_dur=3)
        rows.sync(at + 60, dur - 62)
        at += dur + 5
    walked, verdict = judged(rows)
    assert (value(walked, "serving.prefill_run_steps"), value(walked, "serving.prefill_run_ms")) == (
        10, pytest.approx(10 * 3.005))
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "kernel-bound")


@pytest.mark.parametrize("run", [0, 3])
def test_few_prefills_in_a_row_leave_a_full_device_what_it_is(run: int) -> None:
    assert judged(serving(run))[1].id == "kernel-bound"


# -- a first step that is longer
def first_longer(by: str) -> Rows:
    """Ten steps of 2 ms, the first one 20 ms longer."""
    rows, at = Rows(), 0.0
    for i in range(10):
        begin, late = at, 20_000.0 if i == 0 else 0.0
        eager(rows, at + 10, kernels=3)
        if late and by == "launch":
            rows.launch(at + 310, "loaded", at + 310 + late + 4, 20, call_dur=late)
        elif late and by.endswith((": flush", ": step")):
            rows.python(by, at + 300, late)
        elif late:
            rows.op(by, at + 300, late)
        eager(rows, at + late + 400, kernels=16)
        at += 2_100 + late
        rows.annotation(DECODE, begin, at - begin - 5)
    return rows


@pytest.mark.parametrize("by", ["logging/__init__.py(1100): flush", "engine/loop.py(11): step", "aten::add"])
def test_a_hiccup_of_the_host_in_the_first_step_is_no_warm_up(by: str) -> None:
    walked, verdict = judged(first_longer(by))
    assert value(walked, "warmup.first_step_excess_fraction") > 0.4
    assert value(walked, "idle.first_use_fraction") == 0
    assert verdict.id != "warmup-compile"


def test_a_first_step_that_is_longer_by_its_first_time_calls_is_a_warm_up() -> None:
    assert judged(first_longer("launch"))[1].id == "warmup-compile"


# -- operators on the host where memory is shared
def on_host(copy: str) -> Rows:
    """Six steps with an operator of 40 ms on the host that launches nothing, and one copy of the kind."""
    rows, at = Rows(), 0.0
    for _ in range(6):
        begin = at
        eager(rows, at + 10, kernels=8, pace=20, dur=15)
        rows.sync(at + 180, 20)
        rows.op("aten::exponential_", at + 250, 40_000)
        at += 40_300
        rows.launch(at, "argmax", at + 10, 50)
        rows.copy(copy, at + 70, 20, rows.call("cudaMemcpyAsync", at + 20, 4))
        rows.annotation(DECODE, begin, at + 100 - begin)
        at += 150
    return rows


def test_without_copies_between_host_and_device_a_fallback_is_neither_seen_nor_excluded() -> None:
    walked, verdict = judged(on_host("Memcpy DtoD (Device -> Device)"))
    assert "fallback.op" in walked.unknown
    assert any("memory that host and device share" in note for note in walked.notes)
    assert verdict.id != "host-bound"


def test_copies_of_a_few_bytes_both_ways_carry_no_operators_data_and_the_doubt_is_said() -> None:
    rows, at = Rows(), 0.0
    for _ in range(8):
        begin = at
        rows.up(at + 1, at + 3, 2)
        eager(rows, at + 5, kernels=20, pace=60, dur=55)
        rows.down(at + 1_180, at + 1_240, 2, call_dur=65)
        rows.op("aten::exponential_", at + 1_250, 3_000)
        eager(rows, at + 4_260, kernels=5, pace=60, dur=55)
        at += 4_600
        rows.annotation(DECODE, begin, at - begin - 2)
    walked, verdict = judged(rows)
    assert verdict.id == "host-bound"
    assert any("no copy that could carry its data goes either way" in note for note in walked.notes)


def test_with_copies_down_alone_it_is_host_work_and_the_doubt_is_said() -> None:
    walked, verdict = judged(on_host("Memcpy DtoH (Device -> Pageable)"))
    assert verdict.id == "host-bound"
    assert any("no copy that could carry its data goes up to the device" in note for note in walked.notes)

"""Fallbacks to a CPU: every shape that must be seen, and what looks alike and is none. Times in µs."""

from __future__ import annotations

import pytest

from builders import Rows
from xpu_triage.steps.results import CAUSES, Cause, Walk
from xpu_triage.steps.walk import walk


def step_of(rows: Rows, end: float, name: str = "ProfilerStep#1", start: float = 0) -> Rows:
    rows.annotation(name, start, end - start)
    return rows


def forward(rows: Rows, at: float = 0) -> None:
    """1,000 µs of device work, launched at once: it keeps the device busy until `at` + 1,010."""
    rows.op("aten::mm", at, 20)
    rows.launch(at + 5, "gemm", at + 10, 1000)


def nested(rows: Rows, op: str, at: float, host: float, *, busy_until: float, copy: float = 100) -> float:
    """An operator that brings its input down, computes for `host` µs, and brings the result up. Returns its end.

    The copy down waits in the queue until `busy_until`; that wait is not the operator's.
    """
    down_end = max(busy_until, at + 10) + copy
    up_start = down_end + host + 10
    end = up_start + copy + 5
    rows.op(op, at, end - at)
    rows.op("aten::copy_", at + 2, down_end - at + 1)
    rows.down(at + 4, down_end - copy, copy, call_dur=down_end - at - 3)
    rows.op("aten::copy_", up_start - 5, copy + 8)
    rows.up(up_start - 4, up_start, copy, call_dur=copy + 5, blocking=True)
    return end


def value(walked: Walk, name: str) -> object:
    return next((s.value for s in walked.signals if s.name == name), None)


def marked(walked: Walk) -> list[tuple[str, bool]]:
    """(cause, fallback) of every gap of 1 ms or more."""
    gaps = walked.devices[0].gaps
    rows = zip(gaps.cause, gaps.fallback, gaps.dur, strict=True)
    return [(str(CAUSES[cause]), bool(fallback)) for cause, fallback, ns in rows if ns >= 10**6]


# -- what must be seen
def test_copies_nested_under_the_operator() -> None:
    rows = Rows()
    forward(rows)
    end = nested(rows, "aten::exponential_", 30, 5000, busy_until=1010)
    walked = walk(step_of(rows, end + 20).trace())
    assert value(walked, "fallback.op") == "aten::exponential_"
    # from the copy down (1,010) to the operator's end: 100 + 5,000 + 10 + 100 + 5, not the 980 it waited in the queue
    assert value(walked, "fallback.fraction") == pytest.approx(5215 / (end + 20))
    assert marked(walked) == [("host_op", True)]
    finding = walked.finding("host_op")
    assert finding is not None
    assert finding.name == "aten::exponential_"
    assert finding.step_without_ms == pytest.approx((end + 20 - 5215) / 1000, abs=0.02)


def test_a_copy_down_an_operator_and_a_copy_up_side_by_side() -> None:
    rows = Rows()
    forward(rows)
    rows.op("aten::to", 30, 1085)
    rows.down(32, 1010, 100, call_dur=1080)
    rows.op("aten::exponential_", 1120, 5000)
    rows.op("aten::to", 6125, 120)
    rows.up(6130, 6135, 100, call_dur=110, blocking=True)
    walked = walk(step_of(rows, 6300).trace())
    assert value(walked, "fallback.op") == "aten::exponential_"
    assert value(walked, "fallback.fraction") == pytest.approx((6235 - 1010) / 6300)
    assert marked(walked) == [("host_op", True)]


def test_an_operator_that_computes_on_the_host_and_only_uploads_its_result() -> None:
    rows = Rows()
    forward(rows)
    rows.sync(30, 985)
    rows.op("aten::exponential_", 1020, 5200)
    rows.up(6100, 6105, 100, call_dur=110, blocking=True)
    walked = walk(step_of(rows, 6300).trace())
    assert value(walked, "fallback.op") == "aten::exponential_"
    assert value(walked, "fallback.fraction") == pytest.approx(5200 / 6300)


def test_small_fallbacks_add_up_where_each_is_far_below_one_that_counts_alone() -> None:
    rows = Rows()
    forward(rows)
    at = 1030.0
    for _ in range(50):
        at = nested(rows, "aten::isin", at, 60, busy_until=0, copy=5) + 10
    walked = walk(step_of(rows, at).trace())
    assert value(walked, "fallback.op") == "aten::isin"
    assert value(walked, "fallback.fraction") == pytest.approx(50 * (5 + 60 + 10 + 5 + 5) / at, rel=0.02)
    # what the device waits for is the operator, although each gap alone would be a bubble after a sync
    assert value(walked, "idle.host_op_fraction") == pytest.approx(50 * 70 / at, rel=0.05)


def test_small_operators_between_copies_add_up_too() -> None:
    rows = Rows()
    forward(rows)
    for i in range(20):
        at = 1030 + 200 * i
        rows.down(at, at + 5, 8, call_dur=14)
        rows.op("aten::sort", at + 15, 80)
        rows.up(at + 100, at + 105, 8, call_dur=14, blocking=True)
    walked = walk(step_of(rows, 6000).trace())
    assert value(walked, "fallback.op") == "aten::sort"
    assert value(walked, "fallback.fraction") == pytest.approx(20 * 108 / 6000)


def test_several_operators_on_the_host_between_the_copies() -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, 100, call_dur=1085)
    for i, op in enumerate(("aten::sort", "aten::cumsum", "aten::softmax", "aten::multinomial")):
        rows.op(op, 1120 + 1000 * i, 990 + i)
    rows.up(5130, 5135, 20, call_dur=30, blocking=True)
    walked = walk(step_of(rows, 5300).trace())
    assert value(walked, "fallback.op") == "aten::multinomial"
    assert value(walked, "fallback.fraction") == pytest.approx((5155 - 1010) / 5300)


def test_a_task_on_the_devices_own_control_cpu_is_one_although_the_device_is_busy() -> None:
    rows = Rows()
    forward(rows)
    rows.op("aten::masked_scatter", 30, 20)
    rows.launch(35, "AI_CPU MaskedScatter", 1010, 4000)
    walked = walk(step_of(rows, 5010).trace())
    assert value(walked, "fallback.op") == "aten::masked_scatter"
    assert value(walked, "fallback.fraction") == pytest.approx(4000 / 5010)
    assert value(walked, "kernel.top_core") == "AI_CPU"


def test_a_task_on_the_control_cpu_costs_only_what_no_core_computes_beside() -> None:
    rows = Rows()
    rows.op("aten::masked_scatter", 30, 20)
    rows.launch(35, "AI_CPU MaskedScatter", 100, 1000)              # to 1,100; the cores from 300 to 900
    rows.op("aten::mm", 60, 20)
    rows.launch(65, "MatMulV3", 300, 600, stream="9")
    walked = walk(step_of(rows, 2000).trace())
    assert value(walked, "fallback.fraction") == pytest.approx((200 + 200) / 2000)
    assert (value(walked, "kernel.top_name"), value(walked, "kernel.top_core")) == ("MatMulV3", "SM")


def test_a_task_on_the_control_cpu_wholly_beside_the_cores_is_no_fallback() -> None:
    rows = Rows()
    rows.down(5, 20, 10, call_dur=30)
    rows.op("aten::masked_scatter", 40, 20)
    rows.launch(45, "AI_CPU MaskedScatter", 400, 400)
    rows.op("aten::mm", 70, 20)
    rows.launch(75, "MatMulV3", 300, 600, stream="9")
    walked = walk(step_of(rows, 1000).trace())
    assert (value(walked, "fallback.op"), value(walked, "fallback.fraction")) == ("none", 0)


def test_the_heaviest_of_several_operators_is_named_and_all_are_in_the_share() -> None:
    rows = Rows()
    forward(rows)
    first = nested(rows, "aten::isin", 30, 1000, busy_until=1010)
    last = nested(rows, "aten::exponential_", first + 10, 3000, busy_until=0)
    walked = walk(step_of(rows, last + 5).trace())
    assert value(walked, "fallback.op") == "aten::exponential_"
    assert value(walked, "fallback.fraction") == pytest.approx((1215 + 3215) / (last + 5), rel=0.01)


# -- what looks alike
def next_batch(rows: Rows, at: float, name: str = "aten::stack", upload: float = 100) -> None:
    """A batch made of host tensors and copied up."""
    rows.op(name, at, 4000)
    rows.up(at + 4010, at + 4015, upload, call_dur=upload + 10, blocking=True)


def nothing_seen(walked: Walk) -> None:
    assert (value(walked, "fallback.op"), value(walked, "fallback.fraction")) == ("none", 0.0)
    assert not any(use.gaps.fallback.any() for use in walked.devices)


def test_a_batch_prepared_in_the_next_step_is_none() -> None:
    rows = Rows()
    for i in range(3):
        at = 6000 * i
        step_of(rows, at + 6000, f"ProfilerStep#{i}", at)
        next_batch(rows, at + 10, upload=15)                       # as small as what came down: only the step tells
        forward(rows, at + 4200)
        rows.op("aten::item", at + 4225, 1000)
        rows.down(at + 4230, at + 5210, 2, call_dur=990)           # the loss, read at the end of the step
    walked = walk(rows.trace())
    nothing_seen(walked)
    assert value(walked, "idle.host_op_fraction") > 0.5            # type: ignore[operator]


def test_a_batch_made_of_host_tensors_is_none_where_nothing_came_down() -> None:
    rows = Rows()
    forward(rows)
    rows.sync(30, 985)
    next_batch(rows, 1020, upload=15)
    nothing_seen(walk(step_of(rows, 5100).trace()))


def test_operators_that_merely_dispatch_are_none_however_many() -> None:
    rows = Rows()
    forward(rows)
    for i in range(40):
        at = 1030 + 60 * i
        rows.down(at, at + 5, 5, call_dur=12)
        rows.op("aten::eq", at + 13, 10)
        rows.up(at + 24, at + 28, 5, call_dur=10, blocking=True)
    nothing_seen(walk(step_of(rows, 3500).trace()))


def test_python_code_inside_an_operator_of_the_engine_is_none() -> None:
    rows = Rows()
    forward(rows)
    rows.op("engine::sample", 25, 5250)
    rows.down(30, 1010, 100, call_dur=1085)
    rows.python("engine/sampler.py(12): sample_with_numpy", 1120, 4000)
    rows.up(5130, 5135, 100, call_dur=110, blocking=True)
    nothing_seen(walk(step_of(rows, 5300).trace()))


def test_a_large_upload_after_a_small_read_is_a_new_batch_and_none() -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, 2, call_dur=985)
    next_batch(rows, 1020, upload=400)
    nothing_seen(walk(rows.trace()))                               # no annotation: nothing tells the steps apart


def test_a_data_loader_is_none() -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, 100, call_dur=1085)
    rows.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1115, 4010)
    next_batch(rows, 1120)
    nothing_seen(walk(step_of(rows, 5400).trace()))


def test_python_code_between_the_copies_is_host_work_and_none() -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, 100, call_dur=1085)
    rows.python("engine/sampler.py(12): sample_with_numpy", 1120, 4000)
    rows.op("aten::view", 1200, 1)
    rows.up(5130, 5135, 100, call_dur=110, blocking=True)
    walked = walk(step_of(rows, 5300).trace())
    nothing_seen(walked)
    assert marked(walked) == [("host_op", False)]


@pytest.mark.parametrize("op", ["aten::pin_memory", "aten::copy_", "aten::empty", "c10d::allreduce_"])
def test_moving_making_and_exchanging_tensors_is_none(op: str) -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, 100, call_dur=1085)
    rows.op(op, 1120, 4000)
    rows.up(5130, 5135, 100, call_dur=110, blocking=True)
    nothing_seen(walk(step_of(rows, 5300).trace()))


def test_an_operator_that_launches_is_none() -> None:
    rows = Rows()
    forward(rows)
    rows.op("aten::index_put_", 1020, 5000)
    rows.launch(1030, "kernel", 1040, 10)
    rows.up(5900, 5905, 10, call_dur=20, blocking=True)
    nothing_seen(walk(step_of(rows, 6300).trace()))


def test_one_short_operator_between_two_copies_is_none() -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, 5, call_dur=990)
    rows.op("aten::cumsum", 1025, 100)
    rows.up(1130, 1135, 5, call_dur=12, blocking=True)
    nothing_seen(walk(step_of(rows, 1300).trace()))


def test_reading_numbers_back_is_none() -> None:
    rows = Rows()
    for i in range(20):
        forward(rows, 1100 * i)
        rows.op("aten::item", 1100 * i + 30, 1000)
        rows.down(1100 * i + 35, 1100 * i + 1010, 2, call_dur=990)
    walked = walk(step_of(rows, 22_000).trace())
    nothing_seen(walked)
    assert value(walked, "sync.site") == "aten::item (cudaMemcpyAsync)"


@pytest.mark.parametrize(("op", "down", "up"), [
    ("xgrammar::fill_next_token_bitmask", 100, 100),   # written for the host, whatever it moves
    ("aten::index_select", 3, 6)])                     # a token read back, and an index put up
def test_host_work_beside_copies_is_none(op: str, down: float, up: float) -> None:
    rows = Rows()
    forward(rows)
    rows.down(30, 1010, down, call_dur=985 + down)
    rows.op(op, 1120, 3000)
    rows.up(4130, 4135, up, call_dur=up + 10, blocking=True)
    walked = walk(step_of(rows, 4300).trace())
    nothing_seen(walked)
    assert any("small copy" in note for note in walked.notes) == op.startswith("aten::")


# -- where it cannot be told
def test_without_operators_none_is_not_claimed() -> None:
    rows = Rows()
    for i in range(5):
        rows.launch(100 * i, "gemm", 100 * i + 10, 80)
    walked = walk(step_of(rows, 500).trace())
    assert value(walked, "fallback.op") is None
    assert "no operator rows" in walked.unknown["fallback.op"]


def test_where_the_launching_thread_is_silent_for_long_none_is_not_claimed() -> None:
    rows = Rows()
    forward(rows)
    forward(rows, 8000)
    walked = walk(rows.trace())
    assert value(walked, "idle.unrecorded_fraction") == pytest.approx(7000 / 9010, abs=0.001)
    assert "in the capture" in walked.unknown["fallback.fraction"]
    assert "fallback.fraction" not in {signal.name for signal in walked.signals}


def test_copies_without_direction_tell_nothing() -> None:
    rows = Rows()
    forward(rows)
    rows.op("aten::copy_", 1020, 10)
    rows.copy("dma_request", 1030, 10, rows.call("enqueue", 1022, 3))
    assert "direction" in walk(step_of(rows, 1100).trace()).unknown["fallback.op"]


def test_the_call_tells_the_direction_where_the_copy_does_not() -> None:
    rows = Rows()
    forward(rows)
    rows.copy("dma_request", 1010, 100, rows.call("enqueueCommand memcpyDtoHAsync", 30, 1085, blocking=True))
    rows.op("aten::exponential_", 1120, 5000)
    rows.copy("dma_request", 6135, 100, rows.call("enqueueCommand memcpyHtoDAsync", 6130, 110, blocking=True))
    walked = walk(step_of(rows, 6300).trace())
    assert value(walked, "fallback.op") == "aten::exponential_"
    assert value(walked, "sync.copy_ms") == pytest.approx(0.2)


def test_a_cause_is_named_once_for_every_gap() -> None:
    rows = Rows()
    forward(rows)
    nested(rows, "aten::exponential_", 30, 5000, busy_until=1010)
    walked = walk(step_of(rows, 7000).trace())
    gaps = walked.devices[0].gaps
    assert gaps.fallback.sum() == 1
    assert Cause.HOST_OP in {CAUSES[c] for c in gaps.cause[gaps.fallback]}

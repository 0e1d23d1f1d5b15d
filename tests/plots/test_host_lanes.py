"""What the host's threads do: shares by kind of row, and nested boxes."""

from __future__ import annotations

import numpy as np

from synthetic_walks import MS, Row, fallback_walk, trace_of
from xpu_triage.plots import host_lanes as host
from xpu_triage.plots.occupancy import edges_of
from xpu_triage.steps.results import Step
from xpu_triage.trace import Kind

STEP = Step("step 1", 0, 100 * MS)


def nested(rows, found=""):
    return {box.name: box for box in host.boxes(trace_of(rows), 0, STEP, MS, found)}


def test_the_innermost_row_tells_what_a_thread_does():
    """In the fallback step: 1.4 ms blocked, 0.3 ms in calls, 90 ms in the operator, the rest of 99 ms in
    ranges."""
    walk = fallback_walk(1)
    blocked, calls, operators, other = host.doing(walk.trace, 0, edges_of(0, 100 * MS, 1))[0]
    np.testing.assert_allclose((blocked, calls, operators), (0.014, 0.003, 0.90))
    np.testing.assert_allclose(blocked + calls + operators + other, 0.99)


def test_the_thread_that_launches_comes_first_even_where_another_is_longer_busy():
    rows = [
        Row(0, 100 * MS, "aten::sort", Kind.HOST_OP, thread=0),
        Row(0, 3 * MS, "launch", Kind.RUNTIME, thread=1),
        Row(4 * MS, MS, "gemm", Kind.KERNEL, device=0, launch=1),
    ]
    assert host.busiest_threads(trace_of(rows, threads=("a", "b")), 0, 100 * MS, 2) == [1, 0]


def test_a_thread_of_python_alone_has_a_lane_only_where_there_is_no_other():
    waits = Row(0, 100 * MS, "threading.py(359): wait", Kind.PYTHON, thread=0)
    works = Row(MS, 30 * MS, "aten::mm", Kind.HOST_OP, thread=1)
    assert host.busiest_threads(trace_of([waits, works], threads=("a", "b")), 0, 100 * MS, 2) == [1]
    assert host.busiest_threads(trace_of([waits], threads=("a", "b")), 0, 100 * MS, 2) == [0]


def test_no_threads_where_the_capture_holds_no_host_rows():
    rows = [Row(0, MS, "gemm", Kind.KERNEL, device=0)]
    assert host.busiest_threads(trace_of(rows, threads=()), 0, MS, 2) == []


def test_boxes_nest_and_the_step_itself_is_not_one():
    rows = [
        Row(0, 100 * MS, "step 1", Kind.ANNOTATION, thread=0),
        Row(MS, 60 * MS, "outer", Kind.HOST_OP, thread=0),
        Row(2 * MS, 20 * MS, "inner", Kind.HOST_OP, thread=0),
    ]
    boxes = nested(rows)
    assert set(boxes) == {"outer", "inner"}
    assert (boxes["outer"].level, boxes["inner"].level) == (0, 1)


def test_a_row_that_only_wraps_another_is_left_out_unless_it_is_the_finding():
    rows = [
        Row(0, 50 * MS, "wrapper", Kind.PYTHON, thread=0),
        Row(MS, 49 * MS, "work", Kind.HOST_OP, thread=0),
    ]
    assert set(nested(rows)) == {"work"}
    assert set(nested(rows, found="wrapper")) == {"wrapper", "work"}


def test_an_annotation_that_outlives_the_frame_it_starts_in_begins_after_it():
    rows = [
        Row(0, 5 * MS, "__enter__", Kind.PYTHON, thread=0),
        Row(MS, 50 * MS, "sampler", Kind.ANNOTATION, thread=0),
    ]
    boxes = nested(rows)
    assert boxes["sampler"].level == 0
    assert boxes["sampler"].start == 5 * MS


def test_rows_too_small_to_see_are_no_boxes_and_the_rest_is_clipped_to_the_step():
    rows = [Row(0, 200 * MS, "long", Kind.HOST_OP, thread=0), Row(MS, 1000, "tiny", Kind.HOST_OP, thread=0)]
    boxes = nested(rows)
    assert set(boxes) == {"long"}
    assert boxes["long"].end == STEP.end


def test_the_finding_is_drawn_however_deep_it_lies():
    rows = [Row(i * MS, (60 - 8 * i) * MS, f"level {i}", Kind.HOST_OP, thread=0) for i in range(6)]
    boxes = nested(rows, found="level 5")
    assert max(box.level for box in boxes.values()) == host.LEVELS - 1
    assert "level 5" in boxes
    assert "level 4" not in boxes


def test_an_operator_that_calls_itself_by_the_same_name_is_one_box():
    rows = [
        Row(0, 50 * MS, "aten::exponential_", Kind.HOST_OP, thread=0),
        Row(MS, 19 * MS, "aten::copy_", Kind.HOST_OP, thread=0),
        Row(21 * MS, 28 * MS, "aten::exponential_", Kind.HOST_OP, thread=0),
        Row(60 * MS, 10 * MS, "aten::exponential_", Kind.HOST_OP, thread=0),
    ]
    found = host.boxes(trace_of(rows), 0, STEP, MS, "aten::exponential_")
    assert [(box.start, box.name) for box in found] == [
        (0, "aten::exponential_"), (MS, "aten::copy_"), (60 * MS, "aten::exponential_")]

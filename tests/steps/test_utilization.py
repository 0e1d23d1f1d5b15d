"""Busy time and its parts against counting, cell by cell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import Rows
from xpu_triage.steps.results import Step, Steps
from xpu_triage.steps.utilization import devices_of, idle_spans
from xpu_triage.trace import Kind, Trace

ADD = {Kind.KERNEL: "kernel", Kind.COPY: "copy", Kind.COMM: "comm"}


def one_window(trace: Trace, *edges_us: int) -> Steps:
    edges = [e * 1000 for e in edges_us]
    return Steps("window", "", tuple(Step("", a, b) for a, b in pairwise(edges)))


def test_streams_overlap_once_and_an_overlap_goes_to_compute_then_communication_then_copies() -> None:
    rows = Rows()
    rows.kernel("gemm", 0, 10, stream="1")
    rows.comm("allreduce", 5, 10, stream="2")      # 5 of it beside compute
    rows.copy("Memcpy HtoD", 12, 10, stream="3")   # 3 of it beside communication
    rows.kernel("gemm", 30, 5)
    trace = rows.trace()
    time = devices_of(trace, one_window(trace, 0, 20, 40))[0]
    assert (time.busy // 1000).tolist() == [20, 7]
    assert {part: (ns // 1000).tolist() for part, ns in time.parts.items()} == {
        "compute": [10, 5], "comm": [5, 0], "copy": [5, 2]}
    assert (time.part // 1000).tolist() == [10, 5, 7, 5]           # what each row adds to its part


def test_work_launched_outside_the_capture_counts_as_busy() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 10)
    rows.kernel("unlinked", 30, 20)
    trace = rows.trace()
    assert devices_of(trace, one_window(trace, 0, 50))[0].busy.sum() == 30_000


def test_the_busiest_device_comes_first() -> None:
    rows = Rows()
    rows.kernel("gemm", 0, 10, device="first")
    rows.kernel("gemm", 0, 30, device="second")
    trace = rows.trace()
    assert [trace.devices[t.device] for t in devices_of(trace, one_window(trace, 0, 50))] == ["second", "first"]


def test_idle_intervals_name_the_rows_at_their_sides() -> None:
    rows = Rows()
    rows.kernel("a", 10, 10)
    rows.kernel("inside a", 12, 3, stream="8")
    rows.kernel("b", 40, 10)
    trace = rows.trace()
    time = devices_of(trace, one_window(trace, 0, 60))[0]
    spans = idle_spans(time, 5_000, 60_000)
    names = [(trace.name_of(b) if b >= 0 else "", trace.name_of(a) if a >= 0 else "")
             for b, a in zip(spans.before.tolist(), spans.after.tolist(), strict=True)]
    assert list(zip((spans.start // 1000).tolist(), (spans.end // 1000).tolist(), strict=True)) == [
        (10, 30), (40, 60)]                                        # the first row of a trace is its zero
    assert names == [("a", "b"), ("b", "")]


rows_drawn = st.lists(st.tuples(st.sampled_from(list(ADD)), st.integers(0, 90), st.integers(0, 25),
                                st.sampled_from("12")), min_size=1, max_size=14)


@given(rows_drawn, st.integers(1, 60))
def test_parts_are_those_of_counting_cell_by_cell(drawn: list, cut: int) -> None:
    rows = Rows()
    rows.annotation("zero", 0, 1)
    for kind, start, dur, stream in drawn:
        getattr(rows, ADD[kind])(kind.name, start, dur, stream=stream)
    trace = rows.trace()
    time = devices_of(trace, one_window(trace, 0, cut, 120))[0]
    held: dict[Kind, set[int]] = {kind: set() for kind in ADD}
    for kind, start, dur, _ in drawn:
        held[kind] |= set(range(start, start + dur))
    expected = {"compute": held[Kind.KERNEL], "comm": held[Kind.COMM] - held[Kind.KERNEL],
                "copy": held[Kind.COPY] - held[Kind.COMM] - held[Kind.KERNEL]}
    for part, cells in expected.items():
        split = [len({c for c in cells if c < cut}), len({c for c in cells if c >= cut})]
        assert (time.parts[part] // 1000).tolist() == split
    assert (sum(time.parts.values()) == time.busy).all()
    of_kind = {"compute": Kind.KERNEL, "comm": Kind.COMM, "copy": Kind.COPY}
    for part, kind in of_kind.items():
        assert time.part[trace.kind[time.rows] == kind].sum() == time.parts[part].sum()
    spans = idle_spans(time, 0, 120_000)
    assert np.concatenate((spans.end - spans.start, time.busy)).sum() == 120_000

"""How a device's time divides over bins."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from synthetic_walks import MS, Row, fallback_walk, gaps_of, trace_of, use_of
from xpu_triage.plots.occupancy import edges_of, occupancy, readings, share_of_bins
from xpu_triage.plots.palette import PARTS
from xpu_triage.steps.results import Cause, Step, Steps
from xpu_triage.trace import Kind


def shares(walk, bins):
    step = walk.steps
    return occupancy(walk.trace, walk.busiest, edges_of(step.start, step.end, bins))


def test_a_bin_is_divided_by_what_happens_in_it():
    """One step of 100 ms in ten bins: the first holds 1 ms launching, 2 ms kernels, 1 ms copy, 6 ms host
    operator."""
    first = dict(zip(PARTS, shares(fallback_walk(1), 10)[0], strict=True))
    assert {part: round(share, 9) for part, share in first.items() if share} == {
        "launching": 0.1, "compute": 0.2, "copy": 0.1, "host_op": 0.6}


def test_every_bin_of_the_window_adds_up_to_one():
    for bins in (1, 7, 1000):
        np.testing.assert_allclose(shares(fallback_walk(3), bins).sum(axis=1), 1.0, atol=1e-9)


def test_where_kinds_overlap_a_kernel_counts_before_a_collective_before_a_copy():
    rows = [Row(0, 4 * MS, "copy", Kind.COPY, device=0), Row(MS, 2 * MS, "all_reduce", Kind.COMM, device=0),
            Row(2 * MS, 2 * MS, "gemm", Kind.KERNEL, device=0)]
    trace = trace_of(rows, threads=())
    steps = Steps("window", "", (Step("", 0, 4 * MS),))
    use = use_of(trace, steps, gaps_of([]))
    row = dict(zip(PARTS, occupancy(trace, use, edges_of(0, 4 * MS, 1))[0], strict=True))
    assert (row["compute"], row["comm"], row["copy"]) == (0.5, 0.25, 0.25)


def test_other_devices_do_not_count():
    rows = [Row(0, MS, "a", Kind.KERNEL, device=0), Row(0, 2 * MS, "b", Kind.KERNEL, device=1)]
    trace = trace_of(rows, threads=(), devices=("0", "1"))
    steps = Steps("window", "", (Step("", 0, 2 * MS),))
    use = use_of(trace, steps, gaps_of([(MS, 2 * MS, Cause.NO_WORK)]))
    assert occupancy(trace, use, edges_of(0, 2 * MS, 1))[0].sum() == 1.0


intervals = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 100)), max_size=30)


@given(intervals, st.integers(1, 20))
def test_bins_together_hold_the_union_of_the_intervals(spans, bins):
    """Against a plain count of covered nanoseconds."""
    start = np.array([s for s, _ in spans], dtype=np.int64)
    end = np.array([s + d for s, d in spans], dtype=np.int64)
    edges = edges_of(0, 600, bins)
    counted = len({t for s, d in spans for t in range(s, s + d)})
    assert round(float((share_of_bins(start, end, edges) * np.diff(edges)).sum()), 6) == counted


def test_a_tool_reads_the_share_of_its_own_period_in_which_kernels_run_without_copies():
    """Steps of 100 ms with 4 ms of kernels and 2 ms of copies: 4 % in each 100 ms, whatever the steps are."""
    walk = fallback_walk(3)
    assert readings(walk.trace, walk.busiest, 0, 300 * MS, 100 * MS).tolist() == [0.04, 0.04, 0.04]


def test_a_tool_has_no_reading_where_its_period_does_not_fit():
    walk = fallback_walk(3)
    assert len(readings(walk.trace, walk.busiest, 0, 300 * MS, 1000 * MS)) == 0

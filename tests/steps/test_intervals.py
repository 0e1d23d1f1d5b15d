"""Interval arithmetic against sets of whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.steps.intervals import (
    covered,
    covered_between,
    new_part,
    total_within,
    uncovered,
    union,
    union_of,
)

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12).map(sorted)


def arrays(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([s for s, _ in rows], np.int64)
    return start, start + np.array([d for _, d in rows], np.int64)


def cells(rows: list[tuple[int, int]]) -> set[int]:
    return {i for s, d in rows for i in range(s, s + d)}


def test_touching_intervals_merge_and_name_their_first_member() -> None:
    start, end, first = union(np.array([0, 2, 9]), np.array([2, 5, 11]))
    assert start.tolist() == [0, 9]
    assert end.tolist() == [5, 11]
    assert first.tolist() == [0, 2]


def test_an_interval_inside_another_does_not_cut_it() -> None:
    assert union_of(np.array([4, 0]), np.array([5, 10])) == (np.array([0]), np.array([10]))


@given(spans)
def test_the_union_covers_exactly_the_cells_of_its_members(rows: list[tuple[int, int]]) -> None:
    start, end, _ = union(*arrays(rows))
    assert cells(list(zip(start, end - start, strict=True))) == cells(rows)
    assert (start[1:] > end[:-1]).all()


@given(spans, st.integers(0, 80))
def test_covered_counts_the_cells_before_a_time(rows: list[tuple[int, int]], at: int) -> None:
    start, end, _ = union(*arrays(rows))
    assert covered(start, end, np.array([at]))[0] == len([i for i in cells(rows) if i < at])


@given(spans, st.integers(0, 80), st.integers(0, 80))
def test_coverage_of_a_window_counts_its_cells(rows: list[tuple[int, int]], a: int, b: int) -> None:
    left, right = min(a, b), max(a, b)
    expected = len([i for i in cells(rows) if left <= i < right])
    start, end, _ = union(*arrays(rows))
    assert covered_between(start, end, np.array([left]), np.array([right]))[0] == expected
    assert total_within(*arrays(rows), left, right) == expected


@given(spans, spans)
def test_what_a_cover_leaves_open_of_each_interval(rows: list[tuple[int, int]], cover: list[tuple[int, int]]) -> None:
    start, end, which = uncovered(*arrays(rows), *union_of(*arrays(cover)))
    for i, row in enumerate(rows):
        mine = [range(s, e) for s, e in zip(start[which == i].tolist(), end[which == i].tolist(), strict=True)]
        assert sorted(at for piece in mine for at in piece) == sorted(cells([row]) - cells(cover))


@given(spans)
def test_the_new_parts_of_sorted_intervals_add_up_to_their_union(rows: list[tuple[int, int]]) -> None:
    start, end = new_part(*arrays(rows))
    assert np.maximum(end - start, 0).sum() == len(cells(rows))


def test_of_no_interval_nothing_is_covered() -> None:
    none = np.zeros(0, np.int64)
    assert covered(none, none, np.array([5])).tolist() == [0]
    assert [len(part) for part in union(none, none)] == [0, 0, 0]
    assert total_within(none, none, 0, 10) == 0

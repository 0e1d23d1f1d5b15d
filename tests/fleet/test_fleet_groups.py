"""Collectives of several process groups in one step: matched within the group that the capture names, never across."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet_job import ALL_REDUCE
from kineto_files import Event, kernel, span, text_of, written
from xpu_triage.evidence import kineto
from xpu_triage.fleet.collectives import Matching, common_steps, matched
from xpu_triage.fleet.result import Calls, Group, RankResult, StepTable
from xpu_triage.fleet.summary import summarised
from xpu_triage.trace import Exchange, Kind, Trace

STEPS = 3
LATE_US, COST_US = 100.0, 20.0
GROUPS = {"pg1": (0, 1), "pg2": (2, 3), "pg3": (0, 2), "pg4": (1, 3)}
"""Two of tensor parallelism, two of data parallelism across them."""
US = {0: (20, 120), 1: (20, 120), 2: (120, 20), 3: (20, 20)}
"""Of each rank the two all-reduces of a step, the first among its tensor ranks, the second among its data ranks, where
rank 3 comes 100 µs late to the first: rank 2 waits for it there, and ranks 0 and 1 for both in the second."""


def rank(number: int, elements: tuple[int, int] = (64, 8), named: bool = True) -> RankResult:
    mine = [name for name, ranks in GROUPS.items() if number in ranks]
    names = tuple(Group(name, ",".join(map(str, GROUPS[name]))) for name in mine)
    zero = np.zeros(STEPS, np.float32)
    calls = Calls(np.repeat(np.arange(STEPS, dtype=np.int32), 2), np.zeros(2 * STEPS, np.int16),
                  np.array(US[number] * STEPS, np.float32), ("all-reduce",), STEPS)
    if named:
        calls = replace(calls, group=np.array([0, 1] * STEPS, np.int16), groups=names,
                        elements=np.array(elements * STEPS, np.int64))
    return RankResult(f"rank{number}", rank=number, rank_from="trace", world_size=4, group=names[0].ranks, groups=2,
                      has_trace=True, has_device=True, steps=StepTable(np.zeros(0, np.int64), zero, zero, zero, zero),
                      calls=calls)


def laid(*ranks: RankResult) -> Matching:
    return matched(ranks, *common_steps(ranks))


def test_each_collective_is_held_against_those_of_its_own_group() -> None:
    found = laid(*map(rank, range(4)))

    assert {group.group: (group.ranks.tolist(), round(group.cost_ms, 4), round(group.skew_ms, 4))
            for group in found.groups} == {
        "0,1": ([0, 1], 0.02, 0.0), "2,3": ([2, 3], 0.02, 0.1), "0,2": ([0, 2], 0.02, 0.1), "1,3": ([1, 3], 0.02, 0.1)}
    assert found.unmatched == ()
    assert found.notes == ()


def test_without_names_the_smallest_group_bounds_the_cost_and_that_is_said() -> None:
    found = laid(*(rank(number, named=False) for number in range(4)))

    assert {group.group: round(group.cost_ms, 4) for group in found.groups} == {"0,1": 0.14, "2,3": 0.04}
    assert any("do not say which collective is of which" in note for note in found.notes)


def test_where_one_rank_names_no_groups_nobodys_names_are_used() -> None:
    found = laid(rank(0), rank(1), rank(2), rank(3, named=False))

    assert {group.group for group in found.groups} == {"0,1", "2,3"}


def test_another_size_is_another_collective() -> None:
    found = laid(rank(0), rank(1), rank(2), rank(3, elements=(65, 8)))

    assert {group.group for group in found.groups} == {"0,1", "0,2", "1,3"}
    assert found.unmatched == (2, 3)


def test_collectives_without_a_name_beside_named_ones_are_matched_by_themselves() -> None:
    def partly(number: int) -> RankResult:
        one = rank(number)
        assert one.calls is not None
        return replace(one, calls=replace(one.calls, group=np.array([0, -1] * STEPS, np.int16)))

    found = laid(*map(partly, range(4)))

    assert sorted((group.group, len(group.step)) for group in found.groups) == [
        ("0,1", STEPS), ("0,1", STEPS), ("2,3", STEPS), ("2,3", STEPS)]


# -- as the profiler writes it
def events(name: Any = "3", elements: Any = 4096, plain: int = 0) -> list[Event]:
    """`plain` collectives of torch before it named groups, then one that is named, and its host operator."""
    out = [span("user_annotation", "ProfilerStep#1", 0, 1000)]
    for i in range(plain + 1):
        out += [span("cuda_runtime", "cudaLaunchKernel", 10 + i, 1, correlation=i + 1),
                kernel(ALL_REDUCE, 100 + 20 * i, 10, correlation=i + 1), kernel("gemm", 111 + 20 * i, 5)]
    told = {"Process Group Name": name, "In msg nelems": elements, "Group size": 8}
    out[-2]["args"] |= told
    return [*out, span("cpu_op", "record_param_comms", 9, 3) | {"args": told}]


def read(folder: Path, drawn: list[Event], **root: Any) -> Trace:
    return kineto.read(written(folder / "t.json", text_of(drawn, **root)))


@pytest.mark.parametrize("plain", [0, 1, 9_000])
def test_the_group_and_size_of_a_collective_are_read_where_the_file_has_them(tmp_path: Path, plain: int) -> None:
    trace = read(tmp_path, events(plain=plain))
    told = np.flatnonzero(trace.exchange >= 0)
    collective = told[trace.kind[told] == Kind.COMM]

    assert len(collective) == 1
    assert trace.start[collective].tolist() == [(100 + 20 * plain) * 1000]
    assert trace.exchanges[trace.exchange[collective[0]]] == Exchange("3", 4096, 8)
    assert len(trace.exchange) == len(trace)


def test_a_file_without_groups_has_no_column_for_them(tmp_path: Path) -> None:
    trace = read(tmp_path, events()[:-3])

    assert (len(trace.exchange), trace.exchanges) == (0, ())


@pytest.mark.parametrize(("name", "elements", "said"), [
    ("3\x1b[31m", 4096, Exchange("3\\x1b[31m", 4096, 8)), ("x" * 500, 1, None), (7, "12", Exchange("7", 12, 8)),
    ({"a": 1}, 5, None), ("3", [5], Exchange("3", -1, 8)), ("3", 10**40, None), ("3", -9, Exchange("3", -9, 8))])
def test_what_hostile_files_say_of_groups_is_bounded_and_costs_no_row(tmp_path: Path, name: Any, elements: Any,
                                                                      said: Exchange | None) -> None:
    trace = read(tmp_path, events(name, elements))

    assert len(trace) == len(events())
    assert all(len(one.group) <= 100 and one.group.isprintable() for one in trace.exchanges)
    if said is not None:
        assert said in trace.exchanges


def test_the_ranks_of_a_group_are_those_that_the_capture_lists(tmp_path: Path) -> None:
    from xpu_triage.diagnosis import diagnose
    from xpu_triage.fleet.inputs import Piece

    info = {"rank": 1, "world_size": 8, "pg_config": [
        {"pg_name": "3", "backend_config": "cuda:nccl", "ranks": [0, 1, 2, 3]}]}
    path = written(tmp_path / "t.json", text_of(events(plain=1), distributedInfo=info))
    calls = summarised(diagnose(path), Piece("t", (str(path),))).calls

    assert calls is not None
    assert calls.groups == (Group("3", "0-3", 8),)      # as many as its collectives say
    assert calls.group.tolist() == [-1, 0]
    assert calls.elements.tolist() == [-1, 4096]

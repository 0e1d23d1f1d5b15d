"""Files that only look like ranks of one job: nothing is compared unless captures or their collectives show that they
are, and each keeps its own verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_job import COST_US, LAYER_US, LAYERS, written_job
from xpu_triage.fleet.collectives import Matched
from xpu_triage.fleet.contract import to_json
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.in_step import at_another_time, in_step
from xpu_triage.fleet.inputs import Piece, rank_of
from xpu_triage.fleet.result import RankResult
from xpu_triage.fleet.summary import diagnose_rank
from xpu_triage.verdict import Level

NOON = 1_790_000_000.0
"""A moment, s since 1970."""


def results(paths: Sequence[Path]) -> list[RankResult]:
    return [diagnose_rank(Piece(path.name, (str(path),), rank_of(path.name))) for path in paths]


def told(paths: Sequence[Path]) -> FleetDiagnosis:
    return judge_ranks(results(paths))


def alone(folder: Path, label: str, factor: float, **how: Any) -> Path:
    """The capture of one rank of a job of two, whose ranks all take `factor` times as long."""
    (folder / label).parent.mkdir(exist_ok=True)
    return written_job(folder, 2, name=label + "{}", slower=dict.fromkeys(range(2), factor), **how)[0].rename(
        folder / label)


def without_collectives(paths: Sequence[Path]) -> list[Path]:
    for path in paths:
        content = json.loads(path.read_bytes())
        content["traceEvents"] = [event for event in content["traceEvents"] if "AllReduce" not in event["name"]]
        path.write_text(json.dumps(content))
    return list(paths)


def compares_nothing(found: FleetDiagnosis) -> bool:
    rows = found.comparison.rows
    return (found.verdict.level is Level.NOT_ENOUGH and found.verdict.id is None and found.exit_code == 3
            and found.comparison.signals == () and found.comparison.groups == () and found.verdict.rank == ""
            and not any(row.remarkable or row.waits_for or row.own_ratio is not None for row in rows))


# -- files without anything that ties them together
@pytest.mark.parametrize("names", [("before.json", "after.json"), ("rank0.json", "rank1.json")])
def test_two_files_that_state_no_rank_are_not_compared_and_each_keeps_its_verdict(tmp_path: Path,
                                                                               names: tuple[str, str]) -> None:
    paths = without_collectives([alone(tmp_path, names[0], 1.0, stated=False),
                                 alone(tmp_path, names[1], 2.0, stated=False)])
    found = told(paths)

    assert compares_nothing(found)
    assert found.verdict.title == "Not shown to be ranks of one job"
    assert "No capture states a rank of a larger world" in found.verdict.summary
    assert [row.result.conclusive for row in found.comparison.rows] == ["kernel-bound", "kernel-bound"]
    assert "kernel-bound (probable)" in found.verdict.summary


def test_a_file_numbered_by_order_is_called_by_its_name(tmp_path: Path) -> None:
    found = told(without_collectives([alone(tmp_path, "b.json", 1.0, stated=False),
                                      alone(tmp_path, "a.json", 2.0, stated=False)]))

    assert {row.result.name for row in found.comparison.rows} == {"a.json", "b.json"}
    assert not any("numbered" in note for note in found.comparison.notes)


def test_two_runs_with_the_same_collectives_do_not_end_them_together(tmp_path: Path) -> None:
    found = told([alone(tmp_path, "rank0.json", 1.0, stated=False), alone(tmp_path, "rank1.json", 1.5, stated=False)])

    assert compares_nothing(found)
    assert found.verdict.title == "These are not ranks of one job"
    assert "collectives do not end together" in found.verdict.summary


def test_ranks_that_wait_in_the_one_run_do_not_make_a_straggler_of_the_other(tmp_path: Path) -> None:
    # rank 0 waits for a late rank of its own job as long as the capture of another run is longer than it
    waiter = written_job(tmp_path, 2, slower={1: 1.5})[0]
    other = written_job(tmp_path, 2, name="other{}.json", slower={0: 1.5, 1: 1.5}, late={(1, 0): 4e3, (1, 1): 4e3,
                                                                                       (3, 0): 2e3, (3, 1): 2e3})[1]
    found = told([waiter, other])

    assert compares_nothing(found)
    assert "collectives do not end together" in found.verdict.summary


def test_a_copy_under_another_name_is_no_second_rank(tmp_path: Path) -> None:
    first = written_job(tmp_path, 2, stated=False)[0]
    copy = tmp_path / "rank1.json"
    copy.write_bytes(first.read_bytes())
    found = told([first, copy])

    assert compares_nothing(found)
    assert "one capture under several names" in found.verdict.summary


def test_a_copy_beside_real_ranks_is_left_out(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 3, stated=False, slower={1: 1.2, 2: 1.3})
    copy = tmp_path / "rank7.json"
    copy.write_bytes(paths[0].read_bytes())
    found = told([*paths, copy])

    assert [row.result.rank for row in found.comparison.rows] == [0, 1, 2]
    assert found.comparison.left_out[0].why == "the same capture as rank0.json under another name"


# -- what captures state
def test_captures_that_state_one_rank_each_of_one_number_are_not_compared(tmp_path: Path) -> None:
    found = told([alone(tmp_path, "before.json", 1.0), alone(tmp_path, "after.json", 2.0)])

    assert compares_nothing(found)
    assert "Both say that they are rank 0" in found.verdict.summary
    assert {row.result.name for row in found.comparison.rows} == {"before.json", "after.json"}


def test_of_captures_of_one_rank_beside_another_nobody_knows_which_go_together(tmp_path: Path) -> None:
    found = told([written_job(tmp_path, 2, name=name)[place] for name, place in (
        ("a_rank{}.json", 0), ("b_rank{}.json", 0), ("c_rank{}.json", 1))])

    assert compares_nothing(found)
    assert found.verdict.title == "Not shown to be ranks of one job"
    assert {row.result.name for row in found.comparison.rows} == {"a_rank0.json", "b_rank0.json", "rank 1"}


def test_a_rank_of_one_step_and_one_of_many_share_one_step(tmp_path: Path) -> None:
    marks = "execute_context_0(0)_generation_8(8)"
    waiter = written_job(tmp_path, 2, slower={1: 1.4}, steps=1, marks=marks)[0]
    longer = written_job(tmp_path, 2, slower={0: 1.4, 1: 1.4}, steps=6, marks=marks, name="other{}.json")[1]
    found = told([waiter, longer])

    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert found.verdict.title == "rank 1 is late in the one step compared"


def test_worlds_of_different_sizes_are_not_compared_where_none_is_that_of_most(tmp_path: Path) -> None:
    found = told([written_job(tmp_path, 2, name="a{}.json", world_size=8)[0],
                  written_job(tmp_path, 2, name="b{}.json", world_size=4, slower={1: 2.0})[1]])

    assert compares_nothing(found)
    assert "worlds of different sizes (4, 8)" in found.verdict.summary


def test_ranks_of_worlds_of_one_are_replicas(tmp_path: Path) -> None:
    paths = without_collectives(written_job(tmp_path, 2, world_size=1, slower={1: 2.0}))
    ranks = [replace(rank, rank=i) for i, rank in enumerate(results(paths))]
    ranks[1] = replace(ranks[1], world_size=None)
    found = judge_ranks(ranks)

    assert compares_nothing(found)


# -- times
def test_captures_of_another_time_are_not_compared(tmp_path: Path) -> None:
    paths = without_collectives([
        written_job(tmp_path, 2, began_s=NOON)[0],
        written_job(tmp_path, 2, began_s=NOON + 3 * 3600, name="b{}.json", slower={0: 2.0, 1: 2.0})[1]])
    found = told(paths)

    assert compares_nothing(found)
    assert "captures are of different times, up to 3 h apart" in found.verdict.summary


def test_one_rank_of_another_time_is_left_out_with_its_own_verdict(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 4, began_s=NOON)
    paths[3] = written_job(tmp_path, 4, began_s=NOON + 60, name="later{}.json",
                           slower=dict.fromkeys(range(4), 2.0))[3]
    found = told(paths)

    assert [row.result.rank for row in found.comparison.rows] == [0, 1, 2]
    (left,) = found.comparison.left_out
    assert left.rank == 3
    assert "recorded at another time" in left.why
    assert left.why.endswith("by itself it says kernel-bound (probable)")
    assert found.verdict.id != "straggler"


def test_clocks_that_are_an_hour_apart_do_not_matter_where_collectives_end_together(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 4, began_s=NOON, clock_us={1: 3_600e6, 3: -7e6}, slower={2: 1.6})
    found = told(paths)

    assert (found.verdict.id, found.verdict.rank) == ("straggler", "rank 2")
    assert found.comparison.left_out == ()


def test_ranks_of_which_no_capture_states_anything_are_one_job_where_collectives_end_together(tmp_path: Path) -> None:
    paths = [path.rename(tmp_path / f"host_{i}.json") for i, path in enumerate(
        written_job(tmp_path, 4, stated=False, slower={2: 1.6}, clock_us={0: 12_345.0}))]
    paths += without_collectives([alone(tmp_path, "unrelated.json", 3.0, stated=False)])
    found = told(paths)

    assert [(row.result.label, row.late) for row in found.comparison.rows] == [
        ("host_0.json", False), ("host_1.json", False), ("host_2.json", True), ("host_3.json", False)]
    assert found.verdict.id == "straggler"
    assert found.verdict.evidence == "host_2.json"
    assert found.comparison.one_job == "shown to be of one job: the collectives of 4 end together"
    assert "no collectives that end with theirs" in found.comparison.left_out[-1].why


def test_steps_of_other_numbers_are_other_steps_whatever_else_fits(tmp_path: Path) -> None:
    found = told([written_job(tmp_path, 2)[0], written_job(tmp_path, 2, name="b{}.json", marks="ProfilerStep#77{}",
                                                           slower={1: 1.5, 0: 1.5})[1]])

    assert compares_nothing(found)
    assert "steps bear other numbers" in found.verdict.summary


# -- what is stated and not contradicted is enough to compare, and not to blame
def test_captures_that_state_different_ranks_of_one_world_are_compared_and_nobody_is_blamed(tmp_path: Path) -> None:
    nobody_waits = [(rank,) for rank in range(4)]
    found = told(without_collectives(written_job(tmp_path, 4, slower={2: 1.6}, began_s=NOON, groups=nobody_waits)))

    assert found.comparison.one_job == (
        "taken for one job: 4 captures state rank and world; no collectives show it")
    assert found.comparison.rows[2].own_ratio == pytest.approx(1.6, rel=0.05)
    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert found.verdict.title == "rank 2 takes longer; nothing shows that the others wait for it"
    assert "But no collectives were recorded" in found.verdict.summary
    assert "swap" not in found.verdict.next


def test_a_late_rank_whose_collectives_are_not_the_others_is_not_enough_evidence(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 4)
    paths[1] = written_job(tmp_path, 4, comm="ncclDevKernel_AllGather_RING_LL", name="gather{}.json",
                           slower=dict.fromkeys(range(4), 1.6))[1]
    found = told(paths)

    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert "nothing shows that anybody waits" in found.verdict.summary


def test_the_json_says_whether_one_job_was_shown_and_by_what(tmp_path: Path) -> None:
    assert to_json(told(written_job(tmp_path, 2)))["one_job"] == {
        "shown": True, "why": "shown to be of one job: 2 captures state rank and world, the collectives of 2 end "
                              "together"}
    out = to_json(told([alone(tmp_path, "a.json", 1.0), alone(tmp_path, "b.json", 2.0)]))
    assert out["one_job"] == {"shown": False, "why": "both say that they are rank 0: captures of one rank, or of jobs "
                                                     "of their own"}
    assert out["signals"] == {}
    assert set(out["unknown"].values()) == {"nothing shows that these are ranks of one job"}


# -- the measure itself
def group(end_us: Any, kind: str = "all-reduce", steps: int = 4) -> Matched:
    end = np.round(np.asarray(end_us, np.float64) * 1e3).astype(np.int64)
    ranks, count = end.shape
    return Matched(np.arange(ranks), np.ones((ranks, count), np.float32), np.arange(count) * steps // count,
                   np.zeros(count, np.int64), np.zeros(count, np.int64), (kind,), steps, end=end)


@given(st.integers(2, 12), st.integers(8, 40), st.data())
def test_any_clocks_and_a_little_noise_keep_ranks_together_and_another_pace_does_not(count: int, calls: int,
                                                                                     data: st.DataObject) -> None:
    numbers = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    ends = np.cumsum(numbers.uniform(5_000, 50_000, calls))
    clocks = numbers.uniform(-1e9, 1e9, (count, 1))
    end = ends + clocks + numbers.uniform(-20, 20, (count, calls))
    found = in_step(group(end))
    assert found is not None
    assert found.together.all()
    assert not found.drifting.any()
    pace = data.draw(st.sampled_from([0.5, 0.9, 1.1, 3.0]))
    other = np.vstack([end, 5e4 + ends * pace])[numbers.permutation(count + 1)]
    if count > 2:
        found = in_step(group(other))
        assert found is not None
        assert found.together.sum() == count
        assert (found.drifting == ~found.together).all()


def test_two_ranks_at_different_pace_are_both_out_of_step() -> None:
    ends = np.arange(1, 9) * 1e4
    found = in_step(group([ends, ends * 1.1]))

    assert found is not None
    assert not found.together.any()
    assert found.drifting.all()


def test_ends_that_scatter_by_little_neither_show_one_job_nor_speak_against_it() -> None:
    ends = np.arange(1, 9) * 1e4                                # steps of 20 ms
    found = in_step(group([ends, ends + 200.0 * np.array([1, -1] * 4)]))

    assert found is not None
    assert not found.together.any()
    assert not found.drifting.any()


@pytest.mark.parametrize("kind", ["broadcast", "send", "reduce"])
def test_what_a_rank_can_leave_early_says_nothing(kind: str) -> None:
    ends = np.arange(1, 9) * 1e4
    assert in_step(group([ends, ends * 1.5], kind)) is None


def test_few_collectives_say_nothing() -> None:
    assert in_step(group([[1e4, 2e4, 3e4], [1e4, 2e4, 3e4]])) is None


def test_a_capture_of_unknown_time_is_of_no_other_time() -> None:
    ranks = [RankResult("a", began=10**18, span_ns=10**9), RankResult("b"),
             RankResult("c", began=10**18 + 4 * 10**9, span_ns=10**9),
             RankResult("d", began=10**18 - 10**9, span_ns=10**10)]
    away, gap = at_another_time(ranks)

    assert away.tolist() == [False, False, False, False]        # d meets both
    away, gap = at_another_time(ranks[:3])
    assert (away.tolist(), gap) == ([False, False, True], 3 * 10**9)


def test_own_figures_are_those_of_the_drawing(tmp_path: Path) -> None:
    found = told(written_job(tmp_path, 2, stated=False, slower={1: 1.3}))
    values = {signal.name: signal.value for signal in found.comparison.signals}

    assert values["comm.min_us"] == pytest.approx(COST_US, abs=0.01)
    assert values["comm.skew_ms"] == pytest.approx(LAYERS * 0.3 * LAYER_US / 1e3, rel=1e-4)

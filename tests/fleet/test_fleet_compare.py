"""Ranks beside each other: who belongs, who is late, what a collective costs, and whom the job's verdict names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_job import COST_US, LAYER_US, LAYERS, STEPS, written_job
from xpu_triage.errors import UnusableInput
from xpu_triage.fleet.contract import to_json
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import Piece, rank_of
from xpu_triage.fleet.outliers import apart, long_ones, middle
from xpu_triage.fleet.result import Calls, RankResult, StepTable
from xpu_triage.fleet.settle import settled
from xpu_triage.fleet.summary import diagnose_rank
from xpu_triage.verdict import Level


def results(paths: Sequence[Path]) -> list[RankResult]:
    return [diagnose_rank(Piece(path.name, (str(path),), rank_of(path.name))) for path in paths]


def job(folder: Path, ranks: int, **how: Any) -> FleetDiagnosis:
    return judge_ranks(results(written_job(folder, ranks, **how)))


def late(found: FleetDiagnosis) -> list[int | None]:
    return [row.result.rank for row in found.comparison.rows if row.late]


def signal(found: FleetDiagnosis, name: str) -> float:
    return float(next(s.value for s in found.comparison.signals if s.name == name))


# -- four ranks, one of them slow
def test_of_four_ranks_with_skew_the_slow_one_is_named_and_communication_is_not_to_blame(tmp_path: Path) -> None:
    found = job(tmp_path, 4, slower={2: 1.6}, comm="hcom_allReduce__857_0_1")

    assert [row.result.conclusive for row in found.comparison.rows] == [
        None, None, "kernel-bound", None]
    assert (found.verdict.id, found.verdict.level, found.verdict.rank) == ("straggler", Level.PROBABLE, "rank 2")
    assert found.verdict.title == "straggler: rank 2 (kernel-bound)"
    assert "communication is not to blame" in found.verdict.summary
    assert "Its kernels take 1.59 × the median" in found.verdict.summary
    assert "swap the two devices" in found.verdict.next
    assert [row.waits_for for row in found.comparison.rows] == ["rank 2", "rank 2", "", "rank 2"]
    assert found.exit_code == 0


def test_signals_over_ranks_are_what_was_drawn(tmp_path: Path) -> None:
    found = job(tmp_path, 4, slower={2: 1.6})
    extra = 0.6 * LAYER_US

    assert signal(found, "comm.min_us") == pytest.approx(COST_US, abs=0.01)
    assert signal(found, "comm.max_us") == pytest.approx(COST_US + extra, abs=0.01)
    assert signal(found, "comm.skew_ms") == pytest.approx(LAYERS * extra / 1e3, rel=1e-4)
    assert signal(found, "comm.compute_spread_ratio") == pytest.approx(
        (1.6 * LAYERS * LAYER_US + 30) / (LAYERS * LAYER_US + 30), rel=1e-4)
    (group,) = found.comparison.groups
    assert group.cost_ms == pytest.approx(LAYERS * COST_US / 1e3, rel=1e-3)
    assert group.wait_ms.tolist() == pytest.approx([0.9, 0.9, 0.0, 0.9], abs=1e-3)
    assert group.last_share.tolist() == [0, 0, 1, 0]


def test_a_host_that_is_slow_is_told_from_a_device_that_is(tmp_path: Path) -> None:
    found = job(tmp_path, 4, fallback=[1])

    assert found.verdict.title == "straggler: rank 1 (cpu-fallback)"
    assert "the device is not what is slower" in found.verdict.summary
    assert "aten::exponential_" in found.verdict.summary


def test_equal_ranks_have_no_straggler_and_the_jobs_verdict_is_theirs(tmp_path: Path) -> None:
    found = job(tmp_path, 4)

    assert late(found) == []
    assert not any(row.remarkable for row in found.comparison.rows)
    assert found.verdict.id == "kernel-bound"
    assert "No rank of 4 is late or differs" in found.verdict.summary


def test_ranks_that_are_late_in_turn_are_no_stragglers_and_the_skew_is_told(tmp_path: Path) -> None:
    found = job(tmp_path, 8, late={(0, 1): 1500, (1, 5): 1500, (2, 3): 1500, (3, 0): 1500})

    assert late(found) == []
    assert signal(found, "comm.skew_ms") == pytest.approx(1.5, rel=1e-3)
    assert "now by one rank, now by another" in found.verdict.summary
    assert found.verdict.id != "comm-bound"


def test_one_rank_that_alone_is_late_at_times_is_a_straggler(tmp_path: Path) -> None:
    assert late(job(tmp_path, 8, late={(2, 3): 1500, (3, 3): 1500})) == [3]


def test_of_two_ranks_the_slower_is_the_straggler(tmp_path: Path) -> None:
    found = job(tmp_path, 2, slower={0: 1.3})

    assert late(found) == [0]
    assert found.verdict.rank == "rank 0"


def test_collectives_are_compared_within_the_groups_that_the_traces_tell_of(tmp_path: Path) -> None:
    groups = [range(4), range(4, 8)]
    found = job(tmp_path, 8, slower={5: 1.5}, groups=groups, told_groups=groups)

    assert late(found) == [5]
    assert {group.group: round(group.skew_ms, 3) for group in found.comparison.groups} == {"0-3": 0.0, "4-7": 0.75}
    assert [row.waits_for for row in found.comparison.rows] == ["", "", "", "", "rank 5", "", "rank 5", "rank 5"]
    assert [row.differs for row in found.comparison.rows] == [False] * 8   # waiting is no verdict of one's own


def test_a_rank_that_differs_and_delays_nobody_is_the_one_to_look_at(tmp_path: Path) -> None:
    # without collectives between them nobody waits, and a fallback of one rank is its own affair
    ranks = results(written_job(tmp_path, 6))
    ranks[4] = replace(ranks[4], id="cpu-fallback", level=Level.CONFIRMED, next="Use the device's operator")
    found = judge_ranks(ranks)

    assert [row.result.rank for row in found.comparison.rows if row.differs] == [4]
    assert (found.verdict.id, found.verdict.level) == ("rank-differs", Level.CONFIRMED)
    assert "Rank 4 differs: cpu-fallback (confirmed), where 5 of 6 say kernel-bound" in found.verdict.summary
    assert found.verdict.next == "Use the device's operator"


def test_where_ranks_are_of_two_minds_nobody_differs(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 8))
    ranks = [replace(rank, id="host-bound") if i % 2 else rank for i, rank in enumerate(ranks)]

    assert not any(row.differs for row in judge_ranks(ranks).comparison.rows)


def test_long_own_time_that_nobody_waits_for_is_not_enough_evidence(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4))
    steps = ranks[3].steps
    assert steps is not None
    ranks[3] = replace(ranks[3], steps=replace(steps, own=steps.own * 2))
    found = judge_ranks(ranks)

    assert found.verdict.level is Level.NOT_ENOUGH
    assert found.verdict.id is None
    assert "their steps may not be the same" in found.verdict.summary
    assert found.exit_code == 3


def test_one_rank_is_diagnosed_and_said_to_be_alone(tmp_path: Path) -> None:
    found = job(tmp_path, 1)

    assert "One rank: nothing to compare it with" in found.verdict.summary
    assert found.comparison.groups == ()
    assert found.comparison.unknown["comm.min_us"] == "no collective that is the same on several ranks"


# -- matching
def test_steps_of_the_same_name_are_matched_though_ranks_began_at_different_ones(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4, slower={1: 1.5}, late={(0, 0): 9000}))
    table, calls = ranks[2].steps, ranks[2].calls
    assert table is not None
    assert calls is not None
    began_later = calls.step >= 1
    ranks[2] = replace(
        ranks[2], steps=StepTable(table.key[1:], table.wall[1:], table.own[1:], table.comm[1:], table.compute[1:]),
        calls=Calls(calls.step[began_later] - 1, calls.word[began_later], calls.us[began_later], calls.words, 3))
    found = judge_ranks(ranks)

    (group,) = found.comparison.groups
    assert (group.ranks.tolist(), group.steps) == ([0, 1, 2, 3], 3)     # without the step that rank 2 lacks
    assert group.us.max() == pytest.approx(COST_US + 0.5 * LAYER_US, abs=0.01)  # in which rank 0 was very late
    assert late(found) == [1]


def test_a_rank_that_recorded_other_steps_than_all_the_rest_does_not_keep_these_from_being_compared(
        tmp_path: Path) -> None:
    ranks = results([*written_job(tmp_path, 3, world_size=4, slower={1: 1.5}),
                     written_job(tmp_path, 4, marks="ProfilerStep#9{}", name="other{}.json")[3]])
    found = judge_ranks(ranks)

    assert found.comparison.groups[0].ranks.tolist() == [0, 1, 2]
    assert found.comparison.rows[3].own_ms is None
    assert any(note.startswith("rank 3 lack the steps that most others have") for note in found.comparison.notes)
    assert any("collectives of rank 3 are not those of the others" in note for note in found.comparison.notes)


def test_where_names_do_not_tell_steps_apart_order_does_and_uneven_counts_are_said(tmp_path: Path) -> None:
    marks = "execute_context_0(0)_generation_8(8)"
    ranks = results([*written_job(tmp_path, 3, marks=marks, world_size=4),
                     written_job(tmp_path, 4, marks=marks, steps=3, name="short{}.json")[3]])
    found = judge_ranks(ranks)

    (group,) = found.comparison.groups
    assert (len(group.ranks), group.steps, len(group.step)) == (4, 3, 9)
    assert any("3 to 4 steps" in note and "matched by order, over the first 3" in note
               for note in found.comparison.notes)


def test_a_rank_with_other_collectives_is_not_laid_beside_the_others(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 4)
    paths[1] = written_job(tmp_path, 2, comm="ncclDevKernel_AllGather_RING_LL", name="gather{}.json", world_size=4)[1]
    found = judge_ranks(results(paths))

    assert found.comparison.groups[0].ranks.tolist() == [0, 2, 3]
    assert found.comparison.rows[1].wait_ms is None


def test_the_cut_of_one_rank_bounds_what_is_compared(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 3))
    calls = ranks[1].calls
    assert calls is not None
    first = calls.step < 2
    ranks[1] = replace(ranks[1], calls=Calls(calls.step[first], calls.word[first], calls.us[first], calls.words, 2))
    (group,) = judge_ranks(ranks).comparison.groups

    assert (group.ranks.tolist(), group.steps, len(group.step)) == ([0, 1, 2], 2, 2 * LAYERS)


# -- who belongs
def test_ranks_of_another_world_are_left_out_and_named(tmp_path: Path) -> None:
    paths = [*written_job(tmp_path, 5), written_job(tmp_path, 1, name="x{}.json", world_size=64)[0]]
    found = judge_ranks(results(paths))

    assert len(found.comparison.rows) == 5
    (left,) = found.comparison.left_out
    assert left.label == "x0.json"
    assert left.why == ("of another job: its world size is 64, that of most ranks 5; by itself it says kernel-bound "
                        "(probable)")


def test_a_rank_beyond_its_world_is_left_out(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 3))
    ranks[1] = replace(ranks[1], rank=7)

    assert settled(ranks).left_out[0].why == "rank 7 of a world of 3: its name or its trace is wrong"


def test_another_model_is_left_out_and_a_rank_that_only_falls_back_is_not(tmp_path: Path) -> None:
    other = [(f"conv{i}", 0.2) for i in range(5)]
    paths = [*written_job(tmp_path, 4, fallback=[2]),
             written_job(tmp_path, 5, kernels=other, name="o{}.json", world_size=4)[4]]
    ranks = [replace(one, world_size=None) for one in results(paths)]
    given = settled(ranks)

    assert [one.rank for one in given.ranks] == [0, 1, 2, 3]
    assert "of another model: 1 of its 6 heaviest kernels run on most ranks" in given.left_out[0].why


def test_ranks_that_run_different_kernels_are_of_no_one_job_and_nothing_is_compared(tmp_path: Path) -> None:
    paths = [written_job(tmp_path, 3, kernels=[(f"k{model}_{i}", 0.2 * (model + 1)) for i in range(5)],
                         name=f"m{model}_rank{{}}.json")[model] for model in range(3)]
    found = judge_ranks(results(paths))

    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert found.verdict.title == "These are not ranks of one job"
    assert not any(row.remarkable for row in found.comparison.rows)
    assert found.comparison.signals == ()


def test_a_rank_that_comes_twice_is_compared_once(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 2)
    given = settled(results([*paths, written_job(tmp_path, 2, name="again{}.json")[1]]))

    assert [one.label for one in given.ranks] == ["rank0.json", "rank1.json"]
    assert given.left_out[0].why == (
        "rank 1 again, which rank1.json is already: another capture, and sessions are not mixed")


def test_without_any_number_ranks_are_numbered_by_order_and_that_is_said(tmp_path: Path) -> None:
    ranks = [replace(one, rank=None, rank_from="") for one in results(written_job(tmp_path, 3))]
    given = settled(ranks)

    assert [(one.rank, one.rank_from) for one in given.ranks] == [(0, "order"), (1, "order"), (2, "order")]
    assert given.notes == ("neither traces nor names tell the ranks: numbered in the order given",)
    ranks[0] = replace(ranks[0], rank=1)
    given = settled(ranks)
    assert [one.name for one in given.ranks] == ["rank 1", "rank1.json", "rank2.json"]
    assert given.notes == ("2 of 3 do not tell their rank: called by their evidence",)


def test_a_front_end_beside_the_ranks_is_no_rank(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 2))
    front = replace(ranks[0], label="async_llm.json", rank=None, has_device=False, calls=None, world_size=None)
    logs = RankResult("smi.csv")
    given = settled([*ranks, front, logs])

    assert {left.label: left.why for left in given.left_out} == {
        "async_llm.json": "names no rank and has no device work: a front end or scheduler",
        "smi.csv": "no trace and no rank in its name: not of one rank"}


def test_a_rank_without_device_work_stays_and_its_times_are_not_compared(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4))
    ranks[1] = replace(ranks[1], has_device=False, calls=None)
    found = judge_ranks(ranks)

    assert found.comparison.rows[1].own_ms is None
    assert "rank 1 have no device work, as the others do: their times are not compared" in found.comparison.notes


def test_without_anything_to_compare_the_first_reason_is_given() -> None:
    with pytest.raises(UnusableInput, match=r"none of 2 pieces of evidence can be compared: a: empty"):
        judge_ranks([RankResult("a", error="a: empty"), RankResult("b", error="b: cut")])


# -- telemetry
def test_a_clock_far_from_the_others_is_told_and_where_nothing_else_stands_out_is_looked_at(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 5))
    clocks = (0.97, 0.98, 0.61, 0.98, None)
    ranks = [rank if clock is None else replace(
        rank, values=(*rank.values, ("clock.core_fraction", clock, "smi"))) for rank, clock in zip(ranks, clocks,
                                                                                               strict=True)]
    found = judge_ranks(ranks)

    assert [row.telemetry for row in found.comparison.rows] == [
        (), (), ("clock.core_fraction 0.61, the others 0.97",), (), ()]
    assert found.verdict.rank == "rank 2"
    assert "Rank 2: clock.core_fraction 0.61, the others 0.97" in found.verdict.summary


def test_two_readings_are_no_basis_for_an_outlier() -> None:
    assert not apart(np.array([0.5, 0.98, np.nan]), 0.05).any()


# -- statistics
@given(st.lists(st.floats(0.5, 50), min_size=3, max_size=300), st.data())
def test_no_more_than_half_can_be_long_and_order_and_scale_do_not_matter(
        values: list[float], data: st.DataObject) -> None:
    given_ = np.array(values)
    long = long_ones(given_, 1.1)
    order = np.array(data.draw(st.permutations(range(len(values)))))

    assert 2 * long.sum() <= len(values)
    assert (long_ones(given_[order], 1.1) == long[order]).all()
    assert (long_ones(given_ * 4.0, 1.1) == long).all()
    assert (given_[long] >= 1.1 * middle(given_)).all()


@given(st.integers(2, 60), st.floats(1.2, 10), st.randoms(use_true_random=False))
def test_one_slow_rank_among_any_number_with_a_little_noise_is_found_and_no_other(
        count: int, factor: float, rng: Any) -> None:
    values = np.array([rng.uniform(0.99, 1.01) for _ in range(count)])
    slow = rng.randrange(count)
    values[slow] *= factor

    assert np.flatnonzero(long_ones(values, 1.1)).tolist() == [slow]


def test_unknown_values_are_neither_long_nor_in_the_median() -> None:
    assert middle(np.array([np.nan, 3.0, 1.0, np.nan])) == 1.0
    assert long_ones(np.array([np.nan, 1.0, 1.0, 2.0]), 1.1).tolist() == [False, False, False, True]
    assert not long_ones(np.array([np.nan, np.nan]), 1.1).any()
    assert not long_ones(np.zeros(4), 1.1).any()


def test_the_order_in_which_ranks_arrive_changes_nothing(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 6, slower={4: 1.5}))

    assert to_json(judge_ranks(ranks)) == to_json(judge_ranks(ranks[::-1]))


def test_without_steps_ranks_are_compared_by_the_collective(tmp_path: Path) -> None:
    def without_steps(rank: RankResult) -> RankResult:
        calls, steps = rank.calls, rank.steps
        assert calls is not None
        assert steps is not None
        return replace(rank, steps=None, method="window",
                       calls=replace(calls, step=np.zeros_like(calls.step), steps=1))

    found = judge_ranks([*map(without_steps, results(written_job(tmp_path, 4, slower={1: 1.5})))])

    assert found.comparison.per == "collective"
    assert found.comparison.rows[0].own_ms == pytest.approx((LAYERS * LAYER_US + 60) / LAYERS / 1e3, rel=0.1)
    assert late(found) == [1]
    assert found.verdict.id == "straggler"
    assert found.comparison.unknown["comm.skew_ms"] == "no steps found"
    assert len(found.comparison.groups[0].step) == LAYERS * STEPS

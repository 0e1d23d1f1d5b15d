"""When slow is no straggler: one cold step, two kinds of rank, ranks that nobody gave, ranks that nobody waits for."""

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
from xpu_triage.fleet.absent import expected, missing, named
from xpu_triage.fleet.contract import to_json
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import Piece, rank_of
from xpu_triage.fleet.lateness import lateness
from xpu_triage.fleet.result import RankResult
from xpu_triage.fleet.summary import diagnose_rank, spans
from xpu_triage.verdict import Level


def results(paths: Sequence[Path]) -> list[RankResult]:
    return [diagnose_rank(Piece(path.name, (str(path),), rank_of(path.name))) for path in paths]


def job(folder: Path, ranks: int, **how: Any) -> FleetDiagnosis:
    return judge_ranks(results(written_job(folder, ranks, **how)))


def late(found: FleetDiagnosis) -> list[int | None]:
    return [row.result.rank for row in found.comparison.rows if row.late]


def slower(found: FleetDiagnosis) -> list[int | None]:
    return [row.result.rank for row in found.comparison.rows if row.slower_kind]


# -- one step
def test_a_cold_first_step_is_set_apart_and_makes_no_straggler(tmp_path: Path) -> None:
    found = job(tmp_path, 8, late={(0, 2): 20_000})
    row = found.comparison.rows[2]

    assert late(found) == []
    assert (found.verdict.id, found.verdict.rank) == ("slow-step", "rank 2")
    assert found.verdict.title == "slow in step 0 only (warm-up): rank 2"
    assert "swap" not in found.verdict.next
    assert "past the warm-up" in found.verdict.next
    assert row.only_in == (0,)
    assert row.own_ms == pytest.approx((LAYERS * LAYER_US + 60) / 1e3, rel=0.05)      # without the 20 ms
    assert found.comparison.first_apart
    (group,) = found.comparison.groups
    assert (group.steps, round(group.skew_ms, 3)) == (STEPS - 1, 0.0)
    assert not any(row.differs for row in found.comparison.rows)


def test_one_slow_step_in_the_middle_is_named_by_its_number_and_makes_no_straggler(tmp_path: Path) -> None:
    found = job(tmp_path, 8, late={(2, 3): 1500})

    assert late(found) == []
    assert found.verdict.title == "slow in step 2 only: rank 3"
    assert found.comparison.rows[3].only_in == (2,)


def test_of_two_steps_a_cold_one_makes_no_straggler_either(tmp_path: Path) -> None:
    found = job(tmp_path, 4, steps=2, late={(0, 1): 9_000})

    assert late(found) == []
    assert found.verdict.title == "slow in step 0 only (warm-up): rank 1"


def test_where_one_step_was_compared_nobody_can_tell_a_warm_up_from_a_straggler(tmp_path: Path) -> None:
    found = job(tmp_path, 4, steps=1, slower={1: 1.6})

    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert found.verdict.title == "rank 1 is late in the one step compared"
    assert "a cold start looks the same" in found.verdict.summary
    assert "swap" not in found.verdict.next


def test_a_first_step_that_is_cold_on_all_ranks_is_set_apart_and_names_none(tmp_path: Path) -> None:
    found = job(tmp_path, 4, late={(0, rank): 9_000 for rank in range(4)})

    assert found.comparison.first_apart
    assert any(note.startswith("the first step compared took much longer") for note in found.comparison.notes)
    assert not any(row.remarkable for row in found.comparison.rows)
    assert found.verdict.id == "kernel-bound"


def test_the_cold_step_of_one_rank_does_not_hide_the_straggler(tmp_path: Path) -> None:
    found = job(tmp_path, 8, slower={5: 1.4}, late={(0, 2): 20_000})

    assert late(found) == [5]
    assert found.verdict.title.startswith("straggler: rank 5")
    assert "rank 2: late in 1 of 4 steps only" in found.verdict.summary


def test_a_job_without_a_cold_step_keeps_its_first(tmp_path: Path) -> None:
    found = job(tmp_path, 4, slower={2: 1.6})

    assert not found.comparison.first_apart
    assert found.comparison.groups[0].steps == STEPS


@given(st.integers(3, 20), st.integers(5, 12), st.data())
def test_whoever_is_slow_in_one_step_of_many_by_whatever_factor_is_no_straggler(
        count: int, steps: int, data: st.DataObject) -> None:
    own = np.full((count, steps), 10.0)
    rank, step = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, steps - 1))
    own[rank, step] *= data.draw(st.floats(1.2, 1e6))
    found = lateness([RankResult(str(i)) for i in range(count)], own, 0, np.full(count, np.nan), True)

    assert not found.late.any()
    assert not found.slower.any()
    assert set(found.only_in) <= {rank}
    assert found.only_in.get(rank, (step,)) == (step,)


# -- two kinds
@pytest.mark.parametrize("slow", [[1, 3, 5, 7], [4, 5, 6, 7], [0, 1, 2], [1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
def test_many_slower_ranks_are_another_kind_and_none_of_them_is_the_straggler(tmp_path: Path, slow: list[int]) -> None:
    found = job(tmp_path, 8, slower=dict.fromkeys(slow, 1.3))

    assert late(found) == []
    assert slower(found) == slow
    assert (found.verdict.id, found.verdict.level) == ("uneven-ranks", Level.PROBABLE)
    assert found.verdict.title == f"two kinds of rank: ranks {spans(slow)} take longer (work split unevenly?)"
    assert "swap" not in found.verdict.next
    assert "straggler:" not in found.verdict.summary
    assert not any(row.differs for row in found.comparison.rows)


@pytest.mark.parametrize(("slow", "is_straggler"), [([0], True), ([0, 1], False), ([0, 1, 2], False)])
def test_of_four_ranks_one_can_be_a_straggler_and_more_are_a_kind(
        tmp_path: Path, slow: list[int], is_straggler: bool) -> None:
    found = job(tmp_path, 4, slower=dict.fromkeys(slow, 1.3))

    assert late(found) == (slow if is_straggler else [])
    assert found.verdict.id == ("straggler" if is_straggler else "uneven-ranks")


def test_two_of_eight_are_two_stragglers_and_the_title_says_so(tmp_path: Path) -> None:
    found = job(tmp_path, 8, slower={2: 1.3, 6: 1.4})

    assert late(found) == [2, 6]
    assert found.verdict.title == "straggler: rank 6 (kernel-bound) and 1 more"


def test_three_kinds_of_equal_size_are_said_to_be_uneven(tmp_path: Path) -> None:
    found = job(tmp_path, 9, slower={rank: (1.0, 1.3, 1.6)[rank % 3] for rank in range(9)})

    assert found.verdict.id == "uneven-ranks"
    assert late(found) == []


def test_kinds_that_do_not_wait_for_each_other_are_not_enough_evidence(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4))
    for i in (1, 2):
        steps = ranks[i].steps
        assert steps is not None
        ranks[i] = replace(ranks[i], steps=replace(steps, own=steps.own * 2))
    found = judge_ranks(ranks)

    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert found.verdict.title == "ranks 1,2 take longer, and the others do not wait for them"


# -- ranks that are missing
def test_without_the_late_rank_there_is_no_all_clear_and_the_cost_is_a_bound(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 8, slower={5: 1.5})
    found = judge_ranks(results([path for path in paths if path.name != "rank5.json"]))

    assert late(found) == []
    assert (found.verdict.level, found.verdict.id) == (Level.NOT_ENOUGH, None)
    assert found.verdict.title == "rank 5 missing: may be the late one"
    assert "Collectives cost at most 0.81 ms a step" in found.verdict.summary     # 3 × (20 + 250) µs: waiting in it
    assert found.verdict.next.startswith("Give the evidence of rank 5 too")
    assert to_json(found)["missing"] == [[5, 5]]
    assert to_json(found)["collectives"][0]["cost_is_bound"] is True
    assert "an upper bound of the true cost" in next(
        s.window for s in found.comparison.signals if s.name == "comm.min_us")
    assert any(note.startswith("rank 5 of a world of 8 not compared") for note in found.comparison.notes)


def test_where_collectives_take_little_a_missing_rank_is_said_and_the_verdict_stands(tmp_path: Path) -> None:
    found = judge_ranks(results(written_job(tmp_path, 8)[1:]))

    assert found.verdict.id == "kernel-bound"
    assert found.verdict.title.endswith("(rank 0 missing)")
    assert "Rank 0 of a world of 8 is missing" in found.verdict.summary


def test_beside_a_straggler_the_missing_are_said(tmp_path: Path) -> None:
    found = judge_ranks(results(written_job(tmp_path, 8, slower={5: 1.5})[2:]))

    assert found.verdict.title.startswith("straggler: rank 5")
    assert "Ranks 0,1 of a world of 8 are missing, and may be later still" in found.verdict.summary


def test_a_group_that_is_whole_has_its_true_cost_though_other_groups_are_missing(tmp_path: Path) -> None:
    groups = [range(4), range(4, 8)]
    found = judge_ranks(results(written_job(tmp_path, 8, groups=groups, told_groups=groups)[:4]))

    assert found.comparison.missing == (range(4, 8),)
    assert to_json(found)["collectives"][0]["cost_is_bound"] is False
    assert found.comparison.groups[0].cost_ms == pytest.approx(LAYERS * COST_US / 1e3, rel=1e-3)


def test_a_whole_world_misses_nobody(tmp_path: Path) -> None:
    found = job(tmp_path, 4)

    assert found.comparison.missing == ()
    assert "missing" not in found.verdict.summary + found.verdict.title
    assert to_json(found)["collectives"][0]["cost_is_bound"] is False


def test_a_huge_world_costs_nothing_to_look_through_and_is_counted() -> None:
    gaps = missing([RankResult("a", rank=3)], 9_999_999)

    assert gaps == (range(3), range(4, 9_999_999))
    assert named(gaps) == "9,999,998 ranks"
    assert missing([RankResult("a", rank=0, rank_from="order")], 8) == ()   # its number was made up here
    assert missing([RankResult("a", rank=0), RankResult("b")], 8) == ()     # which one `b` is, is not known
    assert missing([RankResult("a", rank=0)], None) == ()


@given(st.sets(st.integers(0, 40), min_size=1))
def test_how_many_a_group_has_is_read_back_from_how_it_is_written(ranks: set[int]) -> None:
    assert expected(spans(sorted(ranks)), 1) == len(ranks)


# -- nobody waits
def test_a_rank_of_another_session_is_no_straggler_and_is_said_to_be_missing(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 6)
    paths[4] = written_job(tmp_path, 6, slower=dict.fromkeys(range(6), 1.4), name="other{}.json")[4]
    found = judge_ranks(results(paths))

    (left,) = found.comparison.left_out
    assert left.rank == 4
    assert "its collectives do not end with the others'" in left.why
    assert late(found) == []
    assert found.verdict.title.endswith("(rank 4 missing)")
    assert "swap" not in found.verdict.next
    assert "the device itself is slower" not in found.verdict.summary

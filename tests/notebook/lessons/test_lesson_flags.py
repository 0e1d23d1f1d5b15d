"""The derived flag is exact after every change, the carried one is safe, and neither asks the device."""

from __future__ import annotations

import pytest

from xpu_triage.notebook import lessons
from xpu_triage.notebook.lessons.flags import Flagged, flagged
from xpu_triage.notebook.lessons.syncs import lab_device


def test_merging_and_filtering_by_hand():
    """Fits: k = 50, 20 and 1,024. Does not: 5,000, a row without top-k, one that the device alone knows."""
    found = [(f.derived, f.carried) for f in lessons.changes()]
    yes, no, came_back = (True, True), (False, False), (True, False)
    assert found == [yes, no, no, came_back, no, no, no, came_back, no]


def test_the_bounds_of_the_fused_kernel():
    with lab_device():
        assert [flagged("", k).derived for k in (1, 1024, 1025, None)] == [True, True, False, False]
        assert [flagged("", k).carried for k in (1, 1024, 1025, None)] == [True, True, False, False]
        assert [flagged("", k).fits for k in (1, 1024, 1025, None)] == [True, True, False, False]


def test_the_carried_flag_is_and_on_merge_and_as_before_on_filter():
    with lab_device():
        a, b = flagged("", 5), flagged("", 2000)
        both = a.merge("", b)
        assert (a.merge("", a).carried, both.carried) == (True, False)
        assert not both.filter("", [0]).carried
        assert isinstance(both.filter("", [0]), Flagged)
        assert both.filter("", [0]).derived


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_over_many_changes_the_derived_flag_is_never_wrong_and_nothing_waits(seed):
    walked = lessons.walked(400, seed)
    assert (walked.derived_wrong, walked.carried_unsafe, walked.waits) == (0, 0, 0)
    assert 0 < walked.carried_missed <= walked.fitting < 400
    assert f"{walked.carried_missed:,} of the {walked.fitting:,}" in repr(walked.told)


def test_only_a_change_of_the_batch_and_the_tokens_cost_a_wait():
    counts = lessons.counted_changes()
    by_name = dict(counts)
    assert by_name["every later step"] == by_name["merge"] == by_name["filter"] == 0
    assert by_name["first step after these"] <= 1
    assert by_name["the tokens handed to the host"] == 1
    assert repr(lessons.counted_change_table(counts)).count("\n") == len(counts)

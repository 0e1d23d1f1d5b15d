"""What a guard that patches one function sees, and one that counts read-backs."""

from __future__ import annotations

import pytest
import torch

from xpu_triage.notebook import lessons
from xpu_triage.notebook.lessons.guards import ASKED, objects, patched


def test_the_counting_guard_objects_exactly_where_the_host_waits():
    for guarded in lessons.guards():
        assert guarded.by_count is guarded.waits, guarded.code


def test_the_patching_guard_sees_its_function_and_nothing_else():
    found = lessons.guards()
    assert [g.code for g in found if g.by_patch] == [code for code, *_ in ASKED if "torch.all" in code]
    assert sum(g.by_patch and g.waits for g in found) == 1
    assert sum(g.by_patch and not g.waits for g in found) == 1


@pytest.mark.parametrize("code", [code for code, waits, _ in ASKED if waits and "torch.tensor" not in code])
def test_a_cpu_tensor_stands_in_for_the_device_s(code):
    (ask,) = [ask for name, _, ask in ASKED if name == code]
    assert objects(ask, torch.tensor([50, 20, 1024]))


def test_the_patch_is_taken_back():
    before = torch.all
    assert patched(lambda k: torch.all(k > 0), torch.tensor([1]))
    assert not patched(lambda k: k.max().item(), torch.tensor([1]))
    assert torch.all is before


def test_the_table_counts_what_each_guard_misses():
    text = repr(lessons.guard_table(lessons.guards()))
    assert "torch.all patched: 16 of 17 waits unnoticed, 1 false alarm." in text
    assert "assert_no_sync: 0 of 17 waits unnoticed, 0 false alarms." in text


def test_every_path_of_the_fixed_sampler_is_proved_and_the_condition_refuted_with_its_line():
    found = lessons.proofs()
    assert [proof.outcome for _, proof in found] == ["proved"] * 7 + ["refuted"]
    assert "sample_by_device_predicate" in str(found[-1][1].site)
    assert "refuted" in repr(lessons.proof_table(found))

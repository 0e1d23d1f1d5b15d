"""A guard that catches every way to read back. The one of the Ascend change patched `torch.all`, and would have let all
others pass: both are shown here on the same faults."""

from __future__ import annotations

import pytest
import torch

from sync_cases import NONE, ONE, ONE_ON_CPU, SEVERAL, Data
from xpu_triage.sampling.incidents import sample_by_device_predicate
from xpu_triage.syncs import SyncsFound, assert_no_sync, forbid_syncs

READING = {**ONE, **ONE_ON_CPU, **{name: case for name, (_, case) in SEVERAL.items()}}

TOP_K = torch.tensor([50, 20, 1024])
"""The same question about request parameters, asked in other words each time."""
PREDICATES = {
    "torch.all": lambda: 1 if torch.all((TOP_K <= 1024) & (TOP_K >= 1)) else 0,
    "all": lambda: 1 if ((TOP_K <= 1024) & (TOP_K >= 1)).all() else 0,
    "any": lambda: 0 if torch.any((TOP_K > 1024) | (TOP_K < 1)) else 1,
    "min and max": lambda: 1 if TOP_K.max() <= 1024 and TOP_K.min() >= 1 else 0,
    "item": lambda: 1 if TOP_K.max().item() <= 1024 else 0,
    "tolist": lambda: 1 if all(1 <= k <= 1024 for k in TOP_K.tolist()) else 0,
    "cpu": lambda: 1 if (TOP_K.cpu().numpy() <= 1024).all() else 0,
    "nonzero": lambda: 1 if len((TOP_K > 1024).nonzero()) == 0 else 0,
    "mask": lambda: 1 if TOP_K[TOP_K > 1024].numel() == 0 else 0,
    "in": lambda: 0 if 1025 in TOP_K else 1,
    "python": lambda: 1 if max(TOP_K) <= 1024 else 0,
}


@pytest.mark.parametrize("name", PREDICATES)
def test_the_guard_catches_the_predicate_however_it_is_written(name):
    with pytest.raises(SyncsFound, match=r"test_sync_guard\.py:\d+ in <lambda>"):
        assert_no_sync(PREDICATES[name])


@pytest.mark.parametrize("name", PREDICATES)
def test_a_guard_that_patches_one_function_catches_that_one_alone(name, monkeypatch):
    def refuse(*args: object) -> None:
        raise AssertionError("torch.all was called")

    monkeypatch.setattr(torch, "all", refuse)
    if name == "torch.all":
        with pytest.raises(AssertionError):
            PREDICATES[name]()
    else:
        assert PREDICATES[name]() == 1


@pytest.mark.parametrize("name", READING)
def test_whatever_reads_is_caught(name):
    data = Data.on("cpu")
    with pytest.raises(SyncsFound):
        assert_no_sync(READING[name], data)


@pytest.mark.parametrize("name", NONE)
def test_whatever_does_not_read_passes(name):
    assert_no_sync(NONE[name], Data.on("cpu"))


def test_the_result_and_the_arguments_pass_through():
    assert assert_no_sync(divmod, 7, 2) == (3, 1)
    assert assert_no_sync(torch.full, (2,), fill_value=1.5).shape == (2,)


def test_all_places_are_listed_and_not_the_first_alone():
    def step(x: torch.Tensor) -> None:
        x.tolist()
        if x.any():
            x[x > 0].sum()

    with pytest.raises(SyncsFound) as caught:
        assert_no_sync(step, torch.ones(2))
    message = str(caught.value)
    assert message.startswith("no host–device sync is allowed here\ndispatch: 3 syncs")
    assert [line in message for line in ("x.tolist()", "if x.any():", "x[x > 0].sum()")] == [True] * 3
    assert "dispatch does not see" in message
    assert caught.value.found[0].total == 3


def test_some_may_be_allowed():
    x = torch.ones(2)
    with forbid_syncs(allowed=1):
        x.tolist()
    with pytest.raises(SyncsFound, match="at most 1 host–device sync"), forbid_syncs(allowed=1):
        _ = x.tolist(), x.tolist()


def test_a_failure_of_the_code_itself_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError), forbid_syncs():
        _ = 1 / (torch.ones(1).item() - 1)


def test_on_a_device_both_detectors_look(lab_device):
    x = torch.ones(2, device="xpulab")
    with pytest.raises(SyncsFound) as caught, forbid_syncs():
        x.tolist()
    assert [syncs.backend.name for syncs in caught.value.found] == ["dispatch", "lab"]
    with pytest.raises(SyncsFound) as caught, forbid_syncs():
        lab_device.drain("something that only the device knows of")
    assert [syncs.backend.name for syncs in caught.value.found] == ["lab"]


def test_the_incident_is_caught_and_its_fix_is_not(lab_device):
    logits = torch.randn(4, 50).to("xpulab")
    top_k, top_p = torch.full((4,), 5).to("xpulab"), torch.full((4,), 0.9).to("xpulab")
    with pytest.raises(SyncsFound, match=r"sampling/incidents\.py:\d+ in sample_by_device_predicate"):
        assert_no_sync(sample_by_device_predicate, logits, top_k, top_p)

"""Each way to read a value counts once, at its own line; code that reads nothing counts nothing; on CPU tensors that
stand in for a device's, and on the lab's device by two detectors that know nothing of each other."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
import torch

from sync_cases import NONE, ONE, ONE_ON_CPU, SEVERAL, Data, line_of
from xpu_triage.syncs import count_syncs, prove_no_sync

EXPECTED = {
    **{name: (1, case) for name, case in (ONE | ONE_ON_CPU).items()},
    **SEVERAL,
    **{name: (0, case) for name, case in NONE.items()},
}
PRINTS = {"repr", "str", "print of one", "format of many"}
"""One call, and many waits: PyTorch prints a tensor value by value."""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore")


def found(syncs) -> Counter[tuple[str, int]]:
    """File and line → how many."""
    return Counter({(site.file, site.line): count for site, count in syncs.by_site.items()})


def place(case) -> set[tuple[str, int]]:
    return {(case.__code__.co_filename, line_of(case))}


@pytest.mark.parametrize("name", EXPECTED)
def test_on_cpu_tensors(name):
    expected, case = EXPECTED[name]
    data = Data.on("cpu")
    with count_syncs("dispatch") as syncs:
        case(data)
    assert syncs.total == expected
    assert set(found(syncs)) == (place(case) if expected else set())


@pytest.mark.parametrize("name", [n for n in EXPECTED if n not in ONE_ON_CPU])
def test_on_the_lab_by_two_detectors(name, lab_device):
    expected, case = EXPECTED[name]
    data = Data.on("xpulab")
    with count_syncs("dispatch", device="xpulab") as by_dispatch, count_syncs("lab") as by_waits:
        case(data)
    assert by_dispatch.total == expected
    if name in PRINTS:
        assert by_waits.total > 1
    else:
        assert found(by_waits) == found(by_dispatch)
    assert set(found(by_waits)) == (place(case) if expected else set())


@pytest.mark.parametrize("name", EXPECTED)
def test_without_values(name):
    """The third detector: nothing to read, so whatever reads cannot run."""
    expected, case = EXPECTED[name]
    real = Data.on("cpu")

    def fakes(device: str) -> tuple[Data]:
        tensors = (getattr(real, field) for field in Data.__dataclass_fields__)
        return (Data(*(torch.empty(t.shape, dtype=t.dtype, device=device) for t in tensors)),)

    proof = prove_no_sync(case, fakes)
    if name == "pickle":
        assert proof.outcome == "undecided", "fakes cannot be pickled, for a reason of their own"
    elif expected:
        assert proof.outcome == "refuted"
        assert {(proof.site.file, proof.site.line)} == place(case)
    else:
        assert proof.outcome == "proved", proof


def test_a_read_that_fails_is_none():
    with count_syncs("dispatch") as syncs:
        with pytest.raises(RuntimeError):
            torch.zeros(2).item()
        with pytest.raises(RuntimeError, match="requires grad"):
            torch.zeros(2, requires_grad=True).numpy()
    assert syncs.total == 0


def test_views_dtypes_and_gradients_survive_being_watched():
    x = torch.arange(6.0, requires_grad=True)
    with count_syncs("dispatch") as syncs:
        (x[torch.tensor([True, False] * 3)] * 2).sum().backward()
    assert x.grad.tolist() == [2, 0, 2, 0, 2, 0]
    assert syncs.total == 2, "it reads backwards, too"


def test_blocking_copies_count_either_way_and_others_do_not(lab_device):
    host, other = torch.ones(3), torch.zeros(3)
    with count_syncs("dispatch", device="xpulab") as by_dispatch, count_syncs("lab") as by_waits:
        x = host.to("xpulab")
        x = torch.tensor([1.0, 2.0, 3.0], device="xpulab")
        x.copy_(host)
        host.copy_(x)
        x.copy_(host, non_blocking=True)
        other = x.to("cpu", non_blocking=True)
        x.copy_(x + 1)
        x.double()
    assert by_dispatch.total == by_waits.total == 4
    assert found(by_dispatch) == found(by_waits)
    assert {row.call for row in by_dispatch.rows} == {"copy from cpu to xpulab", "copy from xpulab to cpu"}
    assert other.tolist() == [1, 1, 1]


def test_explicit_waits_count(lab_device):
    with count_syncs("dispatch") as by_dispatch, count_syncs("lab") as by_waits:
        torch.accelerator.synchronize()
        torch.xpulab.synchronize()
        event = torch.Event(device="xpulab")
        event.record()
        event.synchronize()
    assert by_dispatch.total == by_waits.total == 3
    assert [row.call for row in by_dispatch.rows] == ["synchronize", "synchronize", "Event.synchronize"]

"""Counting syncs needs torch; where it is missing these tests are skipped with that reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="counting syncs needs the extra `lab` (torch)")

import torch

WRAPPED = ("tolist", "numpy", "cpu", "to", "__repr__", "__format__", "__array__", "__setitem__")


@pytest.fixture
def lab_device() -> Iterator[Any]:
    """The lab's device, afresh, on the virtual clock."""
    from xpu_triage import lab
    from xpu_triage.lab.engine import ENGINE

    lab.install()
    ENGINE.configure()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield ENGINE
    ENGINE.configure()


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was() -> Iterator[None]:
    """Every test leaves PyTorch's methods, the thread's dispatch keys and the lab's hooks as it found them."""
    from xpu_triage.syncs import operators

    before = {name: getattr(torch.Tensor, name) for name in WRAPPED}
    own = {name for name in WRAPPED if name in vars(torch.Tensor)}
    yield
    assert {name: getattr(torch.Tensor, name) for name in WRAPPED} == before
    assert {name for name in WRAPPED if name in vars(torch.Tensor)} == own
    assert not torch._C._dispatch_tls_is_dispatch_key_included(operators._KEY)
    assert not torch._C._dispatch_tls_is_dispatch_key_excluded(operators._KEY)

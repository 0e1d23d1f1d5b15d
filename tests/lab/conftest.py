"""The lab needs torch; where it is missing these tests are skipped with that reason."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="the lab needs the extra `lab` (torch)")

from xpu_triage import lab
from xpu_triage.lab.clock import RealClock, VirtualClock
from xpu_triage.lab.engine import ENGINE, Engine


@pytest.fixture(params=["virtual", "real"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The device, afresh, on either clock."""
    lab.install()
    ENGINE.configure(clock=RealClock() if request.param == "real" else VirtualClock())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield ENGINE
    ENGINE.configure()


@pytest.fixture
def virtual() -> Iterator[Engine]:
    """The device, afresh, on the virtual clock."""
    lab.install()
    ENGINE.configure()
    yield ENGINE
    ENGINE.configure()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every test leaves the threads that it found."""
    before = set(threading.enumerate())
    yield
    ENGINE.close()
    left: list[Any] = [t for t in threading.enumerate() if t not in before and t.is_alive()]
    assert not left

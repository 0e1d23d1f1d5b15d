"""pytest: the marker `no_sync` and the fixture `no_sync`. Loading this imports no torch; using it does.

    @pytest.mark.no_sync
    def test_a_step_never_waits(engine): engine.step()

    def test_the_token_costs_one(engine, no_sync):
        with no_sync(): token = engine.step()
        with no_sync(allowed=1): token.item()

Both take the arguments of `forbid_syncs`. The marker covers the test's own call, not its fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "no_sync(backend=None, device=None, allowed=0): fail the test if it makes the host wait for a device",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    marker = pyfuncitem.get_closest_marker("no_sync")
    if marker is None:
        return (yield)
    from . import forbid_syncs

    __tracebackhide__ = True
    with forbid_syncs(*marker.args, **marker.kwargs):
        return (yield)


@pytest.fixture
def no_sync() -> Callable[..., AbstractContextManager[None]]:
    """`with no_sync():` raises if the host waited for a device inside."""
    from . import forbid_syncs

    return forbid_syncs

"""The lessons need torch; where it is missing these tests are skipped with that reason."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the lessons need the extra `lab` (torch)")

from xpu_triage.notebook import lessons


@pytest.fixture(scope="session")
def predicate() -> lessons.Case:
    """The condition that asks the device, at the incident's size: run once."""
    return lessons.reproduce("device-predicate", batch=256, vocab=152_000, steps=3)

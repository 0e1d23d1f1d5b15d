"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None)  # a busy machine is slow, which is no failure
settings.load_profile("project")

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed is as wide in every shell. Empty and not deleted: importing readline sets it for children alone,
    where `os.environ` does not see it."""
    monkeypatch.setenv("COLUMNS", "")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Recorded evidence of others, laid beside the checkout where the project is developed; not part of it."""
    folder = ROOT.parent / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip("no ../shared: recorded evidence of others is not part of the repository")
    return folder

"""A recording in this process leaves the process as it was, and waits long for a server on loopback."""

from __future__ import annotations

import os

import pytest

from xpu_triage.live import command, server


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` lowers the priority of its process, for good: not that of the tests. Timeouts that are not what a test
    is about are long, for a busy machine."""
    monkeypatch.setattr(os, "nice", lambda by: 0)
    monkeypatch.setattr(server, "TIMEOUT_S", 60.0)
    monkeypatch.setattr(command, "END_S", 60.0)

"""Fixtures for the readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kineto_files import Event, Reading, text_of, written
from xpu_triage.evidence import kineto


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """Events and root entries in, the trace that the reader makes of such a file out."""

    def read(*events: Event, **root: Any) -> Any:
        return kineto.read(written(tmp_path / "trace.json", text_of(events, **root)))

    return read

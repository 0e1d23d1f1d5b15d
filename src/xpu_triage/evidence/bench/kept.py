"""A baseline of this project as evidence: the runs that it holds."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ...baseline import store
from ...baseline.records import BenchRecord

matches = store.matches


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """The records of every load. Raises UnusableInput as `store.load` does."""
    return store.load(Path(path)).records

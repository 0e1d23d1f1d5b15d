"""How long the profiler itself says that the steps of a run are, from the summary beside its trace.

Its Stage counts from a step's first device task to the end of its last, without receives; Preparing is the time before
that, from the step's mark on (torch_npu, `_trace_step_time_parser.py`).
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from ...errors import UnusableInput
from ..sqlite_file import Damaged, Database
from . import csv_table
from .csv_table import number
from .tables import STEPS_FILE

DATABASE, TABLE = "analysis.db", "StepTraceTime"


def beside(path: Path) -> dict[str, float]:
    """`stage_ms` and, where it is there, `preparing_ms`: medians over the steps, from the `step_trace_time.csv` or the
    `analysis.db` beside `path`; `steps` says over how many. Empty where there is neither, or none that can be read."""
    folder = path.absolute().parent
    try:
        found = _from_text(folder / STEPS_FILE) or _from_database(folder / DATABASE)
    except (OSError, UnusableInput, Damaged):
        return {}
    stages = [stage for stage, _ in found if stage is not None and stage > 0]
    preparing = [before for _, before in found if before is not None and before > 0]
    if not stages:
        return {}
    out = {"steps": float(len(stages)), "stage_ms": median(stages) / 1e3}
    return {**out, "preparing_ms": median(preparing) / 1e3} if preparing else out


def _from_text(path: Path) -> list[tuple[float | None, float | None]]:
    """Stage and Preparing (µs) of each step."""
    return [(number(row, "Stage"), number(row, "Preparing")) for row in csv_table.rows(path)] if path.is_file() else []


def _from_database(path: Path) -> list[tuple[float | None, float | None]]:
    if not path.is_file():
        return []
    with Database(path) as database:
        if not database.has(TABLE, "stage", "preparing"):
            return []
        return [(number({"us": stage}, "us"), number({"us": before}, "us"))
                for stage, before in database.texts(TABLE, "stage", "preparing")]

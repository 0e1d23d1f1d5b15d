"""How long the profiler itself says that a step is: from its table, as text or in a database, or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ascend_files import serving_run
from xpu_triage.diagnosis import diagnose
from xpu_triage.evidence.ascend.stage import beside

HEADER = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"


def table(folder: Path, *rows: str, header: str = HEADER) -> Path:
    (folder / "step_trace_time.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / "trace_view.json"


def test_medians_over_the_steps_of_the_text(tmp_path: Path):
    path = table(tmp_path, "1,5,1,0,1,4,10000,0,500", "2,5,1,0,1,4,30000,0,700", "3,5,1,0,1,4,11000,0,600")
    assert beside(path) == {"steps": 3, "stage_ms": 11.0, "preparing_ms": 0.6}


def test_the_database_says_the_same(tmp_path: Path):
    with sqlite3.connect(tmp_path / "analysis.db") as database:
        database.execute("CREATE TABLE StepTraceTime (step TEXT, stage NUMERIC, preparing NUMERIC)")
        database.executemany("INSERT INTO StepTraceTime VALUES (?, ?, ?)",
                             [("1", 10000.5, 500), ("2", 30000, 700), ("3", 11000, 600)])
    assert beside(tmp_path / "ascend_pytorch_profiler_0.db") == {"steps": 3, "stage_ms": 11.0, "preparing_ms": 0.6}


@pytest.mark.parametrize(("rows", "header"), [
    ((), HEADER), (("1,5,1,0,1,4,N/A,0,N/A",), HEADER), (("1,5,1,0,1,4,0,0,0",), HEADER), (("1,2",), "a,b"), ((), ""),
])
def test_a_table_without_a_stage_says_nothing(tmp_path: Path, rows: tuple[str, ...], header: str):
    assert beside(table(tmp_path, *rows, header=header)) == {}


def test_neither_file_or_a_damaged_one_says_nothing(tmp_path: Path):
    assert beside(tmp_path / "trace_view.json") == {}
    (tmp_path / "analysis.db").write_bytes(b"SQLite format 3\0" + bytes(50))
    assert beside(tmp_path / "trace_view.json") == {}


def test_a_folder_tells_of_both_lengths(tmp_path: Path):
    """The run's steps by their marks, and a Stage of half of that in the table beside its trace."""
    trace = serving_run().text(tmp_path)
    before = diagnose(str(tmp_path))
    wall_ms = float(before.signals["step.wall_ms"].value)
    table(trace.parent if trace.is_file() else trace / "ASCEND_PROFILER_OUTPUT", f"1,5,1,0,1,4,{500 * wall_ms},0,90")
    found = diagnose(str(tmp_path))
    assert before.lead is not None
    assert not any("Stage" in note for note in before.lead.steps.notes)
    assert found.lead is not None
    note, = (note for note in found.lead.steps.notes if "Stage" in note)
    assert f"{wall_ms / 2:,.2f} ms, counts from its first device task" in note
    assert found.verdict.id == before.verdict.id
    assert found.signals["step.wall_ms"].value == wall_ms

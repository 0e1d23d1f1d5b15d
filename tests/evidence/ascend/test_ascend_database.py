"""Databases: the same run gives the same signals as its text, and a hostile file can do nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ascend_files import EPOCH_NS, PID, serving_run
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import ascend, sqlite_file
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind, Trace


def values(trace: Trace) -> dict[str, Any]:
    return {signal.name: signal.value for signal in walk(trace).signals}


@pytest.mark.parametrize("ai_cpu_us", [0.0, 600.0])
@pytest.mark.parametrize("text_times", [True, False])
def test_text_and_database_of_one_run_give_the_same_signals(tmp_path: Path, ai_cpu_us: float,
                                                            text_times: bool) -> None:
    run = serving_run(5, ai_cpu_us)
    run.row("model.py(12): forward", 15, 100, "python_function")
    text = walk(ascend.read(run.text(tmp_path)))
    database = walk(ascend.read(run.database(tmp_path / "ascend_pytorch_profiler_0.db", text_times=text_times)))
    assert {s.name: s.value for s in text.signals} == {s.name: s.value for s in database.signals}
    assert text.unknown == database.unknown
    assert [f.name for f in text.findings] == [f.name for f in database.findings]


def test_text_and_database_have_the_same_rows(tmp_path: Path) -> None:
    run = serving_run(3, 100.0)
    text, database = ascend.read(run.text(tmp_path)), ascend.read(run.database(tmp_path / "run.db"))
    for column in ("start", "dur", "kind", "blocking"):
        assert getattr(text, column).tolist() == getattr(database, column).tolist(), column
    assert [text.name_of(row) for row in range(len(text))] == [database.name_of(row) for row in range(len(database))]


def test_the_device_is_named_as_the_database_names_it(tmp_path: Path) -> None:
    assert ascend.read(serving_run(1).database(tmp_path / "run.db")).devices == ("NPU 0 Ascend910B",)


def test_a_file_of_msprof_has_calls_and_tasks_and_no_program(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(3).database(tmp_path / "msprof_20250101.db", program=False))
    assert not (trace.kind == Kind.HOST_OP).any()
    assert (trace.kind[trace.on_device] == Kind.COMM).sum() == 3
    assert [trace.name_of(row) for row in trace.blocking.nonzero()[0].tolist()] == [
        "AscendCL@aclrtSynchronizeStreamWithTimeout"] * 3


def changed(path: Path, *statements: str) -> Path:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return path


def test_the_steps_of_a_table_serve_where_no_row_marks_them(tmp_path: Path) -> None:
    run = serving_run(4)
    run.host = [row for row in run.host if not row.name.startswith("ProfilerStep")]
    path = changed(run.database(tmp_path / "run.db"), "CREATE TABLE STEP_TIME (id, startNs, endNs)", *(
        f"INSERT INTO STEP_TIME VALUES ({i}, {EPOCH_NS + i * 2_000_000}, {EPOCH_NS + i * 2_000_000 + 1_990_000})"
        for i in range(4)))
    found = values(ascend.read(path))
    assert (found["step.method"], found["step.count"], found["step.wall_ms"]) == ("annotation", 4, 2.0)


def test_the_whole_of_a_task_on_several_cores_is_counted_once(tmp_path: Path) -> None:
    """A MIX task has a row for the whole beside its own: of the same connection, without a name."""
    run = serving_run(2)
    plain = values(ascend.read(run.database(tmp_path / "run.db")))
    first = next(task for task in run.tasks if task.kind == "kernel")
    path = changed(tmp_path / "run.db", "INSERT INTO TASK SELECT startNs, endNs, deviceId, connectionId, 999999,"
                   f" taskType, streamId, modelId FROM TASK WHERE connectionId = {first.link}")
    assert values(ascend.read(path)) == plain


def test_tasks_that_plan_a_collective_on_the_ai_cpu_are_no_fallback(tmp_path: Path) -> None:
    path = changed(
        serving_run(2).database(tmp_path / "run.db"), "INSERT INTO STRING_IDS VALUES (9001, 'KERNEL_AICPU')",
        "CREATE TABLE COMMUNICATION_SCHEDULE_TASK_INFO (globalTaskId, name, taskType, opType)",
        "INSERT INTO COMMUNICATION_SCHEDULE_TASK_INFO VALUES (5555, 1, 9001, 1)",
        f"INSERT INTO TASK VALUES ({EPOCH_NS + 1_500_000}, {EPOCH_NS + 1_900_000}, 0, 77, 5555, 9001, 7, 4294967295)")
    assert not [name for name in ascend.read(path).names if "CPU" in name]


@pytest.mark.parametrize("table", ["TASK", "CANN_API", "PYTORCH_API", "COMPUTE_TASK_INFO", "COMMUNICATION_OP",
                                   "COMMUNICATION_TASK_INFO", "CONNECTION_IDS", "NPU_INFO", "ENUM_API_TYPE"])
def test_a_table_that_is_absent_is_no_error(tmp_path: Path, table: str) -> None:
    path = changed(serving_run(3).database(tmp_path / "run.db"), f"DROP TABLE {table}")
    assert len(ascend.read(path))


@pytest.mark.parametrize(("table", "column"), [
    ("TASK", "modelId"), ("TASK", "deviceId"), ("COMPUTE_TASK_INFO", "opType"), ("COMMUNICATION_OP", "groupName")])
def test_a_column_that_is_absent_is_no_error(tmp_path: Path, table: str, column: str) -> None:
    path = changed(serving_run(3).database(tmp_path / "run.db"), f"ALTER TABLE {table} DROP COLUMN {column}")
    assert values(ascend.read(path))["step.count"] == 3


@pytest.mark.parametrize("value", ["'soon'", "NULL", "x'00ff'", "1e300", "-5", "'99999999999999999999'", "''"])
def test_a_time_that_is_none_is_counted_and_not_zero(tmp_path: Path, value: str) -> None:
    path = changed(serving_run(3).database(tmp_path / "run.db"),
                   f"UPDATE TASK SET startNs = {value} WHERE globalTaskId = 0")
    trace = ascend.read(path)
    assert trace.counts.unreadable == 1
    assert values(trace)["kernel.recorded"] == 8
    assert any("no usable time" in note for note in trace.notes)


def test_names_from_a_database_cannot_do_anything(tmp_path: Path) -> None:
    path = changed(serving_run(2).database(tmp_path / "run.db"),
                   "UPDATE STRING_IDS SET value = char(27) || '[31m' || value", "UPDATE NPU_INFO SET name = char(7)")
    trace = ascend.read(path)
    everything = "".join((*trace.names, *trace.notes, *trace.devices, *trace.streams, *trace.threads))
    assert not set(everything) & set("\x1b\x07")


def test_a_view_in_the_place_of_a_table_is_not_run(tmp_path: Path) -> None:
    """A view can count to infinity, or read what it likes: this one would never end."""
    endless = ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS startNs, x AS endNs, "
               "0 AS deviceId, 0 AS connectionId, 0 AS globalTaskId, 0 AS taskType, 0 AS streamId, 0 AS modelId FROM n")
    path = changed(serving_run(2).database(tmp_path / "run.db"), "DROP TABLE TASK", f"CREATE VIEW TASK AS {endless}")
    trace = ascend.read(path)
    assert not (trace.kind == Kind.KERNEL).any()
    assert any("TASK is no plain table" in note for note in trace.notes)


def test_a_column_that_is_computed_is_not_read(tmp_path: Path) -> None:
    path = changed(serving_run(2).database(tmp_path / "run.db"), "DROP TABLE NPU_INFO",
                   "CREATE TABLE NPU_INFO (id INTEGER)", "INSERT INTO NPU_INFO VALUES (0)",
                   "ALTER TABLE NPU_INFO ADD COLUMN name TEXT AS (printf('%.999999999c', 'x'))")
    assert ascend.read(path).devices == ("NPU 0",)


def test_of_a_value_of_many_megabytes_only_a_beginning_is_taken_in(tmp_path: Path) -> None:
    path = changed(serving_run(2).database(tmp_path / "run.db"),
                   "UPDATE STRING_IDS SET value = hex(zeroblob(1000000))")
    trace = ascend.read(path)
    assert sqlite_file.LONGEST_TEXT <= max(map(len, trace.names)) < 3 * sqlite_file.LONGEST_TEXT
    assert max(map(len, trace.notes)) < 400


def test_a_read_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = serving_run(2).database(tmp_path / "run.db")
    before = path.read_bytes(), sorted(item.name for item in tmp_path.iterdir())
    ascend.read(path)
    assert (path.read_bytes(), sorted(item.name for item in tmp_path.iterdir())) == before


@pytest.mark.parametrize("part", [0.5, 0.9])
def test_a_truncated_database_is_read_to_the_cut_and_names_no_cause_of_idleness(tmp_path: Path, part: float) -> None:
    path = changed(serving_run(600).database(tmp_path / "run.db"), "CREATE TABLE more AS SELECT * FROM TASK",
                   "DROP TABLE TASK", "ALTER TABLE more RENAME TO TASK", "VACUUM")      # the tasks come last
    content, whole = path.read_bytes(), len(ascend.read(path))
    path.write_bytes(content[:int(len(content) * part)])
    trace = ascend.read(path)
    assert 0 < len(trace) < whole
    assert trace.incomplete
    assert any("damaged or cut" in note for note in trace.notes)
    found = values(trace)
    assert found["idle.hidden_fraction"] == pytest.approx(1 - found["device.busy_fraction"], abs=0.01)


def test_a_database_without_its_names_is_refused(tmp_path: Path) -> None:
    path = serving_run(600).database(tmp_path / "run.db")               # its names lie at the end
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
    with pytest.raises(UnusableInput, match="its names are lost: table STRING_IDS breaks off after 0 rows"):
        ascend.read(path)


def test_a_number_without_a_name_says_so(tmp_path: Path) -> None:
    path = changed(serving_run(2).database(tmp_path / "run.db"), "DELETE FROM STRING_IDS WHERE value = 'aten::mm'")
    names = ascend.read(path).names
    assert "" not in names
    assert [name for name in names if "is not in the file" in name]


def test_a_database_of_which_little_is_left_is_refused_in_one_line(tmp_path: Path) -> None:
    path = serving_run(30).database(tmp_path / "run.db")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UnusableInput) as refusal:
        ascend.read(path)
    assert "\n" not in str(refusal.value)


def test_rows_that_wait_in_a_log_beside_the_database_are_spoken_of(tmp_path: Path) -> None:
    path = serving_run(2).database(tmp_path / "run.db")
    (tmp_path / "run.db-wal").write_bytes(b"rows")
    assert any("-wal" in note for note in ascend.read(path).notes)


def test_bytes_turned_over_end_in_a_refusal_or_a_trace(tmp_path: Path) -> None:
    path = serving_run(5).database(tmp_path / "run.db")
    content = path.read_bytes()
    for at in range(100, len(content), 997):
        path.write_bytes(content[:at] + bytes(byte ^ 0xFF for byte in content[at:at + 40]) + content[at + 40:])
        try:
            assert len(ascend.read(path))
        except UnusableInput as error:
            assert "\n" not in str(error)  # noqa: PT017 one of the two


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    changed(path, "CREATE TABLE StringIds (id, value)")
    with pytest.raises(UnusableInput, match="without the tables of an Ascend profiler"):
        ascend.read(path)


def test_threads_bear_the_numbers_that_the_database_packs_into_one(tmp_path: Path) -> None:
    assert f"{PID}/4001" in ascend.read(serving_run(1).database(tmp_path / "run.db")).threads

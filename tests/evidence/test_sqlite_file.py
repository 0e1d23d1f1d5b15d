"""A database as columns: what is a whole number, what is a table, and what nobody may ask of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from xpu_triage.evidence import sqlite_file
from xpu_triage.evidence.sqlite_file import MISSING, Damaged, Database


def made(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


@pytest.mark.parametrize(("value", "number"), [
    ("7", 7), ("-7", -7), ("0", 0), ("'1736408883000000000'", 1736408883000000000), ("9223372036854775807", 2**63 - 1),
    ("NULL", MISSING), ("1.0", MISSING), ("'1.0'", MISSING), ("'-7'", MISSING), ("'7 '", MISSING), ("''", MISSING),
    ("x'37'", MISSING), ("'99999999999999999999'", MISSING)])
def test_a_whole_number_is_one_also_as_text_and_nothing_else_is(tmp_path: Path, value: str, number: int) -> None:
    path = made(tmp_path / "a.db", "CREATE TABLE t (x)", f"INSERT INTO t VALUES ({value})")
    with Database(path) as database:
        (column,) = database.integers("t", "x")
    assert column.tolist() == [number]


def test_what_is_absent_is_missing_and_no_error(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", "CREATE TABLE t (x)", "INSERT INTO t VALUES (1), (2)")
    with Database(path) as database:
        assert [column.tolist() for column in database.integers("t", "x", "y")] == [[1, 2], [MISSING, MISSING]]
        assert [len(column) for column in database.integers("other", "x")] == [0]
        assert (database.count("other"), database.last_row("other"), database.damage) == (0, 0, [])
        assert list(database.texts("t", "x", "y")) == [("1", ""), ("2", "")]


def test_only_ordinary_tables_are_tables(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", "CREATE TABLE t (x)", "CREATE VIEW v AS SELECT 1 AS x",
                "CREATE VIRTUAL TABLE f USING fts5(x)", "CREATE INDEX i ON t (x)")
    with Database(path) as database:
        assert "t" in database.columns
        assert database.not_plain == {"v", "f"}
        assert [len(column) for column in database.integers("v", "x")] == [0]


@pytest.mark.parametrize("query", [
    "SELECT x FROM v", "SELECT x FROM f", "SELECT load_extension('x')", "SELECT hex(zeroblob(9)) FROM t",
    "SELECT printf('%.99c', 'x') FROM t", "DELETE FROM t", "ATTACH DATABASE ':memory:' AS other", "PRAGMA journal_mode",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "SELECT name FROM sqlite_master"])
def test_nothing_else_can_be_asked(tmp_path: Path, query: str) -> None:
    path = made(tmp_path / "a.db", "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)", "CREATE VIEW v AS SELECT 1 AS x",
                "CREATE VIRTUAL TABLE f USING fts5(x)")
    with Database(path) as database, pytest.raises(sqlite3.Error):
        database._run(query).fetchall()


def test_a_table_of_more_rows_than_are_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.db", "CREATE TABLE t (x)", f"INSERT INTO t VALUES {', '.join(['(1)'] * 30)}")
    monkeypatch.setattr(sqlite_file, "BATCH", 10)
    monkeypatch.setattr(sqlite_file, "MAX_ROWS", 20)
    with Database(path) as database:
        assert database.integers("t", "x")[0].tolist() == [1] * 20
        assert database.damage == ["table t has more than 20 rows: read up to there"]


def test_a_database_of_tables_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "MAX_TABLES", 3)
    path = made(tmp_path / "a.db", *(f"CREATE TABLE t{i} (x)" for i in range(4)))
    with pytest.raises(Damaged, match="more than 3 tables"):
        Database(path)

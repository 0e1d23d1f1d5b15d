"""A profiler's SQLite file, read as data: read-only, without its triggers, views or extensions, within limits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ...errors import UnusableInput

MAGIC = b"SQLite format 3\0"
MAX_CELL = 1 << 20
"""Bytes of one value or row."""

MAX_ROWS = 50_000_000
MAX_TABLES = 2000
_STEPS = 1_000_000                      # instructions of the database's machine between two looks at the budget
_BUDGET = 60_000                        # such looks: far beyond a scan of the largest table
_CHUNK = 50_000
_FUNCTIONS = {"typeof", "length", "glob", "substr"}


class Database:
    """The tables of one file. Columns are asked for by name; a table or column that is absent is no error."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        self._columns: dict[str, tuple[str, ...]] = {}

    def columns(self, table: str) -> tuple[str, ...]:
        """Columns of a table, in the file's order; empty where the file has no such table."""
        if table not in self._columns:
            try:
                found = self._connection.execute(f'PRAGMA table_info("{table}")').fetchmany(MAX_TABLES)
            except sqlite3.Error as error:
                raise _unreadable(self._path, error) from None
            self._columns[table] = tuple(str(row[1]) for row in found)
        return self._columns[table]

    def first_of(self, *tables: str) -> str:
        """The first of these tables that the file has; empty for none."""
        return next((table for table in tables if self.columns(table)), "")

    def integers(self, table: str, *columns: str) -> NDArray[np.int64]:
        """int64, one row a row of the table: whole numbers, also those written as text; -1 for everything else, and
        for a column that the table lacks."""
        known = self.columns(table)
        if not known:
            return np.zeros((0, len(columns)), np.int64)
        wanted = ", ".join(_whole(column) if column in known else "-1" for column in columns)
        parts = [np.array(rows, np.int64).reshape(-1, len(columns)) for rows in self._rows(wanted, table)]
        return np.concatenate(parts) if parts else np.zeros((0, len(columns)), np.int64)

    def texts(self, table: str, key: str, column: str) -> Iterator[tuple[int, str]]:
        """Pairs of a whole number and a text."""
        if {key, column} <= set(self.columns(table)):
            for rows in self._rows(f'{_whole(key)}, substr("{column}", 1, 4096)', table):
                for number, text in rows:
                    if isinstance(text, str):
                        yield int(number), text

    def _rows(self, wanted: str, table: str) -> Iterator[Sequence[tuple[int | str, ...]]]:
        read = 0
        try:
            cursor = self._connection.execute(f'SELECT {wanted} FROM "{table}"')
            while rows := cursor.fetchmany(_CHUNK):
                read += len(rows)
                if read > MAX_ROWS:
                    raise UnusableInput(f"table {table} has more than {MAX_ROWS:,} rows", where=self._path)
                yield rows
        except sqlite3.Error as error:
            raise _unreadable(self._path, error) from None


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """The database in `path`. Raises UnusableInput for what is none, is damaged, or does not hold plain tables."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from None
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 64)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        budget = iter(range(_BUDGET))
        connection.set_progress_handler(lambda: next(budget, None) is None, _STEPS)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            known = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(MAX_TABLES + 1)
        except sqlite3.Error as error:
            raise _unreadable(path, error) from None
        if len(known) > MAX_TABLES:
            raise UnusableInput(f"a database with more than {MAX_TABLES:,} tables", where=path)
        plain = {str(name) for kind, name, sql in known
                 if kind == "table" and str(sql).lstrip().upper().startswith("CREATE TABLE")}
        connection.set_authorizer(_authorizer(plain))
        yield Database(connection, path)
    finally:
        connection.close()


def _authorizer(plain: set[str]) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """Only reading of plain tables: no view, no virtual table, no attached file."""
    def decide(action: int, first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
        allowed = action == sqlite3.SQLITE_SELECT or (action == sqlite3.SQLITE_READ and first in plain)
        allowed |= action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS
        allowed |= action == sqlite3.SQLITE_PRAGMA and first == "table_info"
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
    return decide


def _whole(column: str) -> str:
    """SQL for a whole number, also where it is written as text; -1 for all else."""
    name = '"' + column.replace('"', '""') + '"'
    return (f"CASE typeof({name}) WHEN 'integer' THEN {name} WHEN 'text' THEN CASE WHEN {name} GLOB '[0-9]*' AND {name}"
            f" NOT GLOB '*[^0-9]*' AND length({name}) <= 19 THEN CAST({name} AS INTEGER) ELSE -1 END ELSE -1 END")


def _unreadable(path: Path, error: Exception) -> UnusableInput:
    return UnusableInput(f"the database cannot be read ({error})", where=path,
                         todo="It is damaged, still being written, or holds no plain tables: export it again")

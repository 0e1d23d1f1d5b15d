"""A profiler's SQLite file as columns: read only, and bounded whatever it holds.

Nothing in the file is run. Only ordinary tables are read (a view or a virtual table of a known name is not one), no
generated column is asked for, and a query ends after a number of steps that follows from the size of the file: the
pages of a damaged or hostile database may point at one another in circles. A table that breaks off is read up to there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..text import counted
from ..trace import Ints

MAGIC = b"SQLite format 3\0"

MISSING = -(1 << 62)
"""An integer that is not there: NULL, a real, text that is no whole number, or a column that the schema lacks."""

LONGEST_TEXT = 8192
"""Characters of a text that are read: names of templated kernels run to a few thousand."""

LONGEST_NUMBER = 19
"""Digits of the largest integer that a column holds."""

MAX_TABLES = 2000
MAX_ROWS = 200_000_000
"""Tables of a file, and rows of one table, that are read. (Rows are bounded by the size of the file too.)"""

BATCH = 1 << 15
"""Rows that Python holds at a time."""

_LARGEST_ROW = 1 << 26
_SMALLEST_ROW = 8
"""Bytes that a row takes at least, its place in the page included. A table of more rows than fit goes in circles."""

_STEPS_PER_BYTE = 20
_STEPS_AT_LEAST = 20_000_000
_STEPS_BETWEEN_LOOKS = 100_000

_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises: Python decodes SQLite's message, which may quote the damaged bytes."""

_ENDLESS = "interrupted"
"""What SQLite says when it was told to stop."""

_FUNCTIONS = {"typeof", "length", "glob", "substr", "count", "max"}
_PRAGMAS = {"table_info", "trusted_schema", "query_only", "cell_size_check", "writable_schema"}


class Damaged(Exception):
    """The file cannot be read further: its pages are malformed or missing, or it never ends."""


class Database:
    """Tables of an SQLite file. `columns` holds the names of each one's columns; a table that is absent has none.

    Raises OSError where the file cannot be opened, `Damaged` where it is no database that can be read.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:                       # says why where it cannot
            self.magic = file.read(len(MAGIC))
        self.size = path.stat().st_size
        self.wal = _size(path.with_name(path.name + "-wal"))
        if self.magic != MAGIC:
            raise Damaged("no SQLite database")
        self._steps = 0
        self._plain: frozenset[str] | None = None           # tables that may be read; all, while the schema is
        try:
            self._connection = sqlite3.connect(path.resolve().as_uri() + "?mode=ro&immutable=1", uri=True,
                                               isolation_level=None)
        except _ERRORS as error:
            raise Damaged(str(error)) from None
        self.damage: list[str] = []
        """What broke off, as a sentence each."""
        self.not_plain: frozenset[str] = frozenset()
        """Views and virtual tables: a known table's name may be theirs, and they are not read."""
        try:
            self._guard()
            self.columns = self._columns()
            self._plain = frozenset(self.columns)
        except Damaged:
            self.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table].issuperset(columns)

    def first_column(self, table: str, *names: str) -> str:
        """The first of these columns that the table has, else the empty text: schemas rename."""
        return next((name for name in names if name in self.columns.get(table, ())), "")

    def last_row(self, table: str) -> int:
        """Rows of a table, about: its largest row number, which takes no reading. 0 where it has none."""
        if table not in self.columns:
            return 0
        try:
            found = self._run(f"SELECT max(rowid) FROM {_quoted(table)}").fetchone()[0]
        except (*_ERRORS, TypeError):
            return 0
        return found if isinstance(found, int) and found > 0 else 0

    def count(self, table: str) -> int:
        """Rows of a table."""
        if table not in self.columns:
            return 0
        try:
            found = self._run(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0]
        except _ERRORS as error:
            self._broke_off(table, 0, error)
            return 0
        return int(found)

    def integers(self, table: str, *names: str) -> tuple[Ints, ...]:
        """Columns of integers, int64; MISSING where there is none, and all MISSING where the column is absent.

        A table that breaks off is read up to there, and `damage` says so.
        """
        parts = [columns for columns, _ in self.batches(table, names)]
        if not parts:
            return tuple(np.zeros(0, np.int64) for _ in names)
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def batches(self, table: str, names: Sequence[str], text: str = "",
                seen: Callable[[int], None] | None = None) -> Iterator[tuple[tuple[Ints, ...], tuple[str, ...]]]:
        """The same in pieces, with one column of text: the empty text where there is none. `seen` is told the rows."""
        if table not in self.columns:
            return
        has = self.columns[table]
        wanted = [_integer(name) if name in has else str(MISSING) for name in names]
        textual = text in has
        if textual:
            wanted.append(_text(text))
        for rows in self._pieces(table, wanted):
            columns = list(zip(*rows, strict=True))
            texts = columns.pop() if textual else ("",) * len(rows)
            yield tuple(np.array(column, np.int64) for column in columns), texts
            if seen is not None:
                seen(len(rows))

    def texts(self, table: str, *names: str) -> Iterator[tuple[str, ...]]:
        """Columns of text, a row at a time; for small tables. Integers come as their digits."""
        if table not in self.columns:
            return
        has = self.columns[table]
        wanted = [_text(name) if name in has else "''" for name in names]
        for rows in self._pieces(table, wanted):
            yield from rows

    def enumeration(self, table: str) -> dict[int, str]:
        """The names behind numbers, as the export spells them out in its `ENUM_` tables; none where it does not."""
        return {int(number): name for number, name in self.texts(table, "id", "name")
                if number.isdecimal() and len(number) < LONGEST_NUMBER and name}

    def _pieces(self, table: str, wanted: list[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a table, in pieces, up to where it breaks off."""
        query, done = f"SELECT {', '.join(wanted)} FROM {_quoted(table)}", 0
        try:
            cursor = self._run(query)
            while rows := cursor.fetchmany(BATCH):
                done += len(rows)
                if done * _SMALLEST_ROW > self.size:
                    raise sqlite3.OperationalError(_ENDLESS)
                if done > MAX_ROWS:
                    self.damage.append(f"table {table} has more than {MAX_ROWS:,} rows: read up to there")
                    return
                yield rows
        except _ERRORS as error:
            if _ENDLESS not in str(error):
                rows = self._before_the_break(f"{query} LIMIT {BATCH} OFFSET {done}")
                done += len(rows)
                if rows:
                    yield rows
            self._broke_off(table, done, error)

    def _before_the_break(self, query: str) -> list[tuple[Any, ...]]:
        """The rows that a piece had before the error: those are lost with the piece."""
        rows: list[tuple[Any, ...]] = []
        with suppress(*_ERRORS):
            rows.extend(self._run(query))                   # keeps what came before an error
        return rows

    def _run(self, query: str) -> sqlite3.Cursor:
        self._steps = 0
        return self._connection.execute(query)

    def _broke_off(self, table: str, rows: int, error: Exception) -> None:
        why = "it never ends" if _ENDLESS in str(error) else str(error)
        self.damage.append(f"table {table} breaks off after {counted(rows, 'row')} ({why})")

    def _guard(self) -> None:
        connection = self._connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_ROW)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 64)
        connection.set_progress_handler(self._look, _STEPS_BETWEEN_LOOKS)
        connection.set_authorizer(self._authorize)
        try:
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {setting}")
        except _ERRORS as error:
            raise Damaged(str(error)) from None

    def _look(self) -> bool:
        """Whether to stop: no honest file takes so many steps."""
        self._steps += _STEPS_BETWEEN_LOOKS
        return self._steps > _STEPS_AT_LEAST + _STEPS_PER_BYTE * self.size

    def _columns(self) -> dict[str, frozenset[str]]:
        """Columns of every table. SQLite refuses a file that is shorter than its header says, except to those who would
        mend it; nothing can be written here, and what lies before the cut is good."""
        try:
            return self._schema()
        except Damaged as error:
            why = str(error)
        try:
            self._connection.execute("PRAGMA writable_schema = ON")
        except _ERRORS as error:
            raise Damaged(str(error)) from None
        found = self._schema()
        self.damage.append(f"the file is cut, or its schema is damaged ({why})")
        return found

    def _schema(self) -> dict[str, frozenset[str]]:
        """Columns of every ordinary table: those with pages of their own."""
        try:
            found = {name: frozenset(row[1] for row in self._run(f"PRAGMA table_info({_quoted(name)})").fetchall())
                     for name in self._names("type = 'table' AND rootpage > 0")}
            self.not_plain = frozenset(self._names("type IN ('table', 'view')")) - found.keys()
            return found
        except _ERRORS as error:
            raise Damaged(str(error)) from None

    def _names(self, which: str) -> list[str]:
        found = self._run(f"SELECT name FROM sqlite_master WHERE {which}").fetchmany(MAX_TABLES + 1)
        if len(found) > MAX_TABLES:
            raise Damaged(f"it has more than {MAX_TABLES:,} tables")
        return [name for (name,) in found if isinstance(name, str)]

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Only reading of plain tables, with what the queries of this module need."""
        allowed = action == sqlite3.SQLITE_SELECT
        allowed |= action == sqlite3.SQLITE_READ and (self._plain is None or first in self._plain)
        allowed |= action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS
        allowed |= action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _integer(name: str) -> str:
    """A whole number, also where it is written as text (times of some versions are)."""
    column = _quoted(name)
    return (f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'text' THEN CASE WHEN length({column}) BETWEEN 1 "
            f"AND {LONGEST_NUMBER} AND {column} NOT GLOB '*[^0-9]*' THEN CAST({column} AS INTEGER) ELSE {MISSING} END "
            f"ELSE {MISSING} END")


def _text(name: str) -> str:
    column = _quoted(name)
    return (f"CASE WHEN typeof({column}) IN ('text', 'integer', 'real') "
            f"THEN CAST(substr({column}, 1, {LONGEST_TEXT}) AS TEXT) ELSE '' END")

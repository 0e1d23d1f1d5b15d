"""The CSV files beside a trace: header-driven rows, as text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from ...errors import UnusableInput

MAX_FIELD = 1 << 20
"""Characters of one field (a call stack) beyond which a file is refused."""

MAX_ROWS = 50_000_000

Row = dict[str, str]


def rows(path: Path) -> Iterator[Row]:
    """The rows of a CSV file by column, names and values stripped. A row of another length than the header is handed
    out with what it has.

    Raises UnusableInput for what is no CSV, OSError where it cannot be read."""
    csv.field_size_limit(MAX_FIELD)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(line.replace("\0", "") for line in file)
        try:
            header = [name.strip() for name in next(reader, [])]
            for number, fields in enumerate(reader):
                if number >= MAX_ROWS:
                    raise UnusableInput(f"more than {MAX_ROWS:,} rows", where=path)
                if fields:
                    yield dict(zip(header, (field.strip() for field in fields), strict=False))
        except csv.Error as error:
            raise UnusableInput(f"not a CSV file ({error})", where=path) from None


def header(text: str) -> list[str]:
    """Column names in the first line of `text`."""
    line = text.lstrip("\ufeff").split("\n", 1)[0]
    try:
        return [name.strip() for name in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def value(row: Row, *columns: str) -> str:
    """The field of the first of `columns` that the row has; empty for N/A and for none."""
    for column in columns:
        if column in row:
            text = row[column]
            return "" if text.upper() in ("N/A", "NA", "-", "NULL", "NONE") else text
    return ""


def number(row: Row, *columns: str) -> float | None:
    """The field as a finite number, None where it is none."""
    try:
        found = float(value(row, *columns))
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None

"""CPU of processes over time: the CSV that `xpu-triage watch` writes, `top -b`, `pidstat -u`.

The CSV's header names its columns, in any order: `timestamp` (seconds since the epoch, or ISO 8601), `pid`, `tid`
(empty: the process as a whole), `role`, `cpu_cores` (1.0 is one core full) and `host_cpu_fraction` (of all cores of
the machine, in rows without a pid). Command lines of `top` and pidstat are looked at for the process's role and are
not kept.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from os import PathLike

import numpy as np

from ..errors import UnusableInput
from ..samples import Recorder, Samples
from ..telemetry.roles import role
from ..text import clean
from .lines import lines

COLUMNS = ("timestamp", "pid", "tid", "role", "cpu_cores", "host_cpu_fraction")
"""The header of the CSV."""

_TOP = re.compile(r"top - (\d\d):(\d\d):(\d\d) up ")
_TOP_HEADER = re.compile(r"\s*PID\s+USER\s.*%CPU\b.*\b(COMMAND)\s*$")
_TOP_HOST = re.compile(r"%?Cpu\(s\):.*?([\d.,]+)[ %]*id\b")
_TOP_THREADS = re.compile(r"Threads:\s+\d")
_PIDSTAT_BANNER = re.compile(r"Linux \S+ \(.{1,200}?\)\s+(\d{2,4}[/-]\d\d[/-]\d{2,4})\s")
_PIDSTAT_HEADER = re.compile(
    r"(?:#?\s*(?:Time|\d\d:\d\d:\d\d(?: [AP]M)?|Average:)\s+)?UID\s+.*\b(?:PID|TGID)\b.*%CPU\b")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?: ([AP]M))?\s+")


def matches(head: str) -> bool:
    """Whether a text that begins like this is one of the three."""
    first = next((line for line in head.splitlines() if line.strip()), "")
    return _is_csv(first) or any(_TOP.match(line) or _TOP_HEADER.match(line) or _PIDSTAT_HEADER.match(line)
                                 for line in head.splitlines()[:200])


def read(path: str | PathLike[str]) -> Samples:
    """CPU in cores of every process and thread. Raises UnusableInput where there is no reading."""
    notes: list[str] = []
    text = lines(path, notes)
    first = next((line for line in text if line.strip()), "")
    recorder = Recorder()
    if _is_csv(first):
        found = _Rows("xpu-triage watch", "epoch", _read_csv(first, text, recorder))
    elif _PIDSTAT_BANNER.match(first) or _PIDSTAT_HEADER.match(first):
        found = _Rows("pidstat", "day", _read_pidstat(first, text, recorder))
    else:
        found = _Rows("top", "day", _read_top(first, text, recorder, notes))
    if not len(recorder):
        raise UnusableInput("no reading of a process's CPU", where=path, todo="Record it with `top -b` or `pidstat -u`")
    samples = recorder.samples(found.tool, str(path), clock=found.clock, skipped=found.skipped, notes=notes)
    if all(np.isnan(series.times).all() for series in samples.series):
        return recorder.samples(found.tool, str(path), skipped=found.skipped, notes=notes)
    return samples


class _Rows:
    def __init__(self, tool: str, clock: str, skipped: int) -> None:
        self.tool, self.clock, self.skipped = tool, clock, skipped


def _is_csv(first: str) -> bool:
    names = {name.strip().strip('"').casefold() for name in first.lstrip("\ufeff").split(",")}
    return {"pid", "cpu_cores"} <= names


def _read_csv(header: str, rows: Iterator[str], recorder: Recorder) -> int:
    names = [clean(name.strip().casefold()) for name in next(csv.reader([header.lstrip("\ufeff")]))]
    skipped = 0
    for cells in csv.reader(_bounded(rows)):
        if not any(cells):
            continue
        row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        time = _time(row.get("timestamp", ""))
        pid, tid = row.get("pid", ""), row.get("tid", "")
        host, cpu = _amount(row.get("host_cpu_fraction", "")), _amount(row.get("cpu_cores", ""))
        if host is not None and host <= 1:
            recorder.add("", "host_cpu", host, time=time, kind="host")
        if not pid.isdecimal() or (tid and not tid.isdecimal()) or cpu is None:
            skipped += host is None
            continue
        of = f"{pid}/{tid}" if tid else pid
        recorder.add(of, "cpu", cpu, time=time, kind="process")
        if not tid and row.get("role"):
            recorder.say(pid, "role", clean(row["role"])[:80], time=time, kind="process")
        for name, value in row.items():  # an unknown column is kept, under its own name
            if name and name not in COLUMNS and (amount := _amount(value)) is not None:
                recorder.add(of, name, amount, time=time, kind="process")
    return skipped


def _bounded(rows: Iterator[str]) -> Iterator[str]:
    """A row as the csv module takes it: no NUL, no field without end."""
    return (row.replace("\0", "")[:10_000].replace('"', "") for row in rows)


def _read_top(first: str, rest: Iterator[str], recorder: Recorder, notes: list[str]) -> int:
    """Pages of `top -b`. The first page is left out where there are more: top averages it since each process began."""
    pages: list[tuple[float | None, float | None, list[tuple[str, float, str]], bool]] = []
    columns: list[str] = []
    skipped = 0
    time: float | None = None
    host: float | None = None
    threads = False

    def page() -> None:
        pages.append((time, host, [], threads))

    for line in _chain(first, rest):
        if found := _TOP.match(line):
            time, host, threads, columns = _seconds(found[1], found[2], found[3], None), None, False, []
        elif _TOP_THREADS.match(line):
            threads = True
        elif found := _TOP_HOST.match(line):
            idle = _amount(found[1].replace(",", "."))
            host = 1 - idle / 100 if idle is not None and idle <= 100 else None
        elif _TOP_HEADER.match(line):
            columns = line.split()
            page()
        elif columns and line.strip():
            cells = line.split(None, len(columns) - 1)
            percent = _amount(cells[columns.index("%CPU")].replace(",", ".")) if len(cells) == len(columns) else None
            if percent is None or not cells[columns.index("PID")].isdecimal():
                skipped += 1
                continue
            pages[-1][2].append((cells[columns.index("PID")], percent / 100, cells[-1]))
    if len(pages) == 1:
        notes.append("one page of top: its figures are averages since each process began, not of the last seconds")
    for at, machine, rows, by_thread in pages[1:] or pages:
        if machine is not None:
            recorder.add("", "host_cpu", machine, time=at, kind="host")
        for pid, cores, title in rows:
            # with -H the pid is the thread's, and whose thread it is is not said
            recorder.add(pid, "cpu", cores, time=at, kind="process")
            if of := role(title):
                recorder.say(pid, "role", of, time=at, kind="process")
        if by_thread and "top lists threads: each stands for itself" not in notes:
            notes.append("top lists threads: each stands for itself")
    return skipped


def _read_pidstat(first: str, rest: Iterator[str], recorder: Recorder) -> int:
    """Rows of `pidstat -u`, with or without -t and -h. Average rows repeat the others and are left out."""
    columns: list[str] = []
    skipped = 0
    owner = ""
    for line in _chain(first, rest):
        if not line.strip() or _PIDSTAT_BANNER.match(line):
            continue
        if _PIDSTAT_HEADER.match(line):
            names = line.lstrip("# ").split()
            columns = names[names.index("UID"):] if "UID" in names else []
            continue
        if not columns or line.startswith("Average"):
            continue
        time: float | None = None
        body = line.strip()
        if found := _CLOCK.match(body):
            time, body = _seconds(found[1], found[2], found[3], found[4]), body[found.end():]
        elif found := re.match(r"(\d{9,11})\s+", body):
            time, body = None, body[found.end():]
        cells = body.split(None, len(columns) - 1)
        if len(cells) < len(columns):
            skipped += 1
            continue
        row = dict(zip(columns, cells, strict=True))
        percent = _amount(row.get("%CPU", "").replace(",", "."))
        pid, thread = row.get("PID", row.get("TGID", "")), row.get("TID", "-")
        owner = pid if pid.isdecimal() else owner
        if percent is None or not owner:
            skipped += 1
            continue
        of = f"{owner}/{thread}" if thread.isdecimal() else owner
        recorder.add(of, "cpu", percent / 100, time=time, kind="process")
        if of == owner and (name := role(row.get("Command", ""))):
            recorder.say(owner, "role", name, time=time, kind="process")
    return skipped


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _seconds(hour: str, minute: str, second: str, half: str | None) -> float:
    hours = int(hour) % 12 + 12 * (half == "PM") if half else int(hour)
    return float(hours * 3600 + int(minute) * 60 + int(second))


def _time(text: str) -> float | None:
    """Seconds since the epoch; None where there is none."""
    if (number := _amount(text)) is not None:
        return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _amount(text: str) -> float | None:
    """A finite figure of zero or more."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) and value >= 0 else None

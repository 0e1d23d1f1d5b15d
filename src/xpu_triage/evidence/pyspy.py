"""Stacks of running processes: py-spy's dumps (text, JSON) and recordings (raw, speedscope), faulthandler's text.

Formats: py-spy's src/dump.rs, stack_trace.rs, flamegraph.rs and speedscope.rs; CPython's Python/traceback.c. A dump may
be pasted into a log, with the log's prefix before each line. Values of arguments and locals are never kept: they hold
prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import UnusableInput
from ..samples import Frame, Stack, Stacks
from . import speedscope
from .chunks import pieces
from .folded import is_folded, read_folded
from .lines import MAX_TEXT, lines
from .stack_frames import MAX_STACKS, frame, parse_frame, process_name, stack

_THREAD = re.compile(r'^(?P<prefix>.{0,200}?)Thread (?P<id>\S+) \((?P<status>active|idle|active\+gil)\)'
                     r'(?:: "(?P<name>.*)")?$')
_PROCESS = re.compile(r"^(?P<prefix>.{0,200}?)(?<!Parent )Process (?P<pid>\d+): (?P<title>.*)$")
_FAULT = re.compile(r"^(?P<prefix>.{0,200}?)(?:Current thread|Thread) (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>.*)\])?"
                    r" \(most recent call first\):$")
_FAULT_FRAME = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>.+)$')
_VALUES = re.compile(r"^(?:Arguments|Locals):?$")
_NO_FRAME = re.compile(r"^(?:Python v\d.*|Parent Process \d+: .*|-{3,}|\.\.\.|<no Python frame>|<tstate is freed>"
                       r"|Garbage-collecting|)$")
_NO_FRAME_STARTS = ("", "P", "G", "-", ".", "<")
_STRICT = re.compile(r"^\s*[\w.<>$-]+ \((?:[^()\s]+\.(?:py|pyx)|<[\w. -]+>):\d+\)$")
_SHORT = 500
"""Characters of a row that is remembered."""
_REFUSED = "Permission Denied: Try running again with elevated permissions"
_JSON_DUMP = re.compile(r"\s*\[\s*\{")

_RECORDED = "a recording made without --idle holds only threads that ran: a share is one of the time that they ran"


def matches(head: str) -> bool:
    """Whether a file that begins so holds stacks. In a longer log a dump does not make the file one of stacks."""
    start = head.lstrip("\ufeff \t\r\n")
    rows = start.split("\n")
    if is_folded(rows[:-1] or rows):
        return True
    if start.startswith("{"):
        return speedscope.is_speedscope(start)
    if _JSON_DUMP.match(start) and '"frames"' in head and '"thread_id"' in head:
        return True
    if _REFUSED in head and len(head) < 4096:
        return True
    dump = _Dump()
    said = sum(dump.take(row) for row in rows if row.strip())
    dump.end()
    return bool(dump.stacks) and said >= 0.5 * sum(bool(row.strip()) for row in rows)


def read(path: str | PathLike[str]) -> Stacks:
    """The stacks of one file, in its order, frames innermost first. Raises UnusableInput where it holds none."""
    path = Path(path)
    notes: list[str] = []
    rows = lines(path, notes)
    first = list(islice(rows, 50))
    head = "\n".join(first).lstrip("\ufeff \t\r\n")
    if is_folded(first):
        found = read_folded(chain(first, rows), MAX_STACKS)
        tool, stacks, skipped = "austin" if found.austin else "py-spy record (raw)", found.stacks, found.skipped
        if not found.austin:
            notes.append(_RECORDED)
    elif head.startswith("{") or _JSON_DUMP.match(head):
        notes.clear()                                   # read again from the start
        tool, stacks, skipped = _json(path, notes)
    else:
        dump = _Dump()
        refused = False
        for row in chain(first, rows):
            dump.take(row)
            refused = refused or _REFUSED in row
            if len(dump.stacks) >= MAX_STACKS:
                break
        dump.end()
        tool, stacks, skipped = dump.tool, dump.stacks, dump.skipped
        if refused and not stacks:
            raise UnusableInput("py-spy was refused: no permission to look into the process", where=path,
                                todo="Run it as root, or with the SYS_PTRACE capability in a container")
    if not stacks:
        raise UnusableInput("no stack in it", where=path, todo="Give the output of py-spy dump or py-spy record")
    if len(stacks) >= MAX_STACKS:
        notes.append(f"more than {MAX_STACKS:,} stacks: left out from there on")
    return Stacks(str(path), tool, tuple(stacks[:MAX_STACKS]), skipped=skipped, notes=tuple(notes))


class _Dump:
    """The text of dumps, line by line."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []
        self.skipped = 0
        self.tool = "py-spy dump"
        self._process = ""
        self._thread: tuple[str, bool | None, bool | None] | None = None
        self._frames: list[Frame] = []
        self._prefix: re.Pattern[str] | None = None
        self._indent: int | None = None
        """Of the frames of this thread."""
        self._in_values = False

    def take(self, row: str) -> bool:
        """One line; whether it belongs to a dump."""
        if self._prefix is not None and (match := self._prefix.match(row)):
            row = row[match.end():]
        row = row.rstrip()
        bare = row.lstrip()
        indent = len(row) - len(bare)
        if self._in_values and self._indent is not None and indent > self._indent:
            return True
        # nearly all rows are frames: the patterns, which look for a log's prefix too, are tried where their word is
        if "hread " in row and ((match := _THREAD.match(row)) or (match := _FAULT.match(row))):
            self.end()
            self._learn(match["prefix"])
            status = match.groupdict().get("status")
            if status is None:
                self.tool = "faulthandler"
            active = None if status is None else status != "idle"
            self._thread = (match["name"] or match["id"], active, None if status is None else status.endswith("+gil"))
            return True
        if "Process " in row and (match := _PROCESS.match(row)):
            self.end()
            self._learn(match["prefix"])
            self._process = process_name(match["pid"], match["title"])
            return True
        if self._frames and _VALUES.match(bare):
            self._in_values = True
            return True
        if bare[:1] in _NO_FRAME_STARTS and _NO_FRAME.match(bare):
            return bool(row)
        return self._thread is not None and self._inside(row, indent)

    def end(self) -> None:
        """No more frames for this thread."""
        if self._thread is not None and self._frames:
            self.stacks.append(stack(self._process, *self._thread, self._frames))
        self._thread, self._frames, self._indent, self._in_values = None, [], None, False

    def _inside(self, row: str, indent: int) -> bool:
        parsed = _frame_of(row) if indent and not (self._in_values and indent != self._indent) else _strict(row)
        if parsed is not None and indent >= (self._indent or 0):
            self._indent = indent if self._indent is None else self._indent
            self._in_values = False
            self._frames.append(parsed)
            return True
        if self._in_values:
            return True                                 # a value of several lines
        if indent < (self._indent or 1):
            self.end()                                  # the log goes on
            return False
        self.skipped += 1
        return False

    def _learn(self, prefix: str) -> None:
        """A log's prefix, whose figures (times, counters) change from line to line."""
        if prefix:
            parts = re.split(r"(\d+)", prefix)
            self._prefix = re.compile("".join(r"\d+" if part.isdigit() else re.escape(part) for part in parts))


def _frame_of(row: str) -> Frame | None:
    return _known_row(row) if len(row) <= _SHORT else _parsed(row)


@lru_cache(maxsize=16_384)
def _known_row(row: str) -> Frame | None:
    """Dumps repeat few rows many times: equal ones are parsed once, and are one frame."""
    return _parsed(row)


def _parsed(row: str) -> Frame | None:
    if match := _FAULT_FRAME.match(row):
        return frame(match["function"], match["file"], int(match["line"]) if match["line"].isdigit() else None)
    return parse_frame(row)


def _strict(row: str) -> Frame | None:
    """A frame that nothing but a frame looks like: where no indentation tells."""
    return _frame_of(row) if _STRICT.match(row) or _FAULT_FRAME.match(row) else None


# ---- JSON


def _json(path: Path, notes: list[str]) -> tuple[str, list[Stack], int]:
    text = _text(path, notes)
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise UnusableInput("speedscope JSON that is cut or damaged", where=path, todo="Record it again") from None
        read = speedscope.profiles(document)
        if read is None:
            raise UnusableInput("JSON, but neither a speedscope profile nor a dump of py-spy", where=path)
        if read.evented:
            notes.append("a profile of times, not of samples: counted in milliseconds")
        else:
            notes.append(_RECORDED)
        notes += [f"a profile in {unit} is no time: left out" for unit in dict.fromkeys(read.other_units)]
        return "speedscope (times)" if read.evented else "speedscope", read.stacks, read.skipped
    stacks: list[Stack] = []
    skipped = 0
    for entry in _entries(text, notes):
        read_stack = _thread(entry)
        if read_stack is None:
            skipped += 1
        else:
            stacks.append(read_stack)
    return "py-spy dump (JSON)", stacks, skipped


def _text(path: Path, notes: list[str]) -> str:
    raw = bytearray()
    try:
        for piece in pieces(path, notes):
            raw += piece
            if len(raw) > MAX_TEXT:
                raise UnusableInput(f"more than {MAX_TEXT >> 20} MiB of JSON", where=path, todo="Record a shorter time")
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    return bytes(raw).decode(json.detect_encoding(bytes(raw[:4])), "replace").lstrip("\ufeff \t\r\n")


def _entries(text: str, notes: list[str]) -> Iterator[Any]:
    """The threads of one dump, or of several written one after the other; up to a cut."""
    decoder = json.JSONDecoder()
    at = 0
    while match := re.compile(r"[\s,\[\]]*").match(text, at):
        at = match.end()
        if at >= len(text):
            break
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            notes.append(f"JSON is cut or damaged at character {at:,}: read up to there")
            return
        yield entry


def _thread(entry: Any) -> Stack | None:
    raw = entry.get("frames") if isinstance(entry, dict) else None
    if not isinstance(raw, list):
        return None
    frames = [_known_frame(one["name"], _file(one), _line(one.get("line")))
              for one in raw if isinstance(one, dict) and isinstance(one.get("name"), str)]
    if not frames:
        return None
    name = entry.get("thread_name")
    if not isinstance(name, str) or not name:
        name = str(entry.get("os_thread_id") or entry.get("thread_id") or "")
    return stack(_process(entry), name, _flag(entry.get("active")), _flag(entry.get("owns_gil")), frames)


@lru_cache(maxsize=16_384)
def _known_frame(function: str, file: str, line: int | None) -> Frame:
    return frame(function, file, line)


def _line(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _file(one: dict[str, Any]) -> str:
    return next((value for value in (one.get("short_filename"), one.get("filename")) if isinstance(value, str)), "")


def _process(entry: dict[str, Any]) -> str:
    info, pid = entry.get("process_info"), entry.get("pid")
    title = info.get("command_line") if isinstance(info, dict) else ""
    return process_name(pid if isinstance(pid, int) else "", title if isinstance(title, str) else "")

"""Folded stacks, a line each: `py-spy record -f raw` (`a (f.py:1);b (g.py:2) 17`, root first) and austin's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..samples import Frame, Stack
from .stack_frames import MAX_SAMPLES, frame, parse_frame, process_name, stack

_COUNT = re.compile(r"^(?P<frames>\S.*?) (?P<count>\d{1,18})$")
PROCESS = re.compile(r'process (?P<pid>\d+)(?::\s*(?:"(?P<title>.*?)"|(?P<bare>[^;"]*)))?(?:;|$)')
THREAD = re.compile(r"thread \((?P<id>[^);]*)\)(?::\s*(?P<name>[^;]*))?(?:;|$)")
_COMMENT = re.compile(r"# \w+: ")
_AUSTIN = re.compile(r"^P(?P<pid>\d+);T(?P<thread>[^;]+);(?P<frames>.*?)(?: (?P<metric>-?\d+(?:,-?\d+)*))?$")
_AUSTIN_FRAME = re.compile(r"^(?P<file>.+):(?P<function>[^:]*):(?P<line>\d+)(?::\d+)*$")


@dataclass
class Folded:
    """What became of the lines."""

    stacks: list[Stack] = field(default_factory=list)
    skipped: int = 0
    austin: bool = False


def is_folded(lines: list[str]) -> bool:
    """Whether these lines, blank ones and comments left out, are folded stacks: all but the odd one."""
    lines = [line for line in lines if line.strip() and not _COMMENT.match(line)][:20]
    good = sum(_austin(line) is not None or _py_spy(line) is not None for line in lines)
    return bool(lines) and good >= 0.8 * len(lines)


def read_folded(lines: Iterable[str], most: int) -> Folded:
    """Every stack of the lines, at most `most`. Blank lines and comments do not count as skipped."""
    found = Folded()
    for line in lines:
        if not line.strip() or _COMMENT.match(line):
            continue
        if (read := _austin(line)) is not None:
            found.austin = True
        else:
            read = _py_spy(line)
        if read is None:
            found.skipped += 1
            continue
        found.stacks.append(read)
        if len(found.stacks) >= most:
            break
    return found


def _py_spy(line: str) -> Stack | None:
    match = _COUNT.match(line.rstrip())
    if match is None or not 0 < int(match["count"]) <= MAX_SAMPLES:
        return None
    process = thread = ""
    line, at = match["frames"], 0
    while told := PROCESS.match(line, at):              # a chain from the parent down; a command line may hold `;`
        process, at = process_name(told["pid"], told["title"] or told["bare"] or ""), told.end()
    if told := THREAD.match(line, at):
        thread, at = told["name"] or told["id"], told.end()
    frames: list[Frame] = []
    for part in line[at:].split(";"):
        if not part:
            continue
        if (parsed := parse_frame(part)) is None:
            return None
        frames.append(parsed)
    if not frames:
        return None
    return stack(process, thread, None, None, reversed(frames), int(match["count"]))


def _austin(line: str) -> Stack | None:
    """`P<pid>;T<thread>;file:function:line;… metric`: one line is one sample, whatever its metric."""
    match = _AUSTIN.match(line.rstrip())
    if match is None:
        return None
    frames = []
    for part in match["frames"].split(";"):
        if (at := _AUSTIN_FRAME.match(part)) is not None:
            frames.append(frame(at["function"], at["file"], int(at["line"][:9])))
        elif part and not part.startswith(":"):         # `:GC:` and `:INVALID:` are marks
            return None
    if not frames:
        return None
    return stack(match["pid"], match["thread"], None, None, reversed(frames))

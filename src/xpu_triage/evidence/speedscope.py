"""Speedscope files as py-spy (sampled) and pyinstrument (evented) write them.

Format: https://www.speedscope.app/file-format-schema.json. Frames of a sample are root first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..samples import Frame, Stack
from .folded import PROCESS, THREAD
from .stack_frames import MAX_SAMPLES, frame, process_name, stack

_UNITS_MS = {"nanoseconds": 1e-6, "microseconds": 1e-3, "milliseconds": 1.0, "seconds": 1e3}
_NAME = re.compile(r'^(?:Process (?P<pid>\d+) )?Thread (?P<id>\S+)(?: "(?P<name>.*)")?$')


@dataclass(frozen=True)
class Profiles:
    stacks: list[Stack]
    skipped: int
    evented: bool
    """Some stacks count milliseconds, not samples."""
    other_units: tuple[str, ...] = ()


def is_speedscope(head: str) -> bool:
    """Whether a JSON text, of which `head` is the beginning, is a speedscope file."""
    return head.lstrip().startswith("{") and ("speedscope.app/file-format-schema" in head or all(
        f'"{key}"' in head for key in ("profiles", "shared", "frames")))


def profiles(document: Any) -> Profiles | None:
    """Every stack of every profile, equal ones added up; None where the document is no speedscope file.

    A sampled profile counts its samples. An evented one has times alone: they are given in whole milliseconds.
    """
    shared = document.get("shared") if isinstance(document, dict) else None
    raw = shared.get("frames") if isinstance(shared, dict) else None
    found = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(raw, list) or not isinstance(found, list):
        return None
    frames = [_frame(entry) for entry in raw]
    marks = [_mark(entry) for entry in raw]
    stacks: list[Stack] = []
    skipped = 0
    evented = False
    units: list[str] = []
    for profile in found:
        if not isinstance(profile, dict):
            skipped += 1
            continue
        counts: Counter[tuple[int, ...]] = Counter()
        if isinstance(events := profile.get("events"), list):
            scale = _UNITS_MS.get(str(profile.get("unit")))
            if scale is None:
                units.append(str(profile.get("unit")))
                continue
            evented = True
            bad = _evented(events, scale, len(frames), counts)
        elif isinstance(samples := profile.get("samples"), list):
            bad = _sampled(samples, len(frames), counts)
        else:
            bad = 1
        skipped += bad
        stacks += _stacks(profile, counts, frames, marks)
    return Profiles(stacks, skipped, evented, tuple(units))


def _frame(entry: Any) -> Frame | None:
    """None for what is no frame: a mark that names a process or thread, or the time of the caller itself."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name == "[self]" or PROCESS.match(name) or THREAD.match(name):
        return None
    file = entry.get("file")
    return frame(name, file if isinstance(file, str) else "", entry.get("line"))


def _mark(entry: Any) -> str:
    """The process that an entry names; else empty. The command line is in quotes that do not close before its end."""
    name = entry.get("name") if isinstance(entry, dict) else None
    told = PROCESS.match(name) if isinstance(name, str) else None
    return process_name(told["pid"], told["title"] or told["bare"] or "") if told else ""


def _sampled(samples: list[Any], known: int, counts: Counter[tuple[int, ...]]) -> int:
    skipped = 0
    for sample in samples:
        if isinstance(sample, list) and sample and all(_is_index(index, known) for index in sample):
            counts[tuple(sample)] += 1
        else:
            skipped += 1
    return skipped


def _evented(events: list[Any], to_ms: float, known: int, counts: Counter[tuple[int, ...]]) -> int:
    """Time between two events belongs to the frames that are open. What was not opened is not closed."""
    skipped = 0
    opened: list[int] = []
    spent: dict[tuple[int, ...], float] = {}
    before: float | None = None
    for event in events:
        told: dict[str, Any] = event if isinstance(event, dict) else {}
        kind, index, at = told.get("type"), told.get("frame"), told.get("at")
        if (kind not in ("O", "C") or not _is_index(index, known) or isinstance(at, bool)
                or not isinstance(at, int | float) or not math.isfinite(at)):
            skipped += 1
            continue
        if before is not None and opened and at > before:
            spent[tuple(opened)] = spent.get(tuple(opened), 0.0) + at - before
        before = at
        if kind == "O":
            opened.append(index)
        elif opened and opened[-1] == index:
            opened.pop()
        else:
            skipped += 1
    for indices, time in spent.items():
        if (ms := round(min(time * to_ms, MAX_SAMPLES))) > 0:
            counts[indices] += ms
    return skipped


def _is_index(index: Any, known: int) -> TypeGuard[int]:
    return isinstance(index, int) and not isinstance(index, bool) and 0 <= index < known


def _stacks(profile: dict[str, Any], counts: Counter[tuple[int, ...]], frames: list[Frame | None],
            marks: list[str]) -> Iterator[Stack]:
    name = profile.get("name")
    told = _NAME.match(name) if isinstance(name, str) else None
    process = process_name(told["pid"]) if told and told["pid"] else ""
    thread = (told["name"] or told["id"]) if told else ""
    for indices, samples in counts.items():
        named = [frames[index] for index in reversed(indices)]
        kept = [part for part in named if part is not None]
        if kept:
            inner = next((marks[index] for index in reversed(indices) if marks[index]), "")
            yield stack(inner or process, thread, None, None, kept, samples)

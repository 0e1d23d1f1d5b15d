"""How one trace event is decoded: the fields asked for, and what is made of one that is not quite JSON.

Three things vary between files and cost time, so they are asked for only where a file has them (`Dialect`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

import msgspec

NO_TIME = float("nan")
GROUP, ELEMENTS, SIZE, WHAT = "Process Group Name", "In msg nelems", "Group size", "Collective name"
"""What Kineto says of a collective (ParamCommsUtils.h of torch)."""



class Dialect(NamedTuple):
    exact: bool = False
    """Times are too large for a float to hold their nanoseconds: keep integers and digits as they are
    written."""
    old: bool = False
    """Device rows carry the link to their operator as `external id`, in lower case (torch 1.9)."""
    grouped: bool = False
    """Collectives name their process group, its size, and how much they exchange (torch 2.3 and newer)."""


class Args(msgspec.Struct, gc=False):
    """Of an event's arguments those that every event is asked for."""

    correlation: int = -1
    external: int = msgspec.field(name="External id", default=-1)


class OldArgs(Args, gc=False):
    old_external: int = msgspec.field(name="external id", default=-1)

    def __post_init__(self) -> None:
        if self.old_external != -1:
            self.external = self.old_external


class GroupedArgs(Args, gc=False):
    group: str | int = msgspec.field(name=GROUP, default="")
    elements: int = msgspec.field(name=ELEMENTS, default=-1)
    size: int = msgspec.field(name=SIZE, default=0)
    what: str = msgspec.field(name=WHAT, default="")


class Event(Protocol):
    """`ts` is µs: a float (NaN where the event has none), or in an exact dialect an int for a JSON integer
    and the digits as str for everything else. `dur` is µs."""

    ph: str
    cat: str
    name: str
    pid: int | str
    tid: int | str
    ts: Any
    dur: float
    args: Any


@cache
def _struct(dialect: Dialect) -> type[Any]:
    args = OldArgs if dialect.old else GroupedArgs if dialect.grouped else Args
    return msgspec.defstruct("Event", [
        ("ph", str, ""), ("cat", str, ""), ("name", str, ""), ("pid", int | str, ""), ("tid", int | str, ""),
        ("ts", Any if dialect.exact else float, NO_TIME), ("dur", float, NO_TIME), ("args", args | None, None),
    ], gc=False)


@cache
def decoder(dialect: Dialect) -> Callable[[bytes | memoryview], list[Event]]:
    """Decoder of an array of events. Not strict: some profilers write numbers as strings, at no cost here."""
    hook = {"float_hook": str} if dialect.exact else {}
    return msgspec.json.Decoder(list[_struct(dialect)], strict=False, **hook).decode  # type: ignore[misc, arg-type]


_WORD = re.compile(rb"-?\b(?:NaN|nan|Infinity|infinity|Inf|inf)\b")
_LIKELY = re.compile(rb"[:\[,]\s*+%b" % _WORD.pattern)        # in a string too, but without any it is soon said
_OTHER = re.compile(rb'(?:[^"nNiI-]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?!%b)[nNiI-])*+' % _WORD.pattern, re.S)


def without_bare_words(text: bytes) -> bytes:
    """`text` with NaN and Infinity outside strings as null. (Bandwidth of a copy that took no time: `inf`.)"""
    if not _LIKELY.search(text):
        return text
    parts, at = [], 0
    while other := _OTHER.match(text, at):
        parts.append(other[0])
        if not (word := _WORD.match(text, other.end())):
            break
        parts.append(b"null")
        at = word.end()
    return b"".join(parts) if len(parts) > 1 else text


def lenient(text: bytes, dialect: Dialect) -> Event | None:
    """An event that the typed decoder refuses: fields of another type are turned into theirs, or left out.
    None where nothing can be made of it."""
    try:
        found = json.loads(without_bare_words(text).decode("utf-8", "replace"), strict=False,
                           parse_float=str if dialect.exact else float)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    args = found.get("args")
    args = args if isinstance(args, dict) else {}
    external = args.get("external id", args.get("External id"))
    ids = _integer(args.get("correlation")), _integer(external)
    group = args.get(GROUP)
    event: Event = _struct(dialect)(
        *("" if found.get(key) is None else str(found[key]) for key in ("ph", "cat", "name")),
        *(lane if isinstance(lane := found.get(key), int | str) else str(lane) for key in ("pid", "tid")),
        ts=_time(found.get("ts"), dialect), dur=_number(found.get("dur"), NO_TIME),
        args=GroupedArgs(*ids, group if isinstance(group, str | int) else "", _integer(args.get(ELEMENTS)),
                         max(_integer(args.get(SIZE)), 0), what if isinstance(what := args.get(WHAT), str) else "")
        if dialect.grouped else Args(*ids))
    return event


def _time(value: Any, dialect: Dialect) -> Any:
    if dialect.exact and isinstance(value, int | str) and not isinstance(value, bool):
        return value
    return _number(value, NO_TIME)


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else int(_number(value, -1))


def _number(value: Any, default: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if abs(number) < float("inf") else default

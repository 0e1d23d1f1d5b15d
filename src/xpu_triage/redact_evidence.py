"""Evidence with names taken out right after it was read: whatever is concluded, printed or plotted from there on knows
none. Asked for by `XPU_TRIAGE_REDACT` in the environment, so that the report's own process does the same.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import MissingExtra, TriageError
from .evidence.chunks import pieces
from .samples import Frame, Scrape
from .signals import Signal

if TYPE_CHECKING:
    from .redact import Redactor

ASKED = "XPU_TRIAGE_REDACT"
"""Set to anything in the environment: names are taken out. A salt in hexadecimal digits makes them the same again."""

T = TypeVar("T")

_OURS = re.compile(r"(?:metrics|stacks|trace)/\d{4}[.a-z]+|processes\.csv|watch\.json"
                   r"|device/(?:nvidia-smi|npu-smi-info|npu-smi-usages|xpu-smi-kunlun|xpu-smi-intel|amd-smi|rocm-smi"
                   r"|hl-smi|cnmon|hy-smi)\.(?:csv|txt|json)")
"""Files of a recording of `watch`: their names tell nothing."""

_ENDINGS = re.compile(r"(?:\.(?:pt|trace|prom|txt|log|csv|json|jsonl|ya?ml|db|sqlite|raw|folded|html|xml|gz))+$")


def asked() -> Redactor | None:
    """The redactor that the environment asks for, one and the same while it does."""
    salt = os.environ.get(ASKED, "")
    return _redactor(salt) if salt else None


@contextmanager
def redacting() -> Iterator[Redactor]:
    """Take names out meanwhile, in this process and in those that it starts; out of its refusals as well. The salt is
    new, and nobody keeps it."""
    before = os.environ.get(ASKED)
    salt = os.environ[ASKED] = secrets.token_hex(16)
    redactor = _redactor(salt)
    try:
        yield redactor
    except MissingExtra:
        raise
    except TriageError as error:
        raise type(error)(redactor.text(error.what), where=redactor.text(error.where),
                          todo=redactor.text(error.todo)) from None
    finally:
        if before is None:
            del os.environ[ASKED]
        else:
            os.environ[ASKED] = before


@lru_cache(maxsize=1)
def _redactor(salt: str) -> Redactor:
    from .redact import for_this_machine  # with its patterns, for those who ask for it

    return for_this_machine(salt.encode())


def name_pieces(redactor: Redactor, pieces: Sequence[Path], given: Path) -> None:
    """Give what was found at `given` other names: its own may be hosts' or users', and nothing tells. Numbered in their
    order, so that they sort as they did."""
    for path in pieces:
        inside = path.relative_to(given).as_posix() if path.is_relative_to(given) else ""
        ending = _ENDINGS.search(path.name)
        other = f"evidence-{redactor.pieces:04d}{ending[0] if ending else ''}"
        redactor.pieces += 1
        names = [str(path), str(path.absolute()), os.path.realpath(path), path.name]
        if _OURS.fullmatch(inside):
            other = f"evidence/{inside}"
            names.pop()
        for name in names:
            redactor.alias(name, other)
    if list(pieces) != [given]:
        for name in (str(given), str(given.absolute()), os.path.realpath(given)):
            redactor.alias(name, "evidence")


HEAD = 1 << 20
"""Inflated bytes of each file that are looked at for names of hosts."""


def learn_hosts(redactor: Redactor, paths: Iterable[Path]) -> None:
    """What these files say that hosts are called, before any of them is read: one file states the name that another
    says in passing. A file that cannot be read is passed over; its reader says so."""
    from .redact_hosts import stated

    for path in paths:
        head = bytearray()
        with suppress(OSError, TriageError):
            for piece in pieces(path, []):
                head += piece
                if len(head) >= HEAD:
                    break
        if b"\0" not in head[:4096]:
            redactor.learn(stated(bytes(head[:HEAD]).decode("utf-8", "replace")))


def hidden(part: T, redactor: Redactor) -> T:
    """`part` without names: every text in it, labels by what they are. Arrays and figures are the same objects."""
    return _hidden(part, redactor)


def as_asked(part: T) -> T:
    """`part`, without names where that is asked for."""
    redactor = asked()
    return part if redactor is None else hidden(part, redactor)


def _hidden(part: Any, redactor: Redactor) -> Any:
    if isinstance(part, Enum):
        return part
    if isinstance(part, str):
        return redactor.text(part)
    if isinstance(part, Path):
        return Path(redactor.text(str(part)))
    if isinstance(part, Frame):
        return dataclasses.replace(part, function=redactor.text(part.function), file=redactor.file(part.file))
    if isinstance(part, Signal):
        value = redactor.text(part.value) if isinstance(part.value, str) else part.value
        return dataclasses.replace(part, value=value, window=redactor.text(part.window),
                                   source=redactor.text(part.source))
    if isinstance(part, Scrape):
        values = {name: tuple(({key: redactor.label(key, value) for key, value in labels.items()}, value)
                              for labels, value in samples) for name, samples in part.values.items()}
        return dataclasses.replace(part, values=values, source=redactor.text(part.source),
                                   notes=_hidden(part.notes, redactor))
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        new = {field.name: _hidden(getattr(part, field.name), redactor)
               for field in dataclasses.fields(part) if field.init}
        return dataclasses.replace(part, **new)
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_hidden(one, redactor) for one in part))
    if isinstance(part, tuple | list):
        return type(part)(_hidden(one, redactor) for one in part)
    if isinstance(part, Mapping):
        return {key: _hidden(value, redactor) for key, value in part.items()}
    return part

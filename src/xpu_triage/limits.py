"""What a capture cannot tell: numbers that are there and whose meaning is not. The rules are on one page of the
playbook (`limits.md`), as those of the fingerprints are; where one applies, signals are withheld from all others."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from . import plain_yaml, rules
from .catalogue import CATALOGUE
from .errors import TriageError
from .expressions import Expression, Readings
from .fingerprints import split
from .resources import shipped
from .signals import Signals

_KEYS = {"when", "withhold", "says", "next", "source"}


@dataclass(frozen=True, eq=False)
class Limit:
    when: Expression
    withhold: frozenset[str]
    """Signals that say nothing where it applies."""
    says: str
    next: str
    source: str


@cache
def load(path: Path | None = None) -> tuple[Limit, ...]:
    """The limits on the page. Raises `TriageError` for a page with a mistake."""
    path = path or shipped("playbook") / "limits.md"
    try:
        raw = plain_yaml.load(split(path.read_text(encoding="utf-8"), path)[0], first_line=2)
        return tuple(_limit(item) for item in raw["limits"])
    except (ValueError, TypeError, KeyError) as error:
        raise TriageError(f"front matter: {error}", where=path) from None


def applied(signals: Signals, limits: tuple[Limit, ...]) -> tuple[Readings, tuple[Limit, ...]]:
    """Values of `signals` without those that say nothing, which it remembers, and the limits that took them.

    A limit takes signals only of the evidence that it speaks of: a hidden trace does not silence the SMI beside it.
    """
    values = {name: signal.value for name, signal in signals.items()}
    found = tuple(limit for limit in limits if limit.when.evaluate(values) is True)
    withheld: set[str] = set()
    for limit in found:
        sources = {signals[name].source for name in limit.when.names if name in signals}
        withheld |= {name for name in limit.withhold if name in signals and signals[name].source in sources}
    evidence = {name: signals[name].source for name in signals}
    kept = {name: value for name, value in values.items() if name not in withheld}
    return Readings(kept, {name: evidence[name] for name in withheld}, evidence), found


def _limit(raw: Any) -> Limit:
    if not isinstance(raw, dict) or set(raw) != _KEYS:
        raise ValueError(f"a limit has the parts {', '.join(sorted(_KEYS))}")
    when = rules.condition(raw["when"])
    if when is None:
        raise ValueError("a limit needs its condition")
    withheld: set[str] = set()
    for pattern in raw["withhold"]:
        if not (names := {name for name in CATALOGUE if fnmatchcase(name, pattern)}):
            raise ValueError(f"withhold: no signal is called {pattern!r}")
        withheld |= names
    return Limit(when, frozenset(withheld), *(" ".join(str(raw[key]).split()) for key in ("says", "next", "source")))

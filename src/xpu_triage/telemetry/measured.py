"""What a pure function of this package hands back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..signals import Signal


@dataclass(frozen=True)
class Measured:
    """Signals, and for those that this evidence should give and cannot: why."""

    signals: tuple[Signal, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Signal name to reason (`one reading is not a mean; sample for 30 s`)."""
    notes: tuple[str, ...] = ()
    """For the reader: what limits these figures."""


def joined(parts: Iterable[Measured]) -> Measured:
    """All of them; the first to give a signal comes first, and what one of them knows is not unknown."""
    parts = tuple(parts)
    signals = tuple(signal for part in parts for signal in part.signals)
    known = {signal.name for signal in signals}
    unknown = {name: why for part in reversed(parts) for name, why in part.unknown.items() if name not in known}
    return Measured(signals, unknown, tuple(dict.fromkeys(note for part in parts for note in part.notes)))

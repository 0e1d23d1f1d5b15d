"""Signals: named measurements and observed facts, each with unit, window and source. Missing is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .catalogue import CATALOGUE, SignalSpec

Value = float | int | bool | str

AGREE = 0.1
"""Share by which two measurements may differ and still agree. Judgement: means over other moments of one load."""

OF_THE_PIECE = frozenset(("step.count", "step.method"))
"""Signals that say what one piece of evidence holds, and differ from piece to piece."""


@dataclass(frozen=True)
class Signal:
    """One measurement or observation."""

    name: str
    value: Value
    how: str
    """How it was obtained: a kind of evidence (`trace`, `smi`, `metrics`, …) or `typed`."""
    window: str = ""
    """What it covers, in words: `12 whole steps, 58.7 s`."""
    source: str = ""
    """The piece of evidence it came from."""

    @property
    def spec(self) -> SignalSpec:
        return CATALOGUE[self.name]

    @property
    def unit(self) -> str:
        return self.spec.unit


@dataclass(frozen=True)
class Conflict:
    """Two pieces of evidence give one signal different values; `kept` is the one that is used."""

    kept: Signal
    other: Signal


class Signals(Mapping[str, Signal]):
    """Signals by name. Where two pieces of evidence give the same signal the first wins (callers put
    measured before typed) and a disagreement is kept in `conflicts`."""

    def __init__(self, signals: Iterable[Signal] = ()) -> None:
        self._by_name: dict[str, Signal] = {}
        self.conflicts: list[Conflict] = []
        for signal in signals:
            kept = self._by_name.setdefault(signal.name, signal)
            if kept is not signal and _disagree(kept, signal):
                self.conflicts.append(Conflict(kept, signal))

    def __getitem__(self, name: str) -> Signal:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def value(self, name: str) -> Value | None:
        """The value, or None where the signal is unknown."""
        signal = self._by_name.get(name)
        return None if signal is None else signal.value


def _disagree(kept: Signal, other: Signal) -> bool:
    """Whether two values of one signal are worth telling. What a person typed is held to the figure as it is shown;
    two measurements of different moments lie apart by some percent, and how many steps each saw is no disagreement."""
    if kept.value == other.value or kept.name in OF_THE_PIECE:
        return False
    if isinstance(kept.value, bool | str) or isinstance(other.value, bool | str) or "typed" in (kept.how, other.how):
        return True
    return abs(kept.value - other.value) > AGREE * max(abs(kept.value), abs(other.value))

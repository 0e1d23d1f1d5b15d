"""The signal catalogue: the only place where a signal's name gets its meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SignalSpec:
    name: str
    unit: str
    meaning: str
    evidence: tuple[str, ...]
    from_trace: bool
    """Always computed from a trace, and part of the JSON contract."""
    example: float | bool | str


CATALOGUE: dict[str, SignalSpec] = {}

"""The verdict: hypotheses ranked, with what speaks for and against each, and what to measure next."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    CONFIRMED = "confirmed"
    PROBABLE = "probable"
    NOT_ENOUGH = "not enough evidence"


@dataclass(frozen=True)
class Reason:
    """One rule held against the signals."""

    text: str
    """Ready to print: `idle.host_op_fraction 0.95 ≥ 0.15`, with the rule's own words."""
    signals: tuple[str, ...]
    weight: float
    numeric: bool
    source: str
    """Where the threshold comes from."""


@dataclass(frozen=True)
class Hypothesis:
    id: str
    title: str
    score: float
    share: float | None
    """Share of the step that it explains, where the signals tell."""
    for_: tuple[Reason, ...]
    against: tuple[Reason, ...]
    missing: tuple[str, ...]
    """Signals that would decide and are unknown."""
    confirmed_by: str = ""


@dataclass(frozen=True)
class RuledOut:
    id: str
    why: str


@dataclass(frozen=True)
class Contradiction:
    """Figures that cannot all be true of one load, with the arithmetic in `text`."""

    text: str
    signals: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    level: Level
    id: str | None
    """The fingerprint; None where the evidence is not enough."""
    title: str
    summary: str
    """One or two sentences: what it is, where, how much of the step."""
    next: str
    """The next measurement, or how to prove the fix."""
    hypotheses: tuple[Hypothesis, ...]
    """Highest score first; those with nothing for them are left out."""
    ruled_out: tuple[RuledOut, ...]
    """Look-alikes of the first hypothesis, and why they are not it."""
    contradictions: tuple[Contradiction, ...]
    fix: str
    verify: str

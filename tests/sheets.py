"""Signals as a person would type them, for tests of the rules."""

from __future__ import annotations

from xpu_triage import fingerprints
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.signals import Signal, Signals
from xpu_triage.units import value_of
from xpu_triage.verdict import Verdict, judge


def typed(figures: dict[str, object], source: str = "sheet.yaml") -> Signals:
    """`figures` by signal name, in the catalogue's units; None stands for unknown."""
    return Signals(Signal(name, value_of(CATALOGUE[name], raw), how="typed", source=source)
                   for name, raw in figures.items() if raw is not None)


def verdict_of(figures: dict[str, object]) -> Verdict:
    return judge(typed(figures), fingerprints.load())

"""What a reader of SMI output read, in a form that a test can write down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType

from xpu_triage.samples import Samples

READERS = ("nvidia_columns", "nvidia_query", "intel", "intel_stats", "ascend_usages", "kunlun_columns", "amd_json",
           "rocm_list")
"""Modules of `xpu_triage.evidence.smi` that read columns, pairs, CSV, JSON and XML."""

Values = list[float | None]


def values(samples: Samples, kind: str = "device") -> dict[tuple[str, str], Values]:
    """By device and quantity: all values in order, None for unknown."""
    return {(series.of, series.quantity): [None if math.isnan(value) else round(float(value), 6)
                                           for value in series.values]
            for series in samples.series if series.kind == kind}


def facts(samples: Samples, name: str, kind: str = "device") -> dict[str, list[str]]:
    """By device: what was said under this name."""
    found: dict[str, list[str]] = {}
    for fact in samples.facts:
        if (fact.kind, fact.name) == (kind, name):
            found.setdefault(fact.of, []).append(fact.value)
    return found


def times(samples: Samples, of: str, quantity: str) -> list[float]:
    series = next(one for one in samples.series if (one.of, one.quantity) == (of, quantity))
    return [round(float(time), 3) for time in series.times]


def text_of(samples: Samples) -> str:
    """Everything that is kept as text, for looking for what must not be in it."""
    parts = [samples.tool, *samples.notes]
    parts += [text for fact in samples.facts for text in (fact.of, fact.name, fact.value)]
    parts += [text for series in samples.series for text in (series.of, series.quantity, series.unit)]
    return "\n".join(parts)


def only(expected: ModuleType, head: str, modules: Mapping[str, ModuleType]) -> bool:
    """Whether this module, and none of the others, takes the text for its own."""
    return [module for module in modules.values() if module.matches(head)] == [expected]

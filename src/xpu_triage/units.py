"""Values in their units: what a person types becomes a value in its signal's own unit, or is refused.

Refused are another kind of unit, a fraction outside 0–1, a negative count, a latency of exactly 0, NaN, a
boolean where a number belongs. Nothing is guessed: 23 % is `23 %`, `{value: 23, unit: "%"}` or 0.23; a bare 23 is
an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from .catalogue import CATALOGUE, SignalSpec
from .text import clean, shorten

Value = float | int | bool | str

MAX_TEXT = 500

_KINDS: dict[str, dict[str, float]] = {
    "a time": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    "an amount of data": {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9,
                          "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "a bandwidth": {"MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "GBps": 1e9},
    "a fraction": {"fraction": 1.0, "%": 0.01},
}
_WRITTEN: dict[str, str] = {
    "tokens_per_s": "tokens/s", "requests_per_s": "requests/s", "events_per_s": "events/s", "us": "µs",
    "GBps": "GB/s",
}
"""How a unit is printed, where that is not its name."""

_FIGURE = "a figure with a unit is written like 4.89 s, or {value: …, unit: …}"
_TYPED = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d.,][^\s]{0,15})\s*")
"""A figure with its unit, as one writes it down: `3 %`, `4.89 s`, `41ms`."""

_BARE = {"fraction", "ratio", "number", "count", "bool", "text"}


def value_of(spec: SignalSpec, raw: Any) -> Value:
    """`raw` (a plain value, one with its unit such as `3 %`, or a mapping with `value` and `unit`) as a value in the
    unit of `spec`.

    Raises `ValueError` whose message says what is wrong and what is wanted, without the signal's name.
    """
    if isinstance(raw, str) and spec.unit not in ("text", "bool") and (typed := _TYPED.fullmatch(raw)):
        raw = {"value": float(typed[1]), "unit": typed[2]}
    if isinstance(raw, Mapping):
        if unexpected := [key for key in raw if key not in ("value", "unit")]:
            raise ValueError(f"{_quoted(unexpected[0])} is not known here; {_FIGURE}")
        if raw.get("value") is None or not isinstance(raw.get("unit"), str):
            raise ValueError(_FIGURE)
        factor = _factor(spec.unit, raw["unit"])
        raw = raw["value"]
    else:
        factor = 1.0
    if spec.unit == "text":
        return _text(raw)
    if spec.unit == "bool":
        if not isinstance(raw, bool):
            raise ValueError(f"{_quoted(raw)} is not true or false")
        return raw
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError(f"{_quoted(raw)} is not a number{_wanted(spec.unit)}")
    value = raw if factor == 1.0 else raw * factor
    if problem := _out_of_range(spec, float(value)):
        raise ValueError(f"{_quoted(raw)} {problem}")
    return value


def nearest(name: str) -> str:
    """The catalogue's name nearest to `name`, or an empty string."""
    found = get_close_matches(name, CATALOGUE, n=1, cutoff=0.6)
    if found:
        return found[0]
    tail = name.rpartition(".")[2]
    tails = {known.partition(".")[2]: known for known in reversed(CATALOGUE)}
    found = get_close_matches(tail, tails, n=1, cutoff=0.75)
    return tails[found[0]] if found else ""


def show(value: Value, unit: str) -> str:
    """`value` with its unit, as a person reads it: `0.95`, `41 ms`, `3,202 tokens/s`, `yes`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(shorten(value, 80))
    return figure(value) + ("" if unit in _BARE else f" {_WRITTEN.get(unit, unit)}")


def figure(value: float) -> str:
    """`value` with three significant digits, all of them from 1,000 up, no exponent unless it is tiny."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 0.001:
        return f"{value:.2g}"
    text = f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"
    return text.removesuffix(".0")


def _factor(wanted: str, given: str) -> float:
    if given in (wanted, _WRITTEN.get(wanted)):
        return 1.0
    for kind, units in _KINDS.items():
        if wanted in units:
            if given in units:
                return units[given] / units[wanted]
            raise ValueError(f"unit {_quoted(given)} is not {kind}; use one of {', '.join(units)}")
    raise ValueError(f"unit {_quoted(given)} does not fit; this is in {_WRITTEN.get(wanted, wanted)}")


def _out_of_range(spec: SignalSpec, value: float) -> str:
    """What is wrong with a number, in words; empty where nothing is."""
    if not math.isfinite(value):
        return "is not a finite number"
    if spec.unit == "fraction" and not 0 <= value <= 1:
        return "is not a fraction between 0 and 1 (23 % is written 23 % or 0.23)"
    if spec.unit != "number" and value < 0:
        return "is negative"
    if spec.group == "latency" and value == 0:
        return "is no valid latency: nothing takes exactly 0 (leave it out where it is unknown)"
    return ""


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{_quoted(raw)} is not text (put it in quotes)")
    if not raw.strip():
        raise ValueError("the text is empty: leave it out where it is unknown; none means that there is none")
    if len(raw) > MAX_TEXT:
        raise ValueError(f"the text has {len(raw):,} characters, more than {MAX_TEXT}")
    return raw.strip()


def _wanted(unit: str) -> str:
    return "" if unit in _BARE else f" in {_WRITTEN.get(unit, unit)}"


def _quoted(raw: Any) -> str:
    return clean(shorten(repr(raw), 60))

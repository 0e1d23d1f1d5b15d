"""One rule: a signal held against a threshold, with what it is worth and where the threshold comes from.

A rule is written in the front matter of a page of the playbook:

    signal: kernel.per_step * host.launch_us / 1000 / step.wall_ms
    comparison: ">="
    threshold: 0.5
    weight: 3
    given: unless(device.busy_fraction >= 0.8)
    says: launching alone takes half of the step
    source: "judgement: below half of the step something else paces it"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import expressions
from .catalogue import CATALOGUE
from .expressions import BadExpression, Expression, Readings, Value, Values
from .units import figure, show

MAX_WEIGHT = 12.0
_KEYS = {"signal", "comparison", "threshold", "weight", "given", "says", "source", "decisive"}
_PLACE = re.compile(r"\{([\w.]+(?:\|[\w.]+)*)\|([^{}|]*)\}")
_FIRST = re.compile(r"first\(([^()]*)\)")
_SYMBOLS = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠"}


@dataclass(frozen=True, eq=False)
class Rule:
    signal: Expression
    comparison: str
    threshold: Value | tuple[str, ...]
    """A number, a boolean, or texts of which one must be contained."""
    weight: Expression
    """What the rule is worth. 1: fits, and fits other faults too. 2: strong. 3: nearly settles it. A measured share of
    the step is worth ten times the share, so that shares rank themselves."""
    given: Expression | None
    """Where this is not known to hold, the rule says nothing."""
    says: str
    """Words for the reader. `{kernel.top_name|one kernel}` stands for the text of that signal, or for the words; of
    several signals before the words the first that is known counts."""
    source: str
    decisive: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Every signal that the rule reads."""
        given = self.given.names if self.given else ()
        return tuple(dict.fromkeys((*self.signal.names, *given, *self.weight.names)))

    @property
    def told(self) -> tuple[str, ...]:
        """Every signal whose text it tells."""
        return _named(self.says)

    def holds(self, values: Values) -> bool | None:
        """Whether it holds; None where it is unknown or does not apply."""
        if not self._applies(values):
            return None
        value = self.signal.evaluate(values)
        if value is None:
            return None
        if isinstance(self.threshold, tuple):
            found = any(expressions.contains(str(value), text) for text in self.threshold)
            return found if self.comparison == "contains" else not found
        return expressions.COMPARISONS[self.comparison](value, self.threshold)

    def _applies(self, values: Values) -> bool:
        """Whether `given` is known to hold. What a limit withholds is neither known nor unmeasured, so that a rule on
        the same evidence applies only where it would either way: what stands in for a figure that nobody took does not
        stand in for one that cannot be believed. Other evidence stands in for both."""
        if self.given is None:
            return True
        if self.given.evaluate(values) is not True:
            return False
        other = values.other_answer(self.signal.names) if isinstance(values, Readings) else None
        return other is None or self.given.evaluate(other) is True

    def worth(self, values: Values) -> float:
        """The weight, 0 where an expression for it is unknown."""
        value = self.weight.evaluate(values)
        return 0.0 if value is None else min(max(float(value), 0.0), MAX_WEIGHT)

    def numeric(self, values: Values) -> bool:
        """Whether a measured number stands behind it: a figure that is not 0. A text, a yes or a lone zero is none."""
        return self.signal.kind == "number" and any(
            CATALOGUE[name].unit not in ("text", "bool") and values.get(name, 0) != 0 for name in self.signal.names)

    def words(self, values: Values) -> str:
        """What it says, with the texts of the signals in place."""
        def known(match: re.Match[str]) -> str:
            return next((show(values[name], "text") for name in match[1].split("|") if name in values), match[2])

        return _PLACE.sub(known, self.says)

    def text(self, values: Values) -> str:
        """The rule with its values, ready to print: `idle.host_op_fraction 0.95 ≥ 0.15: the host …`."""
        symbol = _SYMBOLS.get(self.comparison, self.comparison)
        given = [n for n in self.given.names if n in values and n not in self.signal.names] if self.given else []
        beside = ", ".join(f"{name} {show(values[name], CATALOGUE[name].unit)}" for name in given[:3])
        spelled = _spelled(self.signal.text, values)
        if isinstance(self.threshold, tuple):
            left = f'{spelled} is "{show(self.signal.evaluate(values) or "", "text")}"'
        elif spelled in CATALOGUE:
            unit = CATALOGUE[spelled].unit
            left = f"{spelled} {show(values[spelled], unit)}"
            if unit != "bool":
                left += f" {symbol} {show(self.threshold, unit)}"
        else:
            value = figure(float(self.signal.evaluate(values) or 0.0))
            parts = ", ".join(f"{name} {show(values[name], CATALOGUE[name].unit)}"
                              for name in self.signal.names if name in values and name in spelled)
            left = f"{spelled} = {value} {symbol} {show(self.threshold, 'number')} ({parts})"
        return f"{left}{f' (with {beside})' if beside else ''}: {self.words(values)}"


def from_page(raw: Any) -> Rule:
    """A rule from its mapping on a page. Raises `ValueError` that says what is wrong."""
    if not isinstance(raw, Mapping):
        raise ValueError("a rule is a mapping")
    if unexpected := set(raw) - _KEYS:
        raise ValueError(f"{sorted(unexpected)[0]!r} is not a part of a rule")
    for key in ("signal", "comparison", "threshold", "weight", "source", "says"):
        if raw.get(key) in (None, ""):
            raise ValueError(f"a rule needs its {key} ({raw.get('signal', 'no signal')})")
    signal = expressions.parse(str(raw["signal"]))
    weight = expressions.parse(str(raw["weight"]))
    if weight.kind != "number":
        raise BadExpression(f"{weight.text!r} is no weight")
    for name in _named(str(raw["says"])):
        if name not in CATALOGUE or CATALOGUE[name].unit != "text":
            raise ValueError(f"says: {name!r} is not a signal with a text")
    return Rule(signal, raw["comparison"], _threshold(signal, raw["comparison"], raw["threshold"]), weight,
                condition(raw.get("given")), str(raw["says"]), str(raw["source"]), bool(raw.get("decisive", False)))


def _named(says: str) -> tuple[str, ...]:
    """The signals whose texts stand in the words.

    >>> _named("in {idle.host_op|something}, by {kernel.top_compute_name|kernel.top_name|one kernel}")
    ('idle.host_op', 'kernel.top_compute_name', 'kernel.top_name')
    """
    return tuple(name for names, _ in _PLACE.findall(says) for name in names.split("|"))


def condition(raw: Any) -> Expression | None:
    """A condition, written as one expression or a list of them that must all hold; None where there is none."""
    if raw is None:
        return None
    text = " and ".join(f"({part})" for part in raw) if isinstance(raw, list) else str(raw)
    parsed = expressions.parse(text)
    if parsed.kind != "bool":
        raise BadExpression(f"{text!r} is no condition")
    return parsed


def _threshold(signal: Expression, comparison: str, raw: Any) -> Value | tuple[str, ...]:
    if signal.kind == "text":
        texts = tuple(raw) if isinstance(raw, list) else (raw,)
        if comparison not in ("contains", "lacks") or not all(isinstance(t, str) and t for t in texts):
            raise ValueError(f"{signal.text}: text is compared by contains or lacks, with texts")
        return texts
    if comparison not in expressions.COMPARISONS:
        raise ValueError(f"{signal.text}: {comparison!r} is not a comparison for a {signal.kind}")
    if isinstance(raw, bool) is not (signal.kind == "bool") or not isinstance(raw, bool | int | float):
        raise ValueError(f"{signal.text}: threshold {raw!r} is not a {signal.kind}")
    return raw


def _spelled(expression: str, values: Values) -> str:
    """The expression as arithmetic is written; of alternatives the first that is known."""
    def known(match: re.Match[str]) -> str:
        alternatives = match[1].split(", ")
        return next((a for a in alternatives if expressions.parse(a).evaluate(values) is not None), match[1])

    return _FIRST.sub(known, expression).replace(" * ", " × ").replace(" / ", " ÷ ")

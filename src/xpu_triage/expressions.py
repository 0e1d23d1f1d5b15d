"""Expressions over signals, as the rules of the playbook write them, with three-valued logic.

    latency.itl_ms / latency.engine_itl_ms
    device.busy_fraction < 0.8 and not contains(process.busiest_name, "worker")
    saved(ab.graph_ratio) >= 0.1

A signal that is not there is *unknown*, and unknown propagates: through arithmetic, comparisons and division
by zero (0 ÷ 0 measures nothing). `and`, `or` and `not` are Kleene's: `false and unknown` is false, `true or
unknown` is true. Functions:

    known(x, …)       whether all are known; never unknown itself. Of a signal that a limit withholds a rule about the
                      same evidence must hold with either answer (`Readings`)
    unless(c)         true where c is false *or unknown*
    first(x, y, …)    the first that is known
    when(c, x)        x where c is true, else unknown
    min(…), max(…)    unknown where any part is
    contains(t, "…")  whether the text holds one of the words, without case
    saved(ab.x)       share of the time that the change saves, 1 − ratio; unknown inside the spread of repeats
    at_most(ab.x)     the most it may save: 1 − ratio + spread. What refutes a cause is a small at_most
    cost(ab.x)        ratio − 1, unknown inside the spread

Only this is parsed, with names of the catalogue, numbers, quoted text, `true`, `false`, `+ - * /` and
comparisons. Nothing is ever executed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .catalogue import CATALOGUE

Value = float | int | bool | str
Values = Mapping[str, Value]
Evaluate = Callable[[Values], Value | None]


class Readings(dict[str, Value]):
    """Signal values without those that a limit of their evidence withholds, and which these are: a withheld figure was
    measured, and is none that nobody looked for."""

    def __init__(self, values: Values, withheld: Mapping[str, str], evidence: Mapping[str, str],
                 assumed: frozenset[str] = frozenset()) -> None:
        super().__init__(values)
        self.withheld, self.evidence = withheld, evidence
        """The piece of evidence of each withheld signal, and of each one that is there."""
        self.assumed = assumed
        """Withheld signals that `known(…)` takes to be there."""

    def other_answer(self, names: Iterable[str]) -> Readings | None:
        """The same, with what is withheld from the evidence of `names` taken to be known; None where nothing is."""
        of = {self.evidence[name] for name in names if name in self.evidence and name in self}
        assumed = frozenset(name for name, evidence in self.withheld.items() if evidence in of)
        return Readings(self, self.withheld, self.evidence, assumed) if assumed else None


def replaced(values: Values, name: str, value: Value | None) -> Values:
    """The same values with another one for `name`; without it where that is None."""
    others = {known: old for known, old in values.items() if known != name}
    changed = others if value is None else {**others, name: value}
    return Readings(changed, values.withheld, values.evidence) if isinstance(values, Readings) else changed


SPREAD = "ab.spread_fraction"
DEFAULT_BAND = 0.03
"""Spread of an A/B comparison whose repeats nobody gave. Judgement: repeats of serving benchmarks lie
1–3 % apart as a rule."""

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
    "==": operator.eq, "!=": operator.ne,
}
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!=",
}


class BadExpression(ValueError):
    """An expression that a page may not contain; the message says what."""


@dataclass(frozen=True, eq=False)
class Expression:
    text: str
    kind: str
    """`number`, `bool` or `text`."""
    names: tuple[str, ...]
    """The signals that it reads, in the order of reading, `known(…)` included."""
    evaluate: Evaluate
    """From signal values to a value; None where it is unknown."""


@dataclass(frozen=True, eq=False)
class _Part:
    kind: str
    evaluate: Evaluate


_Make = Callable[[ast.Call, dict[str, None]], _Part]


@cache
def parse(text: str) -> Expression:
    """Parse and check `text`. Raises `BadExpression`: an unknown name or function, text in arithmetic, …"""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        raise BadExpression(f"{text!r} is not an expression") from None
    names: dict[str, None] = {}
    part = _part(tree.body, names)
    return Expression(text.strip(), part.kind, tuple(names), part.evaluate)


def contains(value: str, needle: str) -> bool:
    """Text is compared without case, by "contains"."""
    return needle.casefold() in value.casefold()


def _part(node: ast.expr, names: dict[str, None]) -> _Part:
    if isinstance(node, ast.Constant):
        return _constant(node)
    if isinstance(node, ast.Attribute | ast.Name):
        return _name(node, names)
    if isinstance(node, ast.UnaryOp):
        return _unary(node, names)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, names)
    if isinstance(node, ast.BoolOp):
        return _boolean(node, names)
    if isinstance(node, ast.Compare):
        return _comparison(node, names)
    if isinstance(node, ast.Call):
        return _call(node, names)
    raise BadExpression(f"{ast.unparse(node)!r} is not allowed in an expression")


def _constant(node: ast.Constant) -> _Part:
    value = node.value
    if isinstance(value, bool | str):
        return _Part("bool" if isinstance(value, bool) else "text", lambda _: value)
    if isinstance(value, int | float):
        return _Part("number", lambda _: value)
    raise BadExpression(f"{value!r} is not allowed in an expression")


def _name(node: ast.expr, names: dict[str, None]) -> _Part:
    name = _dotted(node)
    if name in ("true", "false"):
        return _Part("bool", lambda _: name == "true")
    spec = CATALOGUE.get(name)
    if spec is None:
        raise BadExpression(f"{name!r} is not a signal")
    names[name] = None
    return _Part(spec.unit if spec.unit in ("bool", "text") else "number", lambda values: values.get(name))


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ast.unparse(node)  # no name of a signal: shown in the refusal


def _unary(node: ast.UnaryOp, names: dict[str, None]) -> _Part:
    part = _part(node.operand, names)
    of = part.evaluate
    if isinstance(node.op, ast.Not):
        _expect(part, "bool", node)
        return _Part("bool", lambda values: None if (value := of(values)) is None else not value)
    if isinstance(node.op, ast.USub):
        _expect(part, "number", node)
        return _Part("number", lambda values: None if (value := of(values)) is None else -value)  # type: ignore[operator]
    raise BadExpression(f"{ast.unparse(node)!r} is not allowed in an expression")


def _arithmetic(node: ast.BinOp, names: dict[str, None]) -> _Part:
    apply = _ARITHMETIC.get(type(node.op))
    if apply is None:
        raise BadExpression(f"{ast.unparse(node)!r} is not allowed in an expression")
    left, right = _part(node.left, names), _part(node.right, names)
    _expect(left, "number", node)
    _expect(right, "number", node)

    def evaluate(values: Values) -> Value | None:
        a, b = left.evaluate(values), right.evaluate(values)
        if a is None or b is None:
            return None
        try:
            result: float = apply(a, b)
        except (ZeroDivisionError, OverflowError):
            return None
        return result if math.isfinite(result) else None

    return _Part("number", evaluate)


def _boolean(node: ast.BoolOp, names: dict[str, None]) -> _Part:
    parts = [_part(value, names) for value in node.values]
    for part in parts:
        _expect(part, "bool", node)
    settles = isinstance(node.op, ast.Or)  # one true settles an `or`, one false settles an `and`

    def evaluate(values: Values) -> Value | None:
        found = [part.evaluate(values) for part in parts]
        if settles in found:
            return settles
        return None if None in found else not settles

    return _Part("bool", evaluate)


def _comparison(node: ast.Compare, names: dict[str, None]) -> _Part:
    if len(node.ops) != 1 or type(node.ops[0]) not in _SYMBOLS:
        raise BadExpression(f"{ast.unparse(node)!r}: one comparison at a time, of {', '.join(COMPARISONS)}")
    holds = COMPARISONS[_SYMBOLS[type(node.ops[0])]]
    left, right = _part(node.left, names), _part(node.comparators[0], names)
    if "text" in (left.kind, right.kind):
        raise BadExpression(f"{ast.unparse(node)!r}: text is compared with contains(name, \"…\")")
    if left.kind != right.kind:
        raise BadExpression(f"{ast.unparse(node)!r} compares a {left.kind} with a {right.kind}")

    def evaluate(values: Values) -> Value | None:
        a, b = left.evaluate(values), right.evaluate(values)
        return None if a is None or b is None else holds(a, b)

    return _Part("bool", evaluate)


def _call(node: ast.Call, names: dict[str, None]) -> _Part:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    make = _FUNCTIONS.get(name)
    if make is None or node.keywords or not node.args:
        raise BadExpression(f"{ast.unparse(node)!r} is no function here; there are {', '.join(_FUNCTIONS)}")
    return make(node, names)


def _known(node: ast.Call, names: dict[str, None]) -> _Part:
    parts = []
    for argument in node.args:
        reads: dict[str, None] = {}
        parts.append((_part(argument, reads), frozenset(reads)))
        names.update(reads)

    def evaluate(values: Values) -> Value | None:
        assumed = values.assumed if isinstance(values, Readings) else frozenset()
        return all(part.evaluate(values) is not None or assumed & reads for part, reads in parts)

    return _Part("bool", evaluate)


def _unless(node: ast.Call, names: dict[str, None]) -> _Part:
    if len(node.args) != 1:
        raise BadExpression(f"{ast.unparse(node)!r}: unless takes one condition")
    part = _part(node.args[0], names)
    _expect(part, "bool", node)
    return _Part("bool", lambda values: part.evaluate(values) is not True)


def _when(node: ast.Call, names: dict[str, None]) -> _Part:
    if len(node.args) != 2:
        raise BadExpression(f"{ast.unparse(node)!r}: when takes a condition and a number")
    condition, part = (_part(argument, names) for argument in node.args)
    _expect(condition, "bool", node)
    _expect(part, "number", node)
    return _Part("number", lambda values: part.evaluate(values) if condition.evaluate(values) is True else None)


def _contains(node: ast.Call, names: dict[str, None]) -> _Part:
    subject, *needles = node.args
    part = _part(subject, names)
    texts = [n.value for n in needles if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value]
    if part.kind != "text" or not texts or len(texts) != len(needles):
        raise BadExpression(f"{ast.unparse(node)!r}: contains takes a text signal and quoted texts")

    def evaluate(values: Values) -> Value | None:
        value = part.evaluate(values)
        return None if value is None else any(contains(str(value), text) for text in texts)

    return _Part("bool", evaluate)


def _extreme(pick: Callable[[list[Any]], Any]) -> _Make:
    """`max` and `min`: unknown where any part is."""

    def make(node: ast.Call, names: dict[str, None]) -> _Part:
        parts = [_part(argument, names) for argument in node.args]
        for part in parts:
            _expect(part, "number", node)

        def evaluate(values: Values) -> Value | None:
            found = [part.evaluate(values) for part in parts]
            return None if None in found else pick(found)

        return _Part("number", evaluate)

    return make


def _first(node: ast.Call, names: dict[str, None]) -> _Part:
    parts = [_part(argument, names) for argument in node.args]
    for part in parts:
        _expect(part, "number", node)

    def evaluate(values: Values) -> Value | None:
        return next((value for part in parts if (value := part.evaluate(values)) is not None), None)

    return _Part("number", evaluate)


def _controlled(figure: Callable[[float, float], float | None]) -> _Make:
    """A function of one A/B ratio and the spread between repeats."""

    def make(node: ast.Call, names: dict[str, None]) -> _Part:
        ratio = _dotted(node.args[0])
        if len(node.args) != 1 or not ratio.startswith("ab.") or not ratio.endswith("_ratio"):
            raise BadExpression(f"{ast.unparse(node)!r}: it takes one ab.*_ratio")
        part = _part(node.args[0], names)

        def evaluate(values: Values) -> Value | None:
            value = part.evaluate(values)
            if value is None or value == 0:  # nothing takes no time at all: a ratio of 0 was not measured
                return None
            return figure(float(value), float(values.get(SPREAD, DEFAULT_BAND)))

        return _Part("number", evaluate)

    return make


_FUNCTIONS: dict[str, _Make] = {
    "known": _known, "unless": _unless, "first": _first, "min": _extreme(min), "max": _extreme(max),
    "contains": _contains, "when": _when,
    "saved": _controlled(lambda ratio, spread: None if abs(ratio - 1) <= spread else 1 - ratio),
    "at_most": _controlled(lambda ratio, spread: 1 - ratio + spread),
    "cost": _controlled(lambda ratio, spread: None if abs(ratio - 1) <= spread else ratio - 1),
}


def _expect(part: _Part, kind: str, node: ast.expr) -> None:
    if part.kind != kind:
        raise BadExpression(f"{ast.unparse(node)!r}: a {part.kind} where a {kind} is wanted")

"""Fingerprints: the known failures. Each is one page of the playbook, and its front matter is the rule.

The page that people read and the rule that runs are the same file, so that they cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from . import expressions, plain_yaml, rules, shares
from .errors import TriageError
from .expressions import BadExpression, Expression, Values
from .resources import shipped
from .rules import Rule
from .steps.results import Cause

STEPS = ("utilization", "step time", "operator bisection")
ABOUTS = frozenset({*map(str, Cause), "compute", "copy", "comm", "host"})
_KEYS = frozenset({"id", "title", "step", "look_alikes", "needs", "share", "finding", "for", "against", "confirm",
                   "fix", "verify"})


@dataclass(frozen=True, eq=False)
class Confirm:
    """The one measurement that settles it."""

    measure: str
    """What to do, in words."""
    any_of: tuple[Rule, ...]
    """It is confirmed where one of these holds."""
    before: tuple[tuple[Expression, str], ...] = ()
    """What to settle before it, each where its condition is known to hold: a cause that was seen inside this one."""

    def first(self, values: Values) -> str:
        """The first of `before` that applies; empty where none does."""
        return next((measure for when, measure in self.before if when.evaluate(values) is True), "")


@dataclass(frozen=True, eq=False)
class Fingerprint:
    id: str
    title: str
    step: str
    """The step of the walk in which it shows first: one of `STEPS`."""
    look_alikes: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]
    """Signals without which no verdict; of each group one is enough."""
    share: tuple[Expression, ...]
    """The share of the time that it explains: the first that is known."""
    finding: tuple[str, ...]
    """The parts of a bisection that it points to, as `Finding.about` names them."""
    for_: tuple[Rule, ...]
    against: tuple[Rule, ...]
    confirm: Confirm
    fix: str
    verify: str
    path: Path

    @cached_property
    def body(self) -> str:
        """The page without its front matter, as Markdown."""
        return split(self.path.read_text(encoding="utf-8"), self.path)[1]

    @property
    def names(self) -> frozenset[str]:
        """Every signal that the page reads."""
        rules_ = (*self.for_, *self.against, *self.confirm.any_of)
        read = [name for rule in rules_ for name in (*rule.names, *rule.told)]
        read += [name for when, _ in self.confirm.before for name in when.names]
        return frozenset((*read, *(name for group in self.needs for name in group),
                          *(name for expression in self.share for name in expression.names)))

    def share_of(self, values: Values) -> float | None:
        """Share that it explains, between 0 and 1, of what `whole_of` names; None where the signals do not tell."""
        expression = self._known_share(values)
        value = None if expression is None else expression.evaluate(values)
        return None if value is None else min(max(float(value), 0.0), 1.0)

    def whole_of(self, values: Values) -> str:
        """What `share_of` is a share of, in words: `the step`; empty where there is none."""
        expression = self._known_share(values)
        return "" if expression is None else shares.whole_of(expression, values)

    def _known_share(self, values: Values) -> Expression | None:
        return next((expression for expression in self.share if expression.evaluate(values) is not None), None)


@cache
def load(folder: Path | None = None) -> tuple[Fingerprint, ...]:
    """All pages of `folder` (by default those that ship), by name. Raises `TriageError` for a page with a mistake."""
    folder = folder or shipped("playbook") / "fingerprints"
    pages = tuple(read(path) for path in sorted(folder.glob("*.md")))
    known = {page.id for page in pages}
    for page in pages:
        if unknown := [other for other in page.look_alikes if other not in known or other == page.id]:
            raise TriageError(f"look_alikes: there is no page {unknown[0]!r}", where=page.path)
    return pages


def read(path: Path) -> Fingerprint:
    """One page."""
    head, _ = split(path.read_text(encoding="utf-8"), path)
    try:
        raw = plain_yaml.load(head, first_line=2)
        return _fingerprint(raw, path)
    except (plain_yaml.BadYaml, BadExpression, ValueError) as error:
        raise TriageError(f"front matter: {error}", where=path) from None


def split(text: str, path: Path) -> tuple[str, str]:
    """Front matter and body of a page."""
    if not text.startswith("---\n") or (end := text.find("\n---\n", 3)) < 0:
        raise TriageError("no front matter between two lines of ---", where=path)
    return text[4:end + 1], text[end + 5:].lstrip("\n")


def _fingerprint(raw: Any, path: Path) -> Fingerprint:
    if not isinstance(raw, dict):
        raise ValueError("not a mapping")
    if missing := _KEYS - set(raw):
        raise ValueError(f"{sorted(missing)[0]!r} is missing")
    if unexpected := set(raw) - _KEYS:
        raise ValueError(f"{sorted(unexpected)[0]!r} is not known")
    if raw["id"] != path.stem:
        raise ValueError(f"id {raw['id']!r} is not the file's name")
    if raw["step"] not in STEPS:
        raise ValueError(f"step {raw['step']!r} is none of {', '.join(STEPS)}")
    finding = _texts(raw, "finding")
    if unknown := [about for about in finding if about not in ABOUTS]:
        raise ValueError(f"finding {unknown[0]!r} is none of {', '.join(sorted(ABOUTS))}")
    return Fingerprint(
        id=raw["id"], title=_text(raw, "title"), step=raw["step"], look_alikes=_texts(raw, "look_alikes"),
        needs=tuple(_alternatives(need) for need in _texts(raw, "needs")),
        share=tuple(_number(share) for share in _texts(raw, "share")), finding=finding,
        for_=_rules(raw, "for"), against=_rules(raw, "against"), confirm=_confirm(raw["confirm"]),
        fix=_text(raw, "fix"), verify=_text(raw, "verify"), path=path)


def _rules(raw: Mapping[str, Any], key: str) -> tuple[Rule, ...]:
    items = raw[key]
    if not isinstance(items, list) or not items:
        raise ValueError(f"{key!r} is not a list of rules")
    try:
        return tuple(rules.from_page(item) for item in items)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _confirm(raw: Any) -> Confirm:
    if not isinstance(raw, Mapping) or set(raw) - {"before"} != {"measure", "any_of"}:
        raise ValueError("confirm has two parts, measure and any_of, and may have a third, before")
    return Confirm(_text(raw, "measure"), _rules(raw, "any_of"), tuple(map(_before, raw.get("before", ()))))


def _before(raw: Any) -> tuple[Expression, str]:
    if not isinstance(raw, Mapping) or set(raw) != {"when", "measure"}:
        raise ValueError("what comes before has two parts, when and measure")
    if (when := rules.condition(raw["when"])) is None:
        raise ValueError("what comes before needs its condition")
    return when, _text(raw, "measure")


def _alternatives(need: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in need.split("|"))
    for name in names:
        expressions.parse(name)
    return names


def _number(text: str) -> Expression:
    parsed = expressions.parse(text)
    if parsed.kind != "number":
        raise BadExpression(f"share {text!r} is not a number")
    return parsed


def _text(raw: Mapping[str, Any], key: str) -> str:
    if not isinstance(raw[key], str) or not raw[key].strip():
        raise ValueError(f"{key!r} is not text")
    return " ".join(str(raw[key]).split())


def _texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    items: Sequence[Any] = raw[key] if isinstance(raw[key], list) else [raw[key]]
    if not all(isinstance(item, str) and item for item in items):
        raise ValueError(f"{key!r} is not a list of texts")
    return tuple(items)

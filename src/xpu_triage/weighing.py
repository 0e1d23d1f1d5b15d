"""One fingerprint held against the signals: what speaks for it, what against, what is missing, what it scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .expressions import Values
from .fingerprints import Fingerprint
from .rules import Rule

PROBABLE_SCORE = 2.0
"""What the rules for a hypothesis, less those against it, must reach: one strong rule, or two that fit."""
MARGIN = 0.5
"""How far behind the next hypothesis must lie: in a trace, 5 % of the window."""
MISSING = 5
"""How many missing signals of one hypothesis are named."""


@dataclass(frozen=True, eq=False)
class Weighed:
    """A page with the rules that hold. `values` are the signals that it was held against."""

    page: Fingerprint
    values: Values
    for_: tuple[Rule, ...]
    against: tuple[Rule, ...]
    refuted_by: Rule | None
    """A decisive rule against it that holds."""
    confirmed_by: Rule | None
    score: float
    numeric: bool
    """At least one number that is not 0 speaks for it."""
    needs_met: bool

    @property
    def share(self) -> float | None:
        return self.page.share_of(self.values)

    @property
    def whole(self) -> str:
        """What the share is a share of: `the step`; empty where there is none."""
        return self.page.whole_of(self.values)

    @property
    def reads(self) -> frozenset[str]:
        """The signals of the rules for it that hold."""
        return frozenset(name for rule in self.for_ for name in rule.names if name in self.values)

    @property
    def missing(self) -> tuple[str, ...]:
        """Unknown signals that would decide: those that it needs, those that settle it, then by weight."""
        names: dict[str, None] = {}
        if not self.needs_met:
            names.update((name, None) for need in self.page.needs for name in need)
        rules = sorted((*self.page.for_, *self.page.against), key=lambda rule: -rule.worth(self.values))
        for rule in (*self.page.confirm.any_of, *rules):
            if rule.holds(self.values) is None and rule.signal.evaluate(self.values) is None:
                names.update((name, None) for name in rule.signal.names if name not in self.values)
        return tuple(names)[:MISSING]


def weigh(page: Fingerprint, values: Values) -> Weighed:
    """Hold one page against the values. A refuted hypothesis scores 0 at most."""
    for_ = _holding(page.for_, values)
    against = _holding(page.against, values)
    refuted = next((rule for rule in against if rule.decisive), None)
    settling = () if refuted else _holding(page.confirm.any_of, values)
    confirmed = next((rule for rule in settling if rule.numeric(values)), None)
    score = sum(rule.worth(values) for rule in for_) - sum(rule.worth(values) for rule in against)
    if confirmed is not None:
        score += confirmed.worth(values)
    return Weighed(
        page, values, for_, against, refuted, confirmed, min(score, 0.0) if refuted else score,
        any(rule.numeric(values) for rule in for_),
        all(any(name in values for name in need) for need in page.needs))


def ranked(pages: Iterable[Fingerprint], values: Values) -> list[Weighed]:
    """All pages with something for them, refuted ones last, then highest score, largest share, name."""
    found = [weighed for page in pages if (weighed := weigh(page, values)).for_]
    return sorted(found, key=lambda w: (w.refuted_by is not None, -round(w.score, 6), -(w.share or 0.0), w.page.id))


def stands_out(found: Sequence[Weighed]) -> bool:
    """Whether the first of the ranked hypotheses can be called: confirmed, or well supported by a number with nothing
    else close behind."""
    if not found or found[0].refuted_by is not None or not found[0].needs_met:
        return False
    first = found[0]
    if first.confirmed_by is not None:
        return True
    return first.numeric and first.score >= PROBABLE_SCORE and not rivals(found)


def rivals(found: Sequence[Weighed]) -> tuple[Weighed, ...]:
    """Hypotheses that are about as well supported as the first."""
    return tuple(w for w in found[1:] if w.refuted_by is None and w.score > max(0.0, found[0].score - MARGIN))


def _holding(rules: Iterable[Rule], values: Values) -> tuple[Rule, ...]:
    holding = [rule for rule in rules if rule.holds(values)]
    return tuple(sorted(holding, key=lambda rule: -rule.worth(values)))

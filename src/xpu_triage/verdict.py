"""The verdict: hypotheses ranked, with what speaks for and against each, and what to measure next.

*Confirmed*: the measurement that the page names as settling it is there and says so. *Probable*: at least one
number speaks for it, nothing decisive against, and nothing else is as well supported. Otherwise *not enough
evidence*, with the next measurement: a good answer, where a confident wrong one is the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from . import limits as limits_page
from .advice import next_measurement
from .expressions import Values
from .fingerprints import Fingerprint
from .limits import Limit
from .rules import Rule
from .signals import Signals
from .weighing import PROBABLE_SCORE, Weighed, ranked, rivals, stands_out

NOTHING_SPEAKS = "nothing that was measured speaks for it"


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


def judge(
    signals: Signals, pages: Sequence[Fingerprint], contradictions: Sequence[Contradiction] = ()
) -> Verdict:
    """Hold every page against the signals and say what it is, how sure, and what to do next."""
    values, applied = limits_page.applied(signals, limits_page.load())
    found = ranked(pages, values)
    if not stands_out(found):
        level, id_, title, fix, verify = Level.NOT_ENOUGH, None, "Not enough evidence to name a cause", "", ""
        summary = _why_not(found, applied)
        next_ = " ".join(limit.next for limit in applied) or next_measurement(found, values)
    else:
        page = found[0].page
        level = Level.CONFIRMED if found[0].confirmed_by else Level.PROBABLE
        id_, title, fix, verify = page.id, page.title, page.fix, page.verify
        summary = _what(found, applied)
        next_ = page.verify if found[0].confirmed_by else page.confirm.measure
    return Verdict(level, id_, title, summary, next_, tuple(_hypothesis(weighed) for weighed in found),
                   _ruled_out(found, pages, values), tuple(contradictions), fix, verify)


def _hypothesis(weighed: Weighed) -> Hypothesis:
    page, confirmed = weighed.page, weighed.confirmed_by
    return Hypothesis(
        page.id, page.title, round(weighed.score, 3), weighed.share,
        tuple(_reason(rule, weighed.values) for rule in weighed.for_),
        tuple(_reason(rule, weighed.values) for rule in weighed.against),
        weighed.missing, confirmed.text(weighed.values) if confirmed else "")


def _reason(rule: Rule, values: Values) -> Reason:
    return Reason(rule.text(values), tuple(name for name in rule.names if name in values),
                  round(rule.worth(values), 3), rule.numeric(values), rule.source)


def _what(found: Sequence[Weighed], applied: Sequence[Limit]) -> str:
    """One sentence for what it is, one for the second finding, and what the capture could not tell."""
    first = found[0]
    says = (first.confirmed_by or first.for_[0]).words(first.values)
    parts = [f"{first.page.title}{_of_the_step(first)}: {says}."]
    if second := next((w for w in found[1:] if w.refuted_by is None and w.score > 0), None):
        parts.append(f"Second: {second.page.id}{_of_the_step(second)}, {second.for_[0].words(second.values)}.")
    parts += [f"The capture has its limits: {limit.says}." for limit in applied]
    return " ".join(parts)


def _why_not(found: Sequence[Weighed], applied: Sequence[Limit]) -> str:
    parts = [f"{limit.says[0].upper()}{limit.says[1:]}." for limit in applied]
    live = [w for w in found if w.refuted_by is None and w.score > 0]
    if not live:
        parts.append("Nothing that was measured speaks for a known failure.")
        return " ".join(parts)
    first, close = live[0], rivals(live)
    if not first.numeric:
        parts.append(f"What speaks for {first.page.id} is no measured number: {first.for_[0].words(first.values)}.")
    elif first.score < PROBABLE_SCORE:
        parts.append(f"What speaks for {first.page.id} is too little: {first.for_[0].words(first.values)}.")
    elif not first.needs_met:
        parts.append(f"For {first.page.id} the figures that it needs are missing.")
    if close:
        names = ", ".join(w.page.id for w in (first, *close))
        parts.append(f"About equally supported: {names}.")
    return " ".join(parts)


def _of_the_step(weighed: Weighed) -> str:
    return f" ({weighed.share:.0%} of the time)" if weighed.share and weighed.share >= 0.01 else ""


def _ruled_out(
    found: Sequence[Weighed], pages: Sequence[Fingerprint], values: Values
) -> tuple[RuledOut, ...]:
    """Look-alikes of the first hypothesis that are not it. One that is as well supported is not ruled out."""
    if not found or found[0].refuted_by is not None:
        return ()
    by_id = {w.page.id: w for w in found}
    close = {w.page.id for w in rivals(found)}
    return tuple(RuledOut(other, _why_ruled_out(by_id.get(other), found[0], values, page))
                 for other in found[0].page.look_alikes if other not in close
                 for page in pages if page.id == other)


def _why_ruled_out(weighed: Weighed | None, first: Weighed, values: Values, page: Fingerprint) -> str:
    if weighed is None:
        against = next((rule for rule in page.against if rule.holds(values)), None)
        return against.text(values) if against else NOTHING_SPEAKS
    if weighed.refuted_by is not None:
        return weighed.refuted_by.text(values)
    if weighed.against:
        return weighed.against[0].text(values)
    return f"less speaks for it ({weighed.score:.1f} against {first.score:.1f}): {weighed.for_[0].words(values)}"

"""The verdict: hypotheses ranked, with what speaks for and against each, and what to measure next.

*Confirmed*: the measurement that the page names as settling it is there and says so. *Probable*: at least one
number speaks for it, nothing decisive against, and nothing else is as well supported. Otherwise *not enough
evidence*, with the next measurement: a good answer, where a confident wrong one is the worst.

Figures that contradict each other: at least one of them is wrong, and nobody knows which. A confirmation is withdrawn
where one of them settles it. A probable verdict must hold whichever of them is wrong: it is judged again with each in
turn put right by the others (or taken out, where they do not tell what it should be), and given up where one of these
verdicts is another. A remark that reads the figures as true and says where the time goes disputes none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from . import limits as limits_page
from .advice import next_measurement, settling
from .at_hand import AtHand
from .expressions import Values, replaced
from .fingerprints import Fingerprint
from .limits import Limit
from .rules import Rule
from .shares import CAPTURE, STEP
from .signals import Signals
from .weighing import PROBABLE_SCORE, Weighed, ranked, rivals, stands_out

NOTHING_SPEAKS = "nothing that was measured speaks for it"
CLEARLY_LESS = 0.5
"""A look-alike with a number for it is ruled out by support alone below this part of the first one's score."""
SECOND_SHARE = 0.03
"""The smallest share of the time that is worth a second finding."""
_FIRST_ACTION = re.compile(r"[;.:](?=\s|$)")


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
    """Share of `share_of` that it explains, where the signals tell."""
    for_: tuple[Reason, ...]
    against: tuple[Reason, ...]
    missing: tuple[str, ...]
    """Signals that would decide and are unknown."""
    confirmed_by: str = ""
    share_of: str = STEP
    """What `share` is a share of, in words: `the step`, `the time to first token`; empty without a share."""


@dataclass(frozen=True)
class RuledOut:
    id: str
    why: str


@dataclass(frozen=True)
class Contradiction:
    """Figures that cannot all be true of one load, with the arithmetic in `text`."""

    text: str
    signals: tuple[str, ...]
    repairs: Mapping[str, float | None] = field(default_factory=dict)
    """What each figure would be if the others are right; None where they do not tell. At least one of these is wrong.
    Empty for a remark on figures that may all be right."""


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
    signals: Signals, pages: Sequence[Fingerprint], contradictions: Sequence[Contradiction] = (),
    given: AtHand | None = None, capture: str = "",
) -> Verdict:
    """Hold every page against the signals and say what it is, how sure, and what to do next. `given` puts the next
    measurement into the words of the platform; it changes nothing else. `capture`: what a capture that lacks the
    device's work asks for, said in place of the limits' own next."""
    values, applied = limits_page.applied(signals, limits_page.load())
    found = ranked(pages, values)
    conflicts = _settled_twice(found)
    disputed = _disputed(found, pages, values, contradictions)
    if disputed or not stands_out(found) or (conflicts and rivals(found)):
        level, id_, title, fix, verify = Level.NOT_ENOUGH, None, "Not enough evidence to name a cause", "", ""
        summary = _why_not(found, applied, disputed)
        next_ = (f"Measure again the figures that contradict each other: {', '.join(disputed)}." if disputed else
                 (applied and capture) or " ".join(limit.next for limit in applied)
                 or next_measurement(found, values, given))
    else:
        page = found[0].page
        level = Level.CONFIRMED if found[0].confirmed_by and not conflicts else Level.PROBABLE
        id_, title, fix, verify = page.id, page.title, page.fix, page.verify
        summary = _what(found, applied)
        next_ = settling(found, values, given)
        if found[0].confirmed_by:
            next_ = f"{_FIRST_ACTION.split(page.fix, maxsplit=1)[0]}. Then prove it: {page.verify}"
    return Verdict(level, id_, title, summary, next_, tuple(_hypothesis(weighed) for weighed in found),
                   _ruled_out(found, pages, values), (*contradictions, *conflicts), fix, verify)


def _settled_twice(found: Sequence[Weighed]) -> tuple[Contradiction, ...]:
    """Measurements that each settle another cause. One load may have two faults; which of them counts is then open."""
    settled = [(w, w.confirmed_by) for w in found if w.confirmed_by is not None]
    if len(settled) < 2:
        return ()
    text = "; ".join(f"{w.page.id} by {rule.text(w.values)}" for w, rule in settled)
    names = dict.fromkeys(name for w, rule in settled for name in rule.signal.names if name in w.values)
    return (Contradiction(f"{len(settled)} different causes are settled at once: {text}", tuple(names)),)


def _disputed(found: Sequence[Weighed], pages: Sequence[Fingerprint], values: Values,
              contradictions: Sequence[Contradiction]) -> tuple[str, ...]:
    """The signals of contradictions on which the verdict hangs: those that touch what settles it, and those of which
    one figure, put right, would leave no verdict or another one."""
    if not stands_out(found):
        return ()
    settled = found[0].confirmed_by
    touched = set(settled.signal.names if settled is not None else found[0].reads)
    disputing = [c for c in contradictions if c.repairs and touched & set(c.signals)
                 and (settled is not None or not _holds(found[0], pages, values, c))]
    return tuple(dict.fromkeys(name for c in disputing for name in c.signals))


def _holds(first: Weighed, pages: Sequence[Fingerprint], values: Values, contradiction: Contradiction) -> bool:
    """Whether the same hypothesis comes first and stands out, whichever of the figures is put right."""
    for name, repaired in contradiction.repairs.items():
        if name not in values:
            continue
        again = ranked(pages, replaced(values, name, repaired))
        if not stands_out(again) or again[0].page.id != first.page.id:
            return False
    return True


def _hypothesis(weighed: Weighed) -> Hypothesis:
    page, confirmed = weighed.page, weighed.confirmed_by
    return Hypothesis(
        page.id, page.title, round(weighed.score, 3), weighed.share,
        tuple(_reason(rule, weighed.values) for rule in weighed.for_),
        tuple(_reason(rule, weighed.values) for rule in weighed.against),
        weighed.missing, confirmed.text(weighed.values) if confirmed else "", weighed.whole)


def _reason(rule: Rule, values: Values) -> Reason:
    return Reason(rule.text(values), tuple(name for name in rule.names if name in values),
                  round(rule.worth(values), 3), rule.numeric(values), rule.source)


def _what(found: Sequence[Weighed], applied: Sequence[Limit]) -> str:
    """One sentence for what it is, one for the second finding, and what the capture could not tell."""
    first = found[0]
    says = (first.confirmed_by or first.for_[0]).words(first.values)
    parts = [f"{first.page.title}{_of_the_time(first)}: {says}."]
    if second := _second(found):
        parts.append(f"Second: {second.page.id}{_of_the_time(second)}, {second.for_[0].words(second.values)}.")
    parts += [f"The capture has its limits: {limit.says}." for limit in applied]
    return " ".join(parts)


def _second(found: Sequence[Weighed]) -> Weighed | None:
    """Of the other live hypotheses the one with the next largest share of the time; without shares the best
    supported. A share larger than the first one's is no second finding: it is what the device does beside its idle."""
    live = [w for w in found[1:] if w.refuted_by is None and w.score > 0]
    most = found[0].share or 1.0
    return max((w for w in live if SECOND_SHARE <= (w.share or 0.0) <= most), key=lambda w: w.share or 0.0,
               default=live[0] if live else None)


def _why_not(found: Sequence[Weighed], applied: Sequence[Limit], disputed: Sequence[str] = ()) -> str:
    parts = [f"{limit.says[0].upper()}{limit.says[1:]}." for limit in applied]
    if disputed:
        what = "would settle" if found[0].confirmed_by is not None else "speaks for"
        parts.append(f"What {what} {found[0].page.id} hangs on figures that contradict each other: "
                     f"{', '.join(disputed)}.")
        return " ".join(parts)
    live = [w for w in found if w.refuted_by is None and w.score > 0]
    if not live:
        parts.append("Nothing that was measured speaks for a known failure.")
        return " ".join(parts)
    first, close = live[0], rivals(live)
    if not first.numeric:
        parts.append(f"What speaks for {first.page.id} does not prove it: {first.for_[0].words(first.values)}.")
    elif first.score < PROBABLE_SCORE:
        parts.append(f"What speaks for {first.page.id} is too little: {first.for_[0].words(first.values)}.")
    elif not first.needs_met:
        parts.append(f"For {first.page.id} the figures that it needs are missing.")
    if close:
        names = ", ".join(w.page.id for w in (first, *close))
        parts.append(f"About equally supported: {names}.")
    return " ".join(parts)


def _of_the_time(weighed: Weighed) -> str:
    if not weighed.share or weighed.share < 0.01:
        return ""
    whole = weighed.whole
    return f" ({weighed.share:.0%} of {'the time' if whole in (STEP, CAPTURE) else whole})"


def _ruled_out(
    found: Sequence[Weighed], pages: Sequence[Fingerprint], values: Values
) -> tuple[RuledOut, ...]:
    """Look-alikes of the first hypothesis with evidence against them: a rule, or clearly less support by numbers.
    What nobody looked at is not ruled out, nor is the second finding."""
    if not found or found[0].refuted_by is not None:
        return ()
    by_id = {w.page.id: w for w in found}
    second = _second(found)
    live = {w.page.id for w in (*rivals(found), *((second,) if second else ()))}
    by_page = {page.id: page for page in pages}
    reasons = ((other, _why_ruled_out(by_id.get(other), found[0], values, by_page[other]))
               for other in found[0].page.look_alikes if other not in live and other in by_page)
    return tuple(RuledOut(other, why) for other, why in reasons if why)


def _why_ruled_out(weighed: Weighed | None, first: Weighed, values: Values, page: Fingerprint) -> str:
    """The reason; empty where there is none."""
    if weighed is None:
        against = next((rule for rule in page.against if rule.holds(values)), None)
        return against.text(values) if against else ""
    if weighed.refuted_by is not None:
        return weighed.refuted_by.text(values)
    if weighed.against:
        return weighed.against[0].text(values)
    if weighed.numeric and weighed.score <= CLEARLY_LESS * first.score:
        words = weighed.for_[0].words(values)
        return f"less speaks for it ({weighed.score:.1f} against {first.score:.1f}): {words}"
    return ""

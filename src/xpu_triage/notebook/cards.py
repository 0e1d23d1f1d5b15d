"""The verdict as a card, what speaks for and against it, and what to do next."""

from __future__ import annotations

from ..diagnosis import Diagnosis, EvidenceRecord
from ..plots.words import milliseconds, percent, short
from ..steps.results import Cause
from ..text import clean
from ..units import show
from ..verdict import Hypothesis, Level, Verdict
from ..words import CAUSE_WORDS, read_words
from .shown import Shown, label, lines, pairs, safe, said, stacked, table

LEVEL_COLOURS = {Level.CONFIRMED: "#b3261e", Level.PROBABLE: "#a15c00", Level.NOT_ENOUGH: "#0b6b83"}
NOTHING_WRONG = "#2e7d32"
SHOWN_HYPOTHESES = 3
SHOWN_PIECES = 3


def verdict(diagnosis: Diagnosis) -> Shown:
    """The card: level, what it is, where, how much of the step; and what to measure or do next."""
    found = diagnosis.verdict
    headline, rest = _headline(found)
    facts = key_figures(diagnosis)
    read = _from(diagnosis)
    head = f"{str(found.level).upper()}  {found.id or ''}".rstrip()
    text = [
        head,
        clean(headline),
        clean(rest),
        *(f"{words}: {clean(value)}" for value, words in facts),
        f"Next: {clean(found.next)}" if found.next else "",
        f"from {read}",
    ]
    return Shown(_card(found, headline, rest, facts, read), "\n".join(line for line in text if line))


def _headline(found: Verdict) -> tuple[str, str]:
    """The sentence to print large, and the rest. A summary that begins with the title needs no title above
    it."""
    if not found.summary.startswith(found.title):
        return found.title, found.summary
    first, _, rest = found.summary.partition(". ")
    return first.rstrip("."), rest


def _card(found: Verdict, headline: str, rest: str, facts: list[tuple[str, str]], read: str) -> str:
    colour = NOTHING_WRONG if found.id == "no-fault" else LEVEL_COLOURS[found.level]
    name = f'<code style="font-size:14px;font-weight:600">{safe(found.id)}</code>' if found.id else ""
    cells = "".join(
        f'<div style="margin:8px 30px 0 0"><div style="font-size:20px;font-weight:600">{safe(value)}</div>'
        f'<div style="font-size:12px;color:#6b7380">{safe(words)}</div></div>'
        for value, words in facts
    )
    level = (
        f'<span style="background:{colour};color:#ffffff;border-radius:4px;padding:2px 10px;font-weight:700;'
        f'font-size:13px">{safe(str(found.level).upper())}</span>'
    )
    after = f'<div style="margin-top:10px;font-size:14px"><b>Next:</b> {safe(found.next)}</div>'
    return (
        f'<div style="border:1px solid #d5d9e0;border-left:8px solid {colour};border-radius:6px;'
        f'padding:12px 18px;background:#ffffff;color:#1b1f24;max-width:1100px">'
        f"<div>{level} {name}</div>"
        f'<div style="font-size:19px;font-weight:700;margin:8px 0 2px 0">{safe(headline)}</div>'
        f'<div style="font-size:15px">{safe(rest)}</div>'
        f'<div style="display:flex;flex-wrap:wrap">{cells}</div>{after if found.next else ""}'
        f'<div style="margin-top:8px;font-size:12px;color:#6b7380">from {safe(read)}</div></div>'
    )


def _from(diagnosis: Diagnosis) -> str:
    """The piece that the verdict rests on, and how many lie beside it."""
    lead = diagnosis.lead.trace.source if diagnosis.lead is not None else None
    first = [r for r in diagnosis.evidence if r.path == lead] or list(diagnosis.evidence[:SHOWN_PIECES])
    beside = len(diagnosis.evidence) - len(first)
    return "; ".join(map(_read, first)) + (f"; {beside} more beside it" if beside else "")


def _read(record: EvidenceRecord) -> str:
    return f"{label(record.path)} ({read_words(record.kind, record.events)})"


def key_figures(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """The few figures that everybody asks for first, as (figure, what it is); only those that are known."""
    signals, finding = diagnosis.signals, diagnosis.finding
    figures: list[tuple[str, str]] = []
    wall, busy = signals.value("step.wall_ms"), signals.value("device.busy_fraction")
    if isinstance(wall, int | float):
        told = signals["step.wall_ms"]
        figures.append((milliseconds(1e6 * wall), f"one step ({told.window or told.how})"))
    if isinstance(busy, int | float):
        figures.append((percent(busy), "device busy"))
    idle = {
        c: v for c in Cause if isinstance(v := signals.value(f"idle.{c}_fraction"), int | float) and v >= 0.01
    }
    if idle:
        cause = max(idle, key=lambda c: idle[c])
        figures.append((percent(idle[cause]), f"idle: {CAUSE_WORDS[cause]}"))
    if finding is not None and finding.name:
        share = finding.total_share if finding.spread else finding.share
        figures.append((percent(share), f"of the step: {short(finding.name)}"))
        if finding.step_without_ms is not None:
            figures.append((milliseconds(1e6 * finding.step_without_ms), "a step without it"))
    if not figures:
        figures = [(short(show(s.value, s.unit), 32), name) for name, s in list(signals.items())[:4]]
    return figures


def reasons(diagnosis: Diagnosis) -> Shown:
    """What speaks for and against the first hypotheses, what would decide, and which look-alikes are ruled
    out."""
    found = diagnosis.verdict
    if not found.hypotheses:
        return said("No known failure has anything measured that speaks for it in this evidence.")
    parts = [_hypothesis(h) for h in found.hypotheses[:SHOWN_HYPOTHESES]]
    if found.ruled_out:
        parts.append(
            lines("Looks alike, and is not", [f"{other.id}: {other.why}" for other in found.ruled_out])
        )
    return stacked(*parts)


def _hypothesis(hypothesis: Hypothesis) -> Shown:
    share = f", explains {percent(hypothesis.share)} of {hypothesis.share_of}" if hypothesis.share is not None else ""
    rows = [("settled by", hypothesis.confirmed_by)] if hypothesis.confirmed_by else []
    rows += [("for", reason.text) for reason in hypothesis.for_]
    rows += [("against", reason.text) for reason in hypothesis.against]
    if hypothesis.missing:
        rows.append(("unknown", ", ".join(hypothesis.missing)))
    return pairs(rows, title=f"{hypothesis.id}: {hypothesis.title} (score {hypothesis.score:.2f}{share})")


def contradictions(diagnosis: Diagnosis) -> Shown:
    """Figures that cannot all be true of one load, with the arithmetic; and pieces of evidence that
    disagree."""
    told = [c.text for c in diagnosis.verdict.contradictions]
    told += [f"{c.kept.name}: {c.kept.value} ({label(c.kept.source)}) is used, not {c.other.value} "
             f"({label(c.other.source)})" for c in diagnosis.signals.conflicts]
    return lines("These figures contradict each other", told,
                 empty="No figures in this evidence contradict each other.")


def next_steps(diagnosis: Diagnosis) -> Shown:
    """What to do now: the next measurement, the fix, how to prove it fixed, and the page that tells the
    rest."""
    found = diagnosis.verdict
    first = "" if found.next == found.verify else found.next
    named = (("next", first), ("fix", found.fix), ("prove it fixed", found.verify))
    told = pairs([(name, text) for name, text in named if text])
    identity = found.id or (found.hypotheses[0].id if found.hypotheses else "")
    if not identity:
        return stacked(told, said("All known failures: xpu-triage fingerprints"))
    page = f"playbook/fingerprints/{identity}.md"
    link = Shown(
        f'<p style="margin:6px 0">The page: <a href="../{safe(page)}">{safe(page)}</a>, in a terminal '
        f"<code>xpu-triage fingerprints {safe(identity)}</code></p>",
        f"The page: {page}, in a terminal: xpu-triage fingerprints {identity}",
    )
    return stacked(told, link)


def evidence(diagnosis: Diagnosis) -> Shown:
    """What was read, how much of it could be used, and what the readers had to say."""
    rows, notes = [], []
    for record in diagnosis.evidence:
        read = read_words(record.kind, record.events)
        rows.append((label(record.path), record.kind, read, f"{record.skipped:,}"))
        notes += [f"{label(record.path)}: {note}" for note in record.notes]
    if diagnosis.lead is not None:
        notes += [*diagnosis.lead.steps.notes, *diagnosis.lead.notes]
    notes += [
        f"{label(other.path)} on its own: {other.verdict.level}, {other.verdict.id or 'nothing stands out'}"
        for other in diagnosis.others
    ]
    parts = [table(("evidence", "kind", "read", "skipped"), rows, numbers=(2, 3))]
    if notes:
        parts.append(lines("What to know about it", notes))
    return stacked(*parts)

"""The diagnosis in the terminal: the verdict first, then the three steps that lead to it, then what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from . import render_evidence, render_telemetry
from .diagnosis import Diagnosis
from .fingerprints import Fingerprint
from .pipes import columns
from .render_lines import folded, hanging, item, listed
from .signals import Signals
from .steps.results import Finding, Walk
from .text import clean, counted, shorten
from .units import show
from .verdict import NOTHING_SPEAKS, Hypothesis, Level, RuledOut
from .words import ABOUT_WORDS, CAUSE_WORDS

SHOWN_HYPOTHESES = 3
SHOWN_LEVELS = 7
SHOWN_NOTES = 2
_END_SPACES = re.compile(r"[ \t]+(?=\n)")
_FENCE = re.compile(r"^( *)```\w*\n(.*?)^\1```[ \t]*\n?", re.MULTILINE | re.DOTALL)

COLOURS = {Level.CONFIRMED: "red", Level.PROBABLE: "yellow", Level.NOT_ENOUGH: "cyan"}


def console() -> Console:
    """A console for stdout. Where it is no terminal its width is that of `pipes.columns`, the same everywhere unless
    COLUMNS is set, and no line ends in spaces: so output can be compared."""
    out = _Out(highlight=False)
    return out if out.is_terminal else _Out(highlight=False, width=columns(), file=cast(TextIO, _Stripped(sys.stdout)))


class _Stripped:
    """A text file that is written to without the spaces at the ends of lines. What is printed comes whole lines at a
    time."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(_END_SPACES.sub("", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Out(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read our output has left, which is no failure: let the command decide."""
        raise BrokenPipeError


def print_diagnosis(diagnosis: Diagnosis, out: Console | None = None) -> None:
    """Print the whole diagnosis."""
    out = out or console()
    for part in diagnosis_parts(diagnosis):
        out.print(part)


def diagnosis_parts(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """The diagnosis from top to bottom, as things that rich can print."""
    yield _headline(diagnosis)
    if diagnosis.lead is not None or diagnosis.measured.signals or diagnosis.telemetry:
        yield from _three_steps(diagnosis)
    verdict = diagnosis.verdict
    supported = [h for h in verdict.hypotheses if h.score > 0]
    if verdict.hypotheses:
        yield Rule("hypotheses" if supported else "hypotheses: against each speaks as much as for it, or more",
                   align="left", style="dim")
    for hypothesis in supported[:SHOWN_HYPOTHESES] or verdict.hypotheses[:1]:
        yield from _hypothesis(hypothesis)
    if verdict.ruled_out:
        yield from listed("Looks alike, and is not", _look_alikes(verdict.ruled_out))
    if verdict.contradictions:
        yield from listed("These figures contradict each other", (c.text for c in verdict.contradictions),
                          shown=len(verdict.contradictions))
    if diagnosis.signals.conflicts:
        yield from listed("Two pieces of evidence disagree", (
            f"{c.kept.name}: {show(c.kept.value, c.kept.unit)} ({c.kept.source}) is used, "
            f"not {show(c.other.value, c.other.unit)} ({c.other.source})" for c in diagnosis.signals.conflicts))
    if verdict.fix:
        yield from listed("Fix", [verdict.fix])
    if verdict.verify:
        yield from listed("Prove it fixed", [verdict.verify])
    yield Rule("evidence", align="left", style="dim")
    yield from render_evidence.lines(diagnosis)


def _headline(diagnosis: Diagnosis) -> RenderableType:
    verdict = diagnosis.verdict
    colour = COLOURS[verdict.level]
    head = Text()
    head.append(str(verdict.level).upper(), style=f"bold {colour}")
    if verdict.id:  # without one the title would say the level once more
        head.append(f"   {verdict.id}", style="bold")
        head.append(f"   {clean(verdict.title)}")
    body = [head, Text(clean(verdict.summary))]
    if where := where_it_is(diagnosis):
        said = "where: " if verdict.id else "largest seen: "
        body.append(Text.assemble((said, "bold"), where))
    if verdict.next:
        body.append(Text.assemble(("next: ", "bold"), clean(verdict.next)))
    if verdict.id:
        body.append(Text.assemble(("page: ", "bold"), f"xpu-triage fingerprints {verdict.id}"))
    if diagnosis.lead is not None:
        beside = len(diagnosis.others)
        rest = f", {counted(beside, 'other trace is', 'other traces are')} at the end" if beside else ""
        source = render_evidence.by_its_end(clean(diagnosis.lead.trace.source))
        body.append(Text(f"from {source}{rest}", style="dim"))
        body += [Text.assemble(("mind: ", "bold"), clean(note)) for note in diagnosis.lead.trace.notes[:SHOWN_NOTES]]
    return Panel(Group(*body), border_style=colour)


def where_it_is(diagnosis: Diagnosis) -> str:
    """The operator that the bisection ended at: share, line, the step without it; or over how many it is spread."""
    found = diagnosis.finding
    if found is None:
        return ""
    if found.spread or not found.path:
        largest = "".join(f"; the largest: {shorten(clean(name), 60)}, {_percent(share)} of the window"
                          for name, share in found.others[:1])
        return f"{clean(found.name)}{largest}"
    line = f" at {clean(found.line)}" if found.line and found.line != found.name else ""
    words = f"{shorten(clean(found.name), 70)}{line}: {_percent(found.share)} of the window"
    if found.step_without_ms is not None:
        words += f"; a step takes {found.step_ms:,.1f} ms, without it {found.step_without_ms:,.1f} ms"
    return words


def _look_alikes(ruled_out: Sequence[RuledOut]) -> Iterator[str]:
    """Those with a reason one by one, those without support in one line."""
    silent = [r.id for r in ruled_out if r.why == NOTHING_SPEAKS]
    yield from (f"{r.id}: {r.why}" for r in ruled_out if r.why != NOTHING_SPEAKS)
    if silent:
        yield f"{', '.join(silent)}: {NOTHING_SPEAKS}"


def _three_steps(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """Each step from the trace, where there is one, then from telemetry."""
    walked = diagnosis.lead
    yield Rule("1 utilization", align="left", style="dim")
    yield from _of_both(_utilization(walked) if walked else (), diagnosis, 1)
    yield Rule("2 step time", align="left", style="dim")
    yield from _of_both(_step_time(walked) if walked else (), diagnosis, 2)
    yield Rule("3 operator bisection", align="left", style="dim")
    yield from _of_both(_bisection(diagnosis.finding, walked) if walked else (), diagnosis, 3)
    yield from _always_asked(diagnosis.signals)
    notes = [note for note in walked.notes if note not in walked.steps.notes] if walked else []
    if notes:
        yield from listed("Said by the walk", notes)
    if diagnosis.measured.notes:
        yield from listed("Mind with the telemetry", diagnosis.measured.notes)
    if diagnosis.unknown:
        reasons: dict[str, list[str]] = {}
        for name, why in diagnosis.unknown.items():
            reasons.setdefault(why, []).append(name)
        yield from listed("Unknown here", (f"{', '.join(names)}: {why}" for why, names in reasons.items()))


def _of_both(from_trace: Iterable[RenderableType], diagnosis: Diagnosis, step: int) -> Iterator[RenderableType]:
    """What a trace says of this step, and what telemetry does; where neither says anything, that."""
    parts = [*from_trace, *render_telemetry.lines(render_telemetry.of_step(diagnosis.measured, step))]
    yield from parts or [Text("nothing in this evidence", style="italic")]


def _utilization(walked: Walk) -> Iterator[RenderableType]:
    window = walked.steps.window or 1
    if not walked.devices:
        yield Text("no device work in this trace")
        return
    for use in walked.devices:
        parts = ", ".join(f"{name} {_percent(int(getattr(use, name).sum()) / window)}"
                          for name in ("compute", "comm", "copy"))
        yield Text(f"device {clean(use.device)}: busy {_percent(int(use.busy.sum()) / window)} of "
                   f"{_ms(window)} ({parts}); idle {_percent(use.idle / window)}")
        causes = sorted(use.gaps.by_cause().items(), key=lambda item: -item[1])
        for cause, ns in causes:
            if ns >= 0.005 * window:
                yield hanging(f"  {_percent(ns / window):>6}  {_bar(ns / window)} ", CAUSE_WORDS[cause])


def _step_time(walked: Walk) -> Iterator[RenderableType]:
    steps = walked.steps.steps
    yield Text(_steps_found(walked))
    phases = sorted({step.phase for step in steps if step.phase})
    if phases:
        counts = ", ".join(f"{sum(s.phase == phase for s in steps)} {phase}" for phase in phases)
        yield Text(f"phases: {counts}")
    for note in walked.steps.notes:
        yield Text(f"note: {clean(note)}", style="italic")


def _steps_found(walked: Walk) -> str:
    """How many steps, by what, and how long they take: one figure where they all take the same."""
    method, detail = walked.steps.method, clean(walked.steps.detail)
    walls = sorted(step.wall for step in walked.steps.steps)
    shortest, middle, longest = _ms(walls[0]), _ms(median(walls)), _ms(walls[-1])
    if method == "window":
        return f"one window of {middle}, the whole capture: {detail}"
    found = f"{counted(len(walls), 'step')} found by {method}, {detail.removeprefix(f'{method}: ')}"
    if shortest == longest:
        return f"{found}: {middle}" if len(walls) == 1 else f"{found}: each {middle}"
    return f"{found}: median {middle}, shortest {shortest}, longest {longest}"


def _bisection(finding: Finding | None, walked: Walk) -> Iterator[RenderableType]:
    if finding is None:
        yield Text("nothing to bisect in this trace")
        return
    yield Text(f"{ABOUT_WORDS.get(finding.about, finding.about)}: {_percent(finding.total_share)} of the window")
    path = finding.path
    shown = path if len(path) <= SHOWN_LEVELS else (*path[:2], *path[-(SHOWN_LEVELS - 2):])
    for depth, level in enumerate(shown):
        if len(shown) < len(path) and depth == 2:
            yield Text(f"{' ' * (10 + 2 * depth)}… {counted(len(path) - len(shown), 'level')} …")
        yield hanging(f"  {_percent(level.share):>6}  {'  ' * depth}", shorten(clean(level.name), 70 - 2 * depth))
    if finding.spread:
        yield Text(f"  {clean(finding.name)}")
    if finding.line:
        yield Text(f"  line: {clean(finding.line)}")
    if finding.step_without_ms is not None:
        yield Text(f"  step now {finding.step_ms:,.2f} ms, without it {finding.step_without_ms:,.2f} ms")
    for other in walked.findings:
        if other is not finding:  # the second finding is always shown
            # without a path and not spread: nothing is to blame, and the name says the cause once more
            name = f": {shorten(clean(other.name), 60)}" if other.path or other.spread else ""
            yield Text(f"  next: {_percent(other.total_share)} {ABOUT_WORDS.get(other.about, other.about)}{name}")
            break
    else:
        for name, share in finding.others[:1]:
            yield Text(f"  next: {_percent(share)} {shorten(clean(name), 60)}")


def _always_asked(signals: Signals) -> Iterator[RenderableType]:
    """Fallbacks and syncs in one line each, found or not: a proof that they are gone has to be readable here."""
    if (share := signals.value("fallback.fraction")) is not None:
        yield Text(f"operators on a CPU: {clean(str(signals.value('fallback.op')))}, "
                   f"{_percent(float(share))} of the window")
    if (count := signals.value("sync.per_step")) is not None:
        gain = signals.value("sync.gain_bound_fraction")
        most = "" if gain is None else f"; without that it is at most {_percent(float(gain))} shorter"
        yield Text(f"the host waits for the device {float(count):,.1f} times a step{most}")


def _hypothesis(hypothesis: Hypothesis) -> Iterator[RenderableType]:
    head = Text(f"{hypothesis.id}", style="bold")
    head.append(f"  score {hypothesis.score:.2f}", style="not bold dim")
    if hypothesis.share is not None:
        head.append(f"  explains {_percent(hypothesis.share)} of {hypothesis.share_of}", style="not bold dim")
    yield head
    if hypothesis.confirmed_by:
        yield item(f"settled by: {hypothesis.confirmed_by}", "!")
    yield from (item(text, "+") for text in folded(reason.text for reason in hypothesis.for_))
    yield from (item(text, "-") for text in folded(reason.text for reason in hypothesis.against))
    if hypothesis.missing:
        yield item(f"unknown: {', '.join(hypothesis.missing[:4])}", "?")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.2f} ms" if ns < 1e10 else f"{ns / 1e9:,.2f} s"


def _bar(fraction: float, width: int = 20) -> str:
    full = round(fraction * width)
    return "█" * full + "░" * (width - full)


def print_list(pages: Sequence[Fingerprint], out: Console | None = None) -> None:
    """The known failures, one line each."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for page in pages:
        table.add_row(page.id, Text(page.title))
    (out or console()).print(table)


def print_page(page: Fingerprint, out: Console | None = None) -> None:
    """One fingerprint's page, as people read it. Code stands as it is written, however wide: it is there to be
    pasted."""
    from rich.markdown import Markdown  # slow to import, and needed here alone

    out = out or console()
    after = 0
    for fence in _FENCE.finditer(page.body):
        out.print(Padding(Markdown(page.body[after:fence.start()]), (0, 1)))
        code = "".join(line.removeprefix(fence[1]) for line in fence[2].splitlines(keepends=True))
        out.print(Text(f"\n{code}", style="cyan"), soft_wrap=True)
        after = fence.end()
    out.print(Padding(Markdown(page.body[after:]), (0, 1)))

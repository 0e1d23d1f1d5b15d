"""The three steps as tables: utilization, step time, operator bisection."""

from __future__ import annotations

import numpy as np

from ..diagnosis import Diagnosis
from ..plots.bisection import second_finding
from ..plots.occupancy import readings
from ..plots.series import like_the_first, warm_up
from ..plots.telemetry import on_device
from ..plots.words import milliseconds, percent
from ..steps.results import DeviceUse, Finding, Step, Walk
from ..telemetry.stacks import profile
from ..text import shorten
from ..words import ABOUT_WORDS, CAUSE_WORDS
from .shown import Shown, counted, label, lines, said, stacked, table

NO_TRACE = (
    "The evidence holds no trace, so this cannot be shown. A profiler capture of five to ten steps gives it."
)
NO_DEVICE = "This trace holds no device work, so there is no busy or idle time to show."
MOST_STEPS = 12
MOST_READINGS = 24
LEAST_SHARE = 5e-4
"""Parts smaller than this are not listed: they would read 0.0 %."""
RECOVERED = 1.05
"""A step that became less than this much shorter did not recover."""
SAMPLE_PERIODS_MS = (1000, 167)
"""The sample period of NVML lies between 1 s and 1/6 s."""


def signals(diagnosis: Diagnosis, *groups: str) -> Shown:
    """The signals of some groups (all without any): value, unit, window, where from; and those that stay
    unknown."""
    chosen = [s for name, s in diagnosis.signals.items() if not groups or name.split(".")[0] in groups]
    rows = [
        (s.name, _value(s.value), "" if s.unit in ("text", "bool") else s.unit, s.window, s.how)
        for s in chosen
    ]
    shown = table(("signal", "value", "unit", "window", "from"), rows, numbers=(1,)) if rows else said(
        "No signal of these groups is known from this evidence.")
    reasons: dict[str, list[str]] = {}
    for name, why in diagnosis.unknown.items():
        if not groups or name.split(".")[0] in groups:
            reasons.setdefault(why, []).append(name)
    if not reasons:
        return shown
    return stacked(
        shown, lines("Unknown, which is not zero", [f"{', '.join(n)}: {why}" for why, n in reasons.items()])
    )


def _value(value: float | int | bool | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return shorten(str(value), 60)


def busy(diagnosis: Diagnosis) -> Shown:
    """Busy time of every device over the window, split so that the parts add up."""
    walk = diagnosis.lead
    if walk is None or not walk.devices:
        return said(NO_TRACE if walk is None else NO_DEVICE)
    window = max(walk.steps.window, 1)
    rows = [
        (
            use.device,
            *(percent(int(part.sum()) / window) for part in (use.busy, use.compute, use.comm, use.copy)),
            percent(use.idle / window),
            milliseconds(use.busy.sum() / len(walk.steps.steps)),
        )
        for use in walk.devices
    ]
    return table(
        ("device", "busy", "= kernels", "+ collectives alone", "+ copies alone", "idle", "busy a step"),
        rows,
        numbers=range(1, 7),
        note=f"Shares of {milliseconds(window)}, the wall time of {counted(len(walk.steps.steps), 'whole step')}.",
    )


def idle(diagnosis: Diagnosis) -> Shown:
    """The idle time of the busiest device by cause: every gap has exactly one, so the rows add up to the
    idle."""
    walk = diagnosis.lead
    use = walk.busiest if walk else None
    if walk is None or use is None:
        return said(NO_TRACE if walk is None else NO_DEVICE)
    window, gaps, per = max(walk.steps.window, 1), use.gaps, 1 / len(walk.steps.steps)
    rows = []
    for code, (cause, ns) in sorted(enumerate(gaps.by_cause().items()), key=lambda item: -item[1][1]):
        mine = np.flatnonzero(gaps.cause == code)
        if not len(mine):
            continue
        longest = int(mine[np.argmax(gaps.dur[mine])])
        row = int(gaps.host_row[longest])
        rows.append(
            (
                CAUSE_WORDS[cause],
                percent(ns / window),
                milliseconds(ns * per),
                f"{len(mine) * per:,.4g}",
                milliseconds(int(gaps.dur[longest])),
                shorten(walk.trace.name_of(row), 48) if row >= 0 else "",
            )
        )
    return table(
        ("the device is idle because of", "share", "a step", "gaps a step", "longest", "host in the longest"),
        rows,
        numbers=(1, 2, 3, 4),
        note=f"Together {percent(use.idle / window)} of the window.",
    )


def smi(diagnosis: Diagnosis) -> Shown:
    """What a vendor's tool would have read during this trace, beside the busy share, and why they differ."""
    told = _reported(diagnosis)
    walk = diagnosis.lead
    use = walk.busiest if walk else None
    if walk is None or use is None:
        rest = NO_TRACE if walk is None else NO_DEVICE
        return stacked(said(*told, "" if diagnosis.telemetry else rest), *_measured_readings(diagnosis))
    share = int(use.busy.sum()) / max(walk.steps.window, 1)
    rows = [row for period in SAMPLE_PERIODS_MS if (row := _readings_row(walk, use, period))]
    note = (
        "A tool samples by its own clock and not by steps, counts kernels and not copies, counts a kernel "
        "that spins as work, and rounds to whole percents. So it answers another question, and never stands "
        "in for busy."
    )
    measured = _measured_readings(diagnosis)
    if not rows:
        return stacked(*measured, said(
            *told,
            f"Busy here: {percent(share)}. The window is shorter than one sample period of such a tool.",
            note,
        ))
    return stacked(
        *measured,
        said(*told, f"Busy from the trace: {percent(share)} of whole steps."),
        table(
            ("sample period", "readings", "lowest", "median", "highest"),
            rows,
            numbers=(1, 2, 3, 4),
            note=note,
        ),
    )


def _reported(diagnosis: Diagnosis) -> list[str]:
    """The utilization that the evidence itself holds, in a sentence."""
    signal = diagnosis.signals.get("device.utilization_fraction")
    if signal is None or not isinstance(signal.value, int | float):
        return []
    over = f" ({signal.window})" if signal.window else ""
    return [f"The evidence itself reports a utilization of {percent(signal.value)}{over}."]


def _measured_readings(diagnosis: Diagnosis) -> list[Shown]:
    """What a vendor's tool did read, each quantity of each device with its spread; nothing where none was given."""
    rows = []
    for samples in on_device(diagnosis):
        for series in samples.series:
            values = series.known
            if series.kind == "device" and series.quantity in ("utilization", "memory_activity", "power", "core_clock"):
                spread = [f"{v:,.4g}" for v in np.percentile(values, (0, 50, 100))] if len(values) else [""] * 3
                rows.append((series.of, series.quantity, series.unit, f"{len(values)} of {len(series.values)}", *spread,
                             samples.tool))
    if not rows:
        return []
    return [table(("device", "quantity", "unit", "readings known", "lowest", "median", "highest", "tool"),
                  rows[:MOST_READINGS], numbers=(3, 4, 5, 6), title="What the vendor's tool read",
                  note=f"{len(rows) - MOST_READINGS} more rows." if len(rows) > MOST_READINGS else "")]


def _readings_row(walk: Walk, use: DeviceUse, period_ms: int) -> tuple[str, ...] | None:
    read = readings(walk.trace, use, walk.steps.start, walk.steps.end, period_ms * 1_000_000)
    if not len(read):
        return None
    return (
        f"{period_ms} ms",
        f"{len(read)}",
        *(f"{100 * v:.0f} %" for v in (read.min(), np.median(read), read.max())),
    )


def steps(diagnosis: Diagnosis) -> Shown:
    """How the steps were found, and each of them: wall time, busy, phase."""
    walk = diagnosis.lead
    if walk is None:
        return signals(diagnosis, "step") if diagnosis.telemetry else said(NO_TRACE)
    found, busiest = walk.steps, walk.busiest
    rows = [
        _step_row(i, step, None if busiest is None else int(busiest.busy[i]))
        for i, step in enumerate(found.steps)
    ]
    left = len(rows) - MOST_STEPS
    if left > 0:
        rows = [*rows[:MOST_STEPS - 3], ("…", f"{left} more", "", "", "", ""), *rows[-3:]]
    parts = [said(f"{counted(len(found.steps), 'step')}, found by {found.method}: {found.detail}."),
             table(("", "step", "wall", "busy", "share busy", "phase"), rows, numbers=(2, 3, 4))]
    return stacked(*parts, *([lines("Said while looking", found.notes)] if found.notes else []))


def _step_row(i: int, step: Step, busy_ns: int | None) -> tuple[str, ...]:
    share = "" if busy_ns is None else percent(busy_ns / max(step.wall, 1))
    return (str(i + 1), shorten(step.name, 48), milliseconds(step.wall),
            "no device" if busy_ns is None else milliseconds(busy_ns), share, step.phase)


def warm(diagnosis: Diagnosis) -> Shown:
    """The first step against the later ones of its kind, and the phases."""
    walk = diagnosis.lead
    if walk is None:
        return said(NO_TRACE)
    steps = walk.steps.steps
    rest = [steps[i].wall for i in like_the_first(steps)]
    if len(rest) < 2:
        told = f"{counted(len(steps), 'step')}: too few of the first one's kind to set it apart."
    else:
        apart = "set apart as warm-up" if warm_up(steps) else "no warm-up in it"
        alike = milliseconds(float(np.median(rest)))
        told = f"First step {milliseconds(steps[0].wall)}, median of the others like it {alike}: {apart}."
    walls: dict[str, list[int]] = {}
    for step in steps:
        walls.setdefault(step.phase or "not told", []).append(step.wall)
    rows = [(phase, str(len(w)), milliseconds(float(np.median(w)))) for phase, w in sorted(walls.items())]
    return stacked(said(told), table(("phase", "steps", "median wall"), rows, numbers=(1, 2)))


def finding(diagnosis: Diagnosis) -> Shown:
    """The finding that the verdict points to, level by level; without a trace, where the stacks stand."""
    if diagnosis.lead is None:
        return _seen_in_stacks(diagnosis) if diagnosis.telemetry.stacks else said(NO_TRACE)
    if diagnosis.finding is None:
        return said(
            "Nothing to bisect: no part of the step holds time that can be followed down to an operator."
        )
    return _finding(diagnosis.finding)


def _seen_in_stacks(diagnosis: Diagnosis) -> Shown:
    rows = [(row.function, f"{row.file}:{row.line}" if row.line else row.file, f"{row.samples}", percent(row.share),
             f"{row.total}") for row in profile(diagnosis.telemetry.stacks)[:MOST_STEPS]]
    if not rows:
        return said("No stack of these shows the thread that runs the model.")
    return table(("the host stands in", "line seen most", "samples", "share", "on the stack"), rows, numbers=(2, 3, 4))


def second(diagnosis: Diagnosis) -> Shown:
    """The largest finding beside the first: what is next once the first is fixed."""
    walk, first = diagnosis.lead, diagnosis.finding
    if walk is None or first is None:
        return said(NO_TRACE if walk is None else "Nothing to bisect in this trace.")
    other = second_finding(walk, first)
    return (
        said("There is no second finding: one part holds the whole step.")
        if other is None
        else _finding(other)
    )


def _finding(found: Finding) -> Shown:
    title = f"{ABOUT_WORDS.get(found.about, found.about)}: {percent(found.total_share)} of the window"
    share = percent(found.total_share if found.spread else found.share)
    told = [f"{found.name}: {share} of the window, calls a step: {found.calls_per_step:,.4g}."]
    if found.line:
        told.append(f"Python line: {found.line}")
    if found.step_without_ms is not None:
        told.append(f"A step takes {milliseconds(1e6 * found.step_ms)} now and would take "
                    f"{milliseconds(1e6 * found.step_without_ms)} without it.")
    parts = [said(*told)]
    if found.path:
        rows = [
            (
                "\u00a0\u00a0" * i + shorten(level.name, 64),
                level.kind,
                percent(level.share),
                f"{level.device_ms:,.3f}",
                f"{level.host_self_ms:,.3f}",
            )
            for i, level in enumerate(found.path)
        ]
        parts.append(
            table(
                ("from the step down", "kind", "share", "device ms a step", "host itself ms a step"),
                rows,
                numbers=(2, 3, 4),
                title=title,
            )
        )
    others = [(shorten(name, 72), percent(share)) for name, share in found.others if share >= LEAST_SHARE]
    if others:
        parts.append(table(("next to it in the same part", "share"), others, numbers=(1,)))
    return stacked(*parts)


def recovery(faulty: Diagnosis, fixed: Diagnosis | None) -> Shown:
    """The step before and after, and what kind of ratio that is; without `fixed`, what would give it."""
    if fixed is None:
        return said(
            "No evidence of the state after a fix: record the same steps again, at the same load, and give "
            "it as `fixed`."
        )
    before, after = faulty.signals.value("step.wall_ms"), fixed.signals.value("step.wall_ms")
    if not isinstance(before, int | float) or not isinstance(after, int | float) or after <= 0:
        return said("One of the two does not tell its step time: no ratio.")
    where = [", ".join(label(record.path) for record in d.evidence) for d in (faulty, fixed)]
    rows = [("faulty", where[0], milliseconds(1e6 * before)), ("fixed", where[1], milliseconds(1e6 * after))]
    arithmetic = f"{before:,.2f} ms ÷ {after:,.2f} ms = {before / after:,.2f}"
    if before / after < RECOVERED:
        return stacked(
            table(("", "evidence", "one step"), rows, numbers=(2,)), said(f"{arithmetic}: no recovery.")
        )
    told = [
        f"{arithmetic}: a recovery ratio.",
        "It is the way from the fault back to normal. It is no optimization gain: nobody is faster than a "
        "service that was well, and a faster device would make the same ratio larger.",
    ]
    if faulty.finding is not None and faulty.finding.step_without_ms is not None:
        told.append(
            f"From the faulty evidence alone: {milliseconds(1e6 * faulty.finding.step_without_ms)} a step "
            f"without {faulty.finding.name}; measured after the fix: {milliseconds(1e6 * after)}."
        )
    return stacked(table(("", "evidence", "one step"), rows, numbers=(2,)), said(*told))

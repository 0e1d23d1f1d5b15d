"""The summaries beside a trace, for a folder that has lost it: what they say, and with which denominator.

`step_trace_time.csv` gives shares of the vendor's Stage: from the first device task of a step to its last, so without
the preparation before it, and with copies as Free. `op_statistic.csv` and `api_statistic.csv` are sums over the
capture; their shares need the Stage of a `step_trace_time.csv` beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

from ...errors import UnusableInput
from ...signals import Signal, Value
from ...steps.exchange_names import exchanges
from ...text import clean, counted
from ..linking import SYNC_CALL
from . import csv_table
from .csv_table import number, value
from .words import AI_CPU, core_of

STEPS_FILE = "step_trace_time.csv"
COLUMNS = {
    "op_statistic.csv": ("OP Type", "Core Type", "Count", "Total Time(us)"),
    "api_statistic.csv": ("Level", "API Name", "Time(us)", "Count"),
    STEPS_FILE: ("Step", "Computing", "Communication(Not Overlapped)", "Free", "Stage"),
    "operator_details.csv": ("Name", "Host Self Duration(us)", "Host Total Duration(us)", "Device Self Duration(us)"),
}
"""What tells each summary: its columns, not its name."""

_LOST = "a summary without its trace: causes of idle time, and the order of things, are not in it"


@dataclass
class Summary:
    """What one summary says."""

    kind: str
    source: str
    signals: list[Signal] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    skipped: int = 0

    def take(self, name: str, found: Value, window: str) -> None:
        plain = clean(found) if isinstance(found, str) else found
        self.signals.append(Signal(name, plain, "trace", window, self.source))


def kind_of(columns: list[str]) -> str:
    """Which summary has these columns; empty for none."""
    return next((kind for kind, wanted in COLUMNS.items() if set(wanted) <= set(columns)), "")


def read(path: Path) -> Summary:
    """What a summary says. Raises UnusableInput for a file that is none, or that holds no figures."""
    found = csv_table.rows(path)
    first = next(found, None)
    kind = kind_of(list(first)) if first else ""
    if first is None or not kind:
        raise UnusableInput("no summary of an Ascend profile, or one without rows", where=path)
    out = Summary(kind, str(path), notes=[_LOST])
    {"op_statistic.csv": _operations, "api_statistic.csv": _calls, STEPS_FILE: _steps,
     "operator_details.csv": _operators}[kind](_counted(chain([first], found), out), out, _stages(path))
    if out.skipped:
        out.notes.append(f"{counted(out.skipped, 'row has', 'rows have')} no figures: left out")
    if out.skipped == out.rows:
        raise UnusableInput(f"{kind} without a row of figures", where=path)
    return out


def _counted(rows: Iterable[csv_table.Row], out: Summary) -> Iterator[csv_table.Row]:
    for row in rows:
        out.rows += 1
        yield row


def _stages(path: Path) -> list[float]:
    """Stage (µs) of each step, from the file beside `path`; empty where it is absent or unreadable."""
    beside = path.parent / STEPS_FILE
    try:
        rows = list(csv_table.rows(beside)) if beside.is_file() else []
    except (UnusableInput, OSError):
        return []
    return [stage for row in rows if (stage := number(row, "Stage")) is not None and stage > 0]


def _steps(lines: Iterator[csv_table.Row], out: Summary, _: list[float]) -> None:
    rows = list(lines)
    known = [figures for row in rows if (figures := _step(row)) is not None]
    out.skipped = len(rows) - len(known)
    if not known:
        return
    stage = sum(figures[0] for figures in known)
    words = (f"{counted(len(known), 'vendor stage')}, {stage / 1e3:,.1f} ms: from the first device task of a step to "
             "its last")
    out.take("step.wall_ms", median(figures[0] for figures in known) / 1e3, words)
    named = all(value(row, "Step") for row in rows)
    # a stage is a step where the profiler was told of steps, else the whole capture. Either way it is one rank's trace:
    # the rules that doubt the collectives of one rank must know that
    out.take("step.method", "annotation" if named else "window", words)
    if named:
        out.take("step.count", len(known), words)
    for name, part in (("compute", 1), ("comm", 2)):
        out.take(f"device.{name}_fraction", _share(sum(figures[part] for figures in known), stage), words)
    out.take("device.busy_fraction", _share(stage - sum(figures[3] for figures in known), stage), words)
    out.unknown["device.copy_fraction"] = f"{STEPS_FILE} has no column for copies: they count as Free"


def _step(row: csv_table.Row) -> tuple[float, float, float, float] | None:
    """Stage, computing, exposed communication, free (µs); None where one is missing or out of its range."""
    found = [number(row, name) for name in ("Stage", "Computing", "Communication(Not Overlapped)", "Free")]
    if any(figure is None or figure < 0 for figure in found) or not found[0]:
        return None
    stage, computing, comm, free = (float(figure or 0) for figure in found)
    return (stage, computing, comm, free) if max(computing, comm, free) <= stage * 1.001 else None


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0)


def _operations(rows: Iterator[csv_table.Row], out: Summary, stages: list[float]) -> None:
    on_cpu: dict[str, float] = {}
    told = False
    for row in rows:
        time, core = number(row, "Total Time(us)"), core_of(value(row, "Core Type"))
        if time is None or time < 0:
            out.skipped += 1
            continue
        told |= bool(core)
        name = value(row, "OP Type")
        if core == AI_CPU and not exchanges(name):  # the half of a fused operator that exchanges fell back from nothing
            on_cpu[name] = on_cpu.get(name, 0.0) + time
    why = "a sum of device operations does not show what ran on the host"
    if not told:
        why = "no kinds of core in it. Record with profiler_level=Level1"
    if not on_cpu:
        out.unknown |= dict.fromkeys(("fallback.op", "fallback.fraction"), why)
        return
    total = sum(on_cpu.values())
    out.take("fallback.op", f"{max(on_cpu, key=lambda name: on_cpu[name])} ({AI_CPU})", "the whole capture")
    out.notes.append(f"{total / 1e3:,.3f} ms on the device's own CPU (AI_CPU): the NPU counts as busy meanwhile")
    if stages:
        words = f"{counted(len(stages), 'vendor stage')}, {sum(stages) / 1e3:,.1f} ms"
        out.take("fallback.fraction", _share(total, sum(stages)), words)
    else:
        out.unknown["fallback.fraction"] = f"no {STEPS_FILE} beside it: nothing to divide by"


def _calls(lines: Iterator[csv_table.Row], out: Summary, stages: list[float]) -> None:
    rows = list(lines)
    waits = times = launches = spent = 0.0
    levels = {value(row, "Level") for row in rows}
    for row in rows:
        time, count = number(row, "Time(us)"), number(row, "Count")
        if time is None or count is None or min(time, count) < 0:
            out.skipped += 1
            continue
        level, name = value(row, "Level"), value(row, "API Name")
        if level == ("acl" if "acl" in levels else "runtime") and SYNC_CALL.search(name):
            times, waits = times + time, waits + count
        if level == "node" and name == "launch":
            spent, launches = spent + time, launches + count
    if launches:
        out.take("host.launch_us", spent / launches, f"mean of {launches:,.0f} launches, the whole capture")
    if stages:
        words = f"{counted(len(stages), 'vendor stage')}; synchronizations of all threads"
        out.take("sync.per_step", waits / len(stages), words)
    else:
        out.unknown["sync.per_step"] = f"no {STEPS_FILE} beside it: the number of steps is unknown"
    out.unknown["sync.wait_fraction"] = "a sum over all threads: how long the feeding one was blocked is not in it"
    out.notes.append(f"{waits:,.0f} synchronizations, {times / 1e3:,.1f} ms of waiting in all")


def _operators(rows: Iterator[csv_table.Row], out: Summary, _: list[float]) -> None:
    own: dict[str, float] = {}
    for row in rows:
        time = number(row, "Host Self Duration(us)")
        if time is None or time < 0:
            out.skipped += 1
            continue
        name = value(row, "Name")
        own[name] = own.get(name, 0.0) + time
    out.unknown["host.top_op"] = "host times of operators with their waits inside: which of them works is not in it"
    if own:
        top = max(own, key=lambda name: own[name])
        out.notes.append(f"most host time, waits included: {clean(top)}, {own[top] / 1e3:,.1f} ms")

"""Walks and diagnoses put together by hand, row by row, for tests of what is drawn and displayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xpu_triage.diagnosis import Diagnosis, EvidenceRecord
from xpu_triage.signals import Signal, Signals
from xpu_triage.steps.results import CAUSES, Cause, DeviceUse, Finding, Gaps, Level, Step, Steps, Walk
from xpu_triage.trace import Kind, Trace
from xpu_triage.verdict import Contradiction, Hypothesis, Reason, RuledOut, Verdict
from xpu_triage.verdict import Level as VerdictLevel

MS = 1_000_000


@dataclass(frozen=True)
class Row:
    """One event, in ns. Host rows have a thread, device rows a device."""

    start: int
    dur: int
    name: str
    kind: Kind
    thread: int = -1
    device: int = -1
    launch: int = -1
    blocking: bool = False


def trace_of(rows: Sequence[Row], threads: Sequence[str] = ("1",), devices: Sequence[str] = ("0",)) -> Trace:
    """Rows as a trace; they must come sorted by start."""
    names = tuple(dict.fromkeys(row.name for row in rows))
    code = {name: i for i, name in enumerate(names)}

    def column(values: Sequence[int], kind: type) -> np.ndarray:
        return np.array(list(values), dtype=kind)

    return Trace(
        start=column([r.start for r in rows], np.int64),
        dur=column([r.dur for r in rows], np.int64),
        name=column([code[r.name] for r in rows], np.int32),
        kind=column([r.kind for r in rows], np.int8),
        device=column([r.device for r in rows], np.int32),
        stream=column([r.device for r in rows], np.int32),
        thread=column([r.thread for r in rows], np.int32),
        correlation=column([-1] * len(rows), np.int64),
        launch=column([r.launch for r in rows], np.int64),
        blocking=column([r.blocking for r in rows], bool),
        names=names,
        devices=tuple(devices),
        streams=tuple(f"{d} stream 0" for d in devices),
        threads=tuple(threads),
        source="synthetic.json",
        format="made by hand",
    )


def gaps_of(intervals: Sequence[tuple[int, int, Cause]]) -> Gaps:
    """Idle intervals (start, end, cause), with nothing known about what lies around them."""
    count = len(intervals)
    none = np.full(count, -1, dtype=np.int64)
    return Gaps(
        start=np.array([s for s, _, _ in intervals], dtype=np.int64),
        end=np.array([e for _, e, _ in intervals], dtype=np.int64),
        cause=np.array([CAUSES.index(c) for _, _, c in intervals], dtype=np.int8),
        host_row=none,
        host_ns=np.zeros(count, dtype=np.int64),
        sync_row=none,
        before=none,
        after=none,
        launch=none,
        fallback=np.zeros(count, dtype=bool),
    )


def use_of(trace: Trace, steps: Steps, gaps: Gaps, device: str = "0") -> DeviceUse:
    """The busy time of a device whose rows do not overlap, step by step."""
    mine = trace.device == trace.devices.index(device)

    def per_step(kind: Kind | None) -> np.ndarray:
        rows = mine if kind is None else mine & (trace.kind == kind)
        s, e = trace.start[rows], trace.end[rows]
        return np.array([int((np.minimum(e, step.end) - np.maximum(s, step.start)).clip(0).sum())
                         for step in steps.steps], dtype=np.int64)

    return DeviceUse(
        device=device,
        busy=per_step(None),
        compute=per_step(Kind.KERNEL),
        copy=per_step(Kind.COPY),
        comm=per_step(Kind.COMM),
        busy_start=trace.start[mine],
        busy_end=trace.end[mine],
        gaps=gaps,
    )


def fallback_walk(count: int = 6, operator: str = "aten::exponential_", phase: str = "decode") -> Walk:
    """`count` steps of 100 ms: 2 ms of kernels, a copy down, 90 ms of one host operator, a copy up, 2 ms
    of kernels."""
    rows: list[Row] = []
    steps, gaps = [], []
    for i in range(count):
        t = i * 100 * MS

        def add(
            start_ms: float, dur_ms: float, name: str, kind: Kind, base: int = t, **more: int | bool
        ) -> int:
            rows.append(Row(base + round(start_ms * MS), round(dur_ms * MS), name, kind, **more))
            return len(rows) - 1

        add(0, 99, f"step[DECODE bs=256] {i}", Kind.ANNOTATION, thread=0)
        add(0.1, 2, "forward", Kind.ANNOTATION, thread=0)
        call = add(0.2, 0.1, "launchKernel", Kind.RUNTIME, thread=0)
        add(1, 2, "gemm", Kind.KERNEL, device=0, launch=call)
        add(2.5, 96, "sampler", Kind.ANNOTATION, thread=0)
        call = add(2.6, 1.4, "memcpy", Kind.RUNTIME, thread=0, blocking=True)
        add(3, 1, "Memcpy DtoH", Kind.COPY, device=0, launch=call)
        add(4.5, 90, operator, Kind.HOST_OP, thread=0)
        call = add(95, 0.2, "memcpy", Kind.RUNTIME, thread=0)
        add(95, 1, "Memcpy HtoD", Kind.COPY, device=0, launch=call)
        add(96, 2, "argmax", Kind.KERNEL, device=0, launch=call)
        steps.append(Step(f"step[DECODE bs=256] {i}", t, t + 100 * MS, phase))
        gaps += [(t, t + MS, Cause.LAUNCHING), (t + 4 * MS, t + 95 * MS, Cause.HOST_OP),
                 (t + 98 * MS, t + 100 * MS, Cause.AFTER_SYNC)]
    trace = trace_of(rows)
    found = Steps("annotation", "step[DECODE …]", tuple(steps))
    level = Level
    finding = Finding(
        about="host_op", total_share=0.91, share=0.90, name=operator, spread=False, calls_per_step=1.0,
        line="sampler.py(41): forward", step_ms=100.0, step_without_ms=9.0, others=(("aten::topk", 0.01),),
        path=(level("sampler", "phase", 0.91, 2.0, 1.0), level(operator, "operator", 0.90, 1.0, 90.0)))
    second = Finding(
        about="after_sync",
        total_share=0.02,
        share=0.02,
        name="spread over 6 syncs",
        spread=True,
        calls_per_step=1.0,
        line="",
        step_ms=100.0,
        step_without_ms=98.0,
        others=(("aten::item", 0.012), ("aten::copy_", 0.008)),
        path=(),
    )
    return Walk(trace, found, (use_of(trace, found, gaps_of(gaps)),), (finding, second),
                signals=(Signal("step.wall_ms", 100.0, "trace", f"{count} whole steps", "synthetic.json"),))


def host_only_walk() -> Walk:
    """One step of 10 ms on a host without device."""
    trace = trace_of([Row(0, 10 * MS, "ProfilerStep#1", Kind.ANNOTATION, thread=0),
                      Row(MS, 7 * MS, "aten::mm", Kind.HOST_OP, thread=0)], devices=())
    steps = Steps("annotation", "ProfilerStep#…", (Step("ProfilerStep#1", 0, 10 * MS),))
    path = (Level("aten::mm", "operator", 0.7, 0.0, 7.0),)
    finding = Finding("host", 1.0, 0.7, path, "aten::mm", False, 1.0, "", 10.0, 3.0)
    return Walk(
        trace, steps, (), (finding,), (), unknown={"device.busy_fraction": "no device work in this trace"}
    )


def device_only_walk() -> Walk:
    """Ten kernels of 1 ms every 1.5 ms, and nothing of the host."""
    rows = [Row(i * 1_500_000, MS, f"kernel {i % 3}", Kind.KERNEL, device=0) for i in range(10)]
    trace = trace_of(rows, threads=())
    steps = Steps("window", "no recurring mark", (Step("capture", 0, 14_500_000),))
    gaps = gaps_of([(i * 1_500_000 + MS, (i + 1) * 1_500_000, Cause.UNRECORDED) for i in range(9)])
    return Walk(trace, steps, (use_of(trace, steps, gaps),), (), ())


def verdict_of(
    level: VerdictLevel = VerdictLevel.CONFIRMED,
    title: str = "An operator runs on the host's CPU",
    summary: str = "aten::exponential_ holds 90 % of the step.",
) -> Verdict:
    """A verdict with one of everything."""
    reason = Reason(
        "idle.host_op_fraction 0.91 ≥ 0.15: the device waits for the host",
        ("idle.host_op_fraction",),
        2.0,
        True,
        "made by hand",
    )
    against = Reason(
        "kernel.graph_fraction 0.0: no graphs", ("kernel.graph_fraction",), 0.5, True, "made by hand"
    )
    first = Hypothesis(
        "cpu-fallback", title, 3.0, 0.90, (reason,), (against,), ("ab.on_cpu_ratio",), "fallback.op"
    )
    return Verdict(
        level,
        None if level is VerdictLevel.NOT_ENOUGH else "cpu-fallback",
        title,
        summary,
        "Run the fixed sampler.",
        (first,),
        (RuledOut("implicit-sync", "syncs explain 2 % of the step"),),
        (
            Contradiction(
                "256 running ÷ 4.89 s a step = 52.4 tokens/s, but 32 were measured",
                ("serving.running", "step.wall_ms"),
            ),
        ),
        "Keep the draw on the device.",
        "Count the fallbacks of ten steps: none is left.",
    )


def diagnosis_of(
    walk: Walk | None = None,
    verdict: Verdict | None = None,
    signals: Sequence[Signal] = (),
    evidence: Sequence[EvidenceRecord] = (EvidenceRecord("synthetic.json", "made by hand", 66),),
) -> Diagnosis:
    """A diagnosis around a walk; the finding is the walk's first."""
    found = (walk.signals if walk else ()) + tuple(signals)
    return Diagnosis(verdict or verdict_of(), Signals(found), tuple(evidence), walk,
                     walk.findings[0] if walk and walk.findings else None,
                     unknown=dict(walk.unknown) if walk else {})


def renamed(walk: Walk, old: str, new: str) -> Walk:
    """The walk with one name replaced everywhere, as if it had been read from the file like that."""
    names = tuple(new if name == old else name for name in walk.trace.names)
    findings = tuple(
        replace(f, name=new if f.name == old else f.name,
                path=tuple(replace(v, name=new if v.name == old else v.name) for v in f.path))
        for f in walk.findings)
    return replace(walk, trace=replace(walk.trace, names=names), findings=findings)

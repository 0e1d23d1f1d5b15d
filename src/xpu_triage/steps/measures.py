"""Signals that a walked trace gives, by the definitions of the catalogue; and, for those it cannot give,
why."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from ..signals import Signal, Value
from ..trace import BEFORE_CAPTURE, NOT_LINKED, Ints, Kind
from .bisection import NO_ROWS
from .blame import host_part
from .fallback import Fallbacks, cannot_show
from .intervals import Bools, covered_between, total_within, union_of
from .patterns import COMPILE, COPY_CALL, GRAPH_LAUNCH, HOST_EXCHANGE, PLUMBING, is_library
from .results import CAUSES, Cause, Finding, Gaps, Step
from .scene import Scene
from .step_names import is_engine_step, is_profiler_step
from .utilization import DeviceTime

REPLAYED_PER_CALL = 8
"""From this many kernels on, one call has replayed a graph, whatever it is called."""

LINKED_SHARE = 0.5
"""A share of kernels by how they were launched is given only where at least this share has a known launch."""

UNRECORDED_SHARE = 0.2
"""Where the launching thread is silent for more of the window, an absent fallback is unknown and not
absent."""


WORTH_NAMING = 0.02
"""Share of the window from which on idle after synchronizations decides which of them is named."""


@dataclass
class Measures:
    """Signals as they are taken, all from one trace over one window."""

    source: str
    window: str
    signals: list[Signal] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, value: Value | np.generic, window: str | None = None) -> None:
        plain: Value = value.item() if isinstance(value, np.generic) else value
        self.signals.append(Signal(name, plain, "trace", self.window if window is None else window, self.source))

    def cannot(self, why: str, *names: str) -> None:
        for name in names:
            self.unknown.setdefault(name, why)

    def share(self, name: str, part: float, whole: float) -> None:
        """A fraction, kept inside 0–1 against rounding."""
        self.take(name, min(max(float(part) / max(float(whole), 1.0), 0.0), 1.0))


def spoken(ns: float) -> str:
    """A duration for a sentence: `58.7 s`, `12.94 ms`."""
    return f"{ns / 1e9:,.1f} s" if ns >= 1e10 else f"{ns / 1e6:,.2f} ms"


def window_in_words(scene: Scene) -> str:
    count, span = len(scene.steps.steps), spoken(scene.window)
    if scene.steps.method == "window":
        return f"whole capture, {span}"
    return f"{count} whole step{'s' if count > 1 else ''}, {span}"


# -- steps ---------------------------------------------------------------------------------------------------
# ------------
def measure_steps(scene: Scene, out: Measures) -> None:
    steps = scene.steps.steps
    out.take("step.method", scene.steps.method)
    if scene.steps.method == "window":
        out.cannot("no steps found: the capture is one window, its length is not a step time", "step.wall_ms", "step.count")
        out.cannot("no steps found", "warmup.first_step_excess_fraction")
        return
    walls = np.array([s.wall for s in steps])
    decode = [i for i, s in enumerate(steps) if s.phase == "decode"]
    chosen = decode or list(range(len(steps)))
    out.take("step.wall_ms", float(np.median(walls[chosen])) / 1e6,
             f"median of {len(chosen)} {'decode ' if decode else ''}step{'s' if len(chosen) > 1 else ''}")
    out.take("step.count", len(steps))
    _measure_first_step(scene, steps, walls, out)
    _measure_batch(steps, out)


def _measure_first_step(scene: Scene, steps: tuple[Step, ...], walls: Ints, out: Measures) -> None:
    alike = [i for i, s in enumerate(steps) if i and s.phase == steps[0].phase]
    if len(alike) < 2:
        why = ("fewer than three steps" if len(steps) < 3 else
               f"the first step is a {steps[0].phase} and hardly any other is: nothing to compare it with")
        out.cannot(why, "warmup.first_step_excess_fraction")
        return
    excess = float(walls[0] - np.median(walls[alike]))
    out.share("warmup.first_step_excess_fraction", max(excess, 0.0), scene.window)


def _measure_batch(steps: tuple[Step, ...], out: Measures) -> None:
    running = [s.decode_requests for s in steps if s.decode_requests]
    if running:
        out.take("serving.running", float(np.mean(running)), f"mean of {len(running)} steps that decode")
    phases = [s.phase for s in steps]
    if any(phases):
        out.take("serving.prefill_run_steps", _longest_prefill_run(phases))


def _longest_prefill_run(phases: list[str]) -> int:
    """Longest run of prefill steps with steps that decode on both sides: only then were decodes surely
    pending."""
    longest = run = 0
    decoding = False
    for phase in phases:
        if phase == "prefill":
            run += decoding
            continue
        if phase in ("decode", "mixed"):
            longest, decoding = max(longest, run), True
        run = 0
    return longest


# -- the device
# ----------------------------------------------------------------------------------------------------------
def measure_device(scene: Scene, time: DeviceTime, gaps: Gaps, out: Measures) -> None:
    window = scene.window
    out.share("device.busy_fraction", time.busy.sum(), window)
    for part, ns in time.parts.items():
        out.share(f"device.{part}_fraction", ns.sum(), window)
    by_cause = gaps.by_cause()
    told = {Cause.UNRECORDED, Cause.HIDDEN} if not len(scene.host) else set(CAUSES)
    for cause in CAUSES:
        if cause in told:
            out.share(f"idle.{cause}_fraction", by_cause[cause], window)
        else:
            out.cannot("no host rows: what the host did while the device was idle cannot be seen", f"idle.{cause}_fraction")
    unlinked = (gaps.after >= 0) & ((gaps.launch == NOT_LINKED) | (gaps.launch == BEFORE_CAPTURE))
    out.share("idle.before_unlinked_fraction", gaps.dur[unlinked].sum(), window)
    _measure_step_gap(scene, time, out)
    _measure_kernels(scene, time, out)
    _measure_collectives(scene, time, out)


def _measure_step_gap(scene: Scene, time: DeviceTime, out: Measures) -> None:
    """Median from the end of a step's last device work to the start of the next step's first: work belongs to
    the step that launched it, and where that is not known to the one it starts in."""
    if len(scene.steps.steps) < 2 or scene.steps.method == "window":
        return
    trace, rows = scene.trace, time.rows
    launch = trace.launch[rows]
    at = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], trace.start[rows])
    step = scene.step_of(at)
    count = len(scene.steps.steps)
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, -1)
    inside = step >= 0
    np.minimum.at(first, step[inside], trace.start[rows][inside])
    np.maximum.at(last, step[inside], scene.end[rows][inside])
    worked = np.flatnonzero(last >= 0)
    worked = worked[np.append(np.diff(worked) == 1, False)] if len(worked) > 1 else worked[:0]
    if len(worked):
        gap = np.maximum(first[worked + 1] - last[worked], 0)
        out.take("idle.step_gap_ms", float(np.median(gap)) / 1e6)


def _measure_kernels(scene: Scene, time: DeviceTime, out: Measures) -> None:
    trace, steps = scene.trace, len(scene.steps.steps)
    rows = time.rows[_inside(scene, time.rows)]
    kernels = rows[trace.kind[rows] != Kind.COPY]
    if scene.steps.method == "window":
        out.cannot("no steps found", "kernel.per_step")
    else:
        out.take("kernel.per_step", len(kernels) / steps)
    if not len(kernels):
        out.cannot("no kernel inside the window", "kernel.median_us", "kernel.graph_fraction")
        return
    out.take("kernel.median_us", float(np.median(trace.dur[kernels])) / 1e3)
    linked = kernels[trace.launch[kernels] >= 0]
    if len(linked) < LINKED_SHARE * len(kernels):
        out.cannot("most kernels have no launch in the capture", "kernel.graph_fraction")
    else:
        out.share("kernel.graph_fraction", float(replayed(scene, linked).sum()), len(linked))
    if len(linked):
        wait = trace.start[linked] - trace.start[trace.launch[linked]]
        out.take("kernel.launch_to_start_us", max(float(np.median(wait)), 0.0) / 1e3)
    held = np.bincount(trace.name[rows], trace.dur[rows])
    top = int(held.argmax())
    mine = rows[trace.name[rows] == top]
    left, right = np.maximum(trace.start[mine], scene.left), np.minimum(scene.end[mine], scene.right)
    out.take("kernel.top_name", trace.names[top])
    out.share("kernel.top_fraction", (right - left).sum(), time.busy.sum())
    out.take("kernel.top_ms", float(np.median(trace.dur[mine])) / 1e6)
    if core := _core(scene, int(mine[0])):
        out.take("kernel.top_core", core)


def replayed(scene: Scene, kernels: Ints) -> Bools:
    """Which kernels (all with a known launch) a graph replay launched: by the call's name, or because it
    launched many."""
    call = scene.trace.launch[kernels]
    per_call = np.bincount(call, minlength=1)[call]
    return scene.names.rows(GRAPH_LAUNCH, Kind.RUNTIME, Kind.HOST_OP, of=call) | (per_call >= REPLAYED_PER_CALL)


def _core(scene: Scene, row: int) -> str:
    """The kind of core, where the capture tells: a copy engine, a core that the name gives, the SMs behind a
    CUDA call."""
    trace = scene.trace
    if trace.kind[row] == Kind.COPY:
        return "copy"
    name = trace.name_of(row).upper()
    named = next((core for core in ("AI_CPU", "AI_VECTOR_CORE", "AI_CORE") if core in name or core.replace("_", "") in name), "")
    call = int(trace.launch[row])
    return named or ("SM" if call >= 0 and re.match(r"cu(da)?[A-Z]", trace.name_of(call)) else "")


def _measure_collectives(scene: Scene, time: DeviceTime, out: Measures) -> None:
    trace = scene.trace
    rows = time.rows[_inside(scene, time.rows)]
    calls = rows[trace.kind[rows] == Kind.COMM]
    if scene.steps.method != "window":
        out.take("comm.calls_per_step", len(calls) / len(scene.steps.steps))
    if len(calls):
        top = int(np.bincount(trace.name[calls], trace.dur[calls]).argmax())
        ns = trace.dur[calls[trace.name[calls] == top]]
        words = f"{len(ns)} calls of {trace.names[top]} on one rank"
        out.take("comm.min_us", int(ns.min()) / 1e3, words)
        out.take("comm.max_us", int(ns.max()) / 1e3, words)


def measure_fallback(scene: Scene, fallbacks: Fallbacks, gaps: Gaps, out: Measures) -> None:
    op = fallbacks.heaviest(scene.left, scene.right)
    if op is not None:
        out.take("fallback.op", op)
        out.share("fallback.fraction", fallbacks.total(scene.left, scene.right), scene.window)
        return
    why = cannot_show(scene)
    if not why and gaps.by_cause()[Cause.UNRECORDED] > UNRECORDED_SHARE * scene.window:
        why = "the launching thread has no rows for much of the window: operators that ran there were not recorded"
    if why:
        out.cannot(why, "fallback.op", "fallback.fraction")
        return
    out.take("fallback.op", "none")
    out.take("fallback.fraction", 0.0)


# -- the host
# ------------------------------------------------------------------------------------------------------------
def measure_host(scene: Scene, idle_ns: int | None, gaps: Gaps | None, findings: tuple[Finding, ...], out: Measures) -> None:
    """Synchronizations, launch calls, and what the program does. `idle_ns`: the busiest device's idle, None
    without one."""
    _measure_syncs(scene, idle_ns, gaps, out)
    _measure_launches(scene, out)
    _measure_copies(scene, out)
    _measure_program(scene, out)
    for about in (Cause.HOST_OP, Cause.FIRST_USE):
        named = next((f for f in findings if f.about == about and not f.spread), None)
        if named is not None and named.name != NO_ROWS:
            out.take("idle.host_op", named.name)
            break


def _measure_syncs(scene: Scene, idle_ns: int | None, gaps: Gaps | None, out: Measures) -> None:
    names = ("sync.per_step", "sync.wait_fraction", "sync.gain_bound_fraction")
    trace, host = scene.trace, scene.host
    if not (scene.host_kind == Kind.RUNTIME).any() and not trace.blocking.any():
        out.cannot("no runtime calls in the capture: calls that block the host cannot be seen", *names)
        return
    calls = host.row[np.flatnonzero(scene.blocked_in == np.arange(len(host)))]
    calls = calls[np.isin(trace.thread[calls], scene.feeding_threads)]  # a watchdog's waiting holds up nobody
    inside = calls[_inside(scene, calls)]
    if scene.steps.method == "window":
        out.cannot("no steps found", "sync.per_step")
    else:
        out.take("sync.per_step", len(inside) / len(scene.steps.steps))
    blocked = total_within(trace.start[calls], scene.end[calls], scene.left, scene.right)
    out.share("sync.wait_fraction", blocked, scene.window)
    if idle_ns is None:
        out.cannot("no device rows: how long the device was idle is unknown", "sync.gain_bound_fraction")
    else:
        out.share("sync.gain_bound_fraction", min(blocked, idle_ns), scene.window)
    if len(inside):
        out.take("sync.site", _sync_site(scene, inside, gaps) if gaps else site_of(scene, inside, trace.dur[inside]))


def _sync_site(scene: Scene, calls: Ints, gaps: Gaps) -> str:
    """The blocking calls that most idle follows; where hardly any does, those that wait longest."""
    bubble = gaps.cause == CAUSES.index(Cause.AFTER_SYNC)
    if gaps.dur[bubble].sum() >= WORTH_NAMING * scene.window:
        return site_of(scene, gaps.sync_row[bubble], gaps.dur[bubble])
    return site_of(scene, calls, scene.trace.dur[calls])


def site_of(scene: Scene, calls: Ints, ns: Ints) -> str:
    """Where most of the time `ns` of blocking calls falls: `aten::item (cudaStreamSynchronize) at
    model.py(12): forward`."""
    host, names = scene.host, scene.trace.names
    index = host.index(calls)
    operator = host.nearest(index, scene.host_rows(lambda n: not PLUMBING.search(n), Kind.HOST_OP))
    frame = host.nearest(index, scene.host_rows(lambda n: not is_library(n), Kind.PYTHON))
    site = np.where(operator >= 0, operator, index)
    top = int(np.bincount(scene.host_name[site], ns).argmax())
    longest = int(np.where(scene.host_name[site] == top, ns, -1).argmax())
    call = names[scene.host_name[index[longest]]]
    text = names[top] if names[top] == call else f"{names[top]} ({call})"
    return f"{text} at {names[scene.host_name[frame[longest]]]}" if frame[longest] >= 0 else text


def _measure_launches(scene: Scene, out: Measures) -> None:
    """Mean host time of one launch call, of a kernel or a whole graph; calls that move data left out."""
    trace = scene.trace
    launched = trace.launch[(trace.launch >= 0) & ((trace.kind == Kind.KERNEL) | (trace.kind == Kind.COMM))]
    calls = np.unique(launched)
    calls = calls[(trace.kind[calls] == Kind.RUNTIME) & _inside(scene, calls)]
    calls = calls[~scene.names.rows(COPY_CALL, Kind.RUNTIME, of=calls)]
    if len(calls):
        out.take("host.launch_us", float(trace.dur[calls].mean()) / 1e3)


def _measure_copies(scene: Scene, out: Measures) -> None:
    trace = scene.trace
    if scene.steps.method == "window" or not trace.on_device.any():
        return
    copies = np.flatnonzero(trace.kind == Kind.COPY)
    copies = copies[_inside(scene, copies)]
    crossing = (scene.copies_down | scene.copies_up)[copies]
    if crossing.any() or not len(copies):
        out.take("sync.copy_ms", float(trace.dur[copies[crossing]].sum()) / 1e6 / len(scene.steps.steps))


def _measure_program(scene: Scene, out: Measures) -> None:
    """The function, operator or span with most time of its own on the main thread, waits left out."""
    trace, host = scene.trace, scene.host
    thread = scene.main_thread
    part, _ = host_part(scene, thread)
    if part.total:
        good = scene.host_rows(lambda n: not PLUMBING.search(n) and not is_library(n), Kind.HOST_OP, Kind.PYTHON, Kind.RUNTIME, Kind.ANNOTATION)
        good &= ~scene.host_rows(lambda n: is_profiler_step(n) or is_engine_step(n), Kind.ANNOTATION)
        rows = np.flatnonzero(part.weight > 0)
        owner = host.nearest(rows, good)
        if (owner >= 0).any():
            held = np.bincount(scene.host_name[owner[owner >= 0]], part.weight[rows[owner >= 0]])
            top = int(held.argmax())
            words = f"own time on the main thread, {out.window}"
            out.take("host.top_op", trace.names[top], words)
            out.take("host.top_op_fraction", min(float(held[top]) / scene.window, 1.0), words)
            if scene.steps.method != "window":
                out.take("host.top_op_ms", float(held[top]) / 1e6 / len(scene.steps.steps), words)
    _measure_exchanges(scene, thread, out)
    compiling = host.outermost(np.flatnonzero(scene.host_rows(COMPILE, Kind.PYTHON, Kind.ANNOTATION, Kind.RUNTIME, Kind.HOST_OP)))
    compiling = host.row[compiling]
    compiling = compiling[_inside(scene, compiling)]
    if len(compiling) or (scene.host_kind == Kind.PYTHON).any():
        out.take("warmup.compiles", len(compiling))


def _measure_exchanges(scene: Scene, thread: int, out: Measures) -> None:
    trace, host = scene.trace, scene.host
    rows = host.row[np.flatnonzero(scene.host_rows(HOST_EXCHANGE, Kind.HOST_OP, Kind.PYTHON, Kind.ANNOTATION))]
    rows = rows[trace.thread[rows] == thread]
    if len(rows) and scene.steps.method != "window":
        start, end = union_of(trace.start[rows], scene.end[rows])
        ns = covered_between(start, end, np.array([scene.left]), np.array([scene.right]))
        out.take("comm.host_ms", float(ns[0]) / 1e6 / len(scene.steps.steps))


def _inside(scene: Scene, rows: Ints) -> Bools:
    """Rows that start inside the window."""
    return (scene.trace.start[rows] >= scene.left) & (scene.trace.start[rows] < scene.right)

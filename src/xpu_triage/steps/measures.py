"""Signals of steps and devices, by the definitions of the catalogue; and for those that a trace cannot give,
why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..signals import Signal, Value
from ..text import counted
from ..trace import BEFORE_CAPTURE, NOT_LINKED, Ints, Kind
from .collectives import collectives
from .copy_waits import copy_time
from .fallback import Fallbacks, alone_on_control_cpu, cannot_show
from .groups import heaviest_code
from .intervals import Bools
from .patterns import CONTROL_CPU, DEVICE_WAIT, GRAPH_LAUNCH
from .prefill_runs import SEVERAL, prefill_runs
from .results import CAUSES, Cause, Gaps, Step
from .scene import Scene
from .utilization import DeviceTime

REPLAYED_PER_CALL = 8
"""From this many kernels on, one call has replayed a graph, whatever it is called."""

LINKED_SHARE = 0.5
"""A share of kernels by how they were launched is given only where at least this share has a known launch."""

UNRECORDED_SHARE = 0.2
"""Where the launching thread is silent for more of the window, an absent fallback is unknown and not
absent."""


@dataclass
class Measures:
    """Signals as they are taken, all from one trace over one window."""

    source: str
    window: str
    signals: list[Signal] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)
    """Signals that the reader says the capture cannot give, each with the reason. A fallback that was seen is told all
    the same: only that none was cannot be."""

    def take(self, name: str, value: Value | np.generic, window: str | None = None) -> None:
        """Keep one measurement, as a plain Python value."""
        if name in self.withheld:
            self.cannot(self.withheld[name], name)
            return
        plain: Value = value.item() if isinstance(value, np.generic) else value
        words = self.window if window is None else window
        self.signals.append(Signal(name, plain, "trace", words, self.source))

    def share(self, name: str, part: float, whole: float) -> None:
        """Keep a fraction, held inside 0–1 against rounding."""
        self.take(name, min(max(float(part) / max(float(whole), 1.0), 0.0), 1.0))

    def cannot(self, why: str, *names: str) -> None:
        """Say of signals that this trace cannot tell them."""
        for name in names:
            self.unknown.setdefault(name, why)


def spoken(ns: float) -> str:
    """A duration for a sentence: `58.7 s`, `12.94 ms`."""
    return f"{ns / 1e9:,.1f} s" if ns >= 1e10 else f"{ns / 1e6:,.2f} ms"


def window_in_words(scene: Scene) -> str:
    """`12 whole steps, 58.7 s`."""
    count, span = len(scene.steps.steps), spoken(scene.steps.window)
    if scene.steps.method == "window":
        return f"whole capture, {span}"
    return f"{count} whole step{'s' if count > 1 else ''}, {span}"


def starts_inside(scene: Scene, rows: Ints) -> Bools:
    """Which rows of the trace start inside the window."""
    start = scene.trace.start[rows]
    return (start >= scene.left) & (start < scene.right)


# -- steps
def measure_steps(scene: Scene, out: Measures) -> None:
    """`step.*`, `warmup.first_step_excess_fraction`, and what the steps' names tell of the batch."""
    steps = scene.steps.steps
    out.take("step.method", scene.steps.method)
    if scene.steps.method == "window":
        out.cannot("no steps found: the length of the capture is not a step time", "step.wall_ms", "step.count")
        out.cannot("no steps found", "warmup.first_step_excess_fraction")
        return
    walls = np.array([step.wall for step in steps])
    decode = [i for i, step in enumerate(steps) if step.phase == "decode"]
    chosen = decode or list(range(len(steps)))
    words = f"median of {len(chosen)} {'decode ' if decode else ''}step{'s' if len(chosen) > 1 else ''}"
    out.take("step.wall_ms", float(np.median(walls[chosen])) / 1e6, words)
    out.take("step.count", len(steps))
    _measure_first_step(scene, steps, walls, out)
    _measure_batch(steps, out)


def _measure_first_step(scene: Scene, steps: tuple[Step, ...], walls: Ints, out: Measures) -> None:
    alike = [i for i, step in enumerate(steps) if i and step.phase == steps[0].phase]
    if len(steps) < 3:
        out.cannot("fewer than three steps", "warmup.first_step_excess_fraction")
    elif len(alike) < 2:
        out.cannot(f"the first step is a {steps[0].phase or 'step of another kind'} and hardly any other is: nothing "
                   "to compare it with", "warmup.first_step_excess_fraction")
    else:
        excess = float(walls[0] - np.median(walls[alike]))
        out.share("warmup.first_step_excess_fraction", excess, scene.window)


def _measure_batch(steps: tuple[Step, ...], out: Measures) -> None:
    running = [step.decode_requests for step in steps if step.decode_requests]
    if running:
        decodes = counted(len(running), "step that decodes", "steps that decode")
        out.take("serving.running", float(np.mean(running)), f"mean of {decodes}")
    if any(step.phase for step in steps):
        runs = prefill_runs(steps)
        out.take("serving.prefill_run_steps", max((len(run) for run in runs), default=0))
        times = [sum(step.wall for step in run) for run in runs if len(run) >= SEVERAL]
        stalled = sum(times)
        out.take("serving.prefill_run_ms", max(times, default=0) / 1e6)
        out.share("serving.prefill_run_fraction", stalled, sum(step.wall for step in steps))


# -- the device
def measure_device(scene: Scene, time: DeviceTime, gaps: Gaps, out: Measures) -> None:
    """`device.*`, `idle.*`, `kernel.*` and `comm.*` of one device."""
    out.share("device.busy_fraction", time.busy.sum(), scene.window)
    for part, ns in time.parts.items():
        out.share(f"device.{part}_fraction", ns.sum(), scene.window)
    _measure_link(scene, time, out)
    _measure_copy_waits(scene, time, out)
    told = CAUSES if len(scene.host) else (Cause.HIDDEN, Cause.UNRECORDED)
    for cause, idle_ns in gaps.by_cause().items():
        if cause in told:
            out.share(f"idle.{cause}_fraction", idle_ns, scene.window)
        else:
            out.cannot("no host rows: what the host did meanwhile cannot be seen", f"idle.{cause}_fraction")
    if gaps.elsewhere.any():
        out.share("idle.other_device_fraction", gaps.dur[gaps.elsewhere].sum(), scene.window)
    unlinked = (gaps.after >= 0) & ((gaps.launch == NOT_LINKED) | (gaps.launch == BEFORE_CAPTURE))
    out.share("idle.before_unlinked_fraction", gaps.dur[unlinked].sum(), scene.window)
    _measure_step_gap(scene, time, out)
    rows = time.rows[starts_inside(scene, time.rows)]
    _measure_kernels(scene, rows, out)
    _measure_top(scene, rows, float(time.busy.sum()), out)
    for signal in collectives(scene, rows, out.unknown):
        out.take(*signal)


def _measure_link(scene: Scene, time: DeviceTime, out: Measures) -> None:
    """Of copies with nothing beside them the part that crosses between host and device. Unknown where there are copies
    and none says where it goes."""
    if why := out.withheld.get("device.copy_fraction"):
        out.cannot(why, "device.link_copy_fraction")
        return
    copies = scene.trace.kind[time.rows] == Kind.COPY
    crossing = copies & (scene.copies_down | scene.copies_up)[time.rows]
    if crossing.any() or not copies.any():
        out.share("device.link_copy_fraction", time.part[crossing].sum(), scene.window)


def _measure_copy_waits(scene: Scene, time: DeviceTime, out: Measures) -> None:
    if why := out.withheld.get("device.copy_fraction"):
        out.cannot(why, "device.copy_wait_fraction")
    elif (copies := copy_time(scene, time)) is None:
        out.cannot("the launch of what follows the copies is not in the capture", "device.copy_wait_fraction")
    else:
        out.share("device.copy_wait_fraction", copies.waited, scene.window)


def _measure_step_gap(scene: Scene, time: DeviceTime, out: Measures) -> None:
    """Median from the end of a step's last device work to the start of the next step's first. Work belongs to
    the step that launched it; where that is not known, to the one that it starts in."""
    if len(scene.steps.steps) < 2:
        return
    trace, rows, count = scene.trace, time.rows, len(scene.steps.steps)
    launch = trace.launch[rows]
    step = scene.step_of(np.where(launch >= 0, trace.start[np.maximum(launch, 0)], trace.start[rows]))
    rows, step = rows[step >= 0], step[step >= 0]
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(first, step, trace.start[rows])
    np.maximum.at(last, step, scene.end[rows])
    both = (last[:-1] >= 0) & (last[1:] >= 0)
    if both.any():
        gap = np.maximum(first[1:] - last[:-1], 0)[both]
        out.take("idle.step_gap_ms", float(np.median(gap)) / 1e6, f"median of {both.sum()} step ends")


def _measure_kernels(scene: Scene, rows: Ints, out: Measures) -> None:
    trace = scene.trace
    kernels = rows[trace.kind[rows] != Kind.COPY]
    out.take("kernel.recorded", len(kernels))
    if scene.steps.method == "window":
        out.cannot("no steps found", "kernel.per_step")
    else:
        out.take("kernel.per_step", len(kernels) / len(scene.steps.steps))
    if not len(kernels):
        out.cannot("no kernel inside the window", "kernel.median_us", "kernel.graph_fraction")
        return
    out.take("kernel.median_us", float(np.median(trace.dur[kernels])) / 1e3)
    linked = kernels[trace.launch[kernels] >= 0]
    if len(linked):
        wait = trace.start[linked] - trace.start[trace.launch[linked]]
        out.take("kernel.launch_to_start_us", max(float(np.median(wait)), 0.0) / 1e3)
    if len(linked) < LINKED_SHARE * len(kernels):
        out.cannot("most kernels have no launch in the capture", "kernel.graph_fraction")
    else:
        out.share("kernel.graph_fraction", float(replayed(scene, linked).sum()), len(linked))


def replayed(scene: Scene, kernels: Ints) -> Bools:
    """Which kernels (all with a known launch) a graph replay launched: by its name, or because it launched
    many."""
    call = scene.trace.launch[kernels]
    per_call = np.bincount(call, minlength=1)[call]
    many = (per_call >= REPLAYED_PER_CALL) & (scene.trace.kind[call] == Kind.RUNTIME)
    return np.asarray(many | scene.names.rows(GRAPH_LAUNCH, Kind.RUNTIME, Kind.HOST_OP, of=call))


def _measure_top(scene: Scene, rows: Ints, busy_ns: float, out: Measures) -> None:
    """The device operation with most time, whatever it is; but a wait of the queue only where nothing else ran, and
    the device's control CPU only where no core works beside it. And the kernel with most, which is no collective and no
    copy."""
    trace = scene.trace
    waits = scene.names.rows(DEVICE_WAIT, Kind.KERNEL, of=rows)
    rows = rows if waits.all() else rows[~waits]
    if not len(rows):
        return
    inside = np.minimum(scene.end[rows], scene.right) - trace.start[rows]
    on_cpu = scene.names.rows(CONTROL_CPU, Kind.KERNEL, of=rows)
    if on_cpu.any():
        inside[on_cpu] = _alone(scene, rows[on_cpu])
    kernels = trace.kind[rows] == Kind.KERNEL
    if kernels.any() and not waits.all():
        out.take("kernel.top_compute_name", trace.names[heaviest_code(trace.name[rows[kernels]], inside[kernels])])
    top = heaviest_code(trace.name[rows], inside)
    chosen = trace.name[rows] == top
    mine = rows[chosen]
    out.take("kernel.top_name", trace.names[top])
    out.share("kernel.top_fraction", float(inside[chosen].sum()), busy_ns)
    out.take("kernel.top_ms", float(np.median(trace.dur[mine])) / 1e6)
    if core := _core(scene, int(mine[0])):
        out.take("kernel.top_core", core)


def _alone(scene: Scene, rows: Ints) -> Ints:
    """ns, of each of `rows`, inside the window on the device's control CPU with no core at work beside it."""
    start, end, row = alone_on_control_cpu(scene)
    ns = np.minimum(end, scene.right) - np.maximum(start, scene.left)
    return np.bincount(row, np.maximum(ns, 0), len(scene.trace))[rows].astype(np.int64)


def _core(scene: Scene, row: int) -> str:
    """The kind of core, where the capture tells: a copy engine, one that the name gives, the SMs behind a
    CUDA call. Who carries out an exchange is not told: it is no place for compute."""
    trace = scene.trace
    if trace.kind[row] == Kind.COMM:
        return ""
    if trace.kind[row] == Kind.COPY:
        return "copy"
    name = trace.name_of(row).upper()
    for core in ("AI_CPU", "AI_VECTOR_CORE", "AI_CORE"):
        if core in name or core.replace("_", "") in name:
            return core
    call = int(trace.launch[row])
    return "SM" if call >= 0 and re.match(r"cu(da)?[A-Z]", trace.name_of(call)) else ""


def measure_fallback(scene: Scene, fallbacks: Fallbacks, gaps: Gaps, out: Measures) -> None:
    """`fallback.*`: what was seen; `none` only where the trace could have shown one."""
    op = fallbacks.heaviest(scene.left, scene.right)
    if op is not None:
        out.take("fallback.op", op)
        out.share("fallback.fraction", fallbacks.total(scene.left, scene.right), scene.window)
        return
    why = cannot_show(scene)
    if not why and gaps.by_cause()[Cause.UNRECORDED] > UNRECORDED_SHARE * scene.window:
        why = "the launching thread has no rows for much of the window: what ran there was not recorded"
    if why:
        out.cannot(why, "fallback.op", "fallback.fraction")
        return
    out.take("fallback.op", "none")
    out.take("fallback.fraction", 0.0)

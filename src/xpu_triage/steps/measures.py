"""Signals of steps and devices, by the definitions of the catalogue; and for those that a trace cannot give,
why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..signals import Signal, Value
from ..trace import BEFORE_CAPTURE, NOT_LINKED, Ints, Kind
from .fallback import Fallbacks, cannot_show
from .groups import heaviest_code
from .intervals import Bools
from .patterns import DEVICE_WAIT, GRAPH_LAUNCH
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
        out.take("serving.running", float(np.mean(running)), f"mean of {len(running)} steps that decode")
    if any(step.phase for step in steps):
        out.take("serving.prefill_run_steps", longest_prefill_run(steps))


def longest_prefill_run(steps: Sequence[Step]) -> int:
    """Longest run of prefill steps with steps that decode on both sides, and more requests decoding after it than it
    can have brought in: only then were decodes surely pending. Where the names do not count requests, all are taken to
    have been."""
    longest, decoding = 0, False
    run: list[Step] = []
    for step in steps:
        if step.phase == "prefill":
            run += [step] if decoding else []
            continue
        if step.phase in ("decode", "mixed"):
            longest, decoding = max(longest, len(run) if _kept_waiting(run, step.decode_requests) else 0), True
        run = []
    return longest


def _kept_waiting(run: Sequence[Step], after: int | None) -> bool:
    """Whether requests that decode after a run of prefills, `after` many, were running before it. Prompts of one length
    look like chunks of one prompt: where as many decode as all steps computed prompts for, they are these."""
    return after is None or (after > _brought_in(run) and after != sum(step.prefill_requests or 0 for step in run))


def _brought_in(run: Sequence[Step]) -> int:
    """The most requests whose prompts a run of prefill steps can have finished; 0 where the names do not tell. A step
    of one request that fills the largest chunk, where that came twice, goes on with the same prompt in the next."""
    tokens = [step.prefill_tokens or 0 for step in run]
    largest = max(tokens, default=0)
    chunk = largest if tokens.count(largest) >= 2 else 0
    going_on = [step.prefill_requests == 1 and 0 < chunk == many for step, many in zip(run, tokens, strict=True)]
    going_on = [*going_on[:-1], False] if run else []
    return sum(0 if more else step.prefill_requests or 0 for step, more in zip(run, going_on, strict=True))


# -- the device
def measure_device(scene: Scene, time: DeviceTime, gaps: Gaps, out: Measures) -> None:
    """`device.*`, `idle.*`, `kernel.*` and `comm.*` of one device."""
    out.share("device.busy_fraction", time.busy.sum(), scene.window)
    for part, ns in time.parts.items():
        out.share(f"device.{part}_fraction", ns.sum(), scene.window)
    told = CAUSES if len(scene.host) else (Cause.HIDDEN, Cause.UNRECORDED)
    for cause, idle_ns in gaps.by_cause().items():
        if cause in told:
            out.share(f"idle.{cause}_fraction", idle_ns, scene.window)
        else:
            out.cannot("no host rows: what the host did meanwhile cannot be seen", f"idle.{cause}_fraction")
    unlinked = (gaps.after >= 0) & ((gaps.launch == NOT_LINKED) | (gaps.launch == BEFORE_CAPTURE))
    out.share("idle.before_unlinked_fraction", gaps.dur[unlinked].sum(), scene.window)
    _measure_step_gap(scene, time, out)
    rows = time.rows[starts_inside(scene, time.rows)]
    _measure_kernels(scene, rows, out)
    _measure_top(scene, rows, float(time.busy.sum()), out)
    _measure_collectives(scene, rows, out)


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
    """The device operation with most time, whatever it is; but a wait of the queue only where nothing else ran."""
    trace = scene.trace
    waits = scene.names.rows(DEVICE_WAIT, Kind.KERNEL, of=rows)
    rows = rows if waits.all() else rows[~waits]
    if not len(rows):
        return
    inside = np.minimum(scene.end[rows], scene.right) - trace.start[rows]
    top = heaviest_code(trace.name[rows], inside)
    chosen = trace.name[rows] == top
    mine = rows[chosen]
    out.take("kernel.top_name", trace.names[top])
    out.share("kernel.top_fraction", float(inside[chosen].sum()), busy_ns)
    out.take("kernel.top_ms", float(np.median(trace.dur[mine])) / 1e6)
    if core := _core(scene, int(mine[0])):
        out.take("kernel.top_core", core)


def _core(scene: Scene, row: int) -> str:
    """The kind of core, where the capture tells: a copy engine, one that the name gives, the SMs behind a
    CUDA call."""
    trace = scene.trace
    if trace.kind[row] == Kind.COPY:
        return "copy"
    name = trace.name_of(row).upper()
    for core in ("AI_CPU", "AI_VECTOR_CORE", "AI_CORE"):
        if core in name or core.replace("_", "") in name:
            return core
    call = int(trace.launch[row])
    return "SM" if call >= 0 and re.match(r"cu(da)?[A-Z]", trace.name_of(call)) else ""


def _measure_collectives(scene: Scene, rows: Ints, out: Measures) -> None:
    trace = scene.trace
    calls = rows[trace.kind[rows] == Kind.COMM]
    if scene.steps.method != "window":
        out.take("comm.calls_per_step", len(calls) / len(scene.steps.steps))
    if not len(calls):
        return
    top = heaviest_code(trace.name[calls], trace.dur[calls])
    place, ns = _same_collective(scene, calls[trace.name[calls] == top])
    if not len(ns):
        out.cannot("no collective that comes at the same place of two like steps: others carry other amounts of data",
                   "comm.min_us", "comm.max_us")
        return
    words = f"{len(ns)} calls of {trace.names[top]}, number {place + 1} of its step, on one rank"
    out.take("comm.min_us", float(ns.min()) / 1e3, words)
    out.take("comm.max_us", float(ns.max()) / 1e3, words)


def _same_collective(scene: Scene, calls: Ints) -> tuple[int, Ints]:
    """ns of those calls of one collective that carry the same data: at one place in every step of one phase that makes
    as many calls. Returns the place with most time, and its ns; none where fewer than two steps are alike."""
    trace, steps = scene.trace, scene.steps.steps
    nothing = (0, np.zeros(0, np.int64))
    if scene.steps.method == "window" or not len(calls):
        return nothing
    launch = trace.launch[calls]
    step = scene.step_of(np.where(launch >= 0, trace.start[np.maximum(launch, 0)], trace.start[calls]))
    calls, step = calls[step >= 0], step[step >= 0]
    each = np.bincount(step, minlength=len(steps))
    alike: dict[tuple[str, int], list[int]] = {}
    for i in np.flatnonzero(each).tolist():
        alike.setdefault((steps[i].phase, int(each[i])), []).append(i)
    chosen = max(alike.values(), key=len, default=[])
    if len(chosen) < 2 or 2 * len(chosen) < np.count_nonzero(each):
        return nothing
    rows = calls[np.isin(step, chosen)]
    order = np.argsort(step[np.isin(step, chosen)], kind="stable")
    table = trace.dur[rows[order]].reshape(len(chosen), -1)
    place = int(table.sum(axis=0).argmax())
    return place, table[:, place]


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

"""The three steps of one trace, in order."""

from __future__ import annotations

import re

import numpy as np

from ..trace import Kind, Trace
from .bisection import find_causes, find_host
from .fallback import Fallbacks, find_fallbacks
from .host import Host, NameTable
from .idle_causes import GapWork, classify
from .intervals import total_within
from .measures import (
    Measures,
    measure_device,
    measure_fallback,
    measure_host,
    measure_steps,
    replayed,
    site_of,
    spoken,
    window_in_words,
)
from .patterns import DEVICE_WAIT, LAUNCH_CALL
from .results import CAUSES, Cause, DeviceUse, Finding, Walk
from .scene import Scene
from .step_time import find_steps
from .utilization import DeviceTime, devices_of

UNPLACED_SHARE = 0.05
"""Share of spans of unknown category from which on device rows may be among them."""

HIDDEN_SHARE = 0.02
"""Share of the window from which on hidden work is spoken of."""

WAITS_SHARE = 0.05
"""Share of the window from which on hidden synchronizations, and waits drawn as device work, are spoken
of."""

READ_BACK_WAITS_NS = 50_000
"""Reading a number off a host tensor takes a few µs: a mean above this is a wait for a device."""

_DEVICE_SIGNALS = (
    "device.busy_fraction", "device.compute_fraction", "device.copy_fraction", "device.comm_fraction",
    "kernel.median_us", "kernel.per_step", "kernel.graph_fraction", "fallback.op", "fallback.fraction",
    *(f"idle.{cause}_fraction" for cause in CAUSES))

_ASYNC_COPY = re.compile(r"mem(ory)?_?co?py\w*async", re.I)
_ACCELERATOR = re.compile(r"nccl|rccl|hccl|xccl|cuda|hip[A-Z]|\bnpu\b|aclrt|\bxpu\b|\bur[A-Z]")
_READ_BACK = re.compile(r"^aten::_local_scalar_dense$")


def walk(trace: Trace) -> Walk:
    """Utilization, step time and bisection of one trace. Pure: reads nothing, keeps the trace as it is."""
    names = NameTable(trace)
    steps = find_steps(trace, names)
    times = devices_of(trace, steps)
    scene = Scene(trace, names, Host(trace), steps, times[0].rows if times else np.zeros(0, np.int64))
    out = Measures(trace.source, window_in_words(scene))
    measure_steps(scene, out)
    if not times:
        return _without_device(scene, out)
    fallbacks = find_fallbacks(scene)
    busiest, uses = times[0], []
    findings: tuple[Finding, ...] = ()
    notes: list[str] = []
    for i, time in enumerate(times):
        work = classify(scene, time, times[:i] + times[i + 1:], fallbacks)
        uses.append(_use(trace, time, work))
        if time is busiest:
            findings = find_causes(scene, time, work, fallbacks)
            measure_device(scene, time, work.gaps, out)
            measure_fallback(scene, fallbacks, work.gaps, out)
            measure_host(scene, int(work.gaps.dur.sum()), work.gaps, findings, out)
            notes += _about_device(scene, time, work, fallbacks)
    if len(times) > 1:
        notes.append(f"{len(times)} devices: the figures are those of device {trace.devices[busiest.device]}, the busiest")
    return Walk(trace, steps, tuple(uses), findings, tuple(out.signals), out.unknown, (*steps.notes, *notes))


def _use(trace: Trace, time: DeviceTime, work: GapWork) -> DeviceUse:
    return DeviceUse(trace.devices[time.device], time.busy, time.parts["compute"], time.parts["copy"], time.parts["comm"],
                     time.busy_start, time.busy_end, work.gaps)


def _about_device(scene: Scene, time: DeviceTime, work: GapWork, fallbacks: Fallbacks) -> list[str]:
    """What the figures of a device do not say by themselves."""
    trace, window = scene.trace, scene.window
    notes = []
    hidden = work.gaps.cause == CAUSES.index(Cause.HIDDEN)
    share = float(work.gaps.dur[hidden].sum()) / window
    if share > HIDDEN_SHARE:
        before = work.gaps.launch[hidden]
        ns = work.gaps.dur[hidden]
        linked = before >= 0
        after = work.gaps.after[hidden][linked]
        in_graph = float(ns[linked][replayed(scene, after)].sum()) > 0.5 * float(ns.sum()) if linked.any() else False
        where = " (most of it before kernels of graph replays, some of which the profiler drops)" if in_graph else ""
        notes.append(f"busy is a lower bound: for {share:.0%} of the window work had been handed to a device that then looks "
                     f"idle, so that the capture lacks work{where}")
    unlinked = float((trace.launch[time.rows] < 0).mean())
    if unlinked > 0.05:
        notes.append(f"{unlinked:.0%} of the device rows have no launch in the capture; they count as busy, and idle before "
                     "them is judged by what the host did")
    if not len(scene.host):
        notes.append("no host rows: the device's side alone; why it was idle cannot be said")
    if len(time.rows) < 30:
        notes.append(f"only {len(time.rows)} device events")
    notes += _waits_in_queue(scene, time) + _hidden_syncs(scene)
    op = fallbacks.heaviest(scene.left, scene.right)
    if op is not None:
        notes.append(f"{op} ran on a CPU between a copy down and a copy up, with the model on the device: "
                     f"{spoken(fallbacks.total(scene.left, scene.right))} in all, copies included")
    return notes


def _waits_in_queue(scene: Scene, time: DeviceTime) -> list[str]:
    """Device rows that are waits of one queue for another: drawn as work, so counted as busy, and said."""
    trace = scene.trace
    waits = scene.names.rows(DEVICE_WAIT, Kind.KERNEL, of=time.rows)
    if not waits.any():
        return []
    rows = time.rows[~waits]
    left_out = float(time.busy.sum()) - total_within(trace.start[rows], scene.end[rows], scene.left, scene.right)
    if left_out < WAITS_SHARE * scene.window:
        return []
    names = ", ".join(sorted({trace.name_of(row) for row in time.rows[waits].tolist()})[:3])
    return [f"{left_out / scene.window:.0%} of the window is busy only with {names}: waits in the device's queues that the "
            "capture draws as device work"]


def _hidden_syncs(scene: Scene) -> list[str]:
    """Copies that are called asynchronous and hold the host until the device is done."""
    trace = scene.trace
    calls = np.flatnonzero(trace.blocking & scene.names.rows(_ASYNC_COPY, Kind.RUNTIME))
    calls = calls[(trace.start[calls] >= scene.left) & (trace.start[calls] < scene.right)]
    waited = float(trace.dur[calls].sum())
    if waited < WAITS_SHARE * scene.window:
        return []
    count = "1 call" if len(calls) == 1 else f"{len(calls):,} calls"
    return [f"hidden synchronization: {count} named asynchronous hold the host for {spoken(waited)}, until the device is done "
            f"(copies through pageable memory do); mostly {site_of(scene, calls, trace.dur[calls])}"]


def _without_device(scene: Scene, out: Measures) -> Walk:
    """A trace without device rows: three different things, told apart and said; and the host's side of it."""
    trace = scene.trace
    why, note = _why_no_device(scene)
    out.cannot(why, *_DEVICE_SIGNALS)
    findings, waiting = find_host(scene, scene.step_thread)
    measure_host(scene, None, None, findings, out)
    notes = [*scene.steps.notes, note]
    if waiting > 0.05:
        notes.append(f"thread {trace.threads[scene.step_thread]} waits for {waiting:.0%} of the window" if trace.threads else "")
    return Walk(trace, scene.steps, (), findings, tuple(out.signals), out.unknown, tuple(notes))


def _why_no_device(scene: Scene) -> tuple[str, str]:
    """(reason, note) for a trace that holds no device rows."""
    trace = scene.trace
    counts = trace.counts
    if counts.unplaced > UNPLACED_SHARE * max(counts.kept + counts.unplaced, 1):
        kinds = ", ".join(counts.unknown_categories[:4])
        return (f"no device rows, but {counts.unplaced:,} spans of unknown categories ({kinds}): device rows may be among them",
                f"no device events that this reader knows: {counts.unplaced:,} spans are of unknown categories ({kinds}), and "
                "device rows may be among them")
    launches = int(scene.names.rows(LAUNCH_CALL, Kind.RUNTIME).sum())
    reads = scene.names.rows(_READ_BACK, Kind.HOST_OP)
    waited = float(trace.dur[reads].mean()) > READ_BACK_WAITS_NS if reads.any() else False
    accelerator = _speaks_of_accelerator(scene)
    if launches:
        return ("no device rows: the host launched work, but the profiler dropped or never recorded it",
                f"no device events, although the host made {launches:,} launch calls: the profiler dropped them or was not "
                "asked for them; record again with device activities")
    if waited and accelerator:
        return ("no device rows: read-backs wait for a device whose work was not recorded",
                f"no device events: {int(reads.sum())} read-backs take {spoken(float(trace.dur[reads].sum()))}, far longer than "
                "from host memory, so that there is a device and the capture lacks its work")
    if accelerator:
        return ("no device rows: a rank of an accelerator job that launched nothing, or recorded the host only",
                "no device events: this belongs to a job on accelerators, but this rank launched nothing in the capture, or its "
                "profiler recorded the host only")
    if not (scene.host_kind == Kind.HOST_OP).any():
        return ("no device rows and no operators: a front end or scheduler process, not the one that runs the model",
                "no device events and no operators: this is a front end or a scheduler; profile the process that runs the model")
    return ("no device rows: a CPU run, every operator ran on the host",
            "no device events: a CPU run, every operator ran on the host")


def _speaks_of_accelerator(scene: Scene) -> bool:
    """Whether anything in the capture speaks of an accelerator: its own words about itself, runtime calls,
    names."""
    trace = scene.trace
    about = trace.meta
    if about.get("deviceProperties") or re.search(r"nccl|rccl|hccl|xccl", str(about.get("distributedInfo", ""))):
        return True
    if (scene.host_kind == Kind.RUNTIME).any():
        return True
    return bool(np.any(scene.names.rows(_ACCELERATOR, Kind.HOST_OP, Kind.ANNOTATION)))



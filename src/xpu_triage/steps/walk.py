"""The three steps of one trace, in order."""

from __future__ import annotations

import numpy as np

from ..trace import Trace
from .behind_copies import behind_copies
from .bisection import find_causes, find_host
from .fallback import find_fallbacks
from .host import Host, NameTable
from .host_measures import measure_host
from .idle_causes import classify
from .measures import Measures, measure_device, measure_fallback, measure_steps, window_in_words
from .online import about_online, measure_online, online_operators
from .remarks import about_device, why_no_device
from .results import CAUSES, DeviceUse, Finding, Gaps, Walk
from .scene import Scene
from .step_time import find_steps
from .utilization import DeviceTime, devices_of
from .vendor_steps import with_vendor

WAITING_SHARE = 0.05
"""Share of the window from which on a host thread's waiting is spoken of."""

_DEVICE_SIGNALS = (
    "device.busy_fraction", "device.compute_fraction", "device.copy_fraction", "device.comm_fraction",
    "kernel.median_us", "kernel.per_step", "kernel.graph_fraction", "fallback.op", "fallback.fraction",
    *(f"idle.{cause}_fraction" for cause in CAUSES))


def walk(trace: Trace) -> Walk:
    """Utilization, step time and bisection of one trace. Pure: reads nothing, and leaves the trace as it
    is."""
    names = NameTable(trace)
    host = Host(trace)
    steps = with_vendor(find_steps(trace, names, host), trace.meta)
    times = devices_of(trace, steps)
    lead_rows = times[0].rows if times else np.zeros(0, np.int64)
    scene = Scene(trace, names, host, steps, lead_rows)
    withheld = {name: why for name, why in trace.cannot.items() if not name.startswith("fallback.")}
    out = Measures(trace.source, window_in_words(scene), withheld=withheld)
    out.unknown |= withheld
    measure_steps(scene, out)
    return _with_devices(scene, times, out) if times else _without_device(scene, out)


def _with_devices(scene: Scene, times: list[DeviceTime], out: Measures) -> Walk:
    trace, notes = scene.trace, list(scene.steps.notes)
    fallbacks = find_fallbacks(scene)
    lead = times[0]
    work = classify(scene, lead, fallbacks)
    findings = find_causes(scene, lead, work, fallbacks)
    measure_device(scene, lead, work.gaps, out)
    measure_fallback(scene, fallbacks, work.gaps, out)
    measure_host(scene, work.gaps, findings, out)
    behind = behind_copies(scene, lead, fallbacks)
    for name, ns in behind.ns.items():
        out.share(name, ns, scene.window)
    online = online_operators(scene)
    measure_online(scene, online, out)
    notes += [*about_device(scene, lead, work, fallbacks), *about_online(scene, online), *behind.notes]
    uses = [_use(trace, lead, work.gaps)]
    del work  # its pieces are the largest thing in memory
    uses += [_use(trace, time, classify(scene, time, fallbacks).gaps) for time in times[1:]]
    count = len(np.unique(trace.device[trace.on_device]))
    if count > 1:
        notes.append(f"{count:,} devices: the figures are those of {uses[0].device}, the busiest")
    if count > len(uses):
        notes.append(f"of {count:,} devices the {len(uses)} with most work were looked at")
    return Walk(trace, scene.steps, tuple(uses), findings, tuple(out.signals), out.unknown, tuple(notes))


def _use(trace: Trace, time: DeviceTime, gaps: Gaps) -> DeviceUse:
    parts = time.parts
    return DeviceUse(trace.devices[time.device], time.busy, parts["compute"], parts["copy"], parts["comm"],
                     time.busy_start, time.busy_end, gaps)


def _without_device(scene: Scene, out: Measures) -> Walk:
    """A trace without device rows: why, in words; and the host's side of it."""
    absent = why_no_device(scene)
    out.cannot(absent.why, *_DEVICE_SIGNALS)
    findings: tuple[Finding, ...]
    findings, waiting = find_host(scene, scene.step_thread)
    measure_host(scene, None, findings, out)
    notes = [*scene.steps.notes, absent.note]
    if waiting > WAITING_SHARE:
        thread = scene.trace.threads[scene.step_thread]
        notes.append(f"thread {thread} waits for {waiting:.0%} of the window")
    return Walk(scene.trace, scene.steps, (), findings, tuple(out.signals), out.unknown, tuple(notes), absent.next)

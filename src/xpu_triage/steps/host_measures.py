"""Signals of the host: synchronizations, launch calls, copies, and what the program does."""

from __future__ import annotations

import numpy as np

from ..trace import Ints, Kind
from .bisection import NO_ROWS
from .blame import host_part
from .groups import heaviest_code
from .intervals import covered, total_within
from .measures import Measures, starts_inside
from .patterns import COMPILE, COPY_CALL, FRAME, PLUMBING, is_library
from .results import CAUSES, Cause, Finding, Gaps
from .scene import Scene
from .step_names import is_engine_step, is_profiler_step

WORTH_NAMING = 0.02
"""Share of the window from which on idle after synchronizations decides which of them is named."""


def measure_host(scene: Scene, gaps: Gaps | None, findings: tuple[Finding, ...], out: Measures) -> None:
    """`sync.*`, `host.*`, `comm.host_ms`, `warmup.compiles`, `idle.host_op`. `gaps`: those of the busiest
    device."""
    _measure_syncs(scene, gaps, out)
    _measure_launches(scene, out)
    _measure_copies(scene, out)
    _measure_program(scene, out)
    _measure_exchanges(scene, gaps, out)
    _measure_compiles(scene, out)
    named = {f.about: f.name for f in findings if not f.spread and f.name != NO_ROWS}
    if op := named.get(Cause.HOST_OP) or named.get(Cause.FIRST_USE):
        out.take("idle.host_op", op)


def _measure_syncs(scene: Scene, gaps: Gaps | None, out: Measures) -> None:
    names = ("sync.per_step", "sync.wait_fraction", "sync.gain_bound_fraction")
    trace, host = scene.trace, scene.host
    if why := trace.cannot.get("sync.per_step"):
        out.cannot(why, *names)
        return
    if not (scene.host_kind == Kind.RUNTIME).any() and not trace.blocking.any():
        out.cannot("no runtime calls in the capture: calls that block the host cannot be seen", *names)
        return
    calls = host.row[scene.blocked_in == np.arange(len(host))]
    calls = calls[np.isin(trace.thread[calls], scene.feeding_threads)]  # a watchdog's waiting holds up nobody
    inside = calls[starts_inside(scene, calls)]
    if scene.steps.method == "window":
        out.cannot("no steps found", "sync.per_step")
    else:
        out.take("sync.per_step", len(inside) / len(scene.steps.steps))
    blocked = total_within(trace.start[calls], scene.end[calls], scene.left, scene.right)
    out.share("sync.wait_fraction", blocked, scene.window)
    if gaps is None:
        out.cannot("no device rows: how long the device was idle is unknown", "sync.gain_bound_fraction")
    else:
        out.share("sync.gain_bound_fraction", min(blocked, int(gaps.dur.sum())), scene.window)
    if len(inside):
        out.take("sync.site", _sync_site(scene, inside, gaps))


def _sync_site(scene: Scene, calls: Ints, gaps: Gaps | None) -> str:
    """The blocking calls that most idle follows; where hardly any does, those that wait longest."""
    if gaps is not None:
        bubble = gaps.cause == CAUSES.index(Cause.AFTER_SYNC)
        if gaps.dur[bubble].sum() >= WORTH_NAMING * scene.window:
            return site_of(scene, gaps.sync_row[bubble], gaps.dur[bubble])
    return site_of(scene, calls, scene.trace.dur[calls])


def site_of(scene: Scene, calls: Ints, ns: Ints) -> str:
    """Where most of the time `ns` of blocking calls falls: `aten::item (cudaStreamSynchronize) at
    model.py(12): run`."""
    host, names = scene.host, scene.trace.names
    index = host.index(calls)
    operator = host.nearest(index, scene.host_rows(lambda n: not PLUMBING.search(n), Kind.HOST_OP))
    frame = host.nearest(index, scene.host_rows(lambda n: not is_library(n), Kind.PYTHON))
    site = np.where(operator >= 0, operator, index)
    top = heaviest_code(scene.host_name[site], ns)
    longest = int(np.where(scene.host_name[site] == top, ns, -1).argmax())
    call = names[scene.host_name[index[longest]]]
    text = call if names[top] == call else f"{names[top]} ({call})"
    return f"{text} at {names[scene.host_name[frame[longest]]]}" if frame[longest] >= 0 else text


def _measure_launches(scene: Scene, out: Measures) -> None:
    """Mean host time of one launch call, of a kernel or a whole graph; calls that move data left out."""
    trace = scene.trace
    kernels = (trace.launch >= 0) & ((trace.kind == Kind.KERNEL) | (trace.kind == Kind.COMM))
    launched = np.zeros(len(trace), np.bool_)
    launched[trace.launch[kernels]] = True
    calls = np.flatnonzero(launched)
    calls = calls[(trace.kind[calls] == Kind.RUNTIME) & starts_inside(scene, calls)]
    calls = calls[~scene.names.rows(COPY_CALL, Kind.RUNTIME, of=calls)]
    if len(calls):
        out.take("host.launch_us", float(trace.dur[calls].mean()) / 1e3)


def _measure_copies(scene: Scene, out: Measures) -> None:
    trace, lead = scene.trace, scene.lead_rows
    if scene.steps.method == "window" or not len(lead):
        return
    copies = lead[trace.kind[lead] == Kind.COPY]
    copies = copies[starts_inside(scene, copies)]
    crossing = (scene.copies_down | scene.copies_up)[copies]
    if crossing.any() or not len(copies):
        out.take("sync.copy_ms", float(trace.dur[copies[crossing]].sum()) / 1e6 / len(scene.steps.steps))


def _measure_program(scene: Scene, out: Measures) -> None:
    """The function, operator or span with most time of its own on the main thread, waits left out."""
    host = scene.host
    part, _ = host_part(scene, scene.main_thread)
    rows = np.flatnonzero(part.weight > 0)
    good = scene.host_rows(_says_something, Kind.HOST_OP, Kind.PYTHON, Kind.RUNTIME, Kind.ANNOTATION)
    owner = host.nearest(rows, good)
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    if not len(rows):
        return
    top = heaviest_code(scene.host_name[owner], part.weight[rows])
    held = float(part.weight[rows[scene.host_name[owner] == top]].sum())
    words = f"own time on the main thread, {out.window}"
    out.take("host.top_op", scene.trace.names[top], words)
    out.take("host.top_op_fraction", min(held / scene.window, 1.0), words)
    if scene.steps.method != "window":
        out.take("host.top_op_ms", held / 1e6 / len(scene.steps.steps), words)


def _says_something(name: str) -> bool:
    dull = PLUMBING.search(name) or is_library(name) or is_profiler_step(name) or is_engine_step(name)
    return not dull


def _measure_exchanges(scene: Scene, gaps: Gaps | None, out: Measures) -> None:
    """Exchanges on the steps' path: not those by which ranks without requests keep telling each other that there are
    none."""
    trace, host = scene.trace, scene.host
    rows = host.row[scene.exchanges]
    rows = rows[trace.thread[rows] == scene.main_thread]
    if gaps is not None:
        idle = gaps.cause == CAUSES.index(Cause.NO_WORK)
        inside = covered(gaps.start[idle], gaps.end[idle], trace.start[rows] + 1)
        rows = rows[inside == covered(gaps.start[idle], gaps.end[idle], trace.start[rows])]
    if len(rows) and scene.steps.method != "window":
        ns = total_within(trace.start[rows], scene.end[rows], scene.left, scene.right)
        out.take("comm.host_ms", ns / 1e6 / len(scene.steps.steps))


def _measure_compiles(scene: Scene, out: Measures) -> None:
    """Outermost compilations inside the window. None seen is 0 only where Python stacks would have shown
    them."""
    kinds = (Kind.PYTHON, Kind.ANNOTATION, Kind.RUNTIME, Kind.HOST_OP)
    compiling = scene.host.row[scene.host.outermost(np.flatnonzero(scene.host_rows(COMPILE, *kinds)))]
    compiling = compiling[starts_inside(scene, compiling)]
    if len(compiling) or scene.host_rows(FRAME, Kind.PYTHON).any():
        out.take("warmup.compiles", len(compiling))

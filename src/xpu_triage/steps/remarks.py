"""What the figures do not say by themselves, in words: notes to a walk, and the reasons for what is
unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ..text import counted
from ..trace import Kind
from .collectives import ranks_of
from .fallback import Fallbacks, without_copies
from .host_measures import site_of
from .idle_causes import GapWork
from .intervals import total_within
from .measures import replayed, spoken, starts_inside
from .patterns import DEVICE_WAIT, LAUNCH_CALL
from .results import CAUSES, Cause
from .scene import Scene
from .utilization import DeviceTime

UNPLACED_SHARE = 0.05
"""Share of spans of unknown category from which on device rows may be among them."""

HIDDEN_SHARE = 0.02
"""Share of the window from which on hidden work is spoken of."""

UNLINKED_SHARE = 0.05
"""Share of device rows without a launch from which on it is spoken of."""

WAITS_SHARE = 0.05
"""Share of the window from which on hidden synchronizations, and waits drawn as device work, are spoken
of."""

FEW_EVENTS = 30
"""Fewer device events than this show no pattern."""

READ_BACK_WAITS_NS = 50_000
"""Reading a number off a host tensor takes a few µs: a mean above this is a wait for a device."""

_ASYNC_COPY = re.compile(r"mem(ory)?_?co?py\w*async", re.I)
_COLLECTIVES = re.compile(r"nccl|rccl|hccl|xccl")
_ACCELERATOR = re.compile(rf"{_COLLECTIVES.pattern}|cuda|hip[A-Z]|\bnpu\b|aclrt|\bxpu\b|\bur[A-Z]")
_READ_BACK = re.compile(r"^aten::_local_scalar_dense$")


def about_device(scene: Scene, time: DeviceTime, work: GapWork, fallbacks: Fallbacks) -> list[str]:
    """Notes to the figures of one device."""
    trace, notes = scene.trace, _hidden_work(scene, work)
    unlinked = float((trace.launch[time.rows] < 0).mean())
    if unlinked > UNLINKED_SHARE:
        notes.append(f"{unlinked:.0%} of the device rows have no launch in the capture; they count as busy, and idle "
                     "before them is judged by what the host did")
    if not len(scene.host):
        notes.append("no host rows: the device's side alone; why it was idle cannot be said")
    if len(time.rows) < FEW_EVENTS:
        notes.append(f"only {counted(len(time.rows), 'device event')}")
    notes += _lost_launches(scene) + _waits_in_queue(scene, time) + _hidden_syncs(scene)
    if (ranks := ranks_of(scene)) is not None and ranks.note:
        notes.append(ranks.note)
    op = fallbacks.heaviest(scene.left, scene.right)
    notes += [doubt for doubt in (fallbacks.doubt, "" if op else without_copies(scene)) if doubt]
    if op is not None:
        ns = fallbacks.total(scene.left, scene.right)
        notes.append(f"{op} ran on a CPU, with the model on the device: {spoken(ns)} in all, copies included")
    return notes


def _hidden_work(scene: Scene, work: GapWork) -> list[str]:
    """Busy is a lower bound where the device looks idle with work in its queue."""
    gaps = work.gaps
    hidden = gaps.cause == CAUSES.index(Cause.HIDDEN)
    total = float(gaps.dur[hidden].sum())
    if total <= HIDDEN_SHARE * scene.window:
        return []
    linked = hidden & (gaps.launch >= 0) & (gaps.after >= 0)
    in_graph = float(gaps.dur[linked][replayed(scene, gaps.after[linked])].sum()) if linked.any() else 0.0
    where = ", most of it in graph replays, where profilers drop kernels" if 2 * in_graph > total else ""
    return [f"busy is a lower bound: for {total / scene.window:.0%} of the window the device looks idle although "
            f"it had work in its queue, so that the capture lacks work{where}"]


def _lost_launches(scene: Scene) -> list[str]:
    """Launches that left no device rows."""
    lost = scene.lost_launches
    count = int(starts_inside(scene, lost).sum()) if len(lost) else 0
    if not count:
        return []
    calls = "1 launch has" if count == 1 else f"{count:,} launches have"
    return [f"{calls} no device work in the capture (mostly {site_of(scene, lost, np.ones_like(lost))}): the profiler "
            "did not record it or the file is cut, and idle around them is hidden work"]


def _waits_in_queue(scene: Scene, time: DeviceTime) -> list[str]:
    """Device rows that are waits of one queue for another: drawn as work, so counted as busy, and said."""
    trace = scene.trace
    waits = scene.names.rows(DEVICE_WAIT, Kind.KERNEL, of=time.rows)
    if not waits.any():
        return []
    rows = time.rows[~waits]
    work = total_within(trace.start[rows], scene.end[rows], scene.left, scene.right)
    waiting = float(time.busy.sum()) - work
    if waiting < WAITS_SHARE * scene.window:
        return []
    codes = np.unique(trace.name[time.rows[waits]]).tolist()
    names = ", ".join([trace.names[code] for code in codes[:3]])
    return [f"{waiting / scene.window:.0%} of the window is busy only with {names}: waits in the device's "
            "queues, which the capture draws as device work; they are not ranked among the kernels"]


def _hidden_syncs(scene: Scene) -> list[str]:
    """Copies that are called asynchronous and hold the host until the device is done."""
    trace = scene.trace
    calls = np.flatnonzero(trace.blocking & scene.names.rows(_ASYNC_COPY, Kind.RUNTIME))
    calls = calls[starts_inside(scene, calls)]
    waited = float(trace.dur[calls].sum())
    if waited < WAITS_SHARE * scene.window:
        return []
    count = "1 call" if len(calls) == 1 else f"{len(calls):,} calls"
    holds = "holds" if len(calls) == 1 else "hold"
    return [f"hidden synchronization: {count} named asynchronous {holds} the host for {spoken(waited)} until the "
            f"device is done, as copies through pageable memory do; mostly {site_of(scene, calls, trace.dur[calls])}"]


@dataclass(frozen=True)
class NoDevice:
    """Why a trace holds no device rows."""

    why: str
    """In a few words, for each signal that it leaves unknown."""
    note: str
    next: str
    """What to do about it, first of all."""


_RECORD_AGAIN = "Record again with the device's activities on: there is a device, and its work is not in the capture."


def why_no_device(scene: Scene) -> NoDevice:
    """What a trace that holds no device rows is: the things that look alike are told apart.

    A foreign capture whose device rows nobody could place; a job on accelerators whose device rows were
    dropped, or that launched nothing; a front end; a run on the CPU.
    """
    trace, counts = scene.trace, scene.trace.counts
    if counts.unplaced > UNPLACED_SHARE * max(counts.kept + counts.unplaced, 1):
        kinds = ", ".join(counts.unknown_categories[:4])
        return NoDevice(
            "no device rows that this reader knows",
            f"no device events that this reader knows: {counted(counts.unplaced, 'span is', 'spans are')} of "
            f"unknown categories ({kinds}), and device rows may be among them",
            f"See what the spans of unknown categories are ({kinds}): device rows may be among them. Until then take "
            "the device's side from its vendor's own profiler or tool.")
    if launches := int(scene.names.rows(LAUNCH_CALL, Kind.RUNTIME).sum()):
        return NoDevice(
            "no device rows, although the host launched work: the profiler dropped them or was not asked for them",
            f"no device events, although the host made {counted(launches, 'launch call')}: the profiler dropped "
            "them or was not asked for them. Record again with device activities", _RECORD_AGAIN)
    if _speaks_of_accelerator(scene):
        reads = np.flatnonzero(scene.names.rows(_READ_BACK, Kind.HOST_OP))
        if len(reads) and float(trace.dur[reads].mean()) > READ_BACK_WAITS_NS:
            return NoDevice(
                "no device rows: a job on accelerators whose device work was not recorded",
                "no device events: a job on accelerators, and "
                f"{counted(len(reads), 'read-back takes', 'read-backs take')} "
                f"{spoken(float(trace.dur[reads].sum()))}, far longer than from host memory: there is a device, "
                "and its work is not in the capture", _RECORD_AGAIN)
        return NoDevice(
            "no device rows: a rank of a job on accelerators that launched nothing, or recorded the host only",
            "no device events: a rank of a job on accelerators that launched nothing here, or whose profiler "
            "recorded the host only",
            "Record again with the device's activities on, on a rank that runs the model; where none come again, this "
            "rank launches nothing.")
    if not (scene.host_kind == Kind.HOST_OP).any():
        return NoDevice(
            "no device rows and no operators: a front end or scheduler, not the process that runs the model",
            "no device events and no operators: a front end or scheduler. Profile the process that runs the model",
            "Profile the process that runs the model, with device activities on; of several files of one capture take "
            "the worker's (its name has the rank), not the front end's.")
    return NoDevice(
        "no device rows: a CPU run, every operator ran on the host",
        "no device events: a CPU run, every operator ran on the host",
        "Say which device was meant, and compare it with the backend that the log names and with where the model was "
        "placed (log.backend, placement.loaded_fraction); where a device did run, record again with its activities on.")


def _speaks_of_accelerator(scene: Scene) -> bool:
    """Whether anything in the capture speaks of one: its words about itself, runtime calls, names."""
    about = scene.trace.meta
    if about.get("deviceProperties") or _COLLECTIVES.search(str(about.get("distributedInfo", ""))):
        return True
    if (scene.host_kind == Kind.RUNTIME).any():
        return True
    return bool(scene.names.rows(_ACCELERATOR, Kind.HOST_OP, Kind.ANNOTATION).any())

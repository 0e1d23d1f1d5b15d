"""What collectives take on one rank; and what of it is waiting, where one capture holds several ranks of a group."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass

import numpy as np

from ..trace import Ints, Kind
from .exchange_names import exchanges_and_computes
from .groups import heaviest_code
from .intervals import total_within
from .scene import Scene

TOGETHER = 0.9
"""Devices are ranks of one group where, in at least this share of the collectives, all of them are inside at once."""

USUALLY_LAST = 0.8
"""A device that comes last in this share of the collectives is the one that the others wait for. Judgement."""

_EXCHANGES = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.I)
"""Collectives that no rank leaves before all have come. A receive, or a broadcast's source, is none of these."""

_NUMBERED = re.compile(r"\d+")

Taken = tuple[str, float, str | None]
"""A signal's name, value, and its window in words where it is not the walk's."""


def collectives(scene: Scene, rows: Ints, unknown: MutableMapping[str, str]) -> Iterator[Taken]:
    """`comm.*` of one device, whose rows inside the window are `rows`; over all devices where they are ranks of one
    group."""
    trace = scene.trace
    fused = rows[scene.names.rows(exchanges_and_computes, Kind.KERNEL, of=rows)]
    if len(fused):
        held = total_within(trace.start[fused], scene.end[fused], scene.left, scene.right)
        yield "comm.fused_fraction", held / max(scene.window, 1), None
    calls = rows[trace.kind[rows] == Kind.COMM]
    if scene.steps.method != "window":
        yield "comm.calls_per_step", len(calls) / len(scene.steps.steps), None
    if not len(calls):
        return
    ranks, why = _ranks(scene)
    if ranks is not None:
        yield from ranks.signals(len(scene.steps.steps) if scene.steps.method != "window" else 0)
        return
    if why:
        unknown["comm.skew_ms"] = why
    top = heaviest_code(trace.name[calls], trace.dur[calls])
    place, ns = _same_collective(scene, calls[trace.name[calls] == top])
    if not len(ns):
        unknown.update(dict.fromkeys(("comm.min_us", "comm.max_us"), "no collective that comes at the same place of "
                                     "two like steps: others carry other amounts of data"))
        return
    words = f"{len(ns)} calls of {trace.names[top]}, number {place + 1} of its step, on one rank"
    yield "comm.min_us", float(ns.min()) / 1e3, words
    yield "comm.max_us", float(ns.max()) / 1e3, words


@dataclass(frozen=True, eq=False)
class Ranks:
    """Devices of one capture that are ranks of one group. start, end: int64 ns, [devices, collectives]; one clock."""

    devices: tuple[str, ...]
    start: Ints
    end: Ints

    def signals(self, steps: int) -> Iterator[Taken]:
        """`steps`: in the window; 0 where none were found."""
        dur = self.end - self.start
        words = f"{dur.shape[1]} collectives over {len(self.devices)} devices, mean"
        yield "comm.min_us", float(dur.min(axis=0).mean()) / 1e3, words
        yield "comm.max_us", float(dur.max(axis=0).mean()) / 1e3, words
        if steps:
            yield "comm.skew_ms", float(self.skew.sum()) / 1e6 / steps, words.replace("mean", "sum of a step")

    @property
    def skew(self) -> Ints:
        """ns of each collective from the first rank's entry to the last one's."""
        skew: Ints = self.start.max(axis=0) - self.start.min(axis=0)
        return skew

    @property
    def note(self) -> str:
        """Which device the others wait for; empty where it is now this one, now that."""
        last = np.bincount(self.start.argmax(axis=0), self.skew, len(self.devices))
        most = int(last.argmax())
        cost = float((self.end - self.start).min(axis=0).sum())
        if last[most] < USUALLY_LAST * max(last.sum(), 1) or last.sum() < cost:
            return ""
        return (f"the {len(self.devices)} devices of this capture are ranks of one group, and device "
                f"{self.devices[most]} comes last for {last[most] / last.sum():.0%} of the {last.sum() / 1e6:,.2f} ms "
                f"that they wait for each other in {self.start.shape[1]} collectives; the exchange itself takes "
                f"{cost / 1e6:,.2f} ms. Look at what this device or its process does before them")


def ranks_of(scene: Scene) -> Ranks | None:
    """The devices with collectives as ranks of one group: the same collectives, as many, in the same order, together in
    them, and all the ranks that the group has. None where they are not, or there is one only."""
    return _ranks(scene)[0]


def _ranks(scene: Scene) -> tuple[Ranks | None, str]:
    """Those; and where the capture holds a part of a group, why they are none: who is not in it may be the one that all
    the others wait for."""
    trace = scene.trace
    rows = np.flatnonzero((trace.kind == Kind.COMM) & scene.names.rows(_EXCHANGES, Kind.COMM))
    end = scene.end[rows]  # ranks enter at different times and leave together: so none falls to both sides of an edge
    rows = rows[(end > scene.left) & (end <= scene.right)]
    devices = np.unique(trace.device[rows])
    if len(devices) < 2:
        return None, ""
    by_device = [rows[trace.device[rows] == device] for device in devices.tolist()]
    if len({len(mine) for mine in by_device}) > 1:
        return None, ""
    kinds = [_NUMBERED.sub("", name) for name in trace.names]
    said = [[kinds[code] for code in trace.name[mine].tolist()] for mine in by_device]
    if any(each != said[0] for each in said[1:]):
        return None, ""
    starts, ends = (np.stack([of[mine] for mine in by_device]) for of in (trace.start, scene.end))
    if float((starts.max(axis=0) < ends.min(axis=0)).mean()) < TOGETHER:
        return None, ""
    if why := _part_of_a_group(scene, np.stack(by_device)):
        return None, why
    return Ranks(tuple(trace.devices[device] for device in devices.tolist()), starts, ends), ""


def _part_of_a_group(scene: Scene, rows: Ints) -> str:
    """Why the devices that make these collectives (int64, [devices, collectives]) are not known to be all ranks of one
    group; empty where they are, or where the capture tells nothing of ranks. Kineto writes a group's name and size
    beside its collectives, and beside the whole how many ranks the job has."""
    trace, here = scene.trace, len(rows)
    code = trace.exchange[rows] if len(trace.exchange) else np.full(rows.shape, -1)
    told = [trace.exchanges[one] for one in np.unique(code[code >= 0]).tolist()]
    if (most := max((one.size for one in told), default=0)) > here:
        return (f"collectives of groups of {most:,} ranks, of which {here:,} are in this capture: whom they wait for "
                "may be one of the others")
    group = np.array([one.group for one in trace.exchanges] + [""])[code]
    if (group != group[0]).any():
        return "collectives of different process groups, which do not wait for each other"
    if most:
        return ""
    job = trace.meta.get("distributedInfo")
    world = job.get("world_size") if isinstance(job, dict) else None
    if isinstance(world, int) and world > here:
        return (f"the job has {world:,} ranks, of which {here:,} are in this capture, and nothing tells how many the "
                "group of these collectives has")
    return ""


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

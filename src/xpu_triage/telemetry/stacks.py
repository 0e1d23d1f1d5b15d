"""Step 3 from stacks: which thread runs the model, and where it is each time somebody looks.

Every dump, and every sample of a recording, is one look at a thread. A share of looks is a share of wall time within
what the number of looks allows, so each share is given with its interval. A wait is not a cause: waits are counted
and named, and never made the top operator.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..samples import Stacks
from ..signals import Signal, Value
from ..text import clean
from .measured import Measured
from .stack_looks import Doing, Look, place
from .stack_threads import Thread, gathered, is_timed, leading, of_service, pid, seen_in

MIN_LOOKS = 5
"""Looks from which on a share is stated."""

MIN_SEEN = 3
"""Looks that have to agree: from three on, the lower end of the 95 % interval is at least a third of the share."""

Z = 1.96
"""Standard deviations of a two-sided 95 % interval."""


@dataclass(frozen=True)
class Row:
    """One line of the table: where the thread that runs the model is seen."""

    function: str
    file: str
    line: int | None
    """The line seen most; None where the tool gives none."""
    doing: str
    samples: int
    share: float
    """Of all looks at this thread, its waits included."""
    total: int
    """Looks with this function anywhere on the stack."""


def interval(seen: int, of: int) -> tuple[float, float]:
    """The 95 % interval (Wilson 1927) of a share that was seen `seen` times in `of` looks; `of` is at least 1."""
    share = seen / of
    middle = share + Z * Z / (2 * of)
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    scale = 1 + Z * Z / of
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def measure(stacks: Sequence[Stacks]) -> Measured:
    """`host.top_op`, its share, `sync.site` and, where frames prove it, `fallback.op` with its share; over all looks at
    the thread that runs the model. The order of `stacks` and of what is in them does not matter."""
    if not any(one.stacks for one in stacks):
        return Measured()
    notes = [note for one in sorted(stacks, key=lambda one: one.source) for note in one.notes]
    stacks = _of_one_kind(stacks, notes)
    threads, others = of_service(gathered(stacks))
    lead = leading(threads)
    if lead is None:
        why = _not_of_service(others) if others else "no thread of these stacks runs Python code"
        return Measured(unknown={"host.top_op": why}, notes=tuple(notes))
    if others:
        notes.append(f"left out: {_names(others)} (neither title nor frames show an inference service)")
    said = _Said(stacks, lead)
    lead = said.after_start_up(lead, notes)
    unknown: dict[str, str] = {}
    signals = [*said.top(lead, unknown, notes), *said.fallback(lead, threads, unknown),
               *said.sync(lead, unknown, notes)]
    _tell_waits(lead, threads, notes, said)
    return Measured(tuple(signals), unknown, tuple(dict.fromkeys(notes)))


def profile(stacks: Sequence[Stacks]) -> list[Row]:
    """The thread that runs the model as a table, most samples first. The samples add up to all looks at it."""
    lead = leading(of_service(gathered(_of_one_kind(stacks, [])))[0])
    if lead is None:
        return []
    anywhere: Counter[str] = Counter()
    for one in lead.looks:
        for name in {place(frame) for frame in one.stack.frames}:
            anywhere[name] += one.samples
    by_place: dict[tuple[str, Doing], list[Look]] = {}
    for one in lead.looks:
        by_place.setdefault((one.name, one.doing), []).append(one)
    rows = []
    for (name, doing), looks in by_place.items():
        lines: Counter[int] = Counter()
        for one in looks:
            if one.at.line is not None:
                lines[one.at.line] += one.samples
        line = min(lines, key=lambda at: (-lines[at], at)) if lines else None
        samples = sum(one.samples for one in looks)
        at = min((one.at for one in looks), key=str)
        named = name if doing in (Doing.ON_CPU, Doing.LAUNCH) else at.function
        total = max(samples, anywhere[place(at)]) if named == at.function else samples
        rows.append(Row(named, at.file, line, str(doing), samples, samples / lead.seen, total))
    return sorted(rows, key=lambda row: (-row.samples, row.function, row.file, row.doing))


def folded(stacks: Sequence[Stacks]) -> list[str]:
    """All stacks as folded lines (`process;thread;root;…;leaf count`), equal ones added up, most samples first: what a
    flame graph is drawn from. The counts add up to all samples."""
    counts: Counter[str] = Counter()
    for one in seen_in(stacks):
        parts = [one.process, one.thread, *(str(frame) for frame in reversed(one.frames))]
        counts[";".join(clean(part).replace(";", ",") for part in parts if part)] += one.samples
    return [f"{line} {count}" for line, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _of_one_kind(stacks: Sequence[Stacks], notes: list[str]) -> Sequence[Stacks]:
    """Looks and milliseconds do not add up: where both are there, the looks."""
    counted = [one for one in stacks if not is_timed(one)]
    if counted and len(counted) < len(stacks):
        notes.append("a profile of times beside looks that are counted: left out")
    return counted or stacks


def _not_of_service(others: Sequence[str]) -> str:
    return (f"{_names(others)}: neither title nor frames show an inference service. Dump the process that runs the "
            "model (a worker, a scheduler)")


def _names(others: Sequence[str]) -> str:
    named = [clean(one) or "a process without a name" for one in sorted(others)]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


# ---- what is said of it


class _Said:
    """Words and signals about one thread."""

    def __init__(self, stacks: Sequence[Stacks], lead: Thread) -> None:
        sources = sorted({one.source for one in stacks if any(
            pid(stack.process) == pid(lead.process) for stack in one.stacks)})
        self.source = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
        self.timed = any(map(is_timed, stacks))
        dumps = all("dump" in one.tool or one.tool == "faulthandler" for one in stacks)
        self.unit = "ms" if self.timed else "dumps" if dumps else "samples"

    def share(self, seen: int, of: int) -> str:
        """`4 of 5 dumps, 38–96 %`."""
        unit = self.unit.removesuffix("s") if of == 1 and not self.timed else self.unit
        words = f"{seen:,} of {of:,} {unit}"
        if self.timed or of < 2:
            return words
        low, high = interval(seen, of)
        return f"{words}, {100 * low:.0f}–{100 * high:.0f} %"

    def enough(self, seen: int, of: int) -> bool:
        return of >= MIN_LOOKS and seen >= MIN_SEEN

    def signal(self, name: str, value: Value, seen: int, of: int, lead: Thread) -> Signal:
        when = ", starting up" if lead.count(lambda one: one.start_up) else ""
        return Signal(name, value, "stacks", f"{self.share(seen, of)}: {lead.title}{when}", self.source)

    def few(self, seen: int, of: int) -> str:
        return f"{self.share(seen, of)}: a share needs {MIN_LOOKS} looks or more and {MIN_SEEN} that agree"

    def after_start_up(self, lead: Thread, notes: list[str]) -> Thread:
        """The thread without its looks from before the first request, where there are others."""
        before = lead.count(lambda one: one.start_up)
        if not before:
            return lead
        if before == lead.seen:
            notes.append(f"{lead.title} is starting up or capturing shapes, not serving: this is no step")
            return lead
        notes.append(f"{self.share(before, lead.seen)} are from start-up or capture: left out")
        return Thread(lead.process, lead.thread, tuple(one for one in lead.looks if not one.start_up))

    def top(self, lead: Thread, unknown: dict[str, str], notes: list[str]) -> list[Signal]:
        busy = Counter[str]()
        for one in lead.looks:
            if one.busy:
                busy[_safe_name(one, lead)] += one.samples
        ranked = sorted(busy.items(), key=lambda item: (-item[1], item[0]))
        if not ranked:
            unknown["host.top_op"] = f"{lead.title} was never seen at work: {_waits(lead)}"
            return []
        (name, seen), of = ranked[0], lead.seen
        if len(ranked) > 1 and ranked[1][1] == seen:
            tied = [place for place, count in ranked if count == seen]
            unknown["host.top_op"] = f"{len(tied)} places were seen equally often ({self.share(seen, of)} each): " + (
                ", ".join(tied[:3]))
            return []
        compiling = lead.count(lambda one: one.compiles)
        if compiling:
            notes.append(f"{lead.title} compiles or tunes in {self.share(compiling, of)}: first use, not the step")
        signals = [self.signal("host.top_op", name, seen, of, lead)]
        if not any(one.native for one in lead.looks):
            notes.append("without native frames a function that waits for the device inside looks like one that works")
        if self.enough(seen, of):
            signals.append(self.signal("host.top_op_fraction", seen / of, seen, of, lead))
        else:
            unknown["host.top_op_fraction"] = self.few(seen, of)
        return signals

    def fallback(self, lead: Thread, threads: Sequence[Thread], unknown: dict[str, str]) -> list[Signal]:
        """An operator seen on a CPU, in a process that is meant for a device. Absent is never none."""
        native = lead.count(lambda one: one.native)
        ours = [one for thread in threads if pid(thread.process) == pid(lead.process) for one in thread.looks]
        counts = Counter[str]()
        for one in lead.looks:
            if one.doing is Doing.ON_CPU:
                counts[one.name] += one.samples
        if not native:
            unknown["fallback.op"] = ("Python frames do not show where an operator runs: dump with --native, "
                                      "or record a trace")
            return []
        if any(one.cpu_build for one in ours) and not any(one.fallback for one in lead.looks):
            unknown["fallback.op"] = "this run was meant for the CPU: nothing fell back"
            return []
        if not counts:
            unknown["fallback.op"] = f"no operator was seen on a CPU in {native:,} {self.unit}; short ones are missed"
            return []
        op, seen = min(counts.items(), key=lambda item: (-item[1], item[0]))
        if not any(one.device for one in ours):
            unknown["fallback.op"] = f"{op} ran on a CPU, but nothing in these stacks tells that a device was meant"
            return []
        signals = [self.signal("fallback.op", op, seen, native, lead)]
        if self.enough(total := counts.total(), native):
            signals.append(self.signal("fallback.fraction", total / native, total, native, lead))
        else:
            unknown["fallback.fraction"] = self.few(total, native)
        return signals

    def sync(self, lead: Thread, unknown: dict[str, str], notes: list[str]) -> list[Signal]:
        """The call that blocks most often. The wait for a step's tokens is where every step ends, and no such site."""
        sites, usual = Counter[str](), Counter[str]()
        for one in lead.looks:
            if one.doing is Doing.DEVICE:
                (usual if one.usual else sites)[one.name] += one.samples
        if usual:
            where = min(usual, key=lambda name: (-usual[name], name))
            notes.append(f"{lead.title} waits for the tokens of the step in {self.share(usual.total(), lead.seen)} "
                         f"({where}): every step ends so; the time is the device's or what it waits for")
            unknown["sync.site"] = f"the only wait for the device that was seen ends each step: {where}"
        if not sites:
            return []
        unknown.pop("sync.site", None)
        site, seen = min(sites.items(), key=lambda item: (-item[1], item[0]))
        notes.append(f"a wait is not a cause: in {site} the host waits for what the device still has to do")
        return [self.signal("sync.site", site, seen, lead.seen, lead)]


def _safe_name(one: Look, lead: Thread) -> str:
    """An operator's own name says that it ran on a host for a model on a device. In a run meant for the CPU it is where
    it belongs, and the function that calls it is the better name."""
    if one.doing is Doing.ON_CPU and any(other.cpu_build for other in lead.looks):
        return place(one.at)
    return one.name


def _waits(lead: Thread) -> str:
    counts = Counter[str]()
    for one in lead.looks:
        counts[f"{one.doing}, {one.name}"] += one.samples
    return min(counts, key=lambda name: (-counts[name], name))


def _tell_waits(lead: Thread, threads: Sequence[Thread], notes: list[str], said: _Said) -> None:
    """Who waits for whom."""
    waiting = lead.count(lambda one: one.doing is Doing.WAIT)
    if 2 * waiting > lead.seen:
        todo = "" if lead.model else (". No thread here is known to run the model: dump the process that does (a "
                                      "worker, a scheduler), if it is another")
        notes.append(f"{lead.title} waits for work or for another process in {said.share(waiting, lead.seen)}: "
                     f"the time is lost elsewhere{todo}")
    asleep = lead.count(lambda one: one.doing is Doing.ASLEEP)
    if asleep:
        notes.append(f"{lead.title} is asleep in {said.share(asleep, lead.seen)}: it waits for the device, a lock or "
                     "another process, and the frames do not tell which")
    for other in threads:
        if other.model and not lead.model and pid(other.process) != pid(lead.process):
            idle = other.count(lambda one: one.doing is Doing.WAIT)
            notes.append(f"{other.title}, which runs the model, waits for work in {said.share(idle, other.seen)}; "
                         f"{lead.title} is at work meanwhile")
            return
    ranks = {pid(other.process) for other in threads if other.model}
    if lead.model and len(ranks) > 1:
        notes.append(f"{len(ranks)} processes run the model; {lead.title} was seen at work most often and is the one "
                     "that is told")

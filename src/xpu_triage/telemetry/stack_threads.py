"""The threads of which stacks were taken: what was seen of each, whose they are, and which one's time is the step's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..samples import Frame, Stack, Stacks
from . import roles
from .stack_looks import Doing, Look, look
from .stack_names import known


@dataclass(frozen=True)
class Thread:
    """Everything seen of one thread of one process."""

    process: str
    thread: str
    looks: tuple[Look, ...]

    def count(self, wanted: Callable[[Look], bool]) -> int:
        return sum(one.samples for one in self.looks if wanted(one))

    @property
    def seen(self) -> int:
        return self.count(lambda one: True)

    @property
    def busy(self) -> int:
        return self.count(lambda one: one.busy)

    @property
    def engaged(self) -> int:
        """Busy, or held by the device."""
        return self.count(lambda one: one.busy or one.doing is Doing.DEVICE)

    @property
    def model(self) -> bool:
        return any(one.model for one in self.looks)

    @property
    def title(self) -> str:
        thread = f"thread {self.thread}" if self.thread[:1].isdigit() else self.thread
        return f"{thread} of {self.process}" if self.process else thread


def is_timed(stacks: Stacks) -> bool:
    return stacks.tool.endswith("(times)")


def seen_in(stacks: Iterable[Stacks]) -> list[Stack]:
    return [stack for one in stacks for stack in one.stacks if stack.frames and stack.samples > 0]


def gathered(stacks: Sequence[Stacks]) -> list[Thread]:
    """Everything by process and thread. Dumps of one process, with its title or without, are of one process."""
    groups: dict[tuple[str, str], list[Stack]] = {}
    for one in seen_in(stacks):
        groups.setdefault((pid(one.process), one.thread or _thread_of(one)), []).append(one)
    read: dict[_Key, Look] = {}
    numbers = _Numbers()
    found = []
    for (_, thread), group in sorted(groups.items()):
        title = max((one.process for one in group), key=lambda name: (len(name), name))
        found.append(Thread(title, thread, tuple(_looks(group, numbers, read))))
    return found


_Key = tuple[bool | None, tuple[int, ...]]


class _Numbers:
    """A number for each different frame. Readers hand out one object for equal frames, and to look for an object is
    ten times as fast as to hash what is in it."""

    def __init__(self) -> None:
        self._by_object: dict[int, int] = {}
        self._by_frame: dict[Frame, int] = {}

    def of(self, stack: Stack) -> _Key:
        known = self._by_object
        try:
            return stack.active, tuple([known[id(frame)] for frame in stack.frames])
        except KeyError:
            for frame in stack.frames:
                known[id(frame)] = self._by_frame.setdefault(frame, len(self._by_frame))
            return stack.active, tuple([known[id(frame)] for frame in stack.frames])


def _looks(group: Iterable[Stack], numbers: _Numbers, read: dict[_Key, Look]) -> list[Look]:
    """Of one thread, equal stacks added up: recordings and long series of dumps repeat few stacks many times, and of
    those in `read` it is known what they tell."""
    counts: dict[_Key, int] = {}
    for one in group:
        key = numbers.of(one)
        counts[key] = counts.get(key, 0) + one.samples
        if key not in read:
            read[key] = look(one)
    return [_counted(read[key], samples) for key, samples in counts.items()]


def _counted(one: Look, samples: int) -> Look:
    return one if one.samples == samples else replace(one, stack=replace(one.stack, samples=samples))


def pid(process: str) -> str:
    first = process.split(" ")[0]
    return first if first.isdigit() else process


def _thread_of(stack: Stack) -> str:
    """A thread's name; where the tool gives none, what it started with: recordings mix all threads otherwise."""
    if stack.thread:
        return stack.thread
    python = [frame for frame in reversed(stack.frames) if known(frame).python]
    if not python or known(python[0]).own not in ("_bootstrap", "_bootstrap_inner"):
        return "main thread"
    first = next((frame for frame in python if frame.file != "threading.py"), python[-1])
    return f"thread of {first.function}"


def of_service(threads: Sequence[Thread]) -> tuple[list[Thread], list[str]]:
    """The threads of processes that serve, and the names of the other processes: load generators, and those whose
    title and frames show neither an engine nor a server. What such a process does says nothing about the service."""
    processes: dict[str, list[Thread]] = {}
    for one in threads:
        processes.setdefault(pid(one.process), []).append(one)
    ours: list[Thread] = []
    others: list[str] = []
    for members in processes.values():
        name = max((one.process for one in members), key=lambda title: (len(title), title))
        if _serves(name, [seen for one in members for seen in one.looks]):
            ours += members
        else:
            others.append(name)
    return ours, others


def _serves(title: str, looks: Sequence[Look]) -> bool:
    if roles.is_client(title):
        return False
    if roles.role(title):
        return True
    if any(one.client for one in looks) and not any(one.engine and one.model for one in looks):
        return False
    return any(one.engine for one in looks)


def leading(threads: Sequence[Thread]) -> Thread | None:
    """The thread whose time is the step's: the one that runs the model, the rank with most work first. Where that one
    waits for work most of the time and another process works, that other one is what everybody waits for. In an engine
    that is not known here tensors tell the thread before its name does: the main thread often only waits for it."""
    def weight(one: Thread) -> tuple[float, ...]:
        return (one.engaged, one.busy, one.count(lambda seen: seen.framework),
                one.thread.lower().startswith("main"), one.seen)

    python = [one for one in threads if any(seen.python for seen in one.looks)]
    ranked = sorted(sorted(python, key=lambda one: (one.process, one.thread)), key=weight, reverse=True)
    models = [one for one in ranked if one.model]
    if not models:
        return next(iter(ranked), None)
    best = models[0]
    if best.engaged >= 0.5 * best.seen:
        return best
    elsewhere = (one for one in ranked
                 if not one.model and pid(one.process) != pid(best.process) and one.busy >= 0.5 * one.seen)
    return next(elsewhere, best)



"""Which processes are the service: a pid that was given, or found by what processes call themselves.

Titles and command lines are looked at here and go no further: what is kept of a process is its role.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnusableInput, install
from .probe import Trouble

Role = Callable[[str], str]
"""Title to role; empty where it tells none."""

RUNS_THE_MODEL = ("worker", "scheduler", "engine")
"""Roles that run the model, the first that is there: an engine with workers only waits for them; SGLang's scheduler
runs it itself."""

MAX_SHOWN = 6
MAX_PROCESSES = 64
"""Processes of one service that are followed."""


@dataclass(frozen=True)
class Seen:
    pid: int
    parent: int
    role: str


def psutil_library() -> Any:
    """psutil. Raises `Trouble` where it is not installed."""
    try:
        return importlib.import_module("psutil")
    except ImportError:
        raise Trouble(f"psutil is not installed: {install('live')}", final=True) from None


def role_of_title() -> Role:
    role: Role = importlib.import_module("xpu_triage.telemetry.roles").role
    return role


def title(process: Any) -> str:
    """What a process calls itself: its command line, which `setproctitle` replaces, else its short name."""
    return " ".join(process.cmdline()) or str(process.name())


def parsed(given: str) -> int | None:
    """The pid of `--pid`; None for `auto`. Raises `UnusableInput`."""
    if given == "auto":
        return None
    if given.isascii() and given.isdigit() and 0 < int(given) < 1 << 22:
        return int(given)
    raise UnusableInput("--pid wants a process id, or auto", todo="Look it up: ps -eo pid,args")


class Service:
    """The processes of one service: the one at its top, and its descendants."""

    def __init__(self, pid: int | None, *, role: Role, psutil: Any, port: int | None = None,
                 among: Callable[[], Iterable[Any]] | None = None) -> None:
        """`port` is where a server on this machine listens; `among` gives the processes to look at."""
        self._role, self.psutil = role, psutil
        self._among = among or psutil.process_iter
        self.root = self._given(pid) if pid is not None else self._found(port)

    def processes(self) -> list[tuple[Any, str]]:
        """Each with its role, the top first. Raises `Trouble` where the service has ended."""
        if not self.root.is_running() or self.root.status() == self.psutil.STATUS_ZOMBIE:
            raise Trouble(f"process {self.root.pid} has ended", final=True)
        found: list[tuple[Any, str]] = []
        for process in [self.root, *self.root.children(recursive=True)][:MAX_PROCESSES]:
            try:
                found.append((process, self._role(title(process))))
            except self.psutil.Error:
                continue
        return found

    def _given(self, pid: int) -> Any:
        try:
            return self.psutil.Process(pid)
        except self.psutil.Error:
            raise Trouble(f"there is no process {pid} here (a container numbers its own)", final=True) from None

    def _found(self, port: int | None) -> Any:
        seen, by_pid = [], {}
        ours = self._own()
        for process in self._among():
            try:
                if process.pid in ours:
                    continue
                seen.append(Seen(process.pid, process.ppid(), self._role(title(process))))
                by_pid[process.pid] = process
            except self.psutil.Error:
                continue
        return by_pid[chosen(seen, self._listening(by_pid.values(), port))]

    def _own(self) -> set[int]:
        """This process, those that started it, and those it started: a command line of ours may name the server."""
        own = self.psutil.Process(os.getpid())
        try:
            started = set() if self._among is not self.psutil.process_iter else {
                process.pid for process in own.children(recursive=True)}
            return {own.pid, *(process.pid for process in own.parents()), *started}
        except self.psutil.Error:
            return {own.pid}

    def _listening(self, processes: Iterable[Any], port: int | None) -> set[int]:
        """Who listens on `port`, as far as it may be asked."""
        if port is None:
            return set()
        found = set()
        for process in processes:
            try:
                connections = process.net_connections(kind="tcp")
            except (self.psutil.Error, OSError):
                continue
            if any(one.status == self.psutil.CONN_LISTEN and one.laddr.port == port for one in connections):
                found.add(process.pid)
        return found


def chosen(seen: Sequence[Seen], listening: set[int]) -> int:
    """The pid at the top of the one service among `seen`: the one that listens where the server is asked, else the only
    one with processes whose titles tell a role. Raises `Trouble` where there is none, or several."""
    by_pid = {one.pid: one for one in seen}
    tops = sorted({_top(by_pid, pid) for pid in listening & by_pid.keys()})
    tops = tops or sorted({_top(by_pid, one.pid) for one in seen if one.role})
    if not tops:
        raise Trouble("no process here calls itself a part of an inference server: give --pid PID", final=True)
    if len(tops) > 1:
        shown = ", ".join(f"{pid} ({_below(seen, by_pid, pid)})" for pid in tops[:MAX_SHOWN])
        more = f" and {len(tops) - MAX_SHOWN} more" if len(tops) > MAX_SHOWN else ""
        raise Trouble(f"several services run here: {shown}{more}. Say which: --pid PID", final=True)
    return tops[0]


def _top(by_pid: dict[int, Seen], pid: int) -> int:
    """The highest ancestor that is reached over processes with a role."""
    at = by_pid[pid]
    for _ in range(len(by_pid)):
        parent = by_pid.get(at.parent)
        if parent is None or not parent.role:
            break
        at = parent
    return at.pid


def _below(seen: Sequence[Seen], by_pid: dict[int, Seen], pid: int) -> str:
    roles = [one.role for one in seen if one.role and _top(by_pid, one.pid) == pid]
    return ", ".join(dict.fromkeys(roles)) or "no known role"


def runs_the_model(processes: Sequence[tuple[int, str]], cpu: dict[int, float]) -> int | None:
    """Of (pid, role), parents first, the one that runs the model: by its role, and where several have it the busiest,
    of equally busy ones the last: what starts a server (`timeout`, `nohup`, a shell) has its command line, and is the
    parent. Where no role tells, the busiest of all."""
    for role in RUNS_THE_MODEL:
        if of_role := [pid for pid, its in processes if its == role]:
            return max(reversed(of_role), key=lambda pid: cpu.get(pid, 0.0))
    return max((pid for pid, _ in processes), key=lambda pid: cpu.get(pid, 0.0), default=None)

"""CPU of the service's processes and threads, and of the machine, once a second: `processes.csv`, with roles and no
command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..text import clean
from .clock import Clock, iso
from .folder import Folder
from .probe import Trouble
from .service import Service

FILE = "processes.csv"
HEADER = "timestamp,pid,tid,role,cpu_cores,host_cpu_fraction\n"
"""A process has no `tid`; the machine has neither, and `host_cpu_fraction` alone."""

LEAST_CORES = 0.02
"""Threads below this are not written: a server has hundreds that wait."""

MAX_THREADS = 32
"""Threads of one process in one sample, the busiest."""

THREADS_SHARE = 0.01
"""Of one core, for looking at threads; where there are thousands they are looked at less often."""

CHILDREN_S = 5.0
"""Seconds between looks for new processes, which read the whole process table."""


class ProcessProbe:
    name = "process"
    delay_s = 0.0
    interval_s = 1.0

    def __init__(self, find: Callable[[], Service], folder: Folder, clock: Clock) -> None:
        self._find, self._folder, self._clock = find, folder, clock
        self.notes: list[str] = []
        self.service: Service | None = None
        self.processes: list[tuple[Any, str]] = []
        self.cpu: dict[int, float] = {}
        """Cores of each process in the last interval."""
        self._looked = self._threads_due = float("-inf")
        self._last: dict[tuple[int, int | None], tuple[float, float]] = {}
        self._host: tuple[float, float] | None = None

    def sample(self) -> None:
        if self.service is None:
            self.service = self._find()
        now = self._clock.now()
        if now - self._looked >= CHILDREN_S:
            self.processes, self._looked = self.service.processes(), now
            if not self.notes:
                self.notes.append(self._who())
        rows = self._rows(now, threads=now >= self._threads_due)
        if rows:
            stamp = iso(self._clock.utc())
            self._folder.append(FILE, "".join(f"{stamp},{row}\n" for row in rows), header=HEADER)

    def close(self) -> None:
        """Nothing is open."""

    def _who(self) -> str:
        roles: dict[str, int] = {}
        for _, role in self.processes:
            roles[role or "no known role"] = roles.get(role or "no known role", 0) + 1
        return ", ".join(f"{count} {clean(role)}" for role, count in roles.items())

    def _rows(self, now: float, *, threads: bool) -> list[str]:
        rows = [f",,,,{host:.4f}"] if (host := self._host_fraction()) is not None else []
        began = time.thread_time()
        gone = 0
        for process, role in self.processes:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                cores = self._cores((process.pid, None), times.user + times.system, now)
                if cores is not None:
                    self.cpu[process.pid] = cores
                    rows.append(f"{process.pid},,{role},{cores:.3f},")
                if threads:
                    rows += self._thread_rows(process, role, now)
            except Exception as error:  # psutil's errors: it ended, or may not be looked at
                if not type(error).__module__.startswith("psutil"):
                    raise
                gone += 1
        if threads:
            self._threads_due = now + max(0.5, (time.thread_time() - began) / THREADS_SHARE)
        if gone and gone == len(self.processes):
            self._looked = float("-inf")
            raise Trouble("none of the service's processes can be read any more")
        return rows

    def _thread_rows(self, process: Any, role: str, now: float) -> list[str]:
        busy = []
        for thread in process.threads():
            cores = self._cores((process.pid, thread.id), thread.user_time + thread.system_time, now)
            if cores is not None and cores >= LEAST_CORES:
                busy.append((cores, thread.id))
        busy.sort(reverse=True)
        return [f"{process.pid},{tid},{role},{cores:.3f}," for cores, tid in busy[:MAX_THREADS]]

    def _cores(self, key: tuple[int, int | None], cpu_s: float, now: float) -> float | None:
        """CPU time per time since this was last looked at; None the first time."""
        before = self._last.get(key)
        self._last[key] = (cpu_s, now)
        if before is None or now <= before[1] or cpu_s < before[0]:
            return None
        return (cpu_s - before[0]) / (now - before[1])

    def _host_fraction(self) -> float | None:
        assert self.service is not None
        times = self.service.psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # guest time is a part of user time already
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        before, self._host = self._host, (total, idle)
        if before is None or total <= before[0]:
            return None
        return min(max(1 - (idle - before[1]) / (total - before[0]), 0.0), 1.0)

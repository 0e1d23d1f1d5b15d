"""A few py-spy dumps of the process that runs the model, spread over the recording.

The process is not stopped for it (`--nonblocking`): stopping one with 200 threads took 26 to 48 ms a dump, and a dump
that dies halfway could leave it stopped. The price is that a stack which changes while it is read may be torn. Locals
and command lines are never recorded.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import install
from ..text import clean
from .clock import Clock, iso
from .command import Done
from .folder import Folder
from .probe import Trouble

DUMPS = 5
TIMEOUT_S = 10.0
TRIES = 3
"""A stack that changes while it is read can end a dump with an error."""

_THREAD = ("pid", "thread_id", "thread_name", "os_thread_id", "active", "owns_gil")
_FRAME = ("name", "filename", "module", "short_filename", "line")

NOT_PERMITTED = ("py-spy may not read process {pid}: it needs CAP_SYS_PTRACE. Run as root, or start the container with"
                 " --cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add)")

Run = Callable[[Sequence[str]], Done]


def py_spy() -> str:
    """The program, of this environment or on PATH. Raises `Trouble`."""
    beside = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    program = beside or shutil.which("py-spy")
    if program is None:
        raise Trouble(f"py-spy is not installed: {install('live')}", final=True)
    return program


class StacksProbe:
    name = "stacks"

    def __init__(self, target: Callable[[], tuple[int, str] | None], run: Run, folder: Folder, clock: Clock, *,
                 seconds: float, dumps: int = DUMPS, program: Callable[[], str] = py_spy) -> None:
        """`target` gives (pid, role) of the process to dump, or None where it is not known yet."""
        self._target, self._run, self._folder, self._clock = target, run, folder, clock
        self._program = program
        self._left, self._count = dumps, 0
        self.interval_s = seconds / dumps
        self.delay_s = min(self.interval_s / 2, 2.5)
        self.notes: list[str] = []

    def sample(self) -> None:
        target = self._target()
        if target is None:
            raise Trouble("no process to take stacks of")
        if self._left <= 0:
            return
        pid, role = target
        threads = self._dumped(pid)
        taken = iso(self._clock.utc())
        name = f"stacks/{self._count:04d}.json"
        self._folder.write(name, json.dumps(threads) + "\n")
        self.notes.append(f"{name}: {taken}, process {pid} ({clean(role) or 'no known role'})")
        self._count += 1
        self._left -= 1

    def close(self) -> None:
        """Nothing is open."""

    def _dumped(self, pid: int) -> list[dict[str, Any]]:
        argv = (self._program(), "dump", "--json", "--nonblocking", "--pid", str(pid))
        for _ in range(TRIES):
            done = self._run(argv)
            if done.code == 0 and (threads := kept(done.out)):
                return threads
            complaint = f"{done.err}\n{done.out}"
            if "ermission" in complaint or "not permitted" in complaint:
                raise Trouble(NOT_PERMITTED.format(pid=pid), final=True)
            if "python version" in complaint or "python process" in complaint.lower():
                raise Trouble(f"process {pid} runs no Python that py-spy can read", final=True)
        raise Trouble(f"py-spy cannot read process {pid}: {done.first_line or 'no stack in its answer'}")


def kept(dump: str) -> list[dict[str, Any]]:
    """Of a `py-spy dump --json`, the threads with what a reader needs: no locals, no command line, no environment.
    Empty where it is none."""
    try:
        threads = json.loads(dump)
    except (ValueError, RecursionError):
        return []
    if not isinstance(threads, list):
        return []
    return [{**_picked(thread, _THREAD), "frames": [_picked(frame, _FRAME) for frame in thread["frames"]
                                                    if isinstance(frame, dict)]}
            for thread in threads if isinstance(thread, dict) and isinstance(thread.get("frames"), list)]


def _picked(item: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: item.get(key) for key in keys}

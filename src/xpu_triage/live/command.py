"""Another program, run within bounds: time, output, and the processor time it took."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..text import clean, shorten
from .probe import Trouble

MAX_OUTPUT = 8 << 20
"""Bytes of output after which a program is ended."""

END_S = 1.0
"""Seconds that a killed program has to be gone; one that hangs in its driver never is."""


@dataclass(frozen=True)
class Done:
    out: str
    err: str
    code: int
    cpu_s: float
    """Processor seconds of the program and its children."""

    @property
    def first_line(self) -> str:
        """What it complains of, for a message."""
        text = self.err.strip() or self.out.strip()
        return clean(shorten(text.partition("\n")[0], 160))


def environment(without: Iterable[str]) -> dict[str, str]:
    """This process's environment for a program whose output is read: plain words, UTC, and no secret that is ours."""
    without = set(without)
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, "LC_ALL": "C", "TZ": "UTC", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "250"}


def run(argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None) -> Done:
    """Run `argv` without a shell, in a session of its own: a Ctrl-C for us is none for it.

    Raises `Trouble` where it cannot start, takes longer, prints too much or does not end.
    """
    name = os.path.basename(argv[0])
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=None if env is None else dict(env), start_new_session=True)
    except OSError as error:
        raise Trouble(f"{name} does not start: {error.strerror}", final=True) from None
    deadline = time.monotonic() + timeout_s
    try:
        out, err, why = _read(process, deadline)
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if why:
        _kill(process)
    status, cpu_s = _ended(process, time.monotonic() + END_S if why else max(deadline, time.monotonic() + END_S))
    if status is None:
        raise Trouble(f"{name} hangs and cannot be ended: its driver may be stuck", final=True)
    if why:
        raise Trouble(f"{name} {why}".replace("in time", f"within {timeout_s:g} s"))
    return Done(out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), status, cpu_s)


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes, str]:
    """Both streams, and why it has to be ended (empty where it closed them itself)."""
    streams = {process.stdout: bytearray(), process.stderr: bytearray()}
    why = ""
    with selectors.DefaultSelector() as waiting:
        for pipe in streams:
            assert pipe is not None
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map() and not why:
            ready = waiting.select(deadline - time.monotonic()) if time.monotonic() < deadline else []
            if not ready:
                why = "gives no answer in time"
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    waiting.unregister(key.fileobj)
                kept = streams[key.fileobj]  # type: ignore[index]
                kept += piece
                if len(kept) > MAX_OUTPUT:
                    why = f"prints more than {MAX_OUTPUT >> 20} MiB"
    out, err = streams.values()
    return bytes(out), bytes(err), why


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)  # its own session, so the group is it and its children alone
    except (ProcessLookupError, PermissionError):
        process.kill()


def _ended(process: subprocess.Popen[bytes], deadline: float) -> tuple[int | None, float]:
    """Exit status and processor seconds; None where it is still there after the deadline."""
    killed = False
    while True:
        try:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        except ChildProcessError:
            process.returncode = -1
            return -1, 0.0
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            if killed:
                return None, 0.0
            _kill(process)  # it closed its output and lives on
            killed, deadline = True, time.monotonic() + END_S
        time.sleep(0.01)

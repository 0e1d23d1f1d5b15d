"""The server's own profiler, on an explicit flag: start it, wait a few steps, stop it, collect the trace.

It runs after everything else was sampled, so that its cost is in no other figure. Endpoints: vLLM `/start_profile`,
`/stop_profile` (404 unless started with a profiler), SGLang the same with a JSON body.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from ..errors import UnusableInput
from ..evidence.chunks import is_gzip, pieces
from ..text import clean, shorten
from .clock import Clock
from .folder import Folder
from .probe import Trouble
from .request import Client, Reply

STEPS = 12
"""Steps to record: enough to see one repeat, few enough for a file that opens."""

WAIT_S, WAIT_MIN_S, WAIT_MAX_S = 3.0, 0.5, 10.0
"""How long to record where the step time is unknown, and its limits where it is known."""

START_S, STOP_S, COLLECT_S = 15.0, 60.0, 60.0
"""Bounds: the answer to start, the answer to stop (a worker writes its file meanwhile), the wait for a file's end."""

MAX_FILES = 8
MAX_BYTES = 4 << 30
MAX_LOOKED_AT = 20_000
_TRACE = re.compile(r"\.json(\.gz)?$")
_FRONT_END = re.compile(r"async_llm")
_NOT_STARTED = re.compile(r"refuses the connection|redirects|is not known here|does not speak TLS|certificate")
"""Troubles with which the request cannot have been carried out; after any other the profiler may run all the same."""
_FROM_A_GATEWAY = (502, 504)
"""A gateway gave up; the server behind it may have gone on."""
_BUSY = re.compile(r"already|in progress", re.IGNORECASE)

ENABLE_VLLM = ("vLLM has its profiler off (404): start it with --profiler-config"
               """ '{"profiler":"torch","torch_profiler_dir":"DIR"}' (before 0.13: VLLM_TORCH_PROFILER_DIR=DIR)""")


@dataclass
class Profiler:
    """One recording by the server's profiler."""

    client: Client
    folder: Folder
    clock: Clock
    engine: str = ""
    """`vllm`, `sglang`, or empty where unknown."""
    directory: Path | None = None
    """Where the server writes its traces, seen from here."""
    step_ms: float | None = None
    poll_s: float = 0.5
    redact: Callable[[str], str] | None = None
    """Applied to the trace where it is given."""
    notes: list[str] = field(default_factory=list)

    def run(self, stop: Event) -> None:
        """Profile and collect. What goes wrong is in `notes`. Once started, the profiler is stopped whatever happens;
        `stop` shortens the waits."""
        before = _traces(self.directory)
        try:
            told = self._start()
        except Trouble as trouble:
            self.notes.append(str(trouble))
            return
        try:
            self.clock.wait(self._wait_s(), stop)
        except KeyboardInterrupt:  # what was recorded until now is still worth having
            stop.set()
        finally:
            self._stop(ends_itself=told)
        if self.directory is None:
            self.notes.append("the trace lies where the server runs: give --profile-dir where that is on this machine")
            return
        self._collect(before, stop)

    def _wait_s(self) -> float:
        if self.step_ms is None or not self.step_ms > 0:
            return WAIT_S
        return min(max(STEPS * self.step_ms / 1000, WAIT_MIN_S), WAIT_MAX_S)

    def _start(self) -> bool:
        """Start it; whether it ends by itself after its steps. Raises `Trouble` where it did not start."""
        wish: dict[str, object] = {}
        if self.engine == "sglang":
            wish = {"num_steps": STEPS, **({"output_dir": str(self.directory)} if self.directory else {})}
        body = json.dumps(wish).encode() if wish else b""
        try:
            reply = self.client.ask("POST", "/start_profile", body=body, timeout_s=START_S)
        except Trouble as trouble:
            if not _NOT_STARTED.search(str(trouble)):
                self._stop(ends_itself=True)
            raise
        if reply.status in _FROM_A_GATEWAY:
            self._stop(ends_itself=True)
        if not reply.ok:
            raise Trouble(_refused(reply, self.engine))
        if not reply.body.strip() or b'"success": false' not in reply.body.replace(b'":f', b'": f'):
            self.notes.append(f"profiled with {self.client.server}/start_profile")
            return bool(wish)
        raise Trouble(_refused(reply, self.engine))

    def _stop(self, *, ends_itself: bool) -> None:
        try:
            reply = self.client.ask("POST", "/stop_profile", timeout_s=STOP_S)
        except Trouble as trouble:
            self.notes.append(f"{trouble}: a worker's trace may be whole all the same")
            return
        if not reply.ok and not ends_itself:
            self.notes.append(f"/stop_profile answers {reply.status}: the server may still be profiling")

    def _collect(self, before: dict[Path, tuple[int, int]], stop: Event) -> None:
        """Copy what is new, once it grows no more."""
        assert self.directory is not None
        last: dict[Path, tuple[int, int]] = {}
        still = 0
        deadline = self.clock.now() + COLLECT_S
        while self.clock.now() < deadline and not (last and still >= 2):
            new = {path: state for path, state in _traces(self.directory).items() if before.get(path) != state}
            still = still + 1 if new and new == last else 0
            last = new
            if stop.is_set() and not new:
                break
            self.clock.wait(self.poll_s, Event())
        if not last:
            self.notes.append(f"no new trace in {clean(str(self.directory))}")
            return
        if still < 2:
            self.notes.append("the trace was still being written when it was copied")
        for number, path in enumerate(chosen(list(last), self.notes)):
            ending = ".json.gz" if path.name.endswith(".gz") else ".json"
            # torch puts the host's name into the file's
            self._copy(path, path.name if self.redact is None else f"{number:04d}.pt.trace{ending}")

    def _copy(self, path: Path, new_name: str) -> None:
        name = f"trace/{new_name}"
        try:
            if path.stat().st_size > MAX_BYTES:
                self.notes.append(f"{clean(path.name)} has more than {MAX_BYTES >> 30} GiB: left where it is")
                return
            target = self.folder.path / name
            target.parent.mkdir(exist_ok=True)
            if self.redact is None:
                shutil.copyfile(path, target)
            else:
                _copy_hidden(path, target, self.redact)
        except (OSError, UnusableInput) as error:
            why = error.what if isinstance(error, UnusableInput) else error.strerror or error
            self.notes.append(f"{clean(path.name)} cannot be copied: {why}")
            with suppress(OSError):
                (self.folder.path / name).unlink(missing_ok=True)
            return
        self.folder.files[name] = 1


def chosen(paths: list[Path], notes: list[str]) -> list[Path]:
    """The traces to take: those of workers rather than of the front end, which waits, and only so many."""
    workers = sorted(path for path in paths if not _FRONT_END.search(path.name)) or sorted(paths)
    if len(workers) > MAX_FILES:
        notes.append(f"{len(workers)} traces: the first {MAX_FILES} are taken")
    return workers[:MAX_FILES]


def _traces(folder: Path | None) -> dict[Path, tuple[int, int]]:
    """Trace files in `folder` and three levels below: size and time of each. Links are not followed."""
    found: dict[Path, tuple[int, int]] = {}
    waiting = [(folder, 3)] if folder else []
    seen = 0
    while waiting and seen < MAX_LOOKED_AT:
        here, levels = waiting.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue
        for entry in entries:
            seen += 1
            try:
                if entry.is_dir(follow_symlinks=False):
                    if levels:
                        waiting.append((Path(entry), levels - 1))
                elif entry.is_file(follow_symlinks=False) and _TRACE.search(entry.name):
                    state = entry.stat(follow_symlinks=False)
                    found[Path(entry)] = (state.st_size, state.st_mtime_ns)
            except OSError:
                continue
    return found


def _copy_hidden(path: Path, target: Path, redact: Callable[[str], str]) -> None:
    """Copy with names taken out, piece by piece, cut where no name can be: at a comma or a line's end."""
    from isal import igzip

    rest = b""
    with path.open("rb") as file:
        packed = is_gzip(file.read(2))
    with igzip.open(target, "wb", compresslevel=1) if packed else target.open("wb") as out:  # type: ignore[no-untyped-call]
        for piece in pieces(path, []):
            text = rest + piece
            cut = max(text.rfind(b"\n"), text.rfind(b'",'))
            if cut < 0 and len(text) < 1 << 24:
                rest = text
                continue
            rest = text[cut + 1:]
            out.write(redact(text[:cut + 1].decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))
        out.write(redact(rest.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))


def _refused(reply: Reply, engine: str) -> str:
    if reply.status == 404:
        return ENABLE_VLLM if engine != "sglang" else "this server has no /start_profile (404)"
    if reply.status in (401, 403):
        return f"/start_profile wants a key ({reply.status}): set XPU_TRIAGE_API_KEY, or give --header"
    if reply.status == 409 or _BUSY.search(reply.text[:2000]):
        return "the server's profiler is running already: left alone, and not stopped"
    hint = " (SGLang answers so while it is profiling already)" if reply.status == 500 and engine == "sglang" else ""
    return shorten(f"/start_profile answers {reply.status}{hint}: nothing was profiled", 200)

"""A small LLM server in this process: OpenAI-compatible endpoints and vLLM's metrics over the lab's engine.

    with LabServer() as server:
        server.url                                  # http://127.0.0.1:…
        server.set_fault("exponential-fallback")    # at run time, and back with "none"

    GET  /health /v1/models /metrics
    POST /v1/completions /v1/chat/completions       streamed or not
    POST /start_profile /stop_profile               404 unless there is a folder for traces
    GET  /lab/fault, POST /lab/fault {"fault": …}   404 unless `admin`

It serves this machine alone unless told otherwise, and everything is bounded: requests, tokens, bodies, connections,
and how long a reader may keep it waiting.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Self

from ..errors import UnusableInput
from . import kineto
from .front import Handler
from .iteration_log import IterationLog
from .serving import ServingEngine, Setup
from .serving_faults import ServingFault
from .tokenizer import TokenizerProcess, TokenizerStopped, token_ids

MAX_CONNECTIONS = 512


@dataclass(frozen=True)
class Options:
    """What the server does beside serving."""

    profile_dir: Path | None = None
    log: Path | None = None
    """Gets one line an iteration."""
    admin: bool = False
    """The fault can be changed over HTTP."""


class LabServer:
    """The server, its engine and its threads; `close()` ends them all."""

    def __init__(self, setup: Setup | None = None, options: Options | None = None, *, host: str = "127.0.0.1",
                 port: int = 0) -> None:
        self.setup, self.options = setup or Setup(), options or Options()
        if self.options.profile_dir is not None:
            _make_folder(self.options.profile_dir)
        self._numbers = itertools.count(1)
        self._tokenizer: TokenizerProcess | None = None
        self._tokenizer_lock = threading.Lock()
        self._profiling = threading.Lock()
        self._closed = False
        try:
            self._http = _Http((host, port), self)
        except (OSError, OverflowError) as error:
            said = getattr(error, "strerror", None) or error
            raise UnusableInput(f"cannot be served at: {said}", where=f"{host}:{port}",
                                todo="Port 0 takes any that is free") from error
        try:
            log = IterationLog(self.options.log) if self.options.log is not None else None
            self.engine = ServingEngine(self.setup, log)
        except BaseException:
            self._http.server_close()
            raise
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="lab-http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def fault(self) -> ServingFault:
        return self.engine.fault

    def set_fault(self, name: str) -> None:
        """Switch between two iterations; `none` is the healthy server. Raises `UnusableInput`."""
        self.engine.set_fault(name)
        if not self.fault.front.tokenizer_ms_per_token:
            self._end_tokenizer()

    def close(self) -> None:
        """Stop. What is not answered ends with `abort`; no thread and no process is left, and the port is free."""
        if self._closed:
            return
        self._closed = True
        self.engine.close()
        self._end_tokenizer()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # ---- for the front end

    def number(self) -> int:
        """Of the next request."""
        return next(self._numbers)

    def tokenize(self, prompt: str | list[int]) -> int:
        """Length of a prompt in tokens, by the tokenizer that the present fault has."""
        if isinstance(prompt, list):
            return len(prompt)
        tokens, cost = len(token_ids(prompt, self.setup.vocab)), self.fault.front.tokenizer_ms_per_token
        if not cost or tokens > self.setup.context:  # refused in any case: nobody is to wait for it
            return tokens
        with self._tokenizer_lock:
            if self._tokenizer is None and not self._closed:
                self._tokenizer = TokenizerProcess()
            tokenizer = self._tokenizer
        with suppress(TokenizerStopped):  # the fault was switched off meanwhile
            if tokenizer is not None:
                return len(tokenizer.encode(prompt, self.setup.vocab, cost))
        return tokens

    def stop_profile(self) -> Path | None:
        """Write what was recorded as a trace, and return its file; None where there is no folder for it."""
        if self.options.profile_dir is None:
            return None
        with self._profiling:
            recorder = self.engine.stop_profile()
            path = self.options.profile_dir / f"lab_rank0.{time.time_ns()}.pt.trace.json.gz"
            kineto.write(path, recorder, self.engine.device)
        return path

    def _end_tokenizer(self) -> None:
        with self._tokenizer_lock:
            tokenizer, self._tokenizer = self._tokenizer, None
        if tokenizer is not None:
            tokenizer.close()


class _Http(ThreadingHTTPServer):
    """One thread a connection, no more than `MAX_CONNECTIONS`."""

    daemon_threads = False  # so that closing waits for them
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], lab: LabServer) -> None:
        self.lab = lab
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Without looking up the machine's name, which can take as long as a name server likes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._open_lock:
                self._open.discard(request)
            self._places.release()

    def hang_up(self) -> None:
        """End all connections, those that wait for a next request too."""
        with self._open_lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that has gone is no error of the server, and nothing of a request belongs into its output."""


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableInput(f"cannot be made: {error.strerror}", where=folder, todo="Name a folder") from error

"""The lab server's front end: one HTTP connection, from its request to the last frame of its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ..errors import TriageError, UnusableInput
from . import exposition, openai_api
from .openai_api import Answer, Asked, Refused
from .serving import Generation, Stopped
from .serving_faults import SERVING_FAULTS
from .step_profile import Busy

if TYPE_CHECKING:
    from .server import LabServer

MAX_BODY_BYTES = 1 << 20
READER_PATIENCE_S = 30.0
"""A connection that neither sends nor reads for so long is closed."""


class FaultBody(msgspec.Struct):
    fault: str


class Handler(BaseHTTPRequestHandler):
    """Errors are JSON in OpenAI's form, and never a traceback."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "xpu-triage-lab", ""
    timeout = READER_PATIENCE_S
    disable_nagle_algorithm = True
    server: Any

    @property
    def lab(self) -> LabServer:
        return self.server.lab

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads
        self._route({"/health": self._health, "/v1/models": self._models, "/metrics": self._metrics,
                     "/lab/fault": self._fault})

    def do_POST(self) -> None:
        self._route({"/v1/completions": lambda: self._generate(openai_api.completion),
                     "/v1/chat/completions": lambda: self._generate(openai_api.chat),
                     "/start_profile": self._start_profile, "/stop_profile": self._stop_profile,
                     "/lab/fault": self._set_fault})

    def _route(self, routes: dict[str, Callable[[], None]]) -> None:
        self._answered = False
        path = urlsplit(self.path).path
        try:
            self._body = self._read_body() if self.command == "POST" else b""
            if path not in routes:
                known = path in _PATHS
                raise Refused(405 if known else 404, f"{self.command} is not for this path" if known else "Not Found",
                              "NotFoundError")
            routes[path]()
        except Refused as refusal:
            self._refuse(refusal)
        except (Busy, Stopped) as error:
            self._refuse(Refused(503, str(error), "ServiceUnavailableError"))
        except TriageError as error:
            self._refuse(Refused(400, str(error)))
        except OSError:  # the reader has gone, or keeps us waiting
            self.close_connection = True
        except Exception as error:
            self._refuse(Refused(500, f"the lab server failed: {type(error).__name__}", "InternalServerError"))

    # ---- small answers

    def _health(self) -> None:
        if not self.lab.engine.alive:
            raise Stopped("the engine has stopped")
        self._send(200, b"", "text/plain")

    def _models(self) -> None:
        setup = self.lab.setup
        self._json(200, {"object": "list", "data": [
            {"id": setup.model_name, "object": "model", "owned_by": "xpu-triage", "max_model_len": setup.context}]})

    def _metrics(self) -> None:
        self._send(200, self.lab.engine.metrics.text(), exposition.CONTENT_TYPE)

    def _fault(self) -> None:
        self._only_if(self.lab.options.admin)
        self._json(200, {"fault": self.lab.fault.name, "known": list(SERVING_FAULTS)})

    def _set_fault(self) -> None:
        self._only_if(self.lab.options.admin)
        try:
            name = msgspec.json.decode(self._body, type=FaultBody).fault
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(400, f"the body cannot be read: {error}") from None
        self.lab.set_fault(name)
        self._fault()

    def _start_profile(self) -> None:
        self._only_if(self.lab.options.profile_dir is not None)
        self._conflicting(self.lab.engine.start_profile)
        self._send(200, b"", "text/plain")

    def _stop_profile(self) -> None:
        self._only_if(self.lab.options.profile_dir is not None)
        try:
            self._conflicting(self.lab.stop_profile)
        except OSError as error:
            raise Refused(500, f"the trace cannot be written: {error.strerror}", "InternalServerError") from None
        self._send(200, b"", "text/plain")

    def _only_if(self, enabled: bool) -> None:
        if not enabled:
            raise Refused(404, "Not Found", "NotFoundError")

    def _conflicting(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except (Busy, UnusableInput) as error:
            raise Refused(400, str(error)) from None

    # ---- generation

    def _generate(self, read: Callable[[bytes, str], Asked]) -> None:
        lab = self.lab
        asked = read(self._body, lab.setup.model_name)
        prompt = lab.tokenize(asked.prompt)
        room = lab.setup.context - prompt
        max_tokens = max(room, 1) if asked.max_tokens is None else asked.max_tokens
        if max_tokens > room:
            raise Refused(400, f"the context is {lab.setup.context} tokens; {prompt} in the prompt and {max_tokens} "
                               "asked for are more")
        generation = Generation(prompt, max_tokens, asked.sampling)
        answer = Answer(lab.number(), asked, prompt, lab.setup.model_name)
        lab.engine.submit(generation)
        try:
            if asked.stream:
                self._stream(generation, answer)
            else:
                self._whole(generation, answer)
        finally:
            lab.engine.abort(generation)

    def _whole(self, generation: Generation, answer: Answer) -> None:
        tokens: list[int] = []
        while isinstance(item := generation.out.get(), int):
            tokens.append(item)
        if item != "length":
            raise Stopped("the engine has stopped")
        self._hold()
        self._json(200, answer.whole(tokens, item))

    def _stream(self, generation: Generation, answer: Answer) -> None:
        self._answered = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if opening := answer.opening():
            self._chunk(opening)
        for index in range(generation.max_tokens):
            token = generation.out.get()
            if not isinstance(token, int):
                raise Stopped("the engine has stopped")
            reason = "length" if index + 1 == generation.max_tokens else None
            self._hold()
            self._chunk(answer.token(index, token, reason))
        self._chunk(answer.closing(generation.max_tokens))
        self.wfile.write(b"0\r\n\r\n")

    def _hold(self) -> None:
        if hold_ms := self.lab.fault.front.hold_ms:
            time.sleep(hold_ms / 1e3)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    # ---- the wire

    def _read_body(self) -> bytes:
        """Before anything is answered: what is left unread would be taken for the next request."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise Refused(411, "a body of stated length is needed")
        if len(length) > 12 or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            if len(length) <= 8:  # one that is still writing would see a broken pipe and not the answer
                self.rfile.read(min(int(length), 2 * MAX_BODY_BYTES))
            raise Refused(413, f"a body can have {MAX_BODY_BYTES} bytes")
        data = self.rfile.read(int(length))
        if len(data) < int(length):
            raise OSError("the reader has gone")
        return data

    def _json(self, status: int, body: Any) -> None:
        self._send(status, msgspec.json.encode(body), "application/json")

    def _send(self, status: int, data: bytes, content_type: str) -> None:
        self._answered = True
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, refusal: Refused) -> None:
        if self._answered:  # in the middle of a stream: cut it
            self.close_connection = True
            return
        try:
            self._json(refusal.status, refusal.body())
        except OSError:
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself: a malformed request line, an unknown method."""
        self.close_connection = True
        self._answered = False
        self.request_version = self.protocol_version  # a line that names none would be answered without a status
        self._refuse(Refused(code, message or "the request cannot be read"))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing of a request is written anywhere."""


_PATHS = frozenset({"/health", "/v1/models", "/metrics", "/v1/completions", "/v1/chat/completions", "/start_profile",
                    "/stop_profile", "/lab/fault"})

"""One bounded HTTP request: total time, size, no redirect, http and https alone.

The standard library does: `http.client` follows nothing by itself, inflates nothing, reads no proxy from the
environment, and lets the socket be shut when the time is up, which bounds a request that trickles. A client library
would bring its own pools, redirects and inflating, all of which would have to be switched off, and no total time.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import UnusableInput
from ..text import clean, shorten
from .probe import Trouble

MAX_BODY = 16 << 20
"""Bytes of an answer, inflated. A large server's `/metrics` has about 0.2 MB."""

_INFLATED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


@dataclass(frozen=True)
class Address:
    """Where a server is: scheme, host, port, and the path that goes in front of all others."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return clean(f"{self.scheme}://{host}:{self.port}{self.prefix}")

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, as far as the name tells."""
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")


def address(url: str) -> Address:
    """The address in `url`. What could hold a secret (user, password, query) is refused and not repeated.

    Raises `UnusableInput`.
    """
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise UnusableInput("the server's URL cannot be read", todo="Give it like http://127.0.0.1:8000") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UnusableInput("the server's URL holds more than an address",
                            todo="Leave out user, password and query; keys go in by --header")
    shown = clean(shorten(text, 100))
    if parts.scheme not in ("http", "https"):
        raise UnusableInput(f"{parts.scheme}:// is not asked, only http and https", where=shown)
    if not host or any(character <= " " or character == "\x7f" for character in host + parts.path):
        raise UnusableInput("no address of a server", where=shown, todo="Give it like http://127.0.0.1:8000")
    prefix = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/v1").rstrip("/")
    return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), prefix)


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    began: float
    """Seconds from the request to the first of the answer."""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Client:
    """Asks one server. Headers go to it and to nowhere else, and appear in no message."""

    def __init__(self, server: Address, headers: Mapping[str, str] | None = None) -> None:
        self.server, self._headers = server, dict(headers or {})
        self._tls = ssl.create_default_context() if server.scheme == "https" else None

    def ask(self, method: str, path: str, *, body: bytes = b"", timeout_s: float = 5.0) -> Reply:
        """One request, whole within `timeout_s`. Raises `Trouble`, one line."""
        where = f"{self.server}{path}"
        connection = _Connection(self.server, self._tls, time.monotonic() + timeout_s)
        headers = {"Accept-Encoding": "identity", "User-Agent": "xpu-triage", "Connection": "close", **self._headers}
        if body:
            headers["Content-Type"] = "application/json"
        asked = time.monotonic()
        with _deadline(connection) as late:
            try:
                connection.request(method, self.server.prefix + path, body=body if method == "POST" else None,
                                   headers=headers)
                answer = connection.getresponse()
                began = time.monotonic() - asked
                if 300 <= answer.status < 400:
                    to = _without_secrets(answer.getheader("Location") or "")
                    raise Trouble(f"{where} redirects{to}: not followed. Give the address that answers", final=True)
                content = _inflated(_read(answer, where), answer.getheader("Content-Encoding") or "", where)
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = f"gives no whole answer within {timeout_s:g} s" if late.is_set() else _why(error, timeout_s)
                raise Trouble(f"{where} {why}") from None
        if late.is_set():
            raise Trouble(f"{where} gives no whole answer within {timeout_s:g} s")
        return Reply(answer.status, content, began)


class _Connection(http.client.HTTPConnection):
    """A connection whose every part, the handshake included, can be ended by shutting its socket."""

    def __init__(self, server: Address, tls: ssl.SSLContext | None, deadline: float) -> None:
        super().__init__(server.host, server.port)
        self.default_port = 443 if tls else 80  # http.client leaves it out of the Host header
        self.deadline, self._context = deadline, tls
        self.held: socket.socket | None = None
        """The socket, which http.client lets go of as soon as an answer has no end but the connection's."""

    def connect(self) -> None:
        self.sock = self.held = self._connected()
        if self._context is not None:
            self.sock = self.held = self._context.wrap_socket(self.sock, server_hostname=self.host,
                                                              do_handshake_on_connect=False)
            self.sock.do_handshake()

    def _connected(self) -> socket.socket:
        last: OSError = OSError("no address")
        for family, kind, protocol, _, where in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(left)
                sock.connect(where)
                return sock
            except OSError as error:
                sock.close()
                last = error
        raise last


@contextmanager
def _deadline(connection: _Connection) -> Iterator[threading.Event]:
    """Ends the connection when its time is up, whatever it is at; the event says that it did."""
    late = threading.Event()

    def end() -> None:
        late.set()
        if connection.held is not None:
            with suppress(OSError):
                socket.socket.shutdown(connection.held, socket.SHUT_RDWR)

    timer = threading.Timer(max(connection.deadline - time.monotonic(), 0.0), end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        connection.close()
        if connection.held is not None:
            connection.held.close()


def _read(answer: http.client.HTTPResponse, where: str) -> bytes:
    kept = bytearray()
    while piece := answer.read(min(1 << 16, MAX_BODY + 1 - len(kept))):
        kept += piece
        if len(kept) > MAX_BODY:
            raise Trouble(f"{where} answers with more than {MAX_BODY >> 20} MiB: left out", final=True)
    if answer.length:  # what is still to come; http.client does not mind
        raise http.client.IncompleteRead(b"")
    return bytes(kept)


def _inflated(body: bytes, encoding: str, where: str) -> bytes:
    """The body without its Content-Encoding; it was asked for without one."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _INFLATED:
        raise Trouble(f"{where} answers in an encoding that is not read ({clean(shorten(encoding, 20))})", final=True)
    try:
        inflater = zlib.decompressobj(_INFLATED[encoding])
        content = inflater.decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise Trouble(f"{where} answers with damaged {encoding}") from None
    if len(content) > MAX_BODY:
        raise Trouble(f"{where} answers with more than {MAX_BODY >> 20} MiB, packed: left out", final=True)
    return content


def _without_secrets(location: str) -> str:
    """Where a redirect leads: scheme, host and path."""
    try:
        parts = urlsplit(location)
        origin = f"{parts.scheme}://{parts.hostname}" if parts.hostname else ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return clean(shorten(f" to {origin}{port}{parts.path}", 120)) if origin or parts.path else ""


def _why(error: Exception, timeout_s: float) -> str:
    """In words of ours: a message from below may repeat a header or what the server sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted ({error.verify_message}). SSL_CERT_FILE names another authority"
    if isinstance(error, ssl.SSLError):
        return "does not speak TLS. Try http://"
    if isinstance(error, TimeoutError):
        return f"gives no whole answer within {timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection: nothing listens there"
    if isinstance(error, socket.gaierror):
        return "has a host name that is not known here"
    if isinstance(error, http.client.IncompleteRead):
        return "breaks off in its answer"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "closes the connection without an answer"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be reached: {error.strerror}"
    return "does not answer in HTTP"

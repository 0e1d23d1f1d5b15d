"""Small servers for the live probes, well-behaved and not: loopback, bounded, gone when the test is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from xpu_triage.live.request import Address

METRICS = b"""# HELP vllm:num_requests_running Requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 4.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
"""

Talk = Callable[[socket.socket, bytes], None]
"""Gets the connection and the request's head."""


def answer(body: bytes = METRICS, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer."""
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join((*lines, "", "")).encode() + body


def always(reply: bytes) -> Talk:
    return lambda connection, _: connection.sendall(reply)


def silent(connection: socket.socket, _: bytes) -> None:
    """Says nothing until the client has gone."""
    connection.recv(1)


def trickle(head: bytes, piece: bytes, pause_s: float) -> Talk:
    """Ends after minutes alone, and is never silent for long."""
    def talk(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head)
        for _ in range(2_000):
            connection.sendall(piece)
            time.sleep(pause_s)

    return talk


def by_path(replies: dict[str, bytes]) -> Talk:
    def talk(connection: socket.socket, head: bytes) -> None:
        connection.sendall(replies.get(head.split()[1].decode(), answer(b"{}", "404 Not Found")))

    return talk


class Served:
    """Where it listens, the heads and bodies of the requests it got, and how many of them it answered to the end."""

    def __init__(self, port: int) -> None:
        self.address = Address("http", "127.0.0.1", port)
        self.heads: list[bytes] = []
        self.whole = 0

    @property
    def url(self) -> str:
        return str(self.address)

    @property
    def asked(self) -> list[str]:
        return [" ".join(head.decode("latin-1").split()[:2]) for head in self.heads]


@contextmanager
def serving(talk: Talk, *, listens: bool = True) -> Iterator[Served]:
    """Serve until the end of the block, one thread a connection. One that does not listen talks at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    served = Served(listener.getsockname()[1])
    open_now: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            head = b""
            while listens and b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
                head += piece
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                           if line.lower().startswith(b"content-length")), 0)
            while len(head.partition(b"\r\n\r\n")[2]) < length:
                head += connection.recv(65536)
            served.heads.append(head)
            talk(connection, head)
            served.whole += 1

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_now.append(connection)
                thread = threading.Thread(target=one, args=(connection,), daemon=True)
                threads.append(thread)
                thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield served
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in (acceptor, *threads):
            thread.join(10)


@contextmanager
def dead_port() -> Iterator[int]:
    """A port on which nothing listens, held so that nothing else does."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]

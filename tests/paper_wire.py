"""The paper server behind an `httpx` client without sockets, in virtual time: its figures are exact on any machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import httpx
import pytest

from paper_server import PaperServer, serving
from virtual_time import VirtualLoop
from xpu_triage.baseline import asking, record, stream


@contextmanager
def in_virtual_time(server: PaperServer, patch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """Recordings within the block ask this server without sockets, in a time that passes only where both sides wait.
    What the server is, is asked on loopback beforehand, as ever: that takes no part in any figure."""
    loop = VirtualLoop()
    with serving(server), patch.context() as patched:
        patched.setattr(record, "_to_the_end", loop.finish)
        patched.setattr(record, "http_client", lambda connections: httpx.AsyncClient(
            transport=_Wire(server), trust_env=False, timeout=None))
        for module in (stream, asking):
            patched.setattr(module, "time", SimpleNamespace(perf_counter=loop.time))
        yield loop


class _Wire(httpx.AsyncBaseTransport):
    """Between an `httpx` client and the server: each request is a connection of its own."""

    def __init__(self, server: PaperServer) -> None:
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        pipe = _Pipe(self._server, request, await request.aread())
        head = (await pipe.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in head[1:] if line)]
        return httpx.Response(int(head[0].split()[1]), headers=headers, stream=pipe)


class _Pipe(httpx.AsyncByteStream):
    """What the server writes, as it writes it; closing it ends the server's side as a closed connection does."""

    def __init__(self, server: PaperServer, request: httpx.Request, body: bytes) -> None:
        self._written: asyncio.Queue[bytes | None] = asyncio.Queue()
        lines = [f"{request.method} {request.url.path} HTTP/1.1", *(f"{k}: {v}" for k, v in request.headers.items())]
        server.heads.append("\r\n".join(lines))
        self._task = asyncio.create_task(self._answer(server, request.url.path, lines, body))
        self._rest = b""

    async def _answer(self, server: PaperServer, path: str, lines: list[str], body: bytes) -> None:
        try:
            await server.answer(path, lines, body, self)  # type: ignore[arg-type]
        finally:
            self._written.put_nowait(None)

    def write(self, data: bytes) -> None:
        self._written.put_nowait(data)

    async def drain(self) -> None:
        """Nothing is held back."""

    async def until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            piece = await self._written.get()
            assert piece is not None, "the server ends without an answer"
            self._rest += piece
        head, _, self._rest = self._rest.partition(mark)
        return head

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Without the framing of chunks, which the transport of a real client takes off."""
        rest, self._rest = self._rest, b""
        while True:
            if rest:
                yield rest
            if (piece := await self._written.get()) is None:
                return
            size, mark, data = piece.partition(b"\r\n")
            rest = data.removesuffix(b"\r\n") if mark and int(size, 16) else b""

    async def aclose(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

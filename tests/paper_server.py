"""A streaming OpenAI-compatible server whose speed is a formula: it computes nothing and only waits.

`serving` puts it on loopback, in real time; `paper_wire` puts it behind a client without sockets, in virtual time.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

MODEL = "paper/model-1b"


@dataclass
class Speed:
    """TTFT = fixed + prefill · prompt + queue · (in flight − 1); a token: decode + context · tokens so far. In ms."""

    fixed: float = 30.0
    prefill: float = 0.05
    queue: float = 2.0
    decode: float = 12.0
    context: float = 0.002
    stumble: int = 0
    """Number of the request that takes a second more to its first token; 0: none."""
    noise: float = 0.0
    """Standard deviation of the logarithm of every time, each drawn by itself: 0.05 is about 5 %."""
    seed: int = 0


@dataclass
class PaperServer:
    speed: Speed = field(default_factory=Speed)
    chat_only: bool = False
    no_ids: bool = False
    strict: bool = False
    """Refuses fields that OpenAI does not have."""
    counts: bool = True
    """Knows `stream_options`."""
    refuse_above: int = 10 ** 9
    """Prompt tokens."""
    key: str = ""
    meet: int = 0
    """So many have to be in flight at once before one after the first, which comes alone, is answered to its end."""
    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.speed.seed)

    def takes(self, ms: float) -> float:
        """Seconds that this takes."""
        return ms / 1000 * (self.rng.lognormvariate(0.0, self.speed.noise) if self.speed.noise else 1.0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # the end of the server is told by cancelling, and is no error of a connection
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                self.heads.append(head.decode("latin-1"))
                length = next((int(x.split(":")[1]) for x in lines if x.lower().startswith("content-length")), 0)
                body = await reader.readexactly(length)
                await self.answer(lines[0].split()[1], lines, body, writer)
        writer.close()

    async def answer(self, path: str, lines: list[str], body: bytes, writer: asyncio.StreamWriter) -> None:
        if self.key and f"Authorization: Bearer {self.key}" not in lines:
            return await _whole(writer, 401, {"error": "no key"})
        if path == "/v1/models":
            return await _whole(writer, 200, {"data": [{"id": MODEL, "owned_by": "vllm"}]})
        if path == "/version":
            return await _whole(writer, 200, {"version": "0.9.1"})
        asked = json.loads(body) if body else {}
        self.bodies.append(asked)
        prompt = asked.get("prompt", "")
        if path != ("/v1/chat/completions" if self.chat_only else "/v1/completions"):
            return await _whole(writer, 404, {"error": "Not Found"})
        if self.no_ids and isinstance(prompt, list):
            return await _whole(writer, 400, {"error": "prompt must be text"})
        if (self.strict and "ignore_eos" in asked) or (not self.counts and "stream_options" in asked):
            return await _whole(writer, 400, {"error": "unknown field"})
        tokens = len(prompt) if isinstance(prompt, list) else 7 + len(
            (prompt or asked["messages"][0]["content"]).split())
        if tokens > self.refuse_above:
            return await _whole(writer, 400, {"error": f"maximum context length is {self.refuse_above}"})
        await self._stream(asked, tokens, writer)
        return None

    async def _stream(self, asked: dict[str, Any], prompt: int, writer: asyncio.StreamWriter) -> None:
        speed, chat = self.speed, "messages" in asked
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        if self.most_in_flight >= self.meet:
            self.met.set()
        stumbles = speed.stumble and len(self.bodies) == speed.stumble
        first = len(self.bodies) == 1
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            if chat:
                await _event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            loop = asyncio.get_running_loop()
            due = loop.time() + self.takes(speed.fixed + speed.prefill * prompt + speed.queue * (self.in_flight - 1))
            due += 1.0 if stumbles else 0.0
            for i in range(asked["max_tokens"]):
                await asyncio.sleep(due - loop.time())
                await _event(writer, {"choices": [{"delta": {"content": "a "}} if chat else {"text": "a "}]})
                due += self.takes(speed.decode + speed.context * (prompt + i))
            if not first:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.met.wait(), 60)
                self.met.set()  # who has waited in vain once need not again
            if asked.get("stream_options"):
                await _event(writer, {"choices": [], "usage": {"prompt_tokens": prompt,
                                                               "completion_tokens": asked["max_tokens"]}})
            await _event(writer, None)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.in_flight -= 1


async def _whole(writer: asyncio.StreamWriter, status: int, content: object) -> None:
    body = json.dumps(content).encode()
    writer.write(f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def _event(writer: asyncio.StreamWriter, content: object) -> None:
    data = b"data: " + (b"[DONE]" if content is None else json.dumps(content).encode()) + b"\n\n"
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


@contextmanager
def serving(server: PaperServer) -> Iterator[PaperServer]:
    """Serve from a thread with a loop of its own until the end of the block."""
    loop = asyncio.new_event_loop()
    started, over = threading.Event(), asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        started.set()
        await over.wait()
        listener.close()
        talking = asyncio.all_tasks() - {asyncio.current_task()}
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        await asyncio.sleep(0)  # for the transports, which close in the next turn

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()

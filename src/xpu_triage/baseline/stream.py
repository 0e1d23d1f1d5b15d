"""One streamed answer of an OpenAI-compatible server, timed; and many of them, so many in flight at a time.

`httpx` does the HTTP. llmeter, which would do the load as well, keeps no gaps between tokens, no lag of its own and no
warm-up apart, starts an event loop for every request in a thread for every connection, and writes prompts and answers
down.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..errors import MissingExtra
from ..text import clean, shorten

MAX_LINE = 1 << 20
"""Bytes of one event."""

MAX_TEMPLATE = 100_000
"""Tokens that a server may put before a prompt."""

BEAT_S = 0.01
"""The client's own heartbeat; how late it comes is how late everything else is that this process does."""

GIVE_UP = 10
"""Failures from the start, with no answer between, after which a load is given up."""


@dataclass(frozen=True)
class Ask:
    path: str
    body: Mapping[str, Any]


@dataclass
class Answer:
    """Times in seconds of `time.perf_counter`."""

    started: float
    arrivals: list[float] = field(default_factory=list)
    """Of events with text."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """As the server counts them."""
    first_empty: bool = False
    """The first event carries no text."""
    failed: str = ""
    timed_out: bool = False
    status: int = 0

    @property
    def ok(self) -> bool:
        return not self.failed


@dataclass(frozen=True)
class Limits:
    concurrency: int
    requests: int
    """That are counted."""
    seconds: float
    """After which no request is started."""
    timeout_s: float
    """Of one request."""


@dataclass(frozen=True)
class Load:
    answers: tuple[Answer, ...]
    """Counted ones, in the order of their start."""
    warm_up: tuple[Answer, ...]
    """The first of each connection: the burst at the start, new shapes, the connection itself."""
    lag_s: tuple[float, ...]
    """How late each heartbeat of this client was."""
    gave_up: bool


def http_client(connections: int) -> Any:
    """A client that goes where it is told: no proxy or password of the environment, no redirect. Raises
    `MissingExtra`."""
    try:
        httpx = importlib.import_module("httpx")
    except ImportError:
        raise MissingExtra("httpx", "bench-record") from None
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, limits=limits)


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None

    @property
    def has_text(self) -> bool:
        delta = self.delta
        return bool(self.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning)))


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_EVENTS = msgspec.json.Decoder(_Event)


async def ask(client: Any, base: str, what: Ask, headers: Mapping[str, str], timeout_s: float) -> Answer:
    """One request to its end, whatever becomes of it; only a cancelled one raises."""
    body = msgspec.json.encode(what.body)
    headers = {"Accept-Encoding": "identity", "Content-Type": "application/json", "User-Agent": "xpu-triage", **headers}
    answer = Answer(time.perf_counter())
    try:
        async with (asyncio.timeout(timeout_s),
                    client.stream("POST", base + what.path, content=body, headers=headers) as response):
            answer.status = response.status_code
            if response.status_code != 200:
                answer.failed = f"HTTP {response.status_code}: {await _said(response)}"
            elif response.headers.get("Content-Encoding", "identity") != "identity":
                answer.failed = "the stream is packed, so that its times are not those of the tokens"
            else:
                await _read(response, answer)
    except TimeoutError:
        answer.timed_out = True
        answer.failed = f"no whole answer within {timeout_s:g} s"
    except msgspec.DecodeError:
        answer.failed = "an event of the stream cannot be read"
    except Exception as error:  # httpx has many, whose words may repeat an address
        answer.failed = f"the connection failed ({type(error).__name__})"
    if not answer.failed and not answer.arrivals:
        answer.failed = "no text in the answer"
    if not answer.failed:
        answer.failed = _impossible(answer, what, len(body))
    return answer


def _impossible(answer: Answer, what: Ask, body_bytes: int) -> str:
    """What of the server's token counts cannot be, held against what was asked and what came; empty where they can."""
    prompt, output, events = answer.prompt_tokens, answer.output_tokens, len(answer.arrivals)
    if prompt is not None and not 0 < prompt <= body_bytes + MAX_TEMPLATE:  # a token is a byte of the body or more
        return f"the server counts {prompt:,} prompt tokens in a request of {body_bytes:,} bytes"
    if output is None:
        return ""
    asked = what.body.get("max_tokens", what.body.get("max_completion_tokens"))
    if isinstance(asked, int) and output > 2 * asked + 16:
        return f"the server counts {output:,} generated tokens where {asked:,} were asked for"
    if events > 2 * max(output, 0) + 4 or output <= 0:
        return f"the server counts {output:,} generated tokens in {events:,} events with text"
    return ""


async def _read(response: Any, answer: Answer) -> None:
    rest, events, done = b"", 0, False
    async for piece in response.aiter_raw():
        now = time.perf_counter()
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_LINE:
            answer.failed = f"an event of more than {MAX_LINE >> 20} MiB"
            return
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                continue
            event = _EVENTS.decode(data)
            if bytes(event.error) not in (b"", b"null"):
                answer.failed = "the server reports an error in the stream"
                return
            if any(choice.has_text for choice in event.choices):
                answer.arrivals.append(now)
            elif not events:
                answer.first_empty = True
            events += 1
            if event.usage is not None:
                answer.prompt_tokens, answer.output_tokens = event.usage.prompt_tokens, event.usage.completion_tokens
    if not done:
        answer.failed = "the stream breaks off"


async def _said(response: Any) -> str:
    """What the server says of a refusal, shortened."""
    kept = b""
    async for piece in response.aiter_raw():
        kept += piece
        if len(kept) > 4096:
            break
    return clean(shorten(" ".join(kept.decode("utf-8", "replace").split()), 200))


async def run(client: Any, base: str, asks: Callable[[], Ask], limits: Limits, headers: Mapping[str, str],
              tick: Callable[[int], None] = lambda done: None) -> Load:
    """Keep `limits.concurrency` requests in flight until enough are counted or the time is up; those under way then
    are waited for. `asks` gives a request; `tick` is called with how many are done."""
    counted: list[Answer] = []
    warm_up: list[Answer] = []
    lag_s: list[float] = []
    until = time.perf_counter() + limits.seconds
    state = {"answered": 0, "failed": 0, "left": limits.requests}

    def hopeless() -> bool:
        return not state["answered"] and state["failed"] >= GIVE_UP

    async def one(into: list[Answer]) -> None:
        answer = await ask(client, base, asks(), headers, limits.timeout_s)
        state["answered" if answer.ok else "failed"] += 1
        into.append(answer)

    async def worker() -> None:
        await one(warm_up)
        while state["left"] and time.perf_counter() < until and not hopeless():
            state["left"] -= 1
            await one(counted)
            tick(len(counted))

    heart = asyncio.create_task(_beat(lag_s))
    try:
        await asyncio.gather(*(worker() for _ in range(limits.concurrency)))
    finally:
        heart.cancel()
    counted.sort(key=lambda answer: answer.started)
    return Load(tuple(counted), tuple(warm_up), tuple(lag_s), hopeless())


async def _beat(lag_s: list[float]) -> None:
    while True:
        due = time.perf_counter() + BEAT_S
        await asyncio.sleep(BEAT_S)
        lag_s.append(max(time.perf_counter() - due, 0.0))

"""How one server is asked: its model, which of its endpoints takes prompts of an exact length, and which fields."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnusableInput
from ..live.probe import Trouble
from ..live.request import Address, Client
from ..text import clean, shorten
from .records import Environment
from .stream import Answer, Ask, ask

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"

TIMEOUT_S = 5.0
_IDS = (1_000, 31_000)
"""Token ids to draw from: above those of bytes and marks, below the end of any vocabulary in use for serving."""

_DISTINCT = 16
"""Tokens at the start of a prompt that are its own: a block of most caches."""

_WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
          "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company",
          "system", "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother",
          "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business",
          "issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line",
          "end", "member", "law", "car")
"""Each a token of its own in common tokenizers; how many tokens they come to is measured."""

_EXTRAS: tuple[dict[str, Any], ...] = (
    {"ignore_eos": True, "stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True}},
    {},
)
"""Fields to ask with, the first that a server takes: an exact output length, and the server's own token counts."""


@dataclass(frozen=True)
class Way:
    """A way to ask that the server takes."""

    path: str
    ids: bool
    """Prompts are token ids, so their length is exact."""
    extra: Mapping[str, Any]
    words_per_token: float = 1.0
    overhead_tokens: float = 0.0
    """Of a chat template."""
    counts: bool = True
    """The server says how many tokens there were."""

    def asks(self, model: str, rng: random.Random, prompt_tokens: int, output_tokens: int,
             fields: Mapping[str, Any]) -> Callable[[], Ask]:
        """Makes requests whose prompts differ from their first tokens on, so that none lies in a prefix cache. What
        follows is the same in all: drawing it each time would hold up the client."""
        body: dict[str, Any] = {"model": model, "max_tokens": output_tokens, "stream": True, **self.extra, **fields}
        pool: Sequence[Any] = range(*_IDS) if self.ids else _WORDS
        size = prompt_tokens if self.ids else max(1, round(self.words_per_token
                                                           * (prompt_tokens - self.overhead_tokens)))
        head = min(_DISTINCT, size)
        tail = rng.choices(pool, k=size - head)

        def ask_once() -> Ask:
            drawn = [*rng.choices(pool, k=head), *tail]
            if self.ids:
                return Ask(self.path, {**body, "prompt": drawn})
            text = " ".join(drawn)
            if self.path == CHAT:
                return Ask(self.path, {**body, "messages": [{"role": "user", "content": text}]})
            return Ask(self.path, {**body, "prompt": text})

        return ask_once


@dataclass(frozen=True)
class Served:
    environment: Environment
    way: Way


def model_and_engine(server: Address, headers: Mapping[str, str], model: str | None) -> Environment:
    """What the server says it is. Raises `UnusableInput` where it does not answer, or has several models and none was
    named."""
    client = Client(server, headers)
    try:
        reply = client.ask("GET", "/v1/models", timeout_s=TIMEOUT_S)
    except Trouble as trouble:
        raise UnusableInput(str(trouble)) from None
    if reply.status in (401, 403):
        raise UnusableInput(f"wants a key ({reply.status})", where=f"{server}/v1/models",
                            todo="Set XPU_TRIAGE_API_KEY")
    rows = _rows(reply.text) if reply.ok else []
    if not rows and model is None:
        raise UnusableInput("names no model", where=f"{server}/v1/models", todo="Give --model")
    if model is not None and len(model) > 300:
        raise UnusableInput("--model is too long")
    names = [str(row["id"]) for row in rows]
    if model is None and len(names) > 1:
        raise UnusableInput(f"has {len(names)} models: {', '.join(map(clean, names[:4]))}", where=str(server),
                            todo="Say which: --model")
    chosen = model if model is not None else names[0]
    row = next((row for row in rows if row["id"] == chosen), {})
    engine, version = _engine(client, str(row.get("owned_by") or ""))
    return Environment(model=clean(chosen), engine=engine, engine_version=version)


def _rows(text: str) -> list[dict[str, Any]]:
    try:
        data = json.loads(text).get("data")
    except (ValueError, AttributeError, RecursionError):
        return []
    rows = data if isinstance(data, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def _engine(client: Client, owner: str) -> tuple[str, str]:
    """Engine and version, as far as the server tells: vLLM by `/version`, SGLang by `/get_server_info`."""
    engine = owner if owner in ("vllm", "sglang") else ""
    for path, name in (("/version", ""), ("/get_server_info", "sglang")):
        try:
            reply = client.ask("GET", path, timeout_s=TIMEOUT_S)
            version = json.loads(reply.text).get("version") if reply.ok else None
        except (Trouble, ValueError, AttributeError, RecursionError):
            continue
        if isinstance(version, str) and version:
            return engine or name, clean(shorten(version, 60))
    return engine, ""


async def find_way(client: Any, base: str, model: str, headers: Mapping[str, str], fields: Mapping[str, Any],
                   timeout_s: float) -> Way:
    """Try the ways from the most exact to the most common, all of them within `timeout_s` (the first may load or
    compile). Raises `UnusableInput` with what the server says."""
    until = time.perf_counter() + timeout_s

    async def once(what: Ask) -> Answer:
        left = until - time.perf_counter()
        return await ask(client, base, what, headers, left) if left > 0 else Answer(
            0.0, timed_out=True, failed="out of time")

    rng = random.Random()
    refused = Answer(0.0, failed="does not answer")
    for path, ids in ((COMPLETIONS, True), (COMPLETIONS, False), (CHAT, False)):
        for extra in _EXTRAS:
            way = Way(path, ids, extra)
            last = await once(way.asks(model, rng, 32, 4, fields)())
            if last.ok:
                return await _measured(once, model, fields, way, last)
            if last.timed_out:  # no other way of asking makes a stream end
                said = "its stream does not end" if last.arrivals else "it does not answer"
                raise UnusableInput(f"gives no whole answer to a first request within {timeout_s:g} s: {said}",
                                    where=base, todo="Raise --timeout where the model is still loading")
            if last.status in (401, 403):
                raise UnusableInput(f"wants a key ({last.status})", where=base, todo="Set XPU_TRIAGE_API_KEY")
            if last.status in (0, 404, 405):  # no such endpoint: no field would help
                refused = refused if refused.status else last
                break
            refused = last
    raise UnusableInput(f"gives no streamed answer: {refused.failed}", where=base,
                        todo="It has to serve /v1/completions or /v1/chat/completions")


async def _measured(once: Callable[[Ask], Awaitable[Answer]], model: str, fields: Mapping[str, Any], way: Way,
                    first: Answer) -> Way:
    """The way with how many words make a token, from two prompts of words."""
    if first.prompt_tokens is None or first.output_tokens is None:
        return Way(way.path, way.ids, way.extra, counts=False)
    if way.ids:
        return way
    rng = random.Random()
    tokens = []
    for words in (32, 160):
        answer = await once(way.asks(model, rng, words, 4, fields)())
        if not answer.ok or answer.prompt_tokens is None:
            return way
        tokens.append(answer.prompt_tokens)
    each = (tokens[1] - tokens[0]) / 128
    if each <= 0:
        return way
    return Way(way.path, way.ids, way.extra, 1 / each, max(0.0, tokens[0] - 32 * each))

"""Bodies of the OpenAI-compatible endpoints: what a request may ask of the lab, and what it gets.

What the lab cannot do is refused where a client asks for it, and not left out silently. Unknown fields are ignored, as
servers do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ..sampling import BadRequest, Request

_WORDS = ("the", "lab", "is", "a", "small", "engine", "and", "its", "words", "say", "nothing", "at", "all", "but",
          "come", "one", "by", "one")

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Refused(Exception):
    """A request that cannot be served: an HTTP status and a line for the client."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param = status, message, kind, param

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class Common(msgspec.Struct):
    """What both kinds of requests share. `None` is what clients send for "not set"."""

    model: str | None = None
    max_tokens: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: int | None = None
    best_of: int | None = None
    stop: str | list[str] | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: bool | int | None = None
    tools: list[Any] | None = None

    def refuse_what_the_lab_cannot(self) -> None:
        for name, neutral in (("n", (1,)), ("best_of", (1,)), ("stop", ("", [])), ("echo", (False,)),
                              ("suffix", ("",)), ("logprobs", (False, 0)), ("tools", ([],))):
            value = getattr(self, name)
            if value is not None and value not in neutral:
                raise Refused(400, f"{name} is not supported by the lab server", param=name)


class CompletionBody(Common):
    prompt: str | list[int | str | list[int]] | None = None


class TextPart(msgspec.Struct):
    type: str
    text: str | None = None


class Message(msgspec.Struct):
    role: str
    content: str | list[TextPart] | None = None


class ChatBody(Common):
    messages: list[Message] | None = None
    max_completion_tokens: Count | None = None


@dataclass(frozen=True)
class Asked:
    """One request in the lab's own terms. The prompt is text, or token ids."""

    prompt: str | list[int]
    max_tokens: int | None
    stream: bool
    with_usage: bool
    sampling: Request | None
    chat: bool


def completion(data: bytes, model_name: str) -> Asked:
    """Read the body of `/v1/completions`. Raises `Refused`."""
    body = _decoded(data, CompletionBody)
    prompt: Any = body.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) != 1:
            raise Refused(400, "one prompt a request is what the lab server takes", param="prompt")
        prompt = prompt[0]
    if isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt):
        raise Refused(400, "a prompt is text or token ids, not both", param="prompt")
    if not prompt:
        raise Refused(400, "the prompt is empty", param="prompt")
    return _asked(body, prompt, body.max_tokens or 16, model_name, chat=False)


def chat(data: bytes, model_name: str) -> Asked:
    """Read the body of `/v1/chat/completions`. Raises `Refused`."""
    body = _decoded(data, ChatBody)
    if not body.messages:
        raise Refused(400, "there are no messages", param="messages")
    return _asked(body, "\n".join(map(_said, body.messages)), body.max_completion_tokens or body.max_tokens, model_name,
                  chat=True)


def _decoded(data: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the body cannot be read: {error}") from None


def _said(message: Message) -> str:
    if isinstance(message.content, list):
        if any(part.type != "text" for part in message.content):
            raise Refused(400, "only text can be read by the lab server", param="messages")
        return f"{message.role}: {' '.join(part.text or '' for part in message.content)}"
    return f"{message.role}: {message.content or ''}"


def _asked(body: Common, prompt: str | list[int], max_tokens: int | None, model_name: str, *, chat: bool) -> Asked:
    if body.model not in (None, "", model_name):
        raise Refused(404, f"this model does not exist; there is `{model_name}`", "NotFoundError", "model")
    body.refuse_what_the_lab_cannot()
    stream = bool(body.stream)
    return Asked(prompt, max_tokens, stream, bool(stream and body.stream_options and body.stream_options.include_usage),
                 _sampling(body), chat)


def _sampling(body: Common) -> Request | None:
    """None where nothing but the engine's own way of drawing is asked for."""
    asked: dict[str, Any] = {name: value for name in ("temperature", "top_p", "top_k", "min_p", "seed")
                             if (value := getattr(body, name)) is not None}
    if asked.get("top_k") == -1:  # vLLM's word for none
        asked["top_k"] = None
    if not asked:
        return None
    try:
        return Request("request", **asked)
    except BadRequest as error:
        raise Refused(400, str(error), param=error.field) from None


class Answer:
    """The bodies that one request gets."""

    def __init__(self, number: int, asked: Asked, prompt_tokens: int, model_name: str) -> None:
        self._asked, self._prompt_tokens = asked, prompt_tokens
        kind = "chat.completion" if asked.chat else "text_completion"
        self._id = f"{'chatcmpl' if asked.chat else 'cmpl'}-{number}"
        self._head = {"id": self._id, "object": kind, "created": int(time.time()), "model": model_name}
        if asked.chat and asked.stream:
            self._head["object"] = "chat.completion.chunk"

    def opening(self) -> bytes | None:
        """What comes before the first token: of a chat the role, with no text, as servers send it."""
        if not self._asked.chat:
            return None
        return self._event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def token(self, index: int, token: int, finish_reason: str | None) -> bytes:
        """One event of the stream."""
        return self._event([self._choice(word(index, token), finish_reason, streamed=True)])

    def closing(self, generated: int) -> bytes:
        """What comes after the last token."""
        usage = self._event([], usage=self._usage(generated)) if self._asked.with_usage else b""
        return usage + b"data: [DONE]\n\n"

    def whole(self, tokens: Sequence[int], finish_reason: str) -> dict[str, Any]:
        """The answer of a request that is not streamed."""
        text = "".join(word(index, token) for index, token in enumerate(tokens))
        return {**self._head, "choices": [self._choice(text, finish_reason, streamed=False)],
                "usage": self._usage(len(tokens))}

    def _choice(self, text: str, finish_reason: str | None, *, streamed: bool) -> dict[str, Any]:
        if not self._asked.chat:
            return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        said = {"delta": {"content": text}} if streamed else {"message": {"role": "assistant", "content": text}}
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return b"data: " + msgspec.json.encode({**self._head, "choices": choices, **more}) + b"\n\n"

    def _usage(self, generated: int) -> dict[str, int]:
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": generated,
                "total_tokens": self._prompt_tokens + generated}


def word(index: int, token: int) -> str:
    """A token as text: one word for each, which means nothing."""
    return f"{' ' if index else ''}{_WORDS[(index + token) % len(_WORDS)]}"

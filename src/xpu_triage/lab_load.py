"""`xpu-triage lab load`: a small load generator for the lab server and its like, so many streamed requests, so many at
a time, for so long at most.

Standard library alone and without torch, so that it runs in a process of its own. It measures itself as well: a client
that is starved of CPU makes a healthy server look slow.
"""

from __future__ import annotations

import argparse
import ipaddress
import itertools
import json
import math
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from .errors import UnusableInput
from .text import clean, counted

SERVER = "http://127.0.0.1:8000"
MAX_REQUESTS, MAX_CONCURRENCY = 100_000, 512
_HEARTBEAT_S = 0.01
_CONNECT_S, _RETRY_S = 5.0, 0.2


@dataclass(frozen=True)
class Reply:
    """One request as its client saw it, in seconds."""

    status: int
    """HTTP status; 0 where there was no answer."""
    tokens: int = 0
    """Events with text."""
    ttft_s: float | None = None
    """To the first event with text; an empty one is none."""
    gaps_s: tuple[float, ...] = ()
    """Between events with text."""
    e2e_s: float = 0.0
    finish_reason: str | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200 and not self.error


@dataclass(frozen=True)
class Load:
    """What came of the requests that were sent."""

    replies: tuple[Reply, ...]
    wall_s: float
    lag_s: tuple[float, ...] = field(repr=False)
    """How late each heartbeat of the client was, every 10 ms: the client's own starvation."""

    @property
    def answered(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.ok]

    @property
    def tokens_per_s(self) -> float:
        return sum(reply.tokens for reply in self.answered) / self.wall_s

    @property
    def ttft_ms(self) -> float | None:
        """Median; None where nothing came."""
        return _ms([reply.ttft_s for reply in self.answered if reply.ttft_s is not None], 50)

    @property
    def itl_ms(self) -> float | None:
        """Median gap between two tokens."""
        return _ms([gap for reply in self.answered for gap in reply.gaps_s], 50)

    @property
    def itl_p99_ms(self) -> float | None:
        return _ms([gap for reply in self.answered for gap in reply.gaps_s], 99)

    @property
    def e2e_ms(self) -> float | None:
        return _ms([reply.e2e_s for reply in self.answered], 50)

    @property
    def lag_p99_ms(self) -> float | None:
        return _ms(self.lag_s, 99)


def run_load(url: str, requests: int = 16, concurrency: int = 4, prompt_tokens: int = 64, max_tokens: int = 32, *,
             vary: bool = False, model: str | None = None, timeout_s: float = 120.0, seconds: float = math.inf) -> Load:
    """Send `requests` completions, `concurrency` at a time, and read their streams to the end. After `seconds` none
    is sent any more.

    A prompt has `prompt_tokens` times four bytes of text, which is that many tokens to the lab server, and each is
    another one. With `vary` answers have half of `max_tokens` up to all of them, the same ones every time, so that
    requests do not keep step with each other. Raises `ValueError` for an impossible size; what goes wrong with a
    request is in its reply.
    """
    for name, value, most in (("requests", requests, MAX_REQUESTS), ("concurrency", concurrency, MAX_CONCURRENCY),
                              ("prompt_tokens", prompt_tokens, 1_000_000), ("max_tokens", max_tokens, 1_000_000)):
        if not 1 <= value <= most:
            raise ValueError(f"{name} is {value}: it can be 1 to {most}")
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"no http:// address: {url!r}")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds:g}: it can be anything above 0")
    numbers, replies = itertools.count(), dict[int, Reply]()
    body = {"stream": True, **({"model": model} if model else {})}

    def client() -> None:
        while (number := next(numbers)) < requests and time.perf_counter() - started < seconds:
            answer = max_tokens - (number * 7919 % (max_tokens // 2 + 1) if vary else 0)
            asked = json.dumps({**body, "max_tokens": answer, "prompt": _prompt(number, prompt_tokens)}).encode()
            replies[number] = _one(parts.hostname or "", parts.port or 80, parts.path.rstrip("/"), asked, timeout_s)

    lag_s: list[float] = []
    done = threading.Event()
    heart = threading.Thread(target=_beat, args=(done, lag_s), name="load-heartbeat", daemon=True)
    clients = [threading.Thread(target=client, name=f"load-{i}", daemon=True)
               for i in range(min(concurrency, requests))]
    heart.start()
    started = time.perf_counter()
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    wall_s = time.perf_counter() - started
    done.set()
    heart.join()
    return Load(tuple(replies[number] for number in sorted(replies)), wall_s, tuple(lag_s))


def listens(url: str, seconds: float) -> bool:
    """Whether something takes connections there within so many seconds: a server that was just started needs some."""
    parts = urlsplit(url)
    until = time.perf_counter() + seconds
    while True:
        try:
            socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_CONNECT_S).close()
            return True
        except OSError:
            if time.perf_counter() >= until:
                return False
        time.sleep(_RETRY_S)


def _prompt(number: int, tokens: int) -> str:
    return "".join(f"{(number * 7919 + i) % 10_000:04d}" for i in range(tokens))


def _one(host: str, port: int, path: str, body: bytes, timeout_s: float) -> Reply:
    import http.client  # not for the commands that send nothing

    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    started = time.perf_counter()
    times: list[float] = []
    status, reason = 0, None
    try:
        connection.request("POST", f"{path}/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        status = response.status
        if status != 200:
            return Reply(status, e2e_s=time.perf_counter() - started, error=response.reason or str(status))
        while (line := response.readline()) and not line.startswith(b"data: [DONE]"):
            if not line.startswith(b"data: "):
                continue
            now = time.perf_counter()
            if time.perf_counter() - started > timeout_s:
                raise TimeoutError("the answer took too long")
            choices = json.loads(line[6:]).get("choices") or [{}]
            if choices[0].get("text"):
                times.append(now)
            reason = choices[0].get("finish_reason") or reason
        error = "" if line else "the stream was cut"
    except (OSError, http.client.HTTPException, ValueError) as problem:
        error = str(problem) or type(problem).__name__
    finally:
        connection.close()
    ended = time.perf_counter()
    return Reply(status, len(times), times[0] - started if times else None,
                 tuple(b - a for a, b in itertools.pairwise(times)), ended - started, reason, error)


def _beat(done: threading.Event, lag_s: list[float]) -> None:
    due = time.perf_counter() + _HEARTBEAT_S
    while not done.wait(max(due - time.perf_counter(), 0.0)):
        now = time.perf_counter()
        lag_s.append(max(now - due, 0.0))
        due = now + _HEARTBEAT_S


def _ms(seconds: Sequence[float], percentile: int) -> float | None:
    if not seconds:
        return None
    if len(seconds) == 1:
        return seconds[0] * 1e3
    return statistics.quantiles(seconds, n=100, method="inclusive")[percentile - 1] * 1e3


def lines(load: Load) -> list[str]:
    """The load in a few lines."""
    failed = [reply for reply in load.replies if not reply.ok]
    out = [f"{len(load.answered):,} of {counted(len(load.replies), 'request')} answered in {load.wall_s:.1f} s: "
           f"{load.tokens_per_s:,.0f} tokens/s"]
    if load.answered:
        out.append(f"time to first token {_words(load.ttft_ms)}, between tokens {_words(load.itl_ms)} "
                   f"(99th percentile {_words(load.itl_p99_ms)}), a request {_words(load.e2e_ms)}")
    if load.lag_s:
        out.append(f"this client itself was late by {_words(load.lag_p99_ms)} (99th percentile)")
    if failed:
        out.append(f"{len(failed):,} failed, the first with: {clean(failed[0].error)}")
    return out


def _words(ms: float | None) -> str:
    return "unknown" if ms is None else f"{ms:,.1f} ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("url", nargs="?", default=SERVER, metavar="URL", help=f"the server ({SERVER})")
    parser.add_argument("--requests", type=int, default=400, metavar="N", help="sent in all (400)")
    parser.add_argument("--concurrency", type=int, default=12, metavar="N", help="in flight at a time (12)")
    parser.add_argument("--prompt-tokens", type=int, default=64, metavar="N", help="(64)")
    parser.add_argument("--max-tokens", type=int, default=32, metavar="N", help="of an answer (32)")
    parser.add_argument("--vary", action="store_true", help="answers of half that length up to all of it")
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S",
                        help="after which none is sent any more (120)")
    parser.add_argument("--wait", type=float, default=30.0, metavar="S", help="for the server to listen (30)")
    parser.add_argument("--elsewhere", action="store_true",
                        help="also to another machine; without it only this one is loaded")
    parser.add_argument("--json", action="store_true", help="every reply, as JSON")


def run(args: argparse.Namespace) -> int:
    """Send the load and print what came of it. 0 where every request was answered, else 1. Raises `UnusableInput`."""
    try:
        host = urlsplit(args.url).hostname or ""
        if host and not args.elsewhere and not _is_here(host):
            raise UnusableInput(f"{clean(host)} is another machine, and this loads it",
                                todo="If that is meant, add --elsewhere")
        if host and not listens(args.url, args.wait):
            raise UnusableInput(f"nothing listens there after {args.wait:g} s", where=clean(args.url),
                                todo="Start one: xpu-triage lab serve --port 8000")
        load = run_load(args.url, args.requests, args.concurrency, args.prompt_tokens, args.max_tokens, vary=args.vary,
                        seconds=args.seconds)
    except ValueError as error:
        raise UnusableInput(str(error)) from None
    if args.json:
        print(json.dumps(asdict(load)))
    else:
        print(*lines(load), sep="\n")
        if (left := args.requests - len(load.replies)) > 0:
            print(f"{left:,} not sent: after {args.seconds:g} s none is (--seconds)")
    return 0 if load.replies and len(load.answered) == len(load.replies) else 1


def _is_here(host: str) -> bool:
    """Whether it is this machine, as far as the name tells."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

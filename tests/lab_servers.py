"""Lab servers for tests, and what to read off them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from xpu_triage.lab.server import LabServer, Options
from xpu_triage.lab.serving import Setup
from xpu_triage.lab_load import Load, run_load

STEP_MS = 20.0
"""Of the device in `small`: long beside what a busy machine adds."""


def small(options: Options | None = None, **setup: Any) -> LabServer:
    """A server of few words whose steps take about 20 ms, nearly all of it the device's: 24 GB at 1,200 GB/s."""
    return LabServer(Setup(**{"batch": 8, "vocab": 500, "weights_gb": 24.0, **setup}), options)


def ask(server: LabServer, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
        ) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own: status, headers, body. A body that is not bytes is sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def events(body: bytes) -> Iterator[Any]:
    """The events of a stream, decoded; `[DONE]` as it is."""
    for frame in body.decode().strip().split("\n\n"):
        assert frame.startswith("data: ")
        yield frame[6:] if frame == "data: [DONE]" else json.loads(frame[6:])


def scrape(server: LabServer) -> dict[str, float]:
    """Samples of `/metrics` by name; labels other than the reason, and buckets, are left out."""
    status, headers, body = ask(server, "GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            reason = sample.labels.get("finished_reason") or sample.labels.get("reason")
            found[f"{sample.name}{{{reason}}}" if reason else sample.name] = sample.value
    return found


def until(true: Callable[[], object], limit_s: float = 60.0) -> bool:
    """Wait until it is so; whether it ever was. The limit only guards against waiting for ever."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def held(server: LabServer) -> Iterator[None]:
    """The engine stands still, between two iterations, to the end of the block."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(25)

    asks = threading.Thread(target=server.engine._ask, args=(stand,))
    asks.start()
    try:
        assert stands.wait(60)
        yield
    finally:
        go_on.set()
        asks.join()


@contextmanager
def loaded(server: LabServer, requests: int, concurrency: int, prompt_tokens: int, max_tokens: int
           ) -> Iterator[list[Load]]:
    """A load on the server, whose result is in the list when the block has ended. As many requests as may be in flight
    are in the engine before it computes the first: the machine's speed does not decide who is batched with whom."""
    done: list[Load] = []
    clients = threading.Thread(
        target=lambda: done.append(run_load(server.url, requests, concurrency, prompt_tokens, max_tokens)))
    with held(server):
        clients.start()
        assert until(lambda: len(server.engine._live) >= min(requests, concurrency))
    try:
        yield done
    finally:
        clients.join()

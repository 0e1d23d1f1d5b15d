"""`/metrics` of a server, polled: one file a scrape, with the time as its first line."""

from __future__ import annotations

import re
from datetime import timedelta

from ..text import clean
from .clock import Clock, iso
from .folder import Folder
from .probe import Trouble
from .request import Client, Reply

PATHS = ("/metrics", "/prometheus/metrics")
"""Where servers keep them: TensorRT-LLM has JSON under the first."""

MAX_SCRAPES = 2_000
"""Files of one recording; a long one scrapes less often."""

TIMEOUT_S = 5.0
"""A front end that is the fault itself answers late, and just then its figures matter."""

SLOW_S = 1.0

_SAMPLE = re.compile(rb"(?m)^(?:#\s*(?:HELP|TYPE)\s+[\w:]+|[a-zA-Z_:][\w:]*(?:\{[^\n]*\})?\s+[-+]?[\d.NI])")


class MetricsProbe:
    name = "server"
    delay_s = 0.0

    def __init__(self, client: Client, folder: Folder, clock: Clock, *, interval_s: float, seconds: float) -> None:
        self.interval_s = max(interval_s, seconds / MAX_SCRAPES)
        self.notes: list[str] = [f"{client.server}, every {self.interval_s:g} s"]
        self._client, self._folder, self._clock = client, folder, clock
        self._path = ""
        self._count = 0
        self._slowest = 0.0

    def sample(self) -> None:
        asked = self._clock.utc()
        reply = self._answer()
        self._slowest = max(self._slowest, reply.began)
        # a server renders its figures just before it answers
        taken = iso(asked + timedelta(seconds=reply.began))
        text = reply.text
        self._folder.write(_scrape(self._count), f"# scraped {taken}\n{text}")
        self._count += 1

    def close(self) -> None:
        if self._slowest > SLOW_S:
            self.notes.append(f"the slowest answer came after {self._slowest:.1f} s")

    def _answer(self) -> Reply:
        """The first path that answers with metrics; from then on that one alone."""
        trouble: Trouble | None = None
        for path in (self._path,) if self._path else PATHS:
            reply = self._client.ask("GET", path, timeout_s=TIMEOUT_S)
            if reply.ok and _SAMPLE.search(reply.body):
                self._path = path
                return reply
            if trouble is None or reply.status != 404:
                trouble = _refused(f"{self._client.server}{path}", reply)
        assert trouble is not None
        raise trouble


def _refused(where: str, reply: Reply) -> Trouble:
    if reply.status in (401, 403):
        return Trouble(f"{where} wants a key ({reply.status}): set XPU_TRIAGE_API_KEY, or give --header", final=True)
    if reply.status == 404:
        return Trouble(f"{where} is not there (404): metrics are off, or on another port (SGLang: --enable-metrics)")
    if not reply.ok:
        return Trouble(f"{where} answers {reply.status}")
    if not reply.body.strip():
        return Trouble(f"{where} answers with nothing: metrics are off")
    return Trouble(f"{where} answers with something else than metrics")


def _scrape(count: int) -> str:
    return f"metrics/{count:04d}.prom"


def tells_of_a_device(folder: Folder) -> bool | None:
    """Whether the first scrape holds readings of a device (an exporter's, beside the server's own); None before it."""
    from ..errors import UnusableInput
    from ..evidence import prometheus
    from ..telemetry.exporters import device_samples

    first = folder.path / _scrape(0)
    if not first.exists():
        return None
    try:
        return any(samples.series for samples in device_samples(prometheus.read(first)))
    except UnusableInput:
        return False


def engine(text: str) -> str:
    """`vllm` or `sglang`, by the names of its metrics; empty where neither."""
    found = re.search(r"(?m)^(?:# (?:HELP|TYPE) )?(vllm|sglang)[:_]", clean_lines(text))
    return found[1] if found else ""


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text[:1 << 20].splitlines())

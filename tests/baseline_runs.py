"""Runs of a server that exists on paper: what its clients would measure, with the noise that runs have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from xpu_triage.baseline.records import BenchRecord, Environment, Requests, Stat, stat_of
from xpu_triage.baseline.store import Baseline, baseline

GRID = ((1, 8, 32), (128, 2048), (64, 512))
ENVIRONMENT = Environment("m/model-8b", "vllm", "0.9", "NVIDIA L40S", "paper", "1")


@dataclass(frozen=True)
class Paper:
    """TTFT = fixed + prefill · prompt + queue · (concurrency − 1); a token: decode + context · tokens so far. In ms."""

    fixed: float = 12.0
    prefill: float = 0.03
    queue: float = 1.5
    decode: float = 8.0
    context: float = 0.001
    own: float = 0.08
    """Noise of a request, on logarithms."""
    shared: float = 0.03
    """Of all requests that run at one time, in an AR(1) over the waves of them."""
    run: float = 0.007
    """Of a run as a whole."""

    def requests(self, rng: np.random.Generator, n: int, concurrency: int, prompt: int, output: int) -> Requests:
        waves = -(-n // concurrency)
        shared = np.zeros(waves)
        for wave in range(waves):
            before = shared[wave - 1] if wave else 0.0
            shared[wave] = 0.5 * before + rng.normal(0, self.shared * 0.866)
        shared_of = np.repeat(shared, concurrency)[:n] + rng.normal(0, self.run)
        first = self.fixed + self.prefill * prompt + self.queue * (concurrency - 1)
        ttft = first * np.exp(shared_of + rng.normal(0, 2 * self.own, n))
        token = (self.decode + self.context * (prompt + output / 2)) * np.exp(shared_of + rng.normal(0, self.own, n))
        e2e = ttft + token * (output - 1)
        start = np.repeat(np.arange(waves), concurrency)[:n] * float(e2e.mean()) / 1000 + rng.uniform(0, 1e-3, n)
        whole = np.ones(n)
        return Requests(ttft, e2e, token, prompt * whole, output * whole, start - start.min())

    def record(self, rng: np.random.Generator, n: int, concurrency: int, prompt: int, output: int) -> BenchRecord:
        return record_of(self.requests(rng, n, concurrency, prompt, output), concurrency)

    def baseline(self, seed: int, n: int = 200, grid: tuple[Iterable[int], ...] = GRID) -> Baseline:
        rng = np.random.default_rng(seed)
        return baseline([self.record(rng, n, *load) for load in product(*grid)], source=f"run {seed}")


def record_of(requests: Requests, concurrency: float | None, environment: Environment = ENVIRONMENT,
              **more: object) -> BenchRecord:
    """The record that a recorder makes of its requests."""
    duration_s = float(np.nanmax(requests.start_s + requests.e2e_ms / 1000))
    made = BenchRecord(
        "paper", "xpu-triage", environment, concurrency, None, float(np.median(requests.prompt_tokens)),
        float(np.median(requests.output_tokens)),
        {"ttft": stat_of(requests.ttft_ms), "tpot": stat_of(requests.tpot_ms), "e2e": stat_of(requests.e2e_ms)},
        duration_s, len(requests), 0, float(requests.output_tokens.sum()) / duration_s, len(requests) / duration_s,
        requests=requests)
    return replace(made, **more)  # type: ignore[arg-type]


def summaries(p50_ms: float) -> Baseline:
    """What is left of a run where the tool kept no single requests."""
    return baseline([BenchRecord("file", "vllm bench serve", ENVIRONMENT, 8.0, None, 128.0, 64.0,
                                 {"ttft": Stat(p50=p50_ms)}, 10.0, 100, 0, None, 10.0)])

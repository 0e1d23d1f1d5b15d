"""The lab server's `/metrics`: vLLM's names and buckets, and the device's utilization under DCGM's names.

Names, labels and buckets are those of vLLM 0.32; what the lab does not do (prefix cache, speculation) is left out, so
that it reads as unknown and not as zero. `prometheus_client` is what such servers use themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import MissingExtra

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
except ImportError as error:
    raise MissingExtra("prometheus_client", "lab") from error

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

FINISHED_REASONS = ("stop", "length", "abort", "error")

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
           160.0, 640.0, 2560.0)
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
              960.0, 1920.0, 7680.0)
_ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


@dataclass(frozen=True)
class Gauges:
    """What is read when somebody asks."""

    running: Callable[[], int]
    waiting: Callable[[], int]
    kv_usage_fraction: Callable[[], float]
    utilization_fraction: Callable[[], float]
    memory_used_bytes: Callable[[], float]
    memory_total_bytes: Callable[[], float]


@dataclass
class Lifetime:
    """One request as the engine saw it, in seconds of one clock. 0 where it has not come to that."""

    arrived: float
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class ServerMetrics:
    """Counters and histograms, each changed by the engine's thread alone."""

    def __init__(self, model_name: str, device_name: str, kv_blocks: int, block_tokens: int, gauges: Gauges) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        ProcessCollector(registry=self._registry)
        self._gauge("num_requests_running", "Number of requests in model execution batches.", gauges.running)
        self._gauge("num_requests_waiting", "Number of requests waiting to be processed.", gauges.waiting)
        by_reason = Gauge("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.",
                          [*self._labels, "reason"], registry=self._registry)
        by_reason.labels(**self._labels, reason="capacity").set_function(gauges.waiting)
        by_reason.labels(**self._labels, reason="deferred").set(0)
        self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", gauges.kv_usage_fraction)
        Gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig",
              ["engine", "block_size", "num_gpu_blocks"], registry=self._registry).labels(
                  engine="0", block_size=str(block_tokens), num_gpu_blocks=str(kv_blocks)).set(1)
        self._preemptions = self._counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self._prompt = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._generation = self._counter("generation_tokens", "Number of generation tokens processed.")
        success = Counter("vllm:request_success", "Count of successfully processed requests.",
                          [*self._labels, "finished_reason"], registry=self._registry)
        self._success = {r: success.labels(**self._labels, finished_reason=r) for r in FINISHED_REASONS}
        self._iteration = self._histogram(
            "iteration_tokens_total", "Histogram of number of tokens per engine_step.", _ITERATION_TOKENS)
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "Histogram of time to first token in seconds.", _TTFT_S)
        self._itl = self._histogram(
            "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _TOKEN_S)
        self._per_token = self._histogram(
            "request_time_per_output_token_seconds", "Histogram of time per output token in seconds per request.",
            _TOKEN_S)
        self._e2e, self._queue, self._prefill, self._decode, self._inference = (
            self._histogram(name, f"Histogram of {what} in seconds.", _REQUEST_S) for name, what in (
                ("e2e_request_latency_seconds", "e2e request latency"),
                ("request_queue_time_seconds", "time spent in WAITING phase for request"),
                ("request_prefill_time_seconds", "time spent in PREFILL phase for request"),
                ("request_decode_time_seconds", "time spent in DECODE phase for request"),
                ("request_inference_time_seconds", "time spent in RUNNING phase for request"),
            ))
        self._prompt_lengths = self._histogram(
            "request_prompt_tokens", "Number of prefill tokens processed.", _REQUEST_TOKENS)
        self._answer_lengths = self._histogram(
            "request_generation_tokens", "Number of generation tokens processed.", _REQUEST_TOKENS)
        self._device(device_name, gauges)

    def text(self) -> bytes:
        """What a scrape gets."""
        return generate_latest(self._registry)

    def iterated(self, tokens: int, preemptions: int) -> None:
        """One iteration computed so many tokens, and put out so many requests."""
        self._iteration.observe(tokens)
        if preemptions:
            self._preemptions.inc(preemptions)

    def first_token(self, life: Lifetime) -> None:
        self._prompt.inc(life.prompt_tokens)
        self._generation.inc()
        self._ttft.observe(life.first_token - life.arrived)

    def next_token(self, gap_s: float) -> None:
        self._generation.inc()
        self._itl.observe(gap_s)

    def finished(self, life: Lifetime, reason: str, now: float) -> None:
        """A request is done; one that never ran has no phases."""
        self._success[reason].inc()
        self._e2e.observe(now - life.arrived)
        if not life.first_token:
            return
        self._queue.observe(life.scheduled - life.arrived)
        self._prefill.observe(life.first_token - life.scheduled)
        self._decode.observe(life.last_token - life.first_token)
        self._inference.observe(life.last_token - life.scheduled)
        self._prompt_lengths.observe(life.prompt_tokens)
        self._answer_lengths.observe(life.generated_tokens)
        if life.generated_tokens > 1:
            self._per_token.observe((life.last_token - life.first_token) / (life.generated_tokens - 1))

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"vllm:{name}", text, [*self._labels], registry=self._registry).labels(**self._labels).set_function(read)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, [*self._labels], registry=self._registry).labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(f"vllm:{name}", text, [*self._labels], buckets=tuple(buckets),
                         registry=self._registry).labels(**self._labels)

    def _device(self, name: str, gauges: Gauges) -> None:
        """No power, clock or temperature: the lab's device has none."""
        labels = {"gpu": "0", "device": "xpulab0", "modelName": name}
        for metric, text, read in (
            ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda: round(100 * gauges.utilization_fraction())),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.",
             gauges.utilization_fraction),
            ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).",
             lambda: round(gauges.memory_used_bytes() / 2**20)),
            ("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).",
             lambda: round((gauges.memory_total_bytes() - gauges.memory_used_bytes()) / 2**20)),
        ):
            Gauge(metric, text, [*labels], registry=self._registry).labels(**labels).set_function(read)

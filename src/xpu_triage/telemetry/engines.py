"""What each engine calls a quantity in its `/metrics`, in all versions that are known, newest name first.

Sources: the engines' collectors (vLLM `vllm/v1/metrics/loggers.py` from 0.5 to 0.32, SGLang
`sglang/srt/metrics/collector.py` from 0.4.2 to 0.5.20, TGI `router/src`, TensorRT-LLM
`tensorrt_llm/metrics/collector.py`, LMDeploy `lmdeploy/metrics/loggers.py`). All times are exported in seconds, all
shares as 0 to 1. A counter is named here without the `_total` that its samples carry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Source:
    """One exported metric that gives a quantity."""

    name: str
    """Below the engine's prefix."""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label to the values that count; empty for all."""
    at_finish: bool = False
    """Counted when a request finishes, and not while it runs."""
    remark: str = ""
    """What a reader has to know about the figure, for its window."""


@dataclass(frozen=True, eq=False)
class Engine:
    name: str
    gauges: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)
    """Names of one quantity: a newer and an older one, of which a server has one. `running_limit` alone lists limits
    of different things that hold at once, and the smallest binds."""
    counters: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)
    histograms: Mapping[str, tuple[Source, ...]] = field(default_factory=dict)
    counts_prefills: bool = True
    """Whether `running` counts requests whose prompt is being computed. Where it does not, 0 is no proof that nothing
    runs: SGLang sets it to the decode batch at a prefill (`log_prefill_stats`), TGI after one (`batching_task`)."""

    @cached_property
    def monotone(self) -> frozenset[str]:
        """Names, below the prefix, that never fall while a server lives."""
        counted = {source.name + end for sources in self.counters.values() for source in sources
                   for end in ("", "_total") if source.name not in _RISES_AND_FALLS}
        spread = {source.name + end for sources in self.histograms.values() for source in sources
                  for end in ("_count", "_bucket")}
        return frozenset(counted | spread)


_RISES_AND_FALLS = frozenset(("total_retracted_reqs",))
"""A gauge that only happens to count up."""


def _named(*names: str) -> tuple[Source, ...]:
    return tuple(map(Source, names))


def _finished(*names: str) -> tuple[Source, ...]:
    return tuple(Source(name, at_finish=True) for name in names)


_LIKE_VLLM_HISTOGRAMS = {
    "ttft": _named("time_to_first_token_seconds"),
    "e2e": _named("e2e_request_latency_seconds"),
    "queue": _named("request_queue_time_seconds", "time_in_queue_requests"),
    "prefill": _named("request_prefill_time_seconds"),
    "prompt_length": _named("request_prompt_tokens"),
}

VLLM = Engine(
    "vLLM",
    gauges={
        "running": _named("num_requests_running"),
        "waiting": _named("num_requests_waiting", "num_requests_waiting_by_reason"),
        "waiting_by_reason": _named("num_requests_waiting_by_reason"),
        "kv_usage": _named("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "hit_rate": _named("gpu_prefix_cache_hit_rate"),
    },
    counters={
        "generated": _named("generation_tokens"),
        "prompt": _named("prompt_tokens"),
        "computed": (Source("prompt_tokens_by_source", {"source": ("local_compute",)}),),
        "cached": _named("prompt_tokens_cached", "prefix_cache_hits", "gpu_prefix_cache_hits"),
        "finished": _named("request_success"),
        "preempted": _named("num_preemptions"),
        "hits": _named("prefix_cache_hits", "gpu_prefix_cache_hits"),
        "queries": _named("prefix_cache_queries", "gpu_prefix_cache_queries"),
        "iterations": _named("iteration_tokens_total_count"),
    },
    histograms=_LIKE_VLLM_HISTOGRAMS | {
        "gap": _named("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "per_token": _named("request_time_per_output_token_seconds"),
    },
)

SGLANG = Engine(
    "SGLang",
    gauges={
        "running": _named("num_running_reqs"),
        "waiting": _named("num_queue_reqs"),
        "kv_usage": _named("token_usage", "full_token_usage"),
        "hit_rate": _named("cache_hit_rate"),
        "generated_per_s": _named("gen_throughput"),
        "accepted_per_step": _named("spec_accept_length"),
    },
    counters={
        "generated": (Source("realtime_tokens", {"mode": ("decode",)}), *_finished("generation_tokens")),
        "prompt": _finished("prompt_tokens"),
        "computed": (Source("realtime_tokens", {"mode": ("prefill_compute",)}),),
        "cached": _finished("cached_tokens"),
        "finished": _named("num_requests"),
        "preempted": _named("num_retracted_requests", "total_retracted_reqs"),
        "hits": _finished("cached_tokens"),
        "queries": _finished("prompt_tokens"),
        "iterations": (Source("cuda_graph_passes", remark="decode passes; prefill between them is in it"),),
        "idle_s": _named("scheduler_idle_seconds"),
        "executing_s": _named("forward_execution_seconds", "gpu_execution_seconds"),
    },
    histograms={
        "ttft": _named("time_to_first_token_seconds"),
        "gap": _named("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "per_token": _named("request_time_per_output_token_seconds"),
        "e2e": _named("e2e_request_latency_seconds"),
        "queue": _named("queue_time_seconds"),
        "prefill": (Source("per_stage_req_latency_seconds", {"stage": ("prefill_forward",)}),),
        "prefill_in_parts": (Source("per_stage_req_latency_seconds", {"stage": ("chunked_prefill",)}),),
        "prompt_length": _named("prompt_tokens_histogram"),
    },
    counts_prefills=False,
)

_TGI_DECODE = {"method": ("decode", "next_token")}

TGI = Engine(
    "TGI",
    gauges={"running": _named("batch_current_size"), "waiting": _named("queue_size")},
    counters={
        "generated": _finished("request_generated_tokens_sum"),
        "prompt": _finished("request_input_length_sum"),
        "finished": _named("request_success"),
    },
    histograms={
        "e2e": _named("request_duration"),
        "queue": _named("request_queue_duration"),
        "per_token": (Source("request_mean_time_per_token_duration", remark="prefill is spread over the tokens"),),
        "prefill": (Source("batch_inference_duration", {"method": ("prefill",)}, remark="of one batch"),),
        "step": (Source("batch_inference_duration", _TGI_DECODE, remark="decode steps alone"),
                 Source("batch_forward_duration", _TGI_DECODE, remark="decode steps, the forward pass alone")),
        "prompt_length": _named("request_input_length"),
    },
    counts_prefills=False,
)

TENSORRT_LLM = Engine(
    "TensorRT-LLM",
    gauges={
        "running": _named("num_requests_running"),
        "waiting": _named("num_requests_waiting"),
        "kv_usage": _named("kv_cache_utilization"),
        "hit_rate": _named("kv_cache_hit_rate"),
        "running_limit": _named("max_batch_size_runtime", "max_num_active_requests"),
        "iteration_s": _named("iteration_latency_seconds"),
    },
    counters={
        "generated": _finished("generation_tokens"),
        "prompt": _finished("prompt_tokens"),
        "cached": _finished("prompt_cached_tokens"),
        "finished": _named("request_success", "num_requests_completed"),
        "hits": _finished("prompt_cached_tokens"),
        "queries": _finished("prompt_tokens"),
    },
    histograms=_LIKE_VLLM_HISTOGRAMS | {"per_token": _named("time_per_output_token_seconds")},
)

LMDEPLOY = Engine(
    "LMDeploy",
    gauges={
        "running": _named("num_requests_running"),
        "waiting": _named("num_requests_waiting"),
        "kv_usage": _named("gpu_cache_usage_perc", "kv_cache_usage_perc"),
    },
    counters={
        "generated": _named("generation_tokens"),
        "prompt": _named("prompt_tokens"),
        "finished": _named("request_success", "e2e_request_latency_seconds_count"),
        "iterations": _named("iteration_tokens_total_count"),
    },
    histograms=_LIKE_VLLM_HISTOGRAMS | {"gap": _named("inter_token_latency_seconds", "time_per_output_token_seconds")},
)

_BY_PREFIX = {"vllm": VLLM, "sglang": SGLANG, "tgi": TGI, "trtllm": TENSORRT_LLM, "lmdeploy": LMDEPLOY}
_NAME = re.compile(r"(?:ray_)?(vllm|sglang|tgi|trtllm|lmdeploy)[:_](.+)")
"""A gateway or Ray rewrites the colon, and Ray sets its own prefix before it."""

GIVES = {
    "running": ("serving.running",),
    "waiting": ("serving.waiting",),
    "waiting_by_reason": ("serving.waiting_reason",),
    "kv_usage": ("kv.usage_fraction",),
    "running_limit": ("serving.running_limit",),
    "generated": ("serving.decode_tokens_per_s",),
    "computed": ("serving.prefill_tokens_per_s",),
    "cached": ("serving.prefill_tokens_per_s",),
    "preempted": ("kv.preemptions_per_request",),
    "hits": ("kv.prefix_hit_fraction",),
    "iterations": ("step.wall_ms", "step.count"),
    "step": ("step.wall_ms", "step.count"),
    "iteration_s": ("step.wall_ms",),
    "ttft": ("latency.ttft_ms", "serving.queued_fraction"),
    "gap": ("latency.engine_itl_ms", "latency.itl_p99_ms"),
    "per_token": ("latency.engine_itl_ms",),
    "e2e": ("latency.e2e_ms",),
    "queue": ("latency.queue_ms", "serving.queued_fraction"),
    "prefill": ("latency.prefill_ms",),
    "prompt_length": ("serving.prompt_tokens",),
}
"""The signals that a quantity is there for."""


def engine_of(name: str) -> tuple[Engine, str] | None:
    """The engine that exports a sample of this name, and the name below its prefix; None for any other exporter."""
    match = _NAME.fullmatch(name)
    return (_BY_PREFIX[match[1]], match[2]) if match else None

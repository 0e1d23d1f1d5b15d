"""Small traces of all ranks of one job, drawn as it would run: a collective begins on each rank when it arrives, and
ends on all of its group together, the exchange after the last has come. Times in µs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kineto_files import Event, kernel, span, text_of, written

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
KERNELS = (("rms_norm", 0.1), ("gemm_qkv", 0.3), ("paged_attention", 0.2), ("gemm_up", 0.4))
"""Kernels of a layer, and their parts of its compute."""
LAYER_US, COST_US, LAYERS, STEPS = 500.0, 20.0, 3, 4
FALLBACK_US = 4_000.0
"""The host operator of a rank that falls back, each step."""


def written_job(folder: Path, ranks: int, *, name: str = "rank{}.json", world_size: int | None = None,
                pack: bool = False, stated: bool = True, began_s: float | None = None,
                clock_us: Mapping[int, float] | None = None, **job: Any) -> list[Path]:
    """The traces of `drawn` as files, in order of rank.

    stated    whether they state rank and world size
    began_s   since 1970, where they tell the time
    clock_us  by rank, how far its clock is ahead
    """
    groups = job.pop("told_groups", ())
    paths = []
    root: dict[str, Any] = {} if began_s is None else {"baseTimeNanoseconds": round(began_s * 1e9)}
    for rank, events in enumerate(drawn(ranks, **job)):
        for event in events:
            event["ts"] += (clock_us or {}).get(rank, 0.0)
        info: dict[str, Any] = {"backend": "nccl", "rank": rank, "world_size": world_size or ranks}
        if groups:
            info["pg_config"] = [{"pg_name": str(i), "backend_config": "cuda:nccl", "ranks": list(group)}
                                 for i, group in enumerate(groups) if rank in group]
        about = root | ({"distributedInfo": info} if stated else {})
        paths.append(written(folder / name.format(rank), text_of(events, **about), pack))
    return paths


def drawn(ranks: int, *, slower: Mapping[int, float] | None = None, fallback: Sequence[int] = (),
          groups: Sequence[Sequence[int]] = (), steps: int = STEPS, marks: str = "ProfilerStep#{}",
          comm: str = ALL_REDUCE, kernels: Sequence[tuple[str, float]] = KERNELS,
          late: Mapping[tuple[int, int], float] | None = None) -> list[list[Event]]:
    """The events of each rank.

    slower    by rank, how many times as long its kernels take
    fallback  ranks that draw on the host each step
    late      by (step, rank), µs more in the first layer of that step alone
    """
    slower, late = slower or {}, late or {}
    events: list[list[Event]] = [[] for _ in range(ranks)]
    at = [1_000.0] * ranks
    number = 0
    peers = [tuple(next((g for g in groups if rank in g), range(ranks))) for rank in range(ranks)]
    for step in range(steps):
        begin = list(at)
        for layer in range(LAYERS):
            for rank in range(ranks):
                for i, (label, part) in enumerate(kernels):
                    number += 1
                    dur = LAYER_US * part * slower.get(rank, 1.0)
                    dur += late.get((step, rank), 0.0) if not layer and not i else 0.0
                    at[rank] += 5.0 if not layer and not i else 1.0
                    _launched(events[rank], begin[rank] + 1 + 4 * (i + 5 * layer), label, at[rank], dur, number)
                    at[rank] += dur
            arrived = [moment + 1.0 for moment in at]
            for rank in range(ranks):
                number += 1
                at[rank] = max(arrived[peer] for peer in peers[rank]) + COST_US
                _launched(events[rank], begin[rank] + 1 + 4 * (len(kernels) + 5 * layer), comm, arrived[rank],
                          at[rank] - arrived[rank], number)
        for rank in range(ranks):
            if rank in fallback:
                number += 2
                at[rank] = _drawn_on_host(events[rank], begin[rank] + 70, at[rank], number)
            number += 1
            _launched(events[rank], begin[rank] + 68, "argmax", at[rank] + 1, 30.0, number)
            at[rank] += 31.0
            events[rank].append(span("user_annotation", marks.format(step), begin[rank], at[rank] - begin[rank] + 8))
            at[rank] += 10.0
    return [sorted(mine, key=lambda event: event["ts"]) for mine in events]


def _launched(events: list[Event], host: float, name: str, start: float, dur: float, number: int) -> None:
    events.append(span("cuda_runtime", "cudaLaunchKernel", host, 3, correlation=number))
    events.append(kernel(name, start, dur, correlation=number))


def _drawn_on_host(events: list[Event], host: float, ready: float, number: int) -> float:
    """A copy down, an operator on the host, a copy up. Returns when the device is ready again."""
    down, begun = ready + 1, ready + 20
    events.append(span("cpu_op", "aten::exponential_", host, begun + FALLBACK_US + 20 - host))
    events.append(span("cuda_runtime", "cudaMemcpyAsync", host + 1, begun - host - 2, correlation=number))
    events.append(kernel("Memcpy DtoH (Device -> Pageable)", down, 12, cat="gpu_memcpy", correlation=number))
    up = begun + FALLBACK_US
    events.append(span("cuda_runtime", "cudaMemcpyAsync", up, 18, correlation=number + 1_000_000))
    events.append(kernel("Memcpy HtoD (Pageable -> Device)", up + 5, 12, cat="gpu_memcpy",
                         correlation=number + 1_000_000))
    return up + 20

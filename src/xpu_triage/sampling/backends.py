"""Which implementation samples a batch: one table, asked with host facts alone.

A row of the table says on which device it exists, which package brings it, and for which batches it may be
taken. The first that fits is used; `choose` also says why the ones before it were not, so that a silently
slower path can be seen. Seeded rows are left to the torch path always: a fused kernel draws from streams of
its own, and a row must not change its tokens because the rows beside it changed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .batch import DeviceParameters, SamplingBatch

WIDE = ("cpu", "cuda", "xpulab")
"""Device types that compute in float64. Others refuse it (MPS) or run it on their host or control CPU (NPU),
which would be the very fault this sampler is the fix for; there it stays in float32. For a device that calls
itself CUDA and has no float64 kernels build the batch with `wide=False`."""


def is_wide(device: torch.device) -> bool:
    return device.type in WIDE


@dataclass(frozen=True)
class Backend:
    """One row of the table."""

    name: str
    device_type: str
    """Empty: any."""
    package: str
    """Empty: none beyond torch."""
    reason_against: Callable[[SamplingBatch], str]
    """Why this batch cannot take it, or empty. Must not look at anything on the device."""


@dataclass(frozen=True)
class Choice:
    name: str
    passed_over: tuple[str, ...]
    """Why each row of the table before it was not taken: `flashinfer: not installed`."""


@cache
def installed(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None


def choose(
    batch: SamplingBatch, device_type: str | None = None, has: Callable[[str], bool] = installed
) -> Choice:
    """The backend for `batch`. `device_type` and `has` are there for asking about another machine."""
    device_type = device_type or batch.device.type
    passed_over: list[str] = []
    for backend in TABLE:
        if backend.device_type not in ("", device_type):
            continue
        against = backend.reason_against(batch) or ("" if has(backend.package) else "not installed")
        if not against:
            return Choice(backend.name, tuple(passed_over))
        passed_over.append(f"{backend.name}: {against}")
    raise AssertionError("the table ends with a backend that takes everything")


def _against_flashinfer(batch: SamplingBatch) -> str:
    if not batch.known:
        return "some parameters are known to the device alone"
    if batch.any_seeded:
        return "seeded rows"
    if batch.needs_min_p:
        return "min-p"
    return "" if batch.needs_top_k or batch.needs_top_p else "no top-k or top-p: nothing for it to do"


def _against_npu(batch: SamplingBatch) -> str:
    if not batch.known:
        return "some parameters are known to the device alone"
    if batch.any_seeded:
        return "seeded rows"
    return "" if batch.fused_npu else "a row's k is outside [1, 1024]"


TABLE = (
    Backend("flashinfer", "cuda", "flashinfer", _against_flashinfer),
    Backend("npu_top_k_top_p", "npu", "torch_npu", _against_npu),
    Backend("torch", "", "", lambda batch: ""),
)


def sample_with_flashinfer(
    logits: Tensor, batch: SamplingBatch, rows: DeviceParameters, generator: torch.Generator | None
) -> Tensor:
    """int64 [B], rows in the order of the draw. FlashInfer's rejection sampling; its tie rules are its own.

    Only what its documentation promises is used: float32 logits or probabilities, int32 k, float32 p, and
    `check_nan` left off (it reads the device).
    """
    from flashinfer import sampling  # type: ignore[import-not-found, unused-ignore]

    scaled = logits.float() * rows.inverse_temperature.float().unsqueeze(1)
    top_k = rows.top_k.clamp(max=batch.vocab).to(torch.int32)
    top_p = rows.top_p.clamp(max=1.0).to(torch.float32)
    drawn: Tensor
    if batch.needs_top_k and batch.needs_top_p:
        drawn = sampling.top_k_top_p_sampling_from_logits(scaled, top_k, top_p, generator=generator)
    elif batch.needs_top_k:
        drawn = sampling.top_k_sampling_from_probs(scaled.softmax(-1), top_k, generator=generator)
    else:
        drawn = sampling.top_p_sampling_from_probs(scaled.softmax(-1), top_p, generator=generator)
    return drawn.long()


def kept_logits_npu(logits: Tensor, batch: SamplingBatch, rows: DeviceParameters) -> Tensor:
    """float32 [B, V]: the logits over the temperature, −inf where a filter drops the token.

    `torch_npu.npu_top_k_top_p(logits, p, k)`: logits 2-D; p 1-D in the logits' dtype, in [0, 1]; k 1-D int32
    in [1, 1024] and at most V; not both None (torch_npu 2.13.0, `_op_plugin_docs.py`; A2 and A3). Tokens tied
    with the k-th stay. With rows of k = V it was reported slower than sorting, hence the bound on every row.
    """
    import torch_npu  # type: ignore[import-not-found, unused-ignore]

    scaled = logits.float() * rows.inverse_temperature.float().unsqueeze(1)
    if batch.needs_min_p:
        floor = scaled.amax(1, keepdim=True) + rows.log_min_p.float().unsqueeze(1)
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    p = rows.top_p.clamp(max=1.0).to(scaled.dtype) if batch.needs_top_p else None
    kept: Tensor = torch_npu.npu_top_k_top_p(scaled, p, rows.top_k.clamp(max=batch.vocab).to(torch.int32))
    return kept

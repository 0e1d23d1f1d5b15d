"""The least time that a step can take: bytes that it must read ÷ bandwidth, and operations ÷ arithmetic peak.

    decode floor  = (weight bytes used + Σ context × KV bytes per token) ÷ (bandwidth × devices)
    prefill floor = the larger of (2 × active parameters × tokens + attention) ÷ (peak × devices)
                    and weight bytes used ÷ (bandwidth × devices)

The roofline of Williams, Waterman and Patterson (doi:10.1145/1498765.1498785); for decoders Pope et al.
(arXiv:2211.05102) and Kaplan et al. (arXiv:2001.08361, 2 operations per weight and token). Weights are read once a step
and shared by its tokens, the cache is read once per request. Writes, activations and communication are left out, so a
floor lies low, never high.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model_shape import Block, ModelShape
from .quantization import DTYPE_BITS


class UnknownFloorError(ValueError):
    """A floor that this configuration does not give; the message says why."""


@dataclass(frozen=True)
class Load:
    """One decode step."""

    batch: float
    """Requests that get a token in it; a mean need not be whole."""
    context: float
    """Tokens in the cache per request, mean. Where windows cut some contexts and not others the mean reads a little
    too much."""
    devices: int = 1
    """Over which tensors are split (tensor parallelism)."""
    kv_bits: float | None = None
    """Of a cached value, where it is not the configuration's."""


@dataclass(frozen=True)
class Reads:
    """Bytes that one device must read in one step."""

    weights: float
    kv: float

    @property
    def total(self) -> float:
        return self.weights + self.kv

    @property
    def gb(self) -> float:
        return self.total / 1e9


@dataclass(frozen=True)
class Operations:
    """Floating-point operations of one step or prompt, over all devices."""

    weights: float
    """2 × active parameters × tokens, the head once for each sequence that samples."""
    attention: float

    @property
    def total(self) -> float:
        return self.weights + self.attention


def experts_touched(experts: int, per_token: int, tokens: float) -> float:
    """Distinct experts that a batch reads, expected under uniform routing: E·(1 − (1 − k/E)^tokens). Real routing is
    uneven, and touches fewer.

    >>> experts_touched(256, 8, 1)
    8.0
    """
    return experts * (1 - (1 - per_token / experts) ** tokens)


def weight_bytes(shape: ModelShape, tokens: float) -> float:
    """Bytes of weights that a step over `tokens` tokens reads, over all devices: every layer, the experts touched, the
    output head; of the input embeddings only single rows, which do not count.

    Raises UnknownFloorError where the configuration does not tell.
    """
    _known(shape, "weights")
    return sum(block.count * _layer_bytes(shape, block, tokens) for block in shape.blocks) + (
        shape.head * shape.bits["head"] / 8)


def _layer_bytes(shape: ModelShape, block: Block, tokens: float) -> float:
    bits, mlp = shape.bits, block.mlp
    read = block.attention.parameters * bits["attention"] + mlp.dense * bits["mlp"] + mlp.shared * bits["shared"]
    if mlp.experts:
        read += mlp.router * max(bits["head"], 16.0)
        read += experts_touched(mlp.experts, mlp.per_token, tokens) * mlp.expert * bits["experts"]
    return read / 8


def kv_bytes(shape: ModelShape, context: float, kv_bits: float | None = None) -> float:
    """Bytes of cache and state that one request reads in a decode step, each held once: Σ over layers of min(context,
    window) × values per token; of a linear layer its state.

    Raises UnknownFloorError where the configuration does not tell.
    """
    _known(shape, "kv")
    bits = shape.kv_bits if kv_bits is None else kv_bits
    if bits is None:
        raise UnknownFloorError("the type of the cached values is not known")
    windows = [block.attention.window for block in shape.blocks if block.attention.window is not None]
    if "window" in shape.unknown and windows and context > min(windows):
        raise UnknownFloorError(shape.unknown["window"])
    total = 0.0
    for block in shape.blocks:
        mixer = block.attention
        seen = context if mixer.window is None else min(context, mixer.window)
        total += block.count * (seen * mixer.kv_values * bits / 8 + mixer.state_bytes)
    return total


def decode_reads(shape: ModelShape, load: Load) -> Reads:
    """Bytes that each device reads in one decode step. Weights split evenly; the cache splits by KV heads, and where
    there are more devices than KV heads each head is held more than once (as vLLM and SGLang do; an MLA latent is held
    by every device).

    Raises UnknownFloorError where the configuration does not tell.
    """
    kv_split = min(load.devices, max(shape.kv_heads, 1))
    return Reads(weight_bytes(shape, load.batch) / load.devices,
                 load.batch * kv_bytes(shape, load.context, load.kv_bits) / kv_split)


def decode_operations(shape: ModelShape, load: Load) -> Operations:
    """2 × (active parameters + head) × batch, and the attention over the context. The recurrence of linear layers, a
    few operations per value of its state, is left out."""
    _known(shape, "weights")
    pairs = sum(block.count * block.attention.decode_pair_flops
                * (load.context if block.attention.window is None else min(load.context, block.attention.window))
                for block in shape.blocks)
    return Operations(2.0 * (shape.active_parameters + shape.head) * load.batch, load.batch * pairs)


def prefill_operations(shape: ModelShape, tokens: float, cached: float = 0.0) -> Operations:
    """One prompt of `tokens` tokens behind `cached` ones that lie in the cache: 2 × active parameters × tokens, the
    head for the last token, and attention over every pair of a query and a key that it may see: n(n + 1)/2 in a prompt
    of n tokens, so that 8 times the tokens are 64 times that part."""
    _known(shape, "weights")
    attention = sum(block.count * block.attention.pair_flops * pairs(tokens, cached, block.attention.window)
                    for block in shape.blocks)
    return Operations(2.0 * shape.active_parameters * tokens + 2.0 * shape.head, attention)


def pairs(tokens: float, cached: float = 0.0, window: int | None = None) -> float:
    """Pairs of query and key under a causal mask; with a window each query sees itself and `window` − 1 before it.

    >>> pairs(4), pairs(4, window=2), pairs(1, cached=9)
    (10.0, 7.0, 10.0)
    """
    def up_to(n: float) -> float:
        if window is None or n <= window:
            return n * (n + 1) / 2
        return window * (window + 1) / 2 + (n - window) * window

    return up_to(tokens + cached) - up_to(cached)


def read_ms(reads: Reads, gbps: float) -> float:
    """Time to read that much on one device, in ms, at `gbps` 10⁹ bytes a second."""
    return reads.total / gbps / 1e6


def compute_ms(operations: Operations, tflops: float, devices: int = 1) -> float:
    """Time of that arithmetic, in ms, at `tflops` 10¹² operations a second and device."""
    return operations.total / (tflops * devices) / 1e9


def prefill_reads(shape: ModelShape, tokens: float, devices: int = 1) -> Reads:
    """Weights that each device reads once for a prompt; the cache it writes is left out."""
    return Reads(weight_bytes(shape, tokens) / devices, 0.0)


def prefill_floor(shape: ModelShape, tokens: float, gbps: float | None, tflops: float | None, devices: int = 1
                  ) -> tuple[float, str] | None:
    """The larger of computing a prompt and of reading the weights once for it, in ms, and which it is (`arithmetic` or
    `memory`). A short prompt is bound by reading. Where one of the two peaks is unknown (None) the other alone gives a
    floor, which then may lie lower; None where both are.

    Raises UnknownFloorError where the configuration does not tell.
    """
    found = []
    if tflops:
        found.append((compute_ms(prefill_operations(shape, tokens), tflops, devices), "arithmetic"))
    if gbps:
        found.append((read_ms(prefill_reads(shape, tokens, devices), gbps), "memory"))
    return max(found, default=None)


def kv_bits_of(name: str) -> float:
    """Bits of a cached value by its type's name. Raises ValueError for an unknown one."""
    bits = DTYPE_BITS.get(name.lower())
    if bits is None:
        raise ValueError(f"{name!r} is not a type known here ({', '.join(sorted(DTYPE_BITS))})")
    return float(bits)


def _known(shape: ModelShape, *parts: str) -> None:
    for part in parts:
        if part in shape.unknown:
            raise UnknownFloorError(shape.unknown[part])
    if "weights" in parts and not shape.bits:
        raise UnknownFloorError("the type of the weights is not known")

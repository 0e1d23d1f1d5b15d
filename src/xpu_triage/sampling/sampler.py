"""The reference sampler: temperature, min-p, top-k, top-p and a draw, with no device sync on any path.

Read it top to bottom; it is plain arithmetic on tensors. Three ideas carry it.

1. *Every filter keeps a prefix of one order*: largest logit first, lowest index first among equals. Top-k
   keeps the first k tokens, min-p and top-p those up to a threshold. So filters combine without sorting the
   vocabulary, ties have one right answer, and how a row is cut depends on that row alone.
2. *One search does three jobs.* "The first index at which a running sum reaches a target" draws from a
   distribution (target u·Σw), finds the threshold of a filter in a histogram (target p·Σw, or k), and finds
   the last token to keep among equals. It runs in two levels, sums of blocks and then inside one block, so
   it reads the weights once and runs in float64 over some hundred numbers a row.
3. *What to do is known on the host* (`batch.py`), and what the device knows stays there: no `.item()`, no
   `if tensor`, no boolean index, no shape that depends on a value. Sizes come from the vocabulary, the
   requests' largest k, and the width of the logits' type. Nor is there any `tensor[...]`: what `narrow` and
   `gather` do can be run on a fake device too, and so proved free of syncs without hardware.

Filters apply in this order, each to what the ones before have left: temperature, min-p (Nguyen et al.,
*Turning Up the Heat: Min-p Sampling*, ICLR 2025), top-k (Fan, Lewis and Dauphin, *Hierarchical Neural Story
Generation*, ACL 2018), top-p (Holtzman et al., *The Curious Case of Neural Text Degeneration*, ICLR 2020).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from . import backends
from .batch import DeviceParameters, Group, SamplingBatch, same_device
from .noise import InverseCdf, Noise, Race, inverse_cdf_noise, race_noise
from .request import SHORTLIST_MAX, BadRequest, Path

LOGITS = (torch.float32, torch.float16, torch.bfloat16)
TILE_ELEMENTS_CPU = {Path.WHOLE: 1 << 21, Path.GENERAL: 1 << 20}
"""Rows are worked on in tiles of so many logits, so that a tile's temporaries stay in a CPU's cache …"""
TILE_ELEMENTS = 1 << 24
"""… and, elsewhere, within some hundred MB, for a few launches more."""

Parameters = tuple[Tensor, Tensor, Tensor, Tensor]
"""Inverse temperature, log min-p, top-p and top-k, [B, 1] each; inf where top-p or top-k keep all."""


# ================================================================================================ the sampler
@torch.no_grad()
def sample(logits: Tensor, batch: SamplingBatch, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw one token for each row.

    `logits`: [B, V] in float32, float16 or bfloat16, on the batch's device; not changed. `generator` is for
    the rows without a seed (default: the device's own). Returns int64 [B] on the device.

    A row that is −inf throughout gives token 0, one that holds a NaN or +inf some token in [0, V): to see
    this on the host would be a sync. `check_logits` looks, and syncs. Raises `BadRequest` for logits that do
    not fit the batch, as far as their shape, type and device tell.

    Not for capture in a CUDA graph: a replay would repeat the step count, and so the draws of seeded rows.
    """
    _fits(logits, batch)
    device = batch.on_device
    backend = backends.choose(batch).name
    if backend == "torch":
        noise = _noise(batch, generator)
        tokens = torch.cat([_drawn(logits, batch, group, noise) for group in batch.groups])
    else:
        ordered = logits if batch.in_order else logits.index_select(0, device.order)
        if backend == "flashinfer":
            tokens = backends.sample_with_flashinfer(ordered, batch, device, generator)
        else:
            weights = backends.kept_logits_npu(ordered, batch, device).softmax(1)
            tokens = draw(weights, _noise(batch, generator))
        # Fused kernels may keep all that tie for the largest logit; a greedy row takes the first of them.
        tokens = torch.where(device.top_k == 1.0, ordered.argmax(1), tokens)
    batch.advance()
    return tokens if batch.in_order else torch.empty_like(tokens).scatter_(0, device.order, tokens)


def _noise(batch: SamplingBatch, generator: torch.Generator | None) -> Noise:
    if batch.wide:
        return inverse_cdf_noise(batch.sources(), generator)
    size = block_size(batch.vocab)
    lanes = max(-(-batch.vocab // size) + size, min(batch.vocab, SHORTLIST_MAX))
    return race_noise(batch.sources(), lanes, generator)


def _drawn(logits: Tensor, batch: SamplingBatch, group: Group, noise: Noise) -> Tensor:
    """int64 [rows of the group]: the tokens of one path."""
    device, tokens = batch.on_device, []
    for start, stop in _tiles(group, batch):
        order = device.order.narrow(0, start, stop - start)
        x = logits.narrow(0, start, stop - start) if batch.in_order else logits.index_select(0, order)
        rows, own = device.rows(start, stop), noise.rows(start, stop)
        if group.path is Path.SHORTLIST:
            candidates, weights = shortlist(x, rows, group)
            tokens.append(candidates.gather(1, own.pick(weights).unsqueeze(1)).squeeze(1))
        elif group.path is Path.WHOLE:
            tokens.append(draw(whole(x, rows, group), own))
        else:
            tokens.append(draw(general(x, rows, group, noise.dtype), own))
    return tokens[0] if len(tokens) == 1 else torch.cat(tokens)


def draw(weights: Tensor, noise: Noise) -> Tensor:
    """int64 [B]: a token from each row of `weights` [B, V], in proportion to it. They need not add up to 1.

    First a block, by the blocks' sums; then a token inside it. P(block)·P(token | block) is P(token), and
    the tails keep their rate: a token of 1e-8 is drawn among the few of its block, by what is left of the
    uniform after the block took its part.
    """
    size = block_size(weights.shape[1])
    block = noise.pick(block_sums(weights, size, noise.dtype))
    return block * size + noise.pick(_inside(block.unsqueeze(1), size, weights))


# =========================================================================== path 1: no threshold to look for
def whole(x: Tensor, rows: Parameters, group: Group) -> Tensor:
    """float32 [B, V]: the weights of rows without top-k and top-p, min-p applied."""
    inverse_temperature, log_min_p, _, _ = rows
    if not group.scaled and not group.min_p:  # to the last bit the same: softmax, too, takes the maximum off
        return x.softmax(1, dtype=torch.float32)
    y = _distance(x, inverse_temperature, group, torch.float32)
    w = y.softmax(1)
    return w.mul_(y.ge_(log_min_p.to(torch.float32))) if group.min_p else w


def _distance(x: Tensor, inverse_temperature: Tensor, group: Group, dtype: torch.dtype) -> Tensor:
    """(x − max x) / T: at most 0, and exact where dividing first would round large numbers."""
    y = x.to(dtype, copy=True).sub_(x.amax(1, keepdim=True).to(dtype))
    return y.mul_(inverse_temperature.to(dtype)) if group.scaled else y


# ======================================================================== path 2: the k best tokens, k ≤ 1024
def shortlist(x: Tensor, rows: Parameters, group: Group) -> tuple[Tensor, Tensor]:
    """The first `group.largest_k` tokens of each row in order, int64 [B, k], and their weights, [B, k].

    Greedy is k = 1. Everything after the selection costs k, not V.
    """
    inverse_temperature, log_min_p, top_p, top_k = rows
    candidates = best(x, group.largest_k)
    y = x.gather(1, candidates).to(top_p.dtype)
    y = (y - y.narrow(1, 0, 1)) * inverse_temperature
    rank = torch.arange(group.largest_k, device=x.device)
    w = torch.where((rank < top_k) & (y >= log_min_p), y.exp(), 0.0)
    if group.top_p:
        running = w.cumsum(1)
        before = torch.nn.functional.pad(running.narrow(1, 0, group.largest_k - 1), (1, 0))
        total = running.narrow(1, group.largest_k - 1, 1)
        w = torch.where(before < _positive(top_p * total), w, 0.0)
    return candidates, w


def best(x: Tensor, k: int) -> Tensor:
    """int64 [B, k]: the first k tokens of each row, in order.

    The k best tokens lie in the k blocks with the best maxima: if a token's block is not among those, k
    other blocks each hold a token before it. So one pass for the blocks' maxima, and a selection among the
    tokens of k blocks. Keys pack (rank of the value, index) into an int64, so that no two are equal and
    `topk`, which promises nothing about ties, has one answer.
    """
    vocab, size = x.shape[1], block_size(-(-x.shape[1] // k))
    blocks = -(-vocab // size)
    if size > 1 and blocks > k:
        maxima = _by_block(x, size, lambda part: part.amax(-1))
        keys = _packed_key(maxima, torch.arange(blocks, device=x.device))
        block = _index_of(torch.topk(keys, k, 1, largest=False, sorted=False).values)
        index = (block.unsqueeze(2) * size + torch.arange(size, device=x.device)).flatten(1)
        values = x.gather(1, index.clamp(max=vocab - 1))
    else:
        values, index = x, torch.arange(vocab, device=x.device)
    keys = _packed_key(values, index).masked_fill_(index >= vocab, torch.iinfo(torch.int64).max)
    return _index_of(torch.topk(keys, k, 1, largest=False, sorted=True).values)


def _packed_key(values: Tensor, index: Tensor) -> Tensor:
    return (rank_key(values).long() << 32) | index


def _index_of(key: Tensor) -> Tensor:
    return key & 0xFFFFFFFF


def rank_key(x: Tensor) -> Tensor:
    """An integer as wide as the logits: smaller for a larger logit, equal for equal ones.

    IEEE floats of one sign are ordered as their bits are; flipping the lower bits of the negative ones
    orders them all (the trick of radix sorts on floats). Adding 0 makes −0 and 0 one.
    """
    bits = (x + 0.0).view(torch.int32 if x.element_size() == 4 else torch.int16)
    kind = torch.iinfo(bits.dtype)
    return (bits >> (kind.bits - 1)).bitwise_and_(kind.max).bitwise_xor_(bits).bitwise_not_()


# ========================================================== path 3: any k, any p, by a threshold for each row
def general(x: Tensor, rows: Parameters, group: Group, dtype: torch.dtype) -> Tensor:
    """`dtype` [B, V]: the weights of rows with any parameters, 0 where a filter drops the token.

    Comparisons are written over numbers (`lt_`, `eq_`) and multiplied in: on a CPU 0.1 ns a token, where
    `torch.where` on a mask without a pattern takes 4.
    """
    inverse_temperature, log_min_p, top_p, top_k = rows
    y = _distance(x, inverse_temperature, group, dtype)
    passes_min_p = y.clone().ge_(log_min_p) if group.min_p else None
    w = y.exp_()
    if passes_min_p is not None:
        w.mul_(passes_min_p)
    key = rank_key(x)
    if group.top_k:
        w.mul_(prefix(key, torch.ones_like(w), top_k))
    if group.top_p:
        w = prefix(key, w, _positive(top_p * w.sum(1, keepdim=True)))
    return w


def _positive(target: Tensor) -> Tensor:
    """Keeps one token at least: the first weighs 1, so that any target above 0 and up to 1 means it alone."""
    return target.clamp(min=torch.finfo(target.dtype).tiny)


def prefix(key: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """`weights` [B, V], 0 behind the shortest prefix of each row's order that adds up to `target` [B, 1].

    Weighted radix selection: a histogram of the weights by the uppermost bits of the key, the digit at which
    its running sum reaches the target, then the same among the tokens with this digit for the next bits, and
    at last by index among the equals that are left. A fixed number of passes, exact for whatever values;
    top-k is the case of weights 1. (Unweighted: Alabi et al., *Fast k-Selection Algorithms for Graphics
    Processing Units*, ACM JEA 2012.) A target that is never reached keeps everything.
    """
    bits, width = 8 * key.element_size(), digit_bits(key.shape[1])
    threshold, tied = key.new_zeros(key.shape[0], 1, dtype=torch.int64), weights
    for shift in reversed(range(0, bits, width)):
        count = 1 << min(width, bits - shift)
        lowest = -count // 2 if shift + width >= bits else 0  # the uppermost digit carries the sign
        digit = (key >> shift if shift else key).int()
        digit = digit - lowest if lowest else digit & (count - 1)
        histogram = weights.new_zeros(weights.shape[0], count).scatter_add_(1, digit.long(), tied)
        found, below = first_reaching(histogram, target)
        tied = digit.eq_(found.int()).to(tied.dtype).mul_(tied)
        target = target - below
        threshold = threshold + ((found + lowest) << shift)
    last, _ = first_reaching(tied, target)
    before = key.clone().lt_(threshold.to(key.dtype)).to(weights.dtype).mul_(weights)
    index = torch.arange(key.shape[1], dtype=weights.dtype, device=key.device)
    up_to_last = (last - index).add_(1).clamp_(0, 1)
    return before.addcmul_(tied, up_to_last)


def digit_bits(vocab: int) -> int:
    """The histogram should cost less than the pass that fills it: two passes of 16 bits, or three of 11."""
    return 16 if vocab > 1 << 16 else 11


def first_reaching(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first index at which the running sum of each row reaches `target` [B, 1], and the sum before it.

    Both [B, 1]. The last index where no sum reaches it.
    """
    size = block_size(weights.shape[1])
    sums = block_sums(weights, size, weights.dtype)
    running = sums.cumsum(1)
    block = torch.searchsorted(running, target).clamp_(max=sums.shape[1] - 1)
    inside = _inside(block, size, weights)
    running = running.gather(1, block) - sums.gather(1, block) + inside.cumsum(1)
    place = torch.searchsorted(running, target).clamp_(max=size - 1)
    index = (block * size + place).clamp_(max=weights.shape[1] - 1)
    return index, running.gather(1, place) - inside.gather(1, place)


# ===================================================================================================== blocks
def block_size(length: int) -> int:
    """A power of two near √length: then there are about as many blocks as tokens in one."""
    return 1 << (length.bit_length() // 2)


def block_sums(weights: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """`dtype` [B, ⌈n / size⌉]: the sums of neighbouring `size` weights, the last of what remains."""
    return _by_block(weights, size, lambda part: part.sum(-1)).to(dtype)


def _by_block(x: Tensor, size: int, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """`reduce` over the last dimension of x [B, n] cut into blocks, without copying x to round n up."""
    rows, full, rest = x.shape[0], x.shape[1] // size, x.shape[1] % size
    parts = [reduce(x.narrow(1, 0, full * size).view(rows, full, size))] if full else []
    if rest:
        parts.append(reduce(x.narrow(1, full * size, rest).unsqueeze(1)))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _inside(block: Tensor, size: int, weights: Tensor) -> Tensor:
    """[B, size]: the weights of one block a row, `block` [B, 1]; 0 behind the last."""
    index, length = block * size + torch.arange(size, device=weights.device), weights.shape[1]
    if length % size == 0:
        return weights.gather(1, index)
    return weights.gather(1, index.clamp(max=length - 1)).masked_fill_(index >= length, 0.0)


def _tiles(group: Group, batch: SamplingBatch) -> list[tuple[int, int]]:
    if group.path is Path.SHORTLIST:  # its temporaries are small
        return [(group.start, group.stop)]
    elements = TILE_ELEMENTS_CPU[group.path] if batch.device.type == "cpu" else TILE_ELEMENTS
    rows = max(1, elements // max(batch.vocab, 1 << digit_bits(batch.vocab)))  # a row may need a histogram
    return [(i, min(i + rows, group.stop)) for i in range(group.start, group.stop, rows)]


# ========================================================================== what stands around the arithmetic
def _fits(logits: Tensor, batch: SamplingBatch) -> None:
    rows, first = batch.rows, batch.rows[0].request_id
    if logits.dim() != 2 or logits.shape[1] != batch.vocab:
        what = f"shape {tuple(logits.shape)} is not ({len(rows)}, {batch.vocab})"
        raise BadRequest(first, "logits", what)
    if logits.shape[0] != len(rows):
        name = rows[min(logits.shape[0], len(rows) - 1)].request_id
        raise BadRequest(name, "logits", f"{logits.shape[0]} rows for {len(rows)} requests")
    if logits.dtype not in LOGITS:
        raise BadRequest(first, "logits", f"{logits.dtype} is none of float32, float16, bfloat16")
    if not same_device(logits.device, batch.device):
        raise BadRequest(first, "logits", f"are on {logits.device}, the parameters on {batch.device}")


def check_logits(logits: Tensor, batch: SamplingBatch) -> None:
    """Raise `BadRequest` for the first row that cannot be sampled. A sync: for debugging, not for a step."""
    _fits(logits, batch)
    for row, largest in zip(batch.rows, logits.amax(1).tolist(), strict=True):
        if largest != largest:
            raise BadRequest(row.request_id, "logits", "hold a NaN")
        if largest == float("-inf"):
            raise BadRequest(row.request_id, "logits", "are −inf throughout: no token is allowed")
        if largest == float("inf"):
            raise BadRequest(row.request_id, "logits", "hold +inf")


@torch.no_grad()
def kept(logits: Tensor, batch: SamplingBatch) -> Tensor:
    """bool [B, V]: the tokens that `sample` may draw, by the torch path. For looking, and for tests."""
    _fits(logits, batch)
    device: DeviceParameters = batch.on_device
    result = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    for group in batch.groups:
        order = device.order.narrow(0, group.start, group.stop - group.start)
        x, rows = logits.index_select(0, order), device.rows(group.start, group.stop)
        if group.path is Path.SHORTLIST:
            candidates, weights = shortlist(x, rows, group)
            mask = torch.zeros_like(x, dtype=torch.bool).scatter_(1, candidates, weights > 0)
        elif group.path is Path.WHOLE:
            mask = whole(x, rows, group) > 0
        else:
            mask = general(x, rows, group, InverseCdf.dtype if batch.wide else Race.dtype) > 0
        result.index_copy_(0, order, mask)
    return result

"""The two samplers as they were before their fixes. For lessons, measurements and tests; never for use.

Both give right tokens, which is why nobody looked. What they cost cannot be seen in their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor


def sample_exponential(
    logits: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    generators: Mapping[int, torch.Generator] | None = None,
) -> Tensor:
    """The native path of several engines, and the fault of the P800 incident: int64 [B] from logits [B, V].

    Sort, mask, softmax, an exponential for every token of every row, argmax. On a device without a kernel for
    `exponential_` the noise is drawn by the host: 256 × 152,000 numbers a step, a copy down of memory that
    holds nothing yet, and a copy back, with a sync at each. Nothing warned. `top_k` int64 [B], `top_p` [B].
    """
    probabilities = filter_by_sorting(logits, top_k, top_p).softmax(-1, dtype=torch.float32)
    noise = torch.empty_like(probabilities)
    if not generators or len(generators) < len(noise):
        noise.exponential_()
    for row, generator in (generators or {}).items():
        noise[row].exponential_(generator=generator)
    return probabilities.div_(noise).argmax(-1)


def filter_by_sorting(logits: Tensor, top_k: Tensor | None = None, top_p: Tensor | None = None) -> Tensor:
    """`logits` with −inf where top-k or top-p drops the token, by sorting the vocabulary.

    Ties with the k-th stay, so that more than k may; p = 1 keeps all (ascending sums, `<= 1 − p`).
    """
    if top_k is None and top_p is None:
        return logits
    ascending, index = logits.sort(-1)
    if top_k is not None:
        kth = ascending.gather(1, (logits.shape[1] - top_k).unsqueeze(1))
        ascending.masked_fill_(ascending < kth, -torch.inf)
    if top_p is not None:
        below = ascending.softmax(-1, dtype=torch.float32).cumsum(-1)
        dropped = below <= (1 - top_p).unsqueeze(1)
        dropped[:, -1] = False
        ascending.masked_fill_(dropped, -torch.inf)
    return torch.empty_like(ascending).scatter_(-1, index, ascending)


class Filter(Protocol):
    """Logits [B, V], top_k [B], top_p [B] → logits, −inf where a token is dropped."""

    def __call__(self, logits: Tensor, top_k: Tensor, top_p: Tensor, /) -> Tensor: ...


def sample_by_device_predicate(
    logits: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    fused: Filter = filter_by_sorting,
    native: Filter = filter_by_sorting,
) -> Tensor:
    """The fault of the Ascend change: the device is asked, each token, whether the fused kernel may be used.

    `if` on a device tensor waits until everything queued before it is done, for a fact that the host has
    known since the request came. The noise is the fixed one, so that this sync is the only fault here.
    """
    eligible = torch.all((top_k <= 1024) & (top_k >= 1))
    filtered = (fused if eligible else native)(logits, top_k, top_p)  # the sync: bool(device tensor)
    probabilities = filtered.softmax(-1, dtype=torch.float32)
    return probabilities.div_(torch.empty_like(probabilities).uniform_().log_().neg_()).argmax(-1)

"""The reference fixed sampler: every request's parameters in one batch, and no device sync in a step.

    batch = SamplingBatch.from_requests([Request("a", top_k=50), Request("b", temperature=0)], vocab, device)
    tokens = sample(logits, batch)        # int64 [B] on the device; nothing was read back

`sampler.py` is the sampler, to be read top to bottom. `request.py` and `batch.py` decide on the host,
`noise.py` holds the two ways to draw, `backends.py` the fused kernels, `incidents.py` the two samplers as
they were before their fixes.
"""

from __future__ import annotations

from ..torch_ready import torch_or_one_line

with torch_or_one_line():
    import torch as _torch  # noqa: F401

from .batch import Group, SamplingBatch
from .request import BadRequest, OnDevice, Path, Request
from .sampler import check_logits, draw, kept, sample

__all__ = [
    "BadRequest",
    "Group",
    "OnDevice",
    "Path",
    "Request",
    "SamplingBatch",
    "check_logits",
    "draw",
    "kept",
    "sample",
]

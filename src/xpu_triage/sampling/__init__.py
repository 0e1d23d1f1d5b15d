"""The reference fixed sampler: every request's parameters in one batch, and no device sync in a step.

    batch = SamplingBatch.from_requests([Request("a", top_k=50), Request("b", temperature=0)], vocab, device)
    tokens = sample(logits, batch)        # int64 [B] on the device; nothing was read back

`sampler.py` is the sampler, to be read top to bottom. `request.py` and `batch.py` decide on the host,
`noise.py` holds the two ways to draw, `backends.py` the fused kernels, `incidents.py` the two samplers as
they were before their fixes.
"""

from __future__ import annotations

from ..errors import MissingExtra, TriageError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("torch", "lab") from error
except (ImportError, RuntimeError) as error:  # torch_npu registers itself with torch, and needs CANN to load
    if "torch_npu" not in f"{error} {error.__cause__}":
        raise
    raise TriageError(
        "torch_npu is installed but cannot load, and torch with it: CANN is not set up in this environment",
        todo="Source CANN's set_env.sh, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to use torch without the NPU",
    ) from error

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

"""A fused kernel of the device, as vendors bring them: top-k and top-p in one launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..sampling.incidents import filter_by_sorting

_Library: Any = torch.library.Library
_library = _Library("xpulab", "DEF")
_library.define("top_k_top_p(Tensor logits, Tensor top_k, Tensor top_p) -> Tensor")
_library.impl("top_k_top_p", lambda logits, top_k, top_p: filter_by_sorting(logits, top_k, top_p), "CPU")
_library.impl("top_k_top_p", lambda logits, top_k, top_p: torch.empty_like(logits), "Meta")


def top_k_top_p(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """`logits` [batch, vocab] with −inf where top-k [batch] or top-p [batch] drops the token."""
    kept: Tensor = torch.ops.xpulab.top_k_top_p(logits, top_k, top_p)
    return kept

"""What one request asks of the sampler, as host numbers, and which path its row takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from ..errors import TriageError

GREEDY_BELOW = 1e-5
"""Temperatures below this take the largest logit: dividing by them would overflow (vLLM's bound)."""
SHORTLIST_MAX = 1024
"""Up to this k a row is drawn from its k best tokens alone. Also the largest k of `npu_top_k_top_p`."""


class BadRequest(TriageError, ValueError):
    """A parameter, or logits, that no sampler can honour: names the request and the field."""

    def __init__(self, request_id: str, field: str, what: str, todo: str = "") -> None:
        self.request_id, self.field = request_id, field
        super().__init__(what, where=f"request {request_id!r}, {field}", todo=todo)


@dataclass(frozen=True)
class Request:
    """The sampling parameters of one request. Checked here, once: no step looks at them again."""

    request_id: str
    temperature: float = 1.0
    """0 (anything below 1e-5) is greedy: the largest logit, the lowest index among equals."""
    top_k: int | None = None
    """Keep the k largest logits. None, 0, or the vocabulary's size and above keep all."""
    top_p: float | None = None
    """Keep the fewest tokens, largest first, with this share of the mass. 0 keeps one; None and 1, all."""
    min_p: float = 0.0
    """Keep tokens at least this many times as likely as the likeliest."""
    seed: int | None = None
    """The request draws by (seed, position) alone: the same tokens in whatever batch."""
    generator: torch.Generator | None = None
    """Instead of a seed: a generator of the request's own, on the batch's device."""
    position: int = 0
    """How many tokens have been drawn for the request before."""

    def __post_init__(self) -> None:
        self._check("temperature", self.temperature, 0.0, math.inf)
        self._check("min_p", self.min_p, 0.0, 1.0)
        if self.top_p is not None:
            self._check("top_p", self.top_p, 0.0, 1.0)
        if self.top_k is not None:
            self._check("top_k", self.top_k, 0, math.inf, whole=True, todo="None or 0 keep every token")
        if self.seed is not None:
            self._check("seed", self.seed, -(2**63), 2**64 - 1, whole=True)
        self._check("position", self.position, 0, 2**62, whole=True)
        if self.seed is not None and self.generator is not None:
            raise BadRequest(self.request_id, "seed", "there is a generator too", "Give one of the two")

    def _check(
        self, field: str, value: object, low: float, high: float, *, whole: bool = False, todo: str = ""
    ) -> None:
        if isinstance(value, Tensor):
            raise BadRequest(self.request_id, field, "is a tensor", "Give a number: reading it would sync")
        kind, name = (Integral, "a whole number") if whole else (Real, "a number")
        if isinstance(value, bool) or not isinstance(value, kind):
            raise BadRequest(self.request_id, field, f"{value!r} is not {name}", todo)
        number: Any = value
        if not low <= number <= high or number == math.inf:  # NaN compares false
            bounds = "finite and at least 0" if math.isinf(high) else f"in [{low:g}, {high:g}]"
            raise BadRequest(self.request_id, field, f"{value!r} is not {bounds}", todo)


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A row whose parameters the device alone knows. Nothing on the host depends on their values."""

    request_id: str
    parameters: Tensor
    """float [4]: temperature, top_k (0 for none), top_p, min_p. Not checked: that would be a sync."""


def resolved_on_device(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `Row.of` and the upload decide on the host for known rows, without a branch: for parameters [n, 4]
    the inverse temperature, log min-p, top-p and top-k, [n] each."""
    temperature, top_k, top_p, min_p = parameters.unbind(1)
    greedy = (temperature < GREEDY_BELOW) | (top_p <= 0.0)
    return (
        torch.where(greedy, 1.0, temperature).reciprocal(),
        torch.where(greedy, 0.0, min_p).log(),
        torch.where(greedy | (top_p >= 1.0), math.inf, top_p),
        torch.where(greedy, 1.0, torch.where(top_k <= 0.0, math.inf, top_k)),
    )


class Path(IntEnum):
    """How a row is drawn. It follows from the row and the vocabulary, never from the rows beside it: that is
    what makes a seeded row draw the same alone and in a batch."""

    SHORTLIST = 0
    """k ≤ 1024: from its k best tokens, ordered. Greedy is k = 1."""
    WHOLE = 1
    """No top-k and no top-p: from all tokens."""
    GENERAL = 2
    """Anything, unknown rows included: by a threshold found for each row."""


@dataclass(frozen=True)
class Row:
    """A request in canonical form: what is greedy, off or out of range is resolved."""

    path: Path
    temperature: float
    k: int
    """In [1, V]; V keeps all, 1 is greedy."""
    p: float
    """In (0, 1]."""
    min_p: float

    @classmethod
    def of(cls, request: Request | OnDevice, vocab: int) -> Row | None:
        """None for a row that the host does not know."""
        if isinstance(request, OnDevice):
            return None
        p = 1.0 if request.top_p is None else float(request.top_p)
        if request.temperature < GREEDY_BELOW or p == 0.0:
            k, temperature, p, min_p = 1, 1.0, 1.0, 0.0
        else:
            k, temperature = min(request.top_k or vocab, vocab), float(request.temperature)
            min_p = float(request.min_p)
        if k <= SHORTLIST_MAX and k < vocab:
            path = Path.SHORTLIST
        else:
            path = Path.WHOLE if k == vocab and p >= 1.0 else Path.GENERAL
        return cls(path, temperature, k, p, min_p)

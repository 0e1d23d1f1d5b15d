"""What the lab server's engine has the device do in one iteration: pieces of prompts, then one decode of all seats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..sampling import Request, SamplingBatch, sample
from .decoder import DecodeLoop, Decoder, Workload
from .engine import ENGINE
from .faults import FAULTS
from .storage import NAME

PAD = 16
"""Prompt tokens are computed in multiples of this, so that few shapes occur."""

_MAX_KNOWN_CALLS = 20_000  # numbers are part of what the device knows a call by, and steps bring new ones


class Seated(Protocol):
    """A request in its seat of the batch."""

    seat: int
    generated: int
    sampling: Request | None


class BatchSteps:
    """The steps of one workload, with the engine's step as each fault has it. For the engine's thread."""

    def __init__(self, work: Workload) -> None:
        self._work = work
        self._loops: dict[str, DecodeLoop] = {}
        self._seats: tuple[Seated | None, ...] = ()
        self._loop = self._built("none")

    def use(self, step: str) -> None:
        """Take the step of this fault, a name of `FAULTS`. The first time it is built and run once."""
        self._loop, self._seats = self._built(step), ()

    def prefill(self, tokens: int, done: Sequence[Request | None]) -> Tensor:
        """Compute `tokens` of prompts, and draw the first token of those that are done: int64 [len(done)] on the
        host, there after the next wait. The sampler is the healthy one."""
        model = self._loop.model
        ids = torch.zeros(-(-tokens // PAD) * PAD, dtype=torch.long).to(NAME, non_blocking=True)
        hidden = _through_layers(model, ids)
        if not done:
            return torch.zeros(0, dtype=torch.long)
        logits = model.head(model.norm(hidden.narrow(0, 0, 1).expand(len(done), -1)))
        requests = [request or Request(f"p{i}") for i, request in enumerate(done)]
        batch = SamplingBatch.from_requests(requests, self._work.vocab, NAME)
        return sample(logits, batch).to("cpu", non_blocking=True)

    def decode(self, seated: Iterable[Seated]) -> list[int]:
        """One token for every seat. Returns when the device is done."""
        self._seat(seated)
        self._loop.step()
        tokens: list[int] = self._loop.tokens[-1].tolist()
        self._loop.tokens.clear()
        if len(ENGINE.costs) > _MAX_KNOWN_CALLS:
            ENGINE.costs.clear()
        return tokens

    def wait(self) -> None:
        """Wait for the device, as the end of a decode does."""
        done: Any = torch.Event(device=NAME)
        done.record()
        done.synchronize()

    def _built(self, step: str) -> DecodeLoop:
        if step not in self._loops:
            fault = FAULTS[step]
            loop = fault.loop(replace(self._work, graphs=fault.work.graphs))
            loop.step()
            ENGINE.drain("warm-up")
            loop.tokens.clear()
            self._loops[step] = loop
        return self._loops[step]

    def _seat(self, seated: Iterable[Seated]) -> None:
        """Build the sampler's batch again where requests with parameters of their own have come or gone."""
        seats: list[Seated | None] = [None] * self._work.batch
        for one in seated:
            if one.sampling is not None:
                seats[one.seat] = one
        if tuple(seats) == self._seats or not (any(seats) or any(self._seats)):
            return
        self._seats = tuple(seats)
        self._loop.requests = SamplingBatch.from_requests(
            [self._loop.request(i) if one is None or one.sampling is None else
             replace(one.sampling, position=one.generated) for i, one in enumerate(seats)], self._work.vocab, NAME)


def _through_layers(model: Decoder, ids: Tensor) -> Tensor:
    """ids [tokens] → [tokens, hidden]. Only the products with weights, which are nearly all of a prefill's time at the
    lab's lengths; attention among the tokens is left out."""
    x: Tensor = model.embedding(ids)
    for block in model.blocks:
        layer: Any = block
        q, k, v = layer.qkv(layer.before(x)).chunk(3, -1)
        x = x + layer.out(q + k + v)
        gate, up = layer.up(layer.between(x)).chunk(2, -1)
        x = x + layer.down(F.silu(gate) * up)
    return x

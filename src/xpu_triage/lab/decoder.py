"""A small decoder with a KV cache, and the engine loop that drives it one token at a time for a whole batch.

The decoder is small so that it runs anywhere; each of its matrix products is timed as if it read an equal
part of the weights of the model that it stands for (`Workload.weights_gb`). The loop is the healthy one:
inputs go up without waiting, the forward pass is one graph launch, sampling stays on the device, and the host
waits once a step, for the tokens. Faults change one of its parts (`faults.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sampling import Request, SamplingBatch, sample
from .engine import host_work
from .graph import Graph
from .storage import NAME


@dataclass(frozen=True)
class Workload:
    """What runs: the load, and the model that the decoder stands for."""

    batch: int = 256
    vocab: int = 152_000
    weights_gb: float = 54.0
    """Weights that one forward pass reads. 54 GB: 27·10⁹ parameters of 16 bits, the model of the incident."""
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    context: int = 64
    """Positions in the KV cache; afterwards they are used again."""
    graphs: bool = True
    """The forward pass is captured once and replayed."""
    schedule_us: float = 150.0
    """Host time a step for scheduling. Assumed."""


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x [batch, heads, size]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    """Attention over the cache, then a gated feed-forward part."""

    keys: Tensor
    values: Tensor

    def __init__(self, work: Workload) -> None:
        super().__init__()
        d, self.heads = work.hidden, work.heads
        shape = (work.batch, work.heads, work.context, d // work.heads)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))
        self.before = nn.RMSNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.between = nn.RMSNorm(d)
        self.up = nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, d = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, 3, self.heads, -1).unbind(1)
        self.keys.index_copy_(2, position, rotate(k, cos, sin).unsqueeze(2))
        self.values.index_copy_(2, position, v.unsqueeze(2))
        seen = F.scaled_dot_product_attention(
            rotate(q, cos, sin).unsqueeze(2), self.keys, self.values, attn_mask=mask
        )
        x = x + self.out(seen.reshape(batch, d))
        gate, up = self.up(self.between(x)).chunk(2, -1)
        after: Tensor = x + self.down(F.silu(gate) * up)
        return after


class Decoder(nn.Module):
    """One token for each row: ids [batch], position [1] → logits [batch, vocab]."""

    cos: Tensor
    sin: Tensor
    mask: Tensor

    def __init__(self, work: Workload) -> None:
        super().__init__()
        size = work.hidden // work.heads
        self.embedding = nn.Embedding(work.vocab, work.hidden)
        self.blocks = nn.ModuleList(Block(work) for _ in range(work.layers))
        self.norm = nn.RMSNorm(work.hidden)
        self.head = nn.Linear(work.hidden, work.vocab, bias=False)
        angle = torch.outer(torch.arange(work.context), 10_000.0 ** -(torch.arange(size // 2) / (size // 2)))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer(
            "mask",
            torch.zeros(work.context, work.context).masked_fill(
                torch.ones(work.context, work.context).triu(1) > 0, float("-inf")
            ),
        )

    def forward(self, ids: Tensor, position: Tensor) -> Tensor:
        mask, cos, sin = (table.index_select(0, position) for table in (self.mask, self.cos, self.sin))
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, position, mask, cos, sin)
        logits: Tensor = self.head(self.norm(x))
        return logits


def matmuls(work: Workload) -> int:
    """Matrix products of one forward pass."""
    return 4 * work.layers + 1


class DecodeLoop:
    """The engine: one `step` is one token for each request of the batch."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.model = Decoder(work).to(NAME).eval()
        self.ids = (torch.arange(work.batch) % min(work.vocab, 97)).to(NAME)
        self.requests = SamplingBatch.from_requests(
            [self.request(row) for row in range(work.batch)], work.vocab, NAME
        )
        self.position = torch.zeros(1, dtype=torch.long, device=NAME)
        self.tokens: list[Tensor] = []
        """Tokens of each step [batch], on the host."""
        self._at = 0
        self._graph: Graph | None = None
        self._logits: Tensor | None = None

    def request(self, row: int) -> Request:
        """The sampling parameters of one request."""
        return Request(f"r{row}")

    def step(self) -> None:
        self.prepare_inputs()
        tokens = self.sample(self.forward())
        self.ids.copy_(tokens)
        self.post_process(tokens)
        self.hand_over(tokens)

    def prepare_inputs(self) -> None:
        """Decide what runs, and send the few numbers that the device needs."""
        host_work(self.work.schedule_us)
        position = torch.tensor([self._at % self.work.context])
        self.position.copy_(position, non_blocking=True)
        self._at += 1

    def forward(self) -> Tensor:
        if not self.work.graphs:
            logits: Tensor = self.model(self.ids, self.position)
            return logits
        if self._graph is None:
            self._graph = Graph()
            with self._graph.capture():
                self._logits = self.model(self.ids, self.position)
        self._graph.replay()
        assert self._logits is not None
        return self._logits

    def sample(self, logits: Tensor) -> Tensor:
        """Logits [batch, vocab] → tokens [batch], int64."""
        return sample(logits, self.requests)

    def post_process(self, tokens: Tensor) -> None:
        """What some engines do with the tokens while they are on the device; nothing here."""

    def hand_over(self, tokens: Tensor) -> None:
        """Copy the tokens to the host. The one wait of a healthy step."""
        self.tokens.append(tokens.to("cpu", non_blocking=True))
        done = torch.Event(device=NAME)
        done.record()
        done.synchronize()

"""What a model is made of, as far as a step's reads and arithmetic depend on it: blocks of equal layers.

Biases, norms and position tables are left out: together below 0.2 % of the weights of published models, and a floor
may lie a little too low, never too high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Attention:
    """The token mixer of one layer."""

    kind: str
    """`full`, `window`, `latent` (MLA) or `linear`."""
    parameters: int
    kv_values: int
    """Cached values per token: 2 × KV heads × head dimension; for `latent` the latent and the rotary part, once for
    all heads; 0 for `linear`."""
    kv_heads: int
    """Pieces into which tensor parallelism can split the cache; 1 for `latent`, whose cache every device holds
    whole."""
    pair_flops: int
    """Floating-point operations for one query and one key of a prompt: 2 × heads × (key + value dimension)."""
    decode_pair_flops: int
    """The same in decode, where `latent` multiplies with the latent itself."""
    window: int | None = None
    """Keys that a query looks back at; None for all."""
    state_bytes: int = 0
    """Read per request and step whatever the context: the state of a `linear` layer, in 32 bits."""


@dataclass(frozen=True)
class Mlp:
    """The feed-forward part of one layer."""

    dense: int = 0
    """Parameters of a dense layer that every step reads."""
    shared: int = 0
    """Of shared experts, which every step reads."""
    router: int = 0
    experts: int = 0
    expert: int = 0
    """Parameters of one routed expert."""
    per_token: int = 0
    """Routed experts that a token goes to."""


@dataclass(frozen=True)
class Block:
    """Layers that are alike."""

    count: int
    attention: Attention
    mlp: Mlp


@dataclass(frozen=True, eq=False)
class ModelShape:
    source: str
    name: str
    """The architecture as the configuration names it."""
    blocks: tuple[Block, ...]
    hidden: int
    vocabulary: int
    bits: Mapping[str, float]
    """Bits of a weight, by part (see `quantization.PARTS`); empty where `unknown` says why."""
    kv_bits: float | None
    """Of a cached value: the configuration's, else that of the weights before quantization."""
    dtype: str = ""
    arithmetic: str = "bf16"
    """Type of the products, which picks the peak; empty for unknown."""
    tied: bool | None = None
    """Whether input and output embeddings are one table; None where the configuration does not say. It changes what
    lies in memory, not what a step reads."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """What cannot be told from this configuration, and why: `weights`, `kv`, `window`, `arithmetic`."""
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def head(self) -> int:
        """Parameters of the output head, which a step reads whether or not it is tied."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All, input embeddings included unless they are tied (not told: taken as tied)."""
        blocks = sum(block.count * (block.attention.parameters + block.mlp.dense + block.mlp.shared + block.mlp.router
                                    + block.mlp.experts * block.mlp.expert) for block in self.blocks)
        return blocks + self.head * (2 if self.tied is False else 1)

    @property
    def active_parameters(self) -> int:
        """Those that one token is multiplied with, without the head."""
        return sum(block.count * (block.attention.parameters + block.mlp.dense + block.mlp.shared + block.mlp.router
                                  + block.mlp.per_token * block.mlp.expert) for block in self.blocks)

    @property
    def kv_values_per_token(self) -> int:
        """Cached values per token over all layers, windows not counted."""
        return sum(block.count * block.attention.kv_values for block in self.blocks)

    @property
    def kv_heads(self) -> int:
        """Pieces into which tensor parallelism can split the cache: of the layer that has the fewest."""
        return min((block.attention.kv_heads for block in self.blocks if block.attention.kv_values), default=1)

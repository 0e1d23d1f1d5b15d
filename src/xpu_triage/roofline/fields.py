"""Fields of a model's configuration, checked as they are taken, and what is left over."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UnusableInput
from ..text import clean, shorten

MOST: Mapping[str, int] = {
    "layers": 2_000, "heads": 4_096, "experts": 100_000, "width": 10_000_000, "vocabulary": 100_000_000}
"""Largest counts that are taken for a model; published ones stay a hundred times below."""

_SHAPES = re.compile(
    r"(heads?|_dims?|_size|_rank|_layers?|_blocks?|_experts?|_topk|_top_k|_states?|_period|_interval|_pattern|_types?"
    r"|_type_list|_expand|_expansion|_ratio|_groups?|_factor|_config|_configs|_freq|_streams?|_depth|_per_tok"
    r"|^d_\w+|^n_\w+|^num_\w+)$")
"""Names of fields that tell a size or a structure. One that is set and that no formula here uses is a doubt: it may
change what a step reads."""

_HARMLESS = re.compile(
    r"^(chunk_size_feed_forward|type_vocab_size|vocab_size_per_layer_input|max_\w+|\w*position_embeddings?|n_positions"
    r"|n_ctx|rope_\w+|rotary_\w+|partial_rotary_factor|\w*rope_head_dim_ratio|\w*scaling_factor|no_rope_\w+|yarn_\w+"
    r"|position_embedding_type|embedding_size|pad_\w+|num_nextn_predict_layers|num_mtp_\w+|mtp_\w+|vision_\w+|audio_\w+"
    r"|image_\w+|video_\w+|mm_\w+|projector_\w+|problem_type|num_labels|n_group|topk_group|model_type|num_beams"
    r"|num_return_sequences|num_beam_groups|initializer_\w*|query_pre_attn_scalar|router_\w+|pretraining_tp"
    r"|layers_block_type|activation_type|scoring_func|topk_method|moe_router_\w+|expert_tp_size|ep_size"
    r"|quantization_config|layer_types|mlp_layer_types|generation_config|task_specific_params|gradient_\w+|\w*dropout\w*"
    r"|summary_type|qk_head_dim|residual_\w+|embedding_multiplier|attention_multiplier|logits_\w+|n_future_tokens"
    r"|norm_type|attention_type|hidden_act_type|moe_router_\w+|num_logits_to_keep|use_\w+_norm)$")
"""Names that look so and say nothing of weights, cache or arithmetic of a decode step: lengths, positions, routing
that picks the same number of experts, layers for drafts, towers that run before the prompt."""


SAME: tuple[tuple[str, ...], ...] = (
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "multi_query",
     "new_decoder_architecture"),
    ("head_dim", "kv_channels", "attention_head_dim"),
    ("vocab_size", "padded_vocab_size"),
    ("hidden_act", "hidden_activation", "activation_function", "activation"),
    ("rms_norm_eps", "rms_norm_epsilon", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon"),
    ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    ("sliding_window_pattern", "layer_types"),
)
"""Names of one quantity in different models: a default of one is no default where the file has another."""


@cache
def class_defaults() -> Mapping[str, Mapping[str, Any]]:
    """By model type, the fields that its class in `transformers` fills in where a file leaves them out (made from the
    class attributes of 5.24). A file may leave out what equals the default, and published ones do; width, layers and
    feed-forward size are never filled in."""
    raw = (Path(__file__).parent / "class_defaults.json").read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, Any]])


def filled(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration with the defaults of its model type, and the names of what was filled in."""
    kind = config.get("model_type")
    defaults = class_defaults().get(kind, {}) if isinstance(kind, str) else {}
    new = {}
    for name, value in defaults.items():
        group = next((names for names in SAME if name in names), (name,))
        if not any(other in config for other in group):
            new[name] = value
    return {**new, **config}, tuple(new)


class Fields:
    """A mapping whose fields are taken by name, with their kind and range checked. Refusals name the file and the
    field."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._config, self._where = config, where
        self._used: set[str] = set()
        self.decisive: set[str] = set()
        """Names whose value was taken."""

    def has(self, *names: str) -> bool:
        """Whether one of these is there and not null."""
        return any(self._config.get(name) is not None for name in names)

    def count(self, *names: str, most: int, least: int = 1) -> int:
        """The first of these names that is there. Raises UnusableInput where none is, or where it is no whole number
        from `least` to `most`."""
        found = self.maybe(*names, most=most, least=least)
        if found is None:
            others = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
            raise self.refusal(f"{names[0]} is missing{others}")
        return found

    def maybe(self, *names: str, most: int, least: int = 1) -> int | None:
        """As `count`; None where none of the names is there."""
        for name in names:
            self._used.add(name)
        for name in names:
            raw = self._config.get(name)
            if raw is None:
                continue
            is_whole = isinstance(raw, int) or (isinstance(raw, float) and math.isfinite(raw) and raw == int(raw))
            if isinstance(raw, bool) or not is_whole:
                raise self.refusal(f"{name} is {shown(raw)}, not a whole number")
            if not least <= raw <= most:
                raise self.refusal(f"{name} is {shown(raw)}, not from {least:,} to {most:,}")
            self.decisive.add(name)
            return int(raw)
        return None

    def flag(self, name: str) -> bool | None:
        """None where it is not there."""
        self._used.add(name)
        raw = self._config.get(name)
        if raw is not None and not isinstance(raw, bool):
            raise self.refusal(f"{name} is {shown(raw)}, not true or false")
        return raw

    def text(self, *names: str) -> str:
        """The first of these that is text, cleaned; empty where none is."""
        self._used.update(names)
        for name in names:
            if isinstance(raw := self._config.get(name), str):
                self.decisive.add(name)
                return clean(shorten(raw, 80))
        return ""

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of texts; None where it is not there."""
        self._used.add(name)
        raw = self._config.get(name)
        if raw is None:
            return None
        if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
            raise self.refusal(f"{name} is not a list of texts")
        return tuple(raw)

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where it is not there or is something else (the same name can be one number in
        one model and a list in another)."""
        raw = self._config.get(name)
        if not isinstance(raw, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in raw):
            return None
        self._used.add(name)
        return tuple(raw)

    def part(self, name: str) -> Mapping[str, Any] | None:
        """A nested mapping; None where it is not there."""
        self._used.add(name)
        raw = self._config.get(name)
        if raw is not None and not isinstance(raw, dict):
            raise self.refusal(f"{name} is {shown(raw)}, not a mapping")
        return raw

    def ignore(self, *names: str) -> None:
        """Fields that say nothing in this model, because others say it."""
        self._used.update(names)

    def left(self) -> Iterator[str]:
        """Names that tell a size or a structure, are set, and were not taken."""
        for name, raw in self._config.items():
            if name in self._used or raw is None or raw is False or raw == [] or raw == {} or name.startswith("_"):
                continue
            if isinstance(raw, int | float) and raw == 0 and not isinstance(raw, bool):
                continue
            if _SHAPES.search(name) and not _HARMLESS.match(name):
                yield clean(shorten(name, 60))

    def refusal(self, what: str) -> UnusableInput:
        return UnusableInput(what, where=self._where, todo="Give the model's own config.json")


def shown(raw: Any) -> str:
    """A value of a configuration, for a message."""
    if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) >= 10**18:
        return "a huge number"
    try:
        return clean(shorten(repr(raw), 40))
    except ValueError:  # a number inside with more digits than Python writes out
        return "something huge"


"""The token mixers of a model, one a layer, from the fields of its configuration."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from .fields import MOST, Fields
from .model_shape import Attention

FULL, WINDOW, LATENT, LINEAR = "full", "window", "latent", "linear"

_KINDS = {
    "full_attention": FULL, "attention": FULL, "full": FULL, "global": FULL, "global_attention": FULL,
    "sliding_attention": WINDOW, "sliding_window": WINDOW, "sliding": WINDOW, "local": WINDOW,
    "local_attention": WINDOW, "linear_attention": LINEAR, "chunked_attention": "chunked"}
"""Names in `layer_types`."""

_ALL_SLIDE = ("mistral", "mixtral", "ministral", "phi3", "starcoder2", "phimoe")
_EVERY_SECOND_SLIDES = ("gemma2", "gpt_oss", "vaultgemma")
"""Model types in which `sliding_window` alone tells the layers: all of them, or the first of every two."""

_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "max_window_layers",
             "full_attention_interval", "prefix_dense_sliding_window_pattern")
"""Fields from which `layer_types` was made, where that is there."""

STATE_BYTES = 4
"""Of a value of a linear layer's state, which engines keep in 32 bits."""


def per_layer(fields: Fields, hidden: int, layers: int, unknown: MutableMapping[str, str]) -> list[Attention]:
    """One entry a layer. What cannot be told goes to `unknown`."""
    plain = _latent(fields, hidden) if fields.has("kv_lora_rank") else _grouped(fields, hidden)
    linear = _linear(fields, hidden) if fields.has("linear_num_value_heads") else None
    kinds = _kinds(fields, layers, unknown)
    window = fields.maybe("sliding_window", "sliding_window_size", most=1 << 40, least=0) or None
    chunk = fields.maybe("attention_chunk_size", most=1 << 40, least=0) or None
    mixers = []
    for kind in kinds:
        if kind == LINEAR:
            if linear is None:
                unknown.setdefault("weights", "layers of linear attention whose sizes the configuration does not give")
            mixers.append(linear or plain)
        elif kind == WINDOW and window is not None:
            mixers.append(replace(plain, window=window, kind=WINDOW if plain.kind == FULL else plain.kind))
        elif kind == "chunked" and chunk is not None:
            unknown.setdefault("window", f"layers attend inside chunks of {chunk:,} tokens: what a step reads depends "
                                         "on where in its chunk each request is")
            mixers.append(replace(plain, window=chunk, kind=WINDOW))
        else:
            mixers.append(plain)
    return mixers


def _grouped(fields: Fields, hidden: int) -> Attention:
    """Full attention with H query heads of d and KV key and value heads: q and o have hidden × H·d, k and v hidden ×
    KV·d weights."""
    heads = fields.count("num_attention_heads", "n_head", "n_heads", "num_heads", most=MOST["heads"])
    kv_heads = _kv_heads(fields, heads)
    dim = fields.maybe("head_dim", "kv_channels", "attention_head_dim", most=MOST["width"])
    if dim is None:
        if hidden % heads:
            raise fields.refusal(f"a width of {hidden:,} does not divide into {heads:,} heads, and head_dim is missing")
        dim = hidden // heads
    if heads % kv_heads:
        raise fields.refusal(f"{heads:,} query heads do not divide over {kv_heads:,} key and value heads")
    value = fields.maybe("v_head_dim", most=MOST["width"]) or dim
    gate = fields.flag("attn_output_gate")
    gated = gate or (gate is None and fields.has("linear_num_value_heads"))
    parameters = hidden * (heads * dim * (2 if gated else 1) + kv_heads * (dim + value) + heads * value)
    pair = 2 * heads * (dim + value)
    return Attention(FULL, parameters, kv_heads * (dim + value), kv_heads, pair, pair)


def _kv_heads(fields: Fields, heads: int) -> int:
    multi_query = fields.flag("multi_query")
    grouped = fields.flag("new_decoder_architecture")
    several = fields.maybe("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
                           most=MOST["heads"])
    if multi_query and not grouped:
        return 1
    return several or heads


def _latent(fields: Fields, hidden: int) -> Attention:
    """MLA: the cache holds `kv_lora_rank` + `qk_rope_head_dim` values a token, once for all heads. In a prompt keys
    and values are unpacked per head; in decode the queries are taken to the latent instead (DeepSeek-V2,
    arXiv:2405.04434)."""
    fields.maybe("num_key_value_heads", "head_dim", most=MOST["width"])
    heads = fields.count("num_attention_heads", "n_heads", most=MOST["heads"])
    latent = fields.count("kv_lora_rank", most=MOST["width"])
    rope = fields.count("qk_rope_head_dim", most=MOST["width"], least=0)
    nope = fields.count("qk_nope_head_dim", most=MOST["width"])
    value = fields.count("v_head_dim", most=MOST["width"])
    query = fields.maybe("q_lora_rank", most=MOST["width"])
    keys = heads * (nope + rope)
    queries = hidden * keys if query is None else query * (hidden + keys)
    parameters = queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    return Attention(LATENT, parameters, latent + rope, 1, 2 * heads * (nope + rope + value),
                     2 * heads * (2 * latent + rope))


def _linear(fields: Fields, hidden: int) -> Attention:
    """Gated delta rule, as Qwen3-Next has it: projections to q, k, v, z and two gates, a short convolution, a state of
    value heads × key dimension × value dimension."""
    key_heads = fields.count("linear_num_key_heads", most=MOST["heads"])
    value_heads = fields.count("linear_num_value_heads", most=MOST["heads"])
    key_dim = fields.count("linear_key_head_dim", most=MOST["width"])
    value_dim = fields.count("linear_value_head_dim", most=MOST["width"])
    kernel = fields.maybe("linear_conv_kernel_dim", most=MOST["width"]) or 4
    keys, values = key_heads * key_dim, value_heads * value_dim
    parameters = (hidden * (2 * keys + 2 * values + 2 * value_heads) + kernel * (2 * keys + values) + values * hidden)
    return Attention(LINEAR, parameters, 0, value_heads, 0, 0,
                     state_bytes=STATE_BYTES * value_heads * key_dim * value_dim)


def _kinds(fields: Fields, layers: int, unknown: MutableMapping[str, str]) -> list[str]:
    """What each layer does, by `layer_types`, else by a pattern, else by the model's type."""
    listed = fields.words("layer_types")
    if listed is not None:
        fields.ignore(*_PATTERNS)
        if len(listed) != layers:
            raise fields.refusal(f"layer_types names {len(listed):,} layers of {layers:,}")
        if strange := next((name for name in listed if name not in _KINDS), None):
            unknown.setdefault("weights", f"layers of type {strange[:40]!r}, which are not understood here")
        return [_KINDS.get(name, FULL) for name in listed]
    interval = fields.maybe("full_attention_interval", most=MOST["layers"])
    if interval is not None:
        return [FULL if (i + 1) % interval == 0 else LINEAR for i in range(layers)]
    if fields.has("linear_num_value_heads"):
        unknown.setdefault("weights", "the configuration does not say which layers are of linear attention")
    if not fields.has("sliding_window", "sliding_window_size") or fields.flag("use_sliding_window") is False:
        fields.maybe("sliding_window", "max_window_layers", most=1 << 40, least=0)
        return [FULL] * layers
    return _windows(fields, layers, unknown)


def _windows(fields: Fields, layers: int, unknown: MutableMapping[str, str]) -> list[str]:
    if fields.text("sliding_window_pattern"):
        unknown["window"] = "which layers have the sliding window is told by a pattern that is not understood here"
        return [WINDOW] * layers
    pattern = fields.maybe("sliding_window_pattern", "_sliding_window_pattern", most=MOST["layers"])
    if pattern is not None:
        return [FULL if (i + 1) % pattern == 0 else WINDOW for i in range(layers)]
    if fields.flag("use_sliding_window") and (first := fields.maybe("max_window_layers", most=1 << 40, least=0)):
        return [WINDOW if i >= first else FULL for i in range(layers)]
    kind = fields.text("model_type").removesuffix("_text")
    if kind in _EVERY_SECOND_SLIDES:
        return [WINDOW if i % 2 == 0 else FULL for i in range(layers)]
    if kind not in _ALL_SLIDE:
        unknown["window"] = "the configuration has a sliding window and does not say which layers have it"
    return [WINDOW] * layers

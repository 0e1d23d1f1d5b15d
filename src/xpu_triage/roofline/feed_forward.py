"""The feed-forward parts of a model, one a layer, from the fields of its configuration."""

from __future__ import annotations

from collections.abc import MutableMapping

from .fields import MOST, Fields
from .model_shape import Mlp

_SPARSE, _DENSE = ("sparse", "moe"), ("dense", "mlp")
"""Names in `mlp_layer_types`."""

_PLAIN = ("bloom", "falcon", "gpt2", "gpt_bigcode", "gptj", "codegen", "opt", "mpt")
"""Model types whose configuration may name no activation: two matrices."""

_RMS_AND_PLAIN = ("arcee", "nanochat", "nemotron_h")
"""Model types with RMS norms and a plain feed-forward part of squared ReLU; others with both are gated (BitNet)."""

_RMS = ("rms_norm_eps", "rms_norm_epsilon", "rms_eps", "layernorm_epsilon")


def per_layer(fields: Fields, hidden: int, layers: int, unknown: MutableMapping[str, str]) -> list[Mlp]:
    """One entry a layer. What cannot be told goes to `unknown`."""
    matrices = _matrices(fields, unknown)
    experts = fields.maybe("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts",
                           most=MOST["experts"], least=0)
    fields.ignore("intermediate_size", "ffn_hidden_size", "moe_intermediate_size", "num_experts_per_tok")
    if not experts:
        return [Mlp(dense=matrices * hidden * _width(fields, hidden))] * layers
    sparse, dense = _sparse(fields, hidden, experts, matrices), Mlp()
    which = _which(fields, layers)
    if not all(which):
        dense = Mlp(dense=matrices * hidden * _width(fields, hidden))
    return [sparse if is_sparse else dense for is_sparse in which]


def _sparse(fields: Fields, hidden: int, experts: int, matrices: int) -> Mlp:
    per_token = fields.count("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts",
                             "experts_per_token", most=MOST["experts"])
    if per_token > experts:
        raise fields.refusal(f"{per_token:,} experts a token of {experts:,} there are")
    width = fields.maybe("moe_intermediate_size", "expert_intermediate_size", most=MOST["width"])
    if width is None:
        width = fields.count("intermediate_size", "ffn_hidden_size", most=MOST["width"])
    shared = fields.maybe("shared_expert_intermediate_size", "shared_intermediate_size", most=MOST["width"], least=0)
    count = fields.maybe("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert",
                         most=MOST["experts"], least=0)
    if shared is None:
        # where dense layers have a width of their own beside that of the experts, a shared expert has the experts'
        shared = width * (count if count is not None else int(fields.has("intermediate_size_mlp")))
    return Mlp(shared=matrices * hidden * shared, router=hidden * experts, experts=experts,
               expert=matrices * hidden * width, per_token=per_token)


def _width(fields: Fields, hidden: int) -> int:
    width = fields.maybe("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size",
                         most=MOST["width"])
    if width is not None:
        return width
    if fields.text("model_type") in _PLAIN or fields.has("n_embd"):
        return 4 * hidden  # the default of these models, where the field is null
    raise fields.refusal("intermediate_size is missing")


def _which(fields: Fields, layers: int) -> list[bool]:
    """Which layers are sparse."""
    listed = fields.words("mlp_layer_types")
    if listed is not None:
        if len(listed) != layers or any(name not in _SPARSE + _DENSE for name in listed):
            raise fields.refusal("mlp_layer_types does not name every layer sparse or dense")
        return [name in _SPARSE for name in listed]
    for name in ("moe_layers", "moe_layer_indices"):
        if (indices := fields.numbers(name)) is not None:
            return [i in set(indices) for i in range(layers)]
    if (flags := fields.numbers("moe_layer_freq")) is not None:
        if len(flags) != layers:
            raise fields.refusal(f"moe_layer_freq speaks of {len(flags):,} layers of {layers:,}")
        return [bool(flag) for flag in flags]
    first = fields.maybe("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", most=MOST["layers"],
                         least=0) or 0
    last = fields.maybe("moe_layer_end_index", most=MOST["layers"], least=-1)
    last = layers - 1 if last is None or last < 0 else last
    every = fields.maybe("moe_layer_freq", most=MOST["layers"]) or 1
    step = fields.maybe("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval",
                        most=MOST["layers"]) or 1
    dense = set(fields.numbers("mlp_only_layers") or ())
    return [first <= i <= last and i % every == 0 and (i + 1) % step == 0 and i not in dense for i in range(layers)]


def _matrices(fields: Fields, unknown: MutableMapping[str, str]) -> int:
    """Three matrices where the feed-forward part is gated (SwiGLU and its like), two where it is not. No field says
    so. Silu comes gated; gelu comes gated with RMS norms and plain with layer norms; relu and its square come plain
    with layer norms, and either way with RMS norms."""
    activation = fields.text("hidden_act", "hidden_activation", "activation_function", "activation").lower()
    if not activation:
        if fields.text("model_type") in _PLAIN:
            return 2
        unknown.setdefault("weights", "no activation is named: whether the feed-forward part has two matrices or three "
                                      "is not known")
        return 3
    if "silu" in activation or "swi" in activation or "glu" in activation:
        return 3
    if "gelu" in activation:
        return 3 if fields.has(*_RMS) else 2
    plain = not fields.has(*_RMS) or fields.text("model_type") in _RMS_AND_PLAIN
    if "xielu" in activation or ("relu" in activation and plain):
        return 2
    unknown.setdefault("weights", f"the activation {activation!r}: whether the feed-forward part has two matrices or "
                                  "three is not known")
    return 3

"""Bits that one weight takes, by part of the model, from `quantization_config`.

Weight-only formats keep scales beside groups of weights, which are counted. What a configuration leaves in 16 bits
(`modules_to_not_convert`, `ignore`, `exclude_modules`) is left in 16 bits here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text import clean, shorten

DTYPE_BITS: Mapping[str, int] = {
    "float64": 64, "float32": 32, "fp32": 32, "float": 32, "bfloat16": 16, "bf16": 16, "float16": 16, "fp16": 16,
    "half": 16, "float8_e4m3fn": 8, "float8_e5m2": 8, "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "fp4": 4,
    "nvfp4": 4, "mxfp4": 4, "int4": 4}
"""Bits of a value, by the names that configurations and engines use."""

PARTS = ("attention", "mlp", "experts", "shared", "head")

_LINEAR = ("attention", "mlp", "experts", "shared")
"""Parts that a method converts unless it says more; the head stays as it is."""

SCALE_BITS = 16
"""A scale of a group of weights, in GPTQ, AWQ and compressed-tensors (16-bit float)."""

_MODULES: Mapping[str, tuple[str, ...]] = {
    "attention": ("self_attn.q_proj", "self_attn.o_proj", "self_attn.kv_b_proj", "linear_attn.out_proj",
                  "attention.dense"),
    "mlp": ("mlp.down_proj", "mlp.gate_proj", "feed_forward.down_proj"),
    "experts": ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2", "feed_forward.experts.down_proj"),
    "shared": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "feed_forward.shared_expert.down_proj"),
}
"""Modules as the published models name them, below a layer."""

_WHOLE = ("config_groups", "kv_cache_scheme", "exllama_config", "producer", "meta", "adapter", "sparsity_config",
          "transform_config")
"""Parts of a quantization_config that are objects and give no single module other bits. Every other object is taken as
overrides: GPTQModel's `dynamic`, AutoRound's `extra_config`, ModelOpt's `quantized_layers`, MLX's names of modules."""

_EVERY_MODULE = ({"q_proj", "k_proj", "v_proj", "o_proj"}, {"gate_proj", "up_proj", "down_proj"})
"""What `modules_in_block_to_quantize` of GPTQ holds where nothing is left out (or w1, w2, w3 for the second)."""

_EXPERTS_ONLY = ("mxfp4",)
"""Methods that convert the experts and nothing else (as transformers does for mxfp4)."""

_COMPUTES_AS_STORED = ("fp8", "fbgemm_fp8")
"""Methods whose products run in the stored type; weight-only formats are unpacked and multiplied in 16 bits."""


@dataclass(frozen=True)
class Storage:
    """How the weights lie in memory."""

    bits: Mapping[str, float]
    """By part; `attention`, `mlp`, `experts`, `shared`, `head`."""
    method: str = ""
    kv_bits: float | None = None
    """Of a cached value, where the configuration says so."""
    arithmetic: str = "bf16"
    """The type in which products are computed: `bf16` (16-bit floats), `fp8`, `int8`, `fp4`, or empty for unknown."""
    why_unknown: str = ""
    """Why bits cannot be told; then `bits` says nothing."""
    notes: tuple[str, ...] = field(default=())


def storage_of(dtype: str, config: Mapping[str, Any] | None, layers: int) -> Storage:
    """Bits by part. `dtype` is the configuration's own (`bfloat16`, `torch.bfloat16`), `layers` the model's count."""
    plain = dtype.removeprefix("torch.").lower()
    base = DTYPE_BITS.get(plain)
    if config is None:
        return _plain(plain, base)
    method = clean(shorten(str(config.get("quant_method") or config.get("quant_algo") or ""), 40)).lower()
    base = base if base in (8, 16) else 16  # what is not converted is in 16 bits in every format here
    kv = _kv_bits(config)
    schemes = _schemes(config, method)
    if isinstance(schemes, str):
        return Storage({}, method, kv, "", schemes)
    if why := _overrides(config):
        return Storage({}, method, kv, "", why)
    stored, number_type, activations, quantized_parts = schemes
    bits = dict.fromkeys(PARTS, float(base))
    left_out = _LeftOut(config)
    for part in quantized_parts:
        share = left_out.share(part, layers)
        bits[part] = share * base + (1 - share) * stored
    notes = [f"{stored:.3g} bits a weight ({method or 'quantized'}, scales included)"]
    if left_out.not_understood:
        notes.append(f"{left_out.not_understood} patterns of modules left in {base} bits were not understood: those "
                     "modules are taken as converted")
    return Storage(bits, method, kv, _arithmetic(method, number_type, activations), notes=tuple(notes))


def _plain(dtype: str, base: int | None) -> Storage:
    if base is None:
        said = f"the type of the weights is {clean(dtype)!r}, which is not known here" if dtype else (
            "the configuration does not say the type of the weights (torch_dtype)")
        return Storage({}, why_unknown=said)
    if base >= 32:
        return Storage({}, why_unknown=f"the configuration says {dtype}, which engines load as 16 bits unless told "
                                       "otherwise: which one runs is not known")
    return Storage(dict.fromkeys(PARTS, float(base)), arithmetic="bf16" if base == 16 else "")


def _schemes(config: Mapping[str, Any], method: str) -> str | tuple[float, str, int | None, Sequence[str]]:
    """(bits with scales, kind of number, bits of the activations, parts), or why that cannot be told."""
    groups = config.get("config_groups")
    if isinstance(groups, dict) and groups:
        return _of_groups(groups, config)
    if method in ("fp8", "fbgemm_fp8", "deepseek_fp8"):
        block = config.get("weight_block_size")
        scales = 32 / (block[0] * block[1]) if isinstance(block, list) and _is_pair(block) else 0.0
        return 8 + scales, "float", 8, _LINEAR
    if method in _EXPERTS_ONLY:
        return 4 + 8 / 32, "float", None, ("experts",)
    if method == "bitsandbytes":
        if config.get("load_in_8bit") or config.get("_load_in_8bit"):
            return 8.0, "int", 8, _LINEAR
        if config.get("load_in_4bit") or config.get("_load_in_4bit"):
            scales = 8 / 64 + 32 / (64 * 256) if config.get("bnb_4bit_use_double_quant") else 32 / 64
            return 4 + scales, "int", None, _LINEAR
        return "quantization_config says bitsandbytes and neither 4 nor 8 bits"
    bits = next((config[name] for name in ("bits", "w_bit", "wbits", "weight_bits", "num_bits")
                 if _is_bits(config.get(name))), None)
    if bits is None or method in ("aqlm", "vptq", "quip", "exl2", "exl3", "hqq", "torchao", "higgs", "spqr"):
        return f"quantization_config of method {method!r}: how many bits a weight takes is not known here"
    group = config.get("group_size", config.get("q_group_size"))
    scales = 0.0
    if _is_count(group):
        scales = (SCALE_BITS + (bits if config.get("zero_point", True) else 0)) / group
    parts = PARTS if config.get("lm_head") is True else _LINEAR
    return bits + scales, "int", None, parts


def _of_groups(
    groups: Mapping[str, Any], config: Mapping[str, Any]
) -> str | tuple[float, str, int | None, Sequence[str]]:
    """compressed-tensors and ModelOpt: one scheme for all Linear modules is understood."""
    found = set()
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict) or not _is_bits(weights.get("num_bits")):
            return "quantization_config: a group without num_bits of its weights"
        targets = group.get("targets")
        if targets is not None and targets != ["Linear"]:
            return "quantization_config: groups for single modules, which are not understood here"
        size = weights.get("group_size")
        is_float4 = weights["num_bits"] == 4 and weights.get("type") == "float"
        scale = (8 if is_float4 else SCALE_BITS) / size if isinstance(size, int) and _is_count(size) else 0.0
        inputs = group.get("input_activations")
        activations = inputs.get("num_bits") if isinstance(inputs, dict) else None
        found.add((weights["num_bits"] + scale, str(weights.get("type") or "int"),
                   activations if _is_bits(activations) else None))
    if len(found) != 1:
        return "quantization_config: several groups with different bits, which are not understood here"
    bits, kind, activations = found.pop()
    return bits, kind, activations, PARTS


def _overrides(config: Mapping[str, Any]) -> str:
    """Why the bits of all modules do not follow from those of the method; empty where they do.

    Patterns of overrides are regular expressions with rules of their own (`-:` leaves a module alone, `+:` changes it),
    and a part of a layer may be hit by half: nothing is guessed of them.
    """
    for key, value in config.items():
        of_a_module = "." in key and value is not None      # MLX: "model.layers.0.mlp.gate": false, or an object
        if of_a_module or (isinstance(value, dict) and value and key not in _WHOLE):
            return (f"quantization_config gives single modules bits of their own ({clean(shorten(key, 40))}), which "
                    "are not understood here")
    listed = config.get("modules_in_block_to_quantize")
    if listed and not _names_all(listed):
        return "quantization_config converts only modules_in_block_to_quantize, which are not understood here"
    return ""


def _names_all(listed: Any) -> bool:
    groups = listed if isinstance(listed, list) else [listed]
    flat = [name for group in groups for name in (group if isinstance(group, list) else [group])]
    last = {name.rpartition(".")[2] for name in flat if isinstance(name, str)}
    attention, mlp = _EVERY_MODULE
    return attention <= last and (mlp <= last or {"w1", "w2", "w3"} <= last)


def _kv_bits(config: Mapping[str, Any]) -> float | None:
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, dict) and _is_bits(scheme.get("num_bits")):
        return float(scheme["num_bits"])
    algorithm = config.get("kv_cache_quant_algo")
    return 8.0 if isinstance(algorithm, str) and algorithm.upper() in ("FP8", "INT8") else None


def _arithmetic(method: str, number_type: str, activations: int | None) -> str:
    if method in _COMPUTES_AS_STORED:
        return "fp8"
    if activations is None or activations >= 16:
        return "bf16"
    return f"{'fp' if number_type == 'float' else 'int'}{activations}"


class _LeftOut:
    """The modules that a configuration leaves in 16 bits. A pattern of it is never run as a regular expression: it
    comes from evidence."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._names: set[str] = set()
        self._patterns: list[re.Pattern[str]] = []
        self.not_understood = 0
        for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules"):
            listed = config.get(key)
            for item in listed if isinstance(listed, list) else ():
                self._add(item)

    def _add(self, item: Any) -> None:
        body = item.replace("language_model.", "") if isinstance(item, str) else ""
        body = body.removeprefix("re:").replace("\\.", ".").replace("\\d+", "*").removeprefix("^").removesuffix("$")
        pieces = [piece for piece in body.replace(".*", "*").split("*") if piece]
        if not 1 <= len(pieces) <= MAX_PIECES or not all(_PLAIN_NAME.fullmatch(piece) for piece in pieces):
            self.not_understood += 1
        elif "*" not in body:
            self._names.add(body.strip("."))
        elif len(self._patterns) < MAX_PATTERNS:
            front = "" if body.startswith(("*", ".*")) else r"(?:^|\.)"
            tail = "" if body.endswith("*") else r"(?:\.|$)"
            self._patterns.append(re.compile(front + ".*".join(map(re.escape, pieces)) + tail))
        else:
            self.not_understood += 1

    def has(self, module: str) -> bool:
        """Whether this module, or one that it lies in, is listed by its name or by a part of it (as transformers
        compares them)."""
        parts = module.split(".")
        return any(".".join(parts[i:j]) in self._names for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)
                   ) or any(pattern.search(module) for pattern in self._patterns)

    def share(self, part: str, layers: int) -> float:
        """Of the layers, those whose modules of this part are left out."""
        if not self._names and not self._patterns:
            return 0.0
        if part == "head":
            return float(self.has("lm_head"))
        found = sum(any(self.has(f"model.layers.{i}.{module}") for module in _MODULES[part]) for i in range(layers))
        return found / layers


MAX_PATTERNS = 32
"""Patterns with gaps that are looked at; plain names cost nothing and are all kept."""
MAX_PIECES = 4

_PLAIN_NAME = re.compile(r"[\w.\-]{1,200}")


def _is_bits(raw: Any) -> bool:
    return isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= 32


def _is_count(raw: Any) -> bool:
    return isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= 1 << 20


def _is_pair(raw: Any) -> bool:
    return isinstance(raw, list) and len(raw) == 2 and all(_is_count(item) for item in raw)

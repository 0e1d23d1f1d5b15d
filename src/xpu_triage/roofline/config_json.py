"""A model's shape from the `config.json` that Hugging Face models come with.

Formulas follow the modules of `transformers` (5.x): q, k, v and o projections; MLA as in DeepSeek-V2/V3
(arXiv:2405.04434); two or three matrices in the feed-forward part; gated delta rule layers as in Qwen3-Next. Everything
is taken from fields. A field that tells a size or a structure and that no formula uses is a doubt: then nothing is
computed, and the reason names the field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UnusableInput
from ..evidence.chunks import small_file
from ..text import clean, shorten
from . import attention, feed_forward
from .fields import MOST, Fields, filled
from .model_shape import Attention, Block, Mlp, ModelShape
from .quantization import DTYPE_BITS, Storage, storage_of

MAX_BYTES = 16 << 20
"""A configuration is a few KB; with every unconverted module listed, some 100 KB."""

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models of several kinds of input keep the language model."""

MAX_NESTED = 4
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

_ENCODERS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
             "ForPreTraining", "EncoderModel")
"""Endings of architectures that generate nothing."""

_DIFFERENT = ("jetmoe", "modernbert-decoder", "olmo_hybrid")
"""Model types whose modules differ from what the fields say, by counting their parameters."""

_NAMED = re.compile(r'(?<!\\)"(architectures|model_type)"\s*:')
_SIZED = re.compile(r'(?<!\\)"(hidden_size|n_embd|d_model|num_hidden_layers|n_layers?)"\s*:\s*\d')


def matches(head: str) -> bool:
    """Whether a file that begins so is a model's configuration: it names an architecture and a width."""
    return head.startswith("{") and bool(_NAMED.search(head)) and bool(_SIZED.search(head))


def read(path: str | PathLike[str]) -> ModelShape:
    """The shape in a file. Raises `UnusableInput`, one line, naming the file and the field."""
    path = Path(path)
    raw = small_file(path, MAX_BYTES, "a model's configuration")
    try:
        config = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableInput(f"not JSON: {error}", where=path, todo="Give the model's own config.json") from None
    return shape_of(config, fspath(path))


def shape_of(config: Any, source: str) -> ModelShape:
    """The shape in a configuration. Raises `UnusableInput` where a field that it needs is missing or senseless."""
    if not isinstance(config, dict):
        raise UnusableInput("not a model's configuration: a JSON object is wanted", where=source)
    outer = Fields(config, source)
    if outer.flag("is_encoder_decoder"):
        raise outer.refusal("an encoder-decoder model: only decoders are understood")
    if any(name.endswith(_ENCODERS) for name in _architectures(config)):
        raise outer.refusal(f"{_name(config, config)} is no decoder")
    text = _text_part(config)
    whole, new = filled(text)
    fields = Fields(whole, source)
    hidden = fields.count("hidden_size", "n_embd", "d_model", most=MOST["width"])
    layers = fields.count(*LAYERS, most=MOST["layers"])
    vocabulary = fields.count("vocab_size", "padded_vocab_size", most=MOST["vocabulary"])
    unknown: dict[str, str] = {}
    mixers = attention.per_layer(fields, hidden, layers, unknown)
    mlps = feed_forward.per_layer(fields, hidden, layers, unknown)
    dtype = outer.text("torch_dtype", "dtype") or fields.text("torch_dtype", "dtype")
    quantization = outer.part("quantization_config") or fields.part("quantization_config") or outer.part(
        "compression_config")
    storage = storage_of(dtype, quantization, layers)
    if storage.why_unknown:
        unknown.setdefault("weights", storage.why_unknown)
    if not storage.arithmetic:
        unknown["arithmetic"] = "the type in which products are computed is not known"
    tied = fields.flag("tie_word_embeddings")
    tied = outer.flag("tie_word_embeddings") if tied is None else tied
    if (kind := fields.text("model_type")) in _DIFFERENT:
        unknown.setdefault("weights", f"models of type {kind} have parts that their configuration does not tell")
    doubts = tuple(fields.left())
    if doubts:
        unknown.setdefault("weights", f"the configuration has {_listed(doubts)}, which no formula here uses")
    return ModelShape(
        source=source, name=_name(config, text), blocks=_blocks(mixers, mlps), hidden=hidden, vocabulary=vocabulary,
        bits=storage.bits, kv_bits=_kv_bits(dtype, storage), dtype=storage.method or dtype.removeprefix("torch."),
        arithmetic=storage.arithmetic, tied=tied, unknown=unknown,
        notes=(*_defaulted(fields, new), *_notes(config, text, storage)))


def with_dtype(shape: ModelShape, dtype: str) -> ModelShape:
    """The same model with its weights in `dtype`, whatever the configuration says. Raises ValueError for a type that
    is not known."""
    bits = DTYPE_BITS.get(dtype.lower())
    if bits is None:
        raise ValueError(f"{dtype!r} is not a type known here ({', '.join(sorted(DTYPE_BITS))})")
    arithmetic = "bf16" if bits == 16 else ""
    unknown = {name: why for name, why in shape.unknown.items() if name not in ("weights", "arithmetic")
               or (name == "weights" and "no formula" in why)}
    if not arithmetic:
        unknown["arithmetic"] = f"whether products of {dtype} weights run in {dtype} or in 16 bits is not known"
    return replace(shape, bits=dict.fromkeys(("attention", "mlp", "experts", "shared", "head"), float(bits)),
                   kv_bits=max(float(bits), 16.0) if shape.kv_bits is None else shape.kv_bits, dtype=dtype,
                   arithmetic=arithmetic, unknown=unknown)


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model: the configuration itself, or the part of it that has the layers."""
    part = config
    for _ in range(MAX_NESTED):
        if any(part.get(name) is not None for name in LAYERS):
            return part
        inside = next((part[name] for name in TEXT_PARTS if isinstance(part.get(name), dict)), None)
        if inside is None:
            break
        part = inside
    return part


def _blocks(mixers: list[Attention], mlps: list[Mlp]) -> tuple[Block, ...]:
    return tuple(Block(count, mixer, mlp) for (mixer, mlp), count in Counter(zip(mixers, mlps, strict=True)).items())


def _kv_bits(dtype: str, storage: Storage) -> float | None:
    if storage.kv_bits is not None:
        return storage.kv_bits
    bits = DTYPE_BITS.get(dtype.removeprefix("torch.").lower())
    if bits == 16:
        return 16.0
    return 16.0 if storage.method and bits in (None, 8) else None


def _architectures(config: Mapping[str, Any]) -> tuple[str, ...]:
    listed = config.get("architectures")
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()


def _name(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    listed = _architectures(config)
    found = listed[0] if listed else config.get("model_type") or text.get("model_type")
    return clean(shorten(found, 60)) if isinstance(found, str) else "model"


def _defaulted(fields: Fields, new: tuple[str, ...]) -> tuple[str, ...]:
    taken = [name for name in new if name in fields.decisive]
    return (f"not in the file, so the model class's own defaults: {_listed(tuple(taken))}",) if taken else ()


def _notes(config: Mapping[str, Any], text: Mapping[str, Any], storage: Storage) -> tuple[str, ...]:
    notes = list(storage.notes)
    if text is not config:
        notes.append("the language model alone: what reads pictures or sound runs before the prompt")
    if config.get("num_nextn_predict_layers") or text.get("num_nextn_predict_layers"):
        notes.append("layers that predict several tokens ahead are left out: they run only with speculation")
    return tuple(notes)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"

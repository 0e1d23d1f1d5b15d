"""Configurations: what is read, what is refused in one line, and what stays unknown."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_configs import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_2,
    GPT_OSS_120B,
    LLAMA_2_7B,
    QWEN_3_5_27B,
    QWEN_3_30B_A3B,
    Config,
)
from xpu_triage.errors import UnusableInput
from xpu_triage.roofline import config_json, fields
from xpu_triage.roofline.config_json import matches, read, shape_of


def llama(**changed: Any) -> Config:
    return {key: value for key, value in {**LLAMA_2_7B, **changed}.items() if value is not ...}


# -- found by content
@pytest.mark.parametrize("config", [GEMMA_3_27B, QWEN_3_5_27B, LLAMA_2_7B, DEEPSEEK_V3, GPT_2])
def test_a_configuration_is_told_by_its_content(config: Config) -> None:
    assert matches(json.dumps(config))
    assert matches(json.dumps(config, indent=4))


@pytest.mark.parametrize("head", [
    "", "{}", "[1]", '{"traceEvents": [{"name": "\\"architectures\\": [], \\"hidden_size\\": 3"}]}',
    '{"schema": 1, "signals": {"step.wall_ms": 3}}', '{"architectures": ["X"]}', '{"hidden_size": 4}',
    '{"model_id": "m", "duration": 3, "ttfts": [1]}', "schema: 1\narchitectures: x\nhidden_size: 4\n"])
def test_other_files_are_not_taken_for_one(head: str) -> None:
    assert not matches(head)


# -- read
def test_grouped_heads_a_gate_and_the_language_model_inside() -> None:
    gemma = shape_of(GEMMA_3_27B, "config.json")
    assert [(b.count, b.attention.kind, b.attention.window) for b in gemma.blocks] == [
        (52, "window", 1024), (10, "full", None)]
    assert gemma.kv_values_per_token == 62 * 2 * 16 * 128
    assert any("vocab_size" in note and "defaults" in note for note in gemma.notes)
    assert any("language model alone" in note for note in gemma.notes)


def test_dense_layers_come_before_sparse_ones() -> None:
    deepseek = shape_of(DEEPSEEK_V3, "config.json")
    assert [(b.count, b.mlp.experts, b.mlp.dense) for b in deepseek.blocks] == [
        (3, 0, 3 * 7168 * 18432), (58, 256, 0)]
    assert deepseek.blocks[1].mlp.shared == deepseek.blocks[1].mlp.expert == 3 * 7168 * 2048
    assert (deepseek.arithmetic, deepseek.tied, deepseek.bits["head"]) == ("fp8", False, 16)
    assert any("only with speculation" in note for note in deepseek.notes)


@pytest.mark.parametrize(("changed", "sparse"), [
    ({"decoder_sparse_step": 2}, [1, 3, 5]),
    ({"mlp_only_layers": [0, 4]}, [1, 2, 3, 5]),
    ({"first_k_dense_replace": 2}, [2, 3, 4, 5]),
    ({"moe_layer_freq": [0, 1, 0, 0, 1, 1]}, [1, 4, 5]),
    ({"mlp_layer_types": ["dense"] + ["sparse"] * 5}, [1, 2, 3, 4, 5]),
    ({"decoder_sparse_step": None, "interleave_moe_layer_step": 3}, [2, 5]),
    ({"moe_layer_start_index": 1, "moe_layer_end_index": 3}, [1, 2, 3]),
    ({"moe_layers": [5]}, [5]),
])
def test_which_layers_are_sparse(changed: dict[str, Any], sparse: list[int]) -> None:
    config = {**QWEN_3_30B_A3B, "num_hidden_layers": 6, "model_type": "of nobody", **changed}
    found = shape_of(config, "c")
    assert sum(b.count for b in found.blocks if b.mlp.experts) == len(sparse)
    dense = sum(b.count * b.mlp.dense for b in found.blocks)
    assert dense == (6 - len(sparse)) * 3 * 2048 * 6144


@pytest.mark.parametrize(("changed", "windows"), [
    ({"sliding_window": 512, "sliding_window_pattern": 4}, [512, 512, 512, None, 512, 512]),
    ({"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 4}, [None] * 4 + [512] * 2),
    ({"sliding_window": 512, "use_sliding_window": False}, [None] * 6),
    ({"sliding_window": 512, "model_type": "gemma2"}, [512, None] * 3),
    ({"sliding_window": 512, "model_type": "mistral"}, [512] * 6),
    ({"sliding_window": 512, "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 4},
     [None] * 2 + [512] * 4),
])
def test_which_layers_have_a_window(changed: dict[str, Any], windows: list[int | None]) -> None:
    found = shape_of(llama(num_hidden_layers=6, **{"model_type": "of nobody", **changed}), "c")
    assert sum(b.count for b in found.blocks if b.attention.window == 512) == windows.count(512)
    assert sum(b.count for b in found.blocks if b.attention.window is None) == windows.count(None)
    assert not found.unknown


def test_chunked_attention_is_unknown_beyond_a_chunk() -> None:
    found = shape_of(llama(layer_types=["chunked_attention", "full_attention"] * 16, attention_chunk_size=8192), "c")
    assert "chunks of 8,192" in found.unknown["window"]


@pytest.mark.parametrize(("changed", "kv_heads"), [
    ({"num_key_value_heads": 8}, 8), ({"num_key_value_heads": ...}, 32), ({"num_key_value_heads": None}, 32),
    ({"num_key_value_heads": ..., "multi_query": True}, 1),
    ({"num_key_value_heads": ..., "multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 4}, 4),
])
def test_heads_that_share_keys(changed: dict[str, Any], kv_heads: int) -> None:
    assert shape_of(llama(**changed), "c").kv_values_per_token == 32 * 2 * kv_heads * 128


def test_two_matrices_without_a_gate() -> None:
    # GPT-2: 12 × (4 × 768² + 2 × 768 × 3072) = 84,934,656, and 50,257 × 768 = 38,597,376: "124M"
    assert shape_of(GPT_2, "c").parameters == 84_934_656 + 38_597_376
    assert shape_of(llama(hidden_act="relu2", rms_norm_eps=..., layer_norm_eps=1e-5), "c").blocks[0].mlp.dense == (
        2 * 4096 * 11008)


def test_defaults_fill_only_what_the_file_and_its_aliases_leave_out() -> None:
    whole, new = fields.filled({"model_type": "llama", "hidden_activation": "silu", "vocab_size": None})
    assert "hidden_act" not in new
    assert whole["vocab_size"] is None
    assert not {"hidden_size", "num_hidden_layers", "intermediate_size"} & {
        name for defaults in fields.class_defaults().values() for name in defaults}


def test_embeddings_that_are_one_table_count_once() -> None:
    two, one, unsaid = (shape_of(llama(tie_word_embeddings=tied), "c") for tied in (False, True, None))
    assert two.parameters - one.parameters == 32000 * 4096
    assert (unsaid.tied, unsaid.parameters) == (None, one.parameters)


# -- refused, one line each
BAD: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": ...}, "hidden_size is missing (nor n_embd, d_model)"),
    ({"num_attention_heads": ..., "model_type": "?"}, "num_attention_heads is missing"),
    ({"vocab_size": None}, "vocab_size is missing"),
    ({"intermediate_size": ...}, "intermediate_size is missing"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, not from 1 to 2,000"),
    ({"num_hidden_layers": -3}, "num_hidden_layers is -3"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    ({"hidden_size": "4096"}, "hidden_size is '4096', not a whole number"),
    ({"hidden_size": 4096.5}, "not a whole number"),
    ({"hidden_size": True}, "hidden_size is True, not a whole number"),
    ({"hidden_size": [4096]}, "hidden_size is [4096], not a whole number"),
    ({"hidden_size": 10**400}, "hidden_size is a huge number"),
    ({"hidden_size": [10**5000]}, "hidden_size is something huge"),
    ({"hidden_size": float("inf")}, "hidden_size is inf, not a whole number"),
    ({"hidden_size": 4097}, "does not divide into 32 heads"),
    ({"num_key_value_heads": 7}, "32 query heads do not divide over 7"),
    ({"layer_types": ["full_attention"]}, "layer_types names 1 layers of 32"),
    ({"layer_types": "full"}, "layer_types is not a list"),
    ({"is_encoder_decoder": True}, "encoder-decoder"),
    ({"architectures": ["BertForMaskedLM"]}, "no decoder"),
    ({"tie_word_embeddings": "yes"}, "not true or false"),
    ({"quantization_config": [1]}, "not a mapping"),
    ({"num_experts": 8, "num_experts_per_tok": 9}, "9 experts a token of 8"),
    ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
]


@pytest.mark.parametrize(("changed", "what"), BAD)
def test_a_senseless_configuration_is_refused_in_one_line(changed: dict[str, Any], what: str) -> None:
    with pytest.raises(UnusableInput) as refusal:
        shape_of(llama(**changed), "config.json")
    assert what in str(refusal.value)
    assert str(refusal.value).startswith("config.json: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("content", "what"), [
    (b"", "not JSON"), (b'{"hidden_size": 4', "not JSON"), (b"[1, 2]", "a JSON object is wanted"),
    (b"null", "a JSON object is wanted"), (b"\xff\xfe{", "not JSON"), (b"[" * 100_000, "not JSON"),
    (b'{"hidden_size": NaN}', "not JSON"), (b'{"text_config": ' * 500 + b"{}" + b"}" * 500, "hidden_size is missing")])
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UnusableInput, match=what):
        read(path)


def test_a_file_that_is_too_large_or_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableInput, match="cannot be read"):
        read(tmp_path / "none.json")
    monkeypatch.setattr(config_json, "MAX_BYTES", 10)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B))
    with pytest.raises(UnusableInput, match="at most"):
        read(tmp_path / "config.json")


def test_a_file_is_read_as_its_text(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA_2_7B).encode())
    assert read(tmp_path / "c.json").layers == 32


def test_names_are_made_harmless() -> None:
    shape = shape_of(llama(architectures=["\x1b[31mX<script>"], **{"evil\x1b_heads": 3}), "c")
    assert shape.name == r"\x1b[31mX<script>"
    assert r"evil\x1b_heads" in shape.unknown["weights"]


def test_a_field_that_no_formula_uses_is_a_doubt_only_where_it_says_something() -> None:
    for value in (None, 0, False, []):
        assert not shape_of(llama(num_kv_shared_layers=value), "c").unknown
    assert "num_kv_shared_layers" in shape_of(llama(num_kv_shared_layers=10), "c").unknown["weights"]


NAMES = sorted({*LLAMA_2_7B, *QWEN_3_30B_A3B, *DEEPSEEK_V3, *GPT_OSS_120B, "layer_types", "sliding_window_pattern",
                "text_config", "moe_layer_freq"})
JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(
    st.integers() | st.text(max_size=4), max_size=3) | st.dictionaries(st.text(max_size=4), st.integers(), max_size=2)


@given(st.sampled_from([LLAMA_2_7B, QWEN_3_30B_A3B, DEEPSEEK_V3, GPT_OSS_120B, QWEN_3_5_27B]),
       st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=4))
def test_whatever_stands_in_the_fields_it_is_a_shape_or_one_line(config: Config, junk: dict[str, Any]) -> None:
    config = copy.deepcopy(config)
    config.update(junk)
    said = ""
    try:
        shape = shape_of(config, "c")
    except UnusableInput as refusal:
        said = str(refusal)
    assert said.startswith("c: ") if said else shape.layers >= 1
    assert "\n" not in said
    assert said or shape.parameters > 0

"""Bits of a weight by part, from the ways in which published configurations say it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from xpu_triage.roofline.quantization import storage_of

LINEAR = {"targets": ["Linear"]}


def bits(config: dict[str, Any] | None, dtype: str = "bfloat16", layers: int = 4) -> dict[str, float]:
    return dict(storage_of(dtype, config, layers).bits)


@pytest.mark.parametrize("dtype", ["bfloat16", "torch.float16", "half", "BFloat16"])
def test_plain_weights_take_sixteen_bits(dtype: str) -> None:
    assert set(bits(None, dtype).values()) == {16}


@pytest.mark.parametrize(("config", "stored", "head", "arithmetic"), [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 20 / 128, 16, "bf16"),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, 16, "bf16"),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}, 4.25, 16, "bf16"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}, 4 + 20 / 128, 4 + 20 / 128, "bf16"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384, 16, "fp8"),
    ({"quant_method": "fbgemm_fp8"}, 8, 16, "fp8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, 16, "bf16"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, 16, "int8"),
    ({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"group_0": {
        **LINEAR, "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}}, 8, 16, "fp8"),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        **LINEAR, "weights": {"num_bits": 4, "type": "int", "group_size": 128}}}}, 4.125, 4.125, "bf16"),
    ({"quant_method": "modelopt", "ignore": ["lm_head"], "config_groups": {"group_0": {
        **LINEAR, "weights": {"num_bits": 4, "type": "float", "group_size": 16},
        "input_activations": {"num_bits": 4}}}}, 4.5, 16, "fp4"),
])
def test_bits_with_their_scales(config: dict[str, Any], stored: float, head: float, arithmetic: str) -> None:
    found = storage_of("bfloat16", config, 4)
    assert found.bits["mlp"] == found.bits["attention"] == pytest.approx(stored)
    assert found.bits["head"] == pytest.approx(head)
    assert found.arithmetic == arithmetic


@pytest.mark.parametrize(("listed", "part", "expected"), [
    (["model.layers.0.self_attn"], "attention", 16 / 4 + 8 * 3 / 4),   # one of four layers
    (["model.language_model.layers.1.self_attn.q_proj"], "attention", 10),
    (["re:.*self_attn.*"], "attention", 16), (["*self_attn*"], "attention", 16),
    (["re:model\\.layers\\.\\d+\\.self_attn\\.q_proj$"], "attention", 16),
    (["re:.*mlp.gate$"], "mlp", 8), (["mlp.gate"], "mlp", 8), (["gate"], "mlp", 8),
    (["mlp.gate_proj"], "mlp", 16), (["self_attn"], "experts", 8), (["experts"], "experts", 16),
])
def test_what_is_left_in_sixteen_bits(listed: list[str], part: str, expected: float) -> None:
    assert bits({"quant_method": "fp8", "modules_to_not_convert": listed})[part] == pytest.approx(expected)


def test_a_pattern_from_a_file_is_never_run_and_what_is_not_understood_is_counted() -> None:
    before = time.process_time()
    found = storage_of("bfloat16", {"quant_method": "fp8", "ignore": [
        "re:(a+)+$", "re:^(.*a){25}$", 7, None, "x" * 5000, *["*a*b*c*"] * 100]}, 200)
    assert time.process_time() - before < 5
    assert any(note.startswith("73 patterns") for note in found.notes)     # 5 strange ones, 68 beyond the bound
    assert found.bits["mlp"] == 8


@pytest.mark.parametrize(("config", "kv"), [
    ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 8),
    ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, 8), ({"quant_method": "fp8"}, None)])
def test_a_cache_type_that_the_configuration_names(config: dict[str, Any], kv: float | None) -> None:
    assert storage_of("bfloat16", config, 2).kv_bits == kv


@pytest.mark.parametrize("config", [
    {"quant_method": "aqlm"}, {"quant_method": "bitsandbytes"}, {}, {"quant_method": "gptq", "bits": "4"},
    {"quant_method": "gptq", "bits": 0}, {"quant_method": "gptq", "bits": True},
    {"config_groups": {"g": {"weights": None}}}, {"config_groups": {"g": 3}},
    {"config_groups": {"g": {"targets": ["re:.*q_proj"], "weights": {"num_bits": 4}}}},
    {"config_groups": {"a": {**LINEAR, "weights": {"num_bits": 4}}, "b": {**LINEAR, "weights": {"num_bits": 8}}}},
])
def test_bits_that_cannot_be_told_are_unknown(config: dict[str, Any]) -> None:
    found = storage_of("bfloat16", config, 2)
    assert found.bits == {}
    assert found.why_unknown

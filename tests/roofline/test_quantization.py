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
    assert time.process_time() - before < 20  # a run of the first pattern on its name would take hours
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


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


@pytest.mark.parametrize(("more", "named"), [
    ({"dynamic": {"-:.*mlp.*": {}}}, "dynamic"), ({"dynamic": {"+:.*down.*": {"bits": 8}}}, "dynamic"),
    ({"extra_config": {"model.layers.0.mlp": {"bits": 16}}}, "extra_config"),
    ({"quantized_layers": {"model.layers.0.mlp.down_proj": {"quant_algo": "FP8"}}}, "quantized_layers"),
    ({"model.layers.0.mlp.gate": {"bits": 8}}, "model.layers.0.mlp.gate"),
    ({"model.layers.0.mlp.gate": False}, "model.layers.0.mlp.gate"), ({"a_later_word": {"x": 1}}, "a_later_word"),
    ({"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.up_proj"]]}, "modules_in_block_to_quantize"),
    ({"modules_in_block_to_quantize": 7}, "modules_in_block_to_quantize")])
@pytest.mark.parametrize("base", [GPTQ, {"quant_method": "auto-round", "bits": 4}, {"quant_method": "fp8"},
                                  {"config_groups": {"g": {**LINEAR, "weights": {"num_bits": 8}}}}])
def test_bits_of_single_modules_make_the_weights_unknown_and_are_named(base: dict[str, Any], more: dict[str, Any],
                                                                       named: str) -> None:
    found = storage_of("bfloat16", {**base, **more}, 2)
    assert found.bits == {}
    assert named in found.why_unknown
    assert storage_of("bfloat16", base, 2).bits


@pytest.mark.parametrize("more", [
    {"dynamic": {}}, {"dynamic": None}, {"extra_config": {}}, {"meta": {"quantizer": ["gptqmodel:2.0"]}},
    {"exllama_config": {"version": 1}}, {"producer": {"name": "modelopt"}}, {"modules_in_block_to_quantize": None},
    {"modules_in_block_to_quantize": [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"],
                                      ["self_attn.o_proj"], ["mlp.up_proj", "mlp.gate_proj"], ["mlp.down_proj"]]}])
def test_parts_that_change_no_single_module_leave_the_bits_alone(more: dict[str, Any]) -> None:
    assert bits({**GPTQ, **more}) == bits(GPTQ)


def test_a_hostile_name_of_an_override_is_shown_clean_and_short() -> None:
    why = storage_of("bfloat16", {**GPTQ, "\x1b[2J" + "x" * 5000: {"bits": 8}}, 2).why_unknown
    assert "\x1b" not in why
    assert len(why) < 200

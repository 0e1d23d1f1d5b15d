"""Floors against arithmetic done by hand, from the fields of public configurations."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_configs import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_OSS_120B,
    LLAMA_2_7B,
    QWEN_2_5_72B_AWQ,
    QWEN_3_5_27B,
    QWEN_3_30B_A3B,
    Config,
)
from xpu_triage.roofline import floors
from xpu_triage.roofline.config_json import shape_of, with_dtype
from xpu_triage.roofline.floors import Load, Reads
from xpu_triage.roofline.model_shape import ModelShape

H100_GBPS, H100_TFLOPS = 3350.0, 989.0


def shape(config: Config, **changed: object) -> ModelShape:
    config = copy.deepcopy(config)
    (config.get("text_config") or config).update(changed)
    return shape_of(config, "config.json")


def floor_ms(config: Config, batch: float, context: float, devices: int = 1) -> float:
    return floors.read_ms(floors.decode_reads(shape(config), Load(batch, context, devices)), H100_GBPS)


# -- a 27-billion model in bf16
def test_decode_floor_of_gemma_3_27b() -> None:
    # Shape: google/gemma-3-27b-it, config.json (and the defaults of its class: vocabulary 262,208, every 6th layer
    # global). A layer:
    #   q 5376 × 32·128 = 22,020,096; k and v 2 × 5376 × 16·128 = 22,020,096; o 22,020,096     66,060,288
    #   gate, up, down 3 × 5376 × 21504                                                       346,816,512
    # 62 layers 25,598,361,600; head 262,208 × 5376 = 1,409,630,208; together 27,007,991,808, × 2 B = 54.016 GB.
    # KV a token and layer: 2 × 16 × 128 × 2 B = 8,192 B. At 4,096 tokens: 10 global layers × 4,096, 52 local × 1,024:
    #   (40,960 + 53,248) × 8,192 B = 771.75 MB a request.
    # batch 1:   54.016 + 0.772          = 54.788 GB ÷ 3,350 GB/s = 16.35 ms
    # batch 256: 54.016 + 256 × 0.77175  = 251.58 GB              = 75.10 ms
    one = floors.decode_reads(shape(GEMMA_3_27B), Load(1, 4096))
    assert one.weights == 2 * 27_007_991_808
    assert one.kv == (10 * 4096 + 52 * 1024) * 8192
    assert floor_ms(GEMMA_3_27B, 1, 4096) == pytest.approx(16.354, abs=0.001)
    assert floor_ms(GEMMA_3_27B, 256, 4096) == pytest.approx(75.099, abs=0.001)


def test_decode_floor_of_qwen_3_5_27b_whose_layers_are_mostly_linear() -> None:
    # Shape: Qwen/Qwen3.5-27B, config.json. Of 64 layers 16 attend fully, 48 hold a state.
    #   full:   q and its gate 5120 × 2·24·256 = 62,914,560; k, v 5120 × 2·4·256 = 10,485,760; o 31,457,280: 104,857,600
    #   linear: q, k, v, z 5120 × (2·2048 + 2·6144), gates 5120 × 2·48: 84,377,600; conv 4 × 10,240 = 40,960;
    #           out 6144 × 5120 = 31,457,280:                                                  115,875,840
    #   feed-forward 3 × 5120 × 17408                                                          267,386,880
    # 16 × 104,857,600 + 48 × 115,875,840 + 64 × 267,386,880 = 24,352,522,240; head 248,320 × 5120 = 1,271,398,400;
    # read 25,623,920,640 × 2 B = 51.248 GB. In memory one more table: 26,895,319,040 parameters, "27B".
    # KV: 16 × 2·4·256 × 2 B = 65,536 B a token, 268.4 MB at 4,096; state 48 layers × 48·128·128 × 4 B = 151.0 MB.
    # batch 1: 51.667 GB ÷ 3,350 = 15.42 ms; batch 256: 51.248 + 256 × 0.41943 = 158.62 GB = 47.35 ms
    read = floors.decode_reads(shape(QWEN_3_5_27B), Load(1, 4096))
    assert read.weights == 2 * 25_623_920_640
    assert read.kv == 4096 * 65_536 + 48 * 48 * 128 * 128 * 4
    assert shape_of(QWEN_3_5_27B, "config.json").parameters == 26_895_319_040
    assert floor_ms(QWEN_3_5_27B, 1, 4096) == pytest.approx(15.423, abs=0.001)
    assert floor_ms(QWEN_3_5_27B, 256, 4096) == pytest.approx(47.350, abs=0.001)


def test_weights_are_read_once_a_step_and_the_cache_once_a_request() -> None:
    one, many = (floors.decode_reads(shape(LLAMA_2_7B), Load(batch, 1000)) for batch in (1, 64))
    assert many.weights == one.weights
    assert many.kv == 64 * one.kv
    assert one.kv == 1000 * 32 * 2 * 4096 * 2  # 524,288 bytes a token


# -- the square of attention
def test_eight_times_the_prompt_is_sixty_four_times_the_attention() -> None:
    # Pairs under a causal mask are n(n + 1)/2: 512 × 513 ÷ 2 = 131,328 and 4,096 × 4,097 ÷ 2 = 8,390,656: 63.9 times,
    # 64 without the diagonal. Llama-2-7B: 2 × 32 heads × (128 + 128) = 16,384 operations a pair and layer, 32 layers:
    #   512: 131,328 × 524,288 = 0.0689 TFLOP;  4,096: 4.399 TFLOP.
    # Weights: 2 × 6,476,005,376 × n: 8 times. Head once: 2 × 32,000 × 4,096.
    short, long = (floors.prefill_operations(shape(LLAMA_2_7B), n) for n in (512, 4096))
    assert short.attention == 131_328 * 524_288
    assert long.attention == 8_390_656 * 524_288
    assert long.attention / short.attention == pytest.approx(64, rel=0.002)
    head = 2 * 32_000 * 4096
    assert (long.weights - head) / (short.weights - head) == 8
    assert long.weights - head == 2 * 6_476_005_376 * 4096


def test_prefill_floor_of_gemma_3_27b() -> None:
    # 2 × 25,598,361,600 × 4,096 = 209.70 TFLOP, head 2 × 1,409,630,208; 10 layers over 8,390,656 pairs and 52 over
    # 1,024·1,025/2 + 3,072·1,024 = 3,670,528, × 2·32·256 = 16,384 each: 1.3747 + 3.1272 TFLOP. 214.21 ÷ 989 = 216.6 ms
    operations = floors.prefill_operations(shape(GEMMA_3_27B), 4096)
    assert operations.attention == (10 * 8_390_656 + 52 * 3_670_528) * 16_384
    assert floors.compute_ms(operations, H100_TFLOPS) == pytest.approx(216.6, abs=0.1)
    assert floors.compute_ms(operations, H100_TFLOPS, 4) == pytest.approx(216.6 / 4, abs=0.1)


def test_a_prompt_behind_a_cached_one_sees_its_keys_too() -> None:
    whole, first, rest = floors.pairs(100), floors.pairs(60), floors.pairs(40, cached=60)
    assert whole == first + rest
    assert floors.pairs(100, window=10) == sum(min(i, 10) for i in range(1, 101))


# -- experts, latents, types
def test_a_batch_reads_more_experts_the_larger_it_is() -> None:
    # 128 experts of which a token takes 8: 64 tokens touch 128 × (1 − (120/128)^64) = 128 × (1 − 0.01608) = 125.9
    assert floors.experts_touched(128, 8, 1) == 8
    assert floors.experts_touched(128, 8, 64) == pytest.approx(125.94, abs=0.01)
    # Qwen3-30B-A3B: attention 2048 × (2·32·128 + 2·4·128) = 18,874,368; router 262,144; an expert 3 × 2048 × 768 =
    # 4,718,592. A token: 48 × (18,874,368 + 262,144 + 8 × 4,718,592) + head 311,164,928 = 3,041,656,832 ("A3B").
    assert floors.weight_bytes(shape(QWEN_3_30B_A3B), 1) == pytest.approx(2 * 3_041_656_832)
    assert shape(QWEN_3_30B_A3B).parameters == pytest.approx(30.53e9, rel=0.001)


def test_a_latent_cache_is_held_by_every_device() -> None:
    # DeepSeek-V3: 61 layers × (512 + 64) values × 2 B = 70,272 B a token, whatever the number of heads.
    deepseek = shape(DEEPSEEK_V3)
    assert floors.kv_bytes(deepseek, 1) == 70_272
    one, eight = (floors.decode_reads(deepseek, Load(64, 4096, devices)) for devices in (1, 8))
    assert eight.weights == pytest.approx(one.weights / 8)
    assert eight.kv == one.kv
    assert deepseek.parameters == pytest.approx(671.0e9, rel=0.001)  # as published


def test_a_cache_of_four_heads_on_eight_devices_is_held_twice() -> None:
    four, eight = (floors.decode_reads(shape(QWEN_3_30B_A3B), Load(8, 1000, devices)) for devices in (4, 8))
    assert eight.kv == four.kv


def test_quantized_weights_are_read_with_their_scales() -> None:
    # AWQ: 4 bits, a 16-bit scale and a 4-bit zero for 128 weights: 4.15625. Qwen2.5-72B: attention 8192 × (2·8192 +
    # 2·1024) = 150,994,944, feed-forward 3 × 8192 × 29568 = 726,663,168, 80 layers: 70,212,648,960 of those, and a head
    # of 152,064 × 8,192 in 16 bits.
    awq = shape(QWEN_2_5_72B_AWQ)
    assert awq.active_parameters == 70_212_648_960
    assert floors.weight_bytes(awq, 1) == pytest.approx(70_212_648_960 * 4.15625 / 8 + 152_064 * 8192 * 2)
    assert awq.arithmetic == "bf16"


def test_mxfp4_converts_the_experts_alone() -> None:
    oss = shape(GPT_OSS_120B)
    assert oss.bits["experts"] == 4.25
    assert oss.bits["attention"] == oss.bits["head"] == 16
    assert oss.parameters == pytest.approx(116.8e9, rel=0.001)  # as published
    assert oss.kv_bits == 16


def test_a_cache_in_8_bits_is_half_of_one_in_16() -> None:
    half, whole = (floors.kv_bytes(shape(LLAMA_2_7B), 100, bits) for bits in (8, None))
    assert whole == 2 * half


def test_another_type_of_weights_changes_what_is_read() -> None:
    eight = with_dtype(shape(LLAMA_2_7B), "int8")
    assert floors.weight_bytes(eight, 1) == floors.weight_bytes(shape(LLAMA_2_7B), 1) / 2
    assert eight.kv_bits == 16
    assert "arithmetic" in eight.unknown
    with pytest.raises(ValueError, match="not a type known here"):
        with_dtype(eight, "int3")


# -- unknown stays unknown
def test_an_unknown_window_matters_only_beyond_it() -> None:
    strange = shape(LLAMA_2_7B, model_type="novel", sliding_window=2048)
    assert floors.kv_bytes(strange, 2048) == floors.kv_bytes(shape(LLAMA_2_7B), 2048)
    with pytest.raises(floors.UnknownFloorError, match="does not say which layers"):
        floors.kv_bytes(strange, 2049)


@pytest.mark.parametrize(("changed", "why"), [
    ({"torch_dtype": None}, "does not say the type"),
    ({"torch_dtype": "float32"}, "load as 16 bits"),
    ({"torch_dtype": "posit16"}, "posit16"),
    ({"mamba_d_state": 128}, "mamba_d_state"),
    ({"index_topk": 2048}, "index_topk"),
    ({"hidden_act": "relu2"}, "two matrices or three"),
    ({"layer_types": ["full_attention", "hyena"] * 16}, "hyena"),
    ({"quantization_config": {"quant_method": "aqlm"}}, "aqlm"),
])
def test_what_a_configuration_does_not_tell_gives_no_floor(changed: dict[str, object], why: str) -> None:
    with pytest.raises(floors.UnknownFloorError, match=why):
        floors.decode_reads(shape(LLAMA_2_7B, **changed), Load(1, 100))


# -- properties
CONFIGS = st.sampled_from([GEMMA_3_27B, QWEN_3_5_27B, LLAMA_2_7B, QWEN_3_30B_A3B, DEEPSEEK_V3, GPT_OSS_120B])


@given(CONFIGS, st.floats(1, 1000), st.floats(1, 1e5), st.floats(1, 4), st.sampled_from([1, 2, 4, 8]))
def test_floors_grow_with_batch_and_context_and_fall_with_devices(
        config: Config, batch: float, context: float, factor: float, devices: int) -> None:
    model = shape(config)

    def read(batch: float, context: float, devices: int) -> float:
        return floors.decode_reads(model, Load(batch, context, devices)).total

    here = read(batch, context, devices)
    assert 0 < here <= read(batch * factor, context, devices) * (1 + 1e-9)
    assert here <= read(batch, context * factor, devices) * (1 + 1e-9)
    assert read(batch, context, devices * 2) <= here * (1 + 1e-9)


@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 6000))
def test_a_window_never_sees_more_pairs(tokens: int, cached: int, window: int) -> None:
    assert 0 < floors.pairs(tokens, cached, window) <= floors.pairs(tokens, cached)


@given(st.integers(1, 300), st.data(), st.floats(1, 1e4))
def test_touched_experts_lie_between_those_of_one_token_and_all(experts: int, data: st.DataObject, tokens: float
                                                                ) -> None:
    per_token = data.draw(st.integers(1, experts))
    assert per_token * (1 - 1e-9) <= floors.experts_touched(experts, per_token, tokens) <= experts


def test_a_gigabyte_at_a_gigabyte_a_second_takes_a_second() -> None:
    assert floors.read_ms(Reads(1e9, 0), 1) == pytest.approx(1000)
    assert floors.compute_ms(floors.Operations(1e12, 0), 1) == pytest.approx(1000)


def test_a_short_prompt_is_bound_by_reading_the_weights_and_a_long_one_by_arithmetic() -> None:
    llama = shape(LLAMA_2_7B)                                   # 6.607 billion weights of 2 bytes ÷ 3,350 GB/s
    assert floors.prefill_floor(llama, 16, 3350, 989) == (pytest.approx(3.945, abs=0.01), "memory")
    ms, by = floors.prefill_floor(llama, 4096, 3350, 989) or (0, "")
    assert by == "arithmetic"
    assert ms == floors.compute_ms(floors.prefill_operations(llama, 4096), 989)


def test_a_prompts_floor_splits_over_devices_and_never_falls_with_its_length() -> None:
    llama = shape(LLAMA_2_7B)
    found = [floors.prefill_floor(llama, 2.0 ** n, 3350, 989) for n in range(14)]
    assert [one[0] for one in found if one] == sorted(one[0] for one in found if one)
    whole, half = found[0], floors.prefill_floor(llama, 1, 3350, 989, 2)
    assert whole
    assert half
    assert half[0] == pytest.approx(whole[0] / 2)


def test_one_peak_alone_gives_a_lower_floor_and_none_gives_none() -> None:
    llama = shape(LLAMA_2_7B)
    both = floors.prefill_floor(llama, 300, 3350, 989)
    alone = [floors.prefill_floor(llama, 300, 3350, None), floors.prefill_floor(llama, 300, None, 989)]
    assert [one[1] for one in alone if one] == ["memory", "arithmetic"]
    assert both == max(one for one in alone if one)
    assert floors.prefill_floor(llama, 300, None, None) is None

"""The counter-based hash, the uniforms made of it, and the two ways to spend them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage.sampling.noise import (
    InverseCdf,
    Sources,
    exponential_from_two_draws,
    hashed,
    inverse_cdf_noise,
    race_noise,
    uniform_float64,
    uniform_pair_float32,
)

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """SplitMix64's output function on Python's integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def as_int64(value: int) -> torch.Tensor:
    return torch.tensor([(value + 2**63) % 2**64 - 2**63])


def test_the_slow_mix_is_splitmix64():
    """The first three outputs for seed 1234567, as published with the generator's test vectors."""
    outputs = [mix((1234567 + n * GAMMA) & MASK) for n in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, MASK), st.integers(0, 2**62), st.integers(0, 2) | st.integers(0, 2**20))
def test_the_hash_is_three_chained_splitmix64_steps(seed, position, lane):
    expected = mix((seed + GAMMA) & MASK)
    expected = mix((expected + position * GAMMA) & MASK)
    expected = mix((expected + (lane + 1) * GAMMA) & MASK)
    bits = hashed(as_int64(seed), torch.tensor([position]), torch.tensor([lane]))
    if lane == 0:
        assert torch.equal(bits, hashed(as_int64(seed), torch.tensor([position])))
    assert bits.item() & MASK == expected
    assert uniform_float64(bits).item() == (expected >> 11) * 2.0**-53
    high, low = uniform_pair_float32(bits)
    assert high.item() == (expected >> 40) * 2.0**-24
    assert low.item() == (expected >> 16 & 0xFFFFFF) * 2.0**-24


def flatness(values: torch.Tensor, bins: int) -> float:
    """Chi-square of `values` in [0, bins), in its standard deviations above its mean."""
    counts = torch.bincount(values.flatten(), minlength=bins).double()
    expected = counts.sum() / bins
    return (((counts - expected) ** 2 / expected).sum() - (bins - 1)).item() / math.sqrt(2 * (bins - 1))


@pytest.mark.parametrize("first", [0, -(2**63), 10**12])
def test_neighbouring_seeds_and_positions_give_even_and_unrelated_numbers(first):
    """Five deviations: chance below 1e-5 each, were the seeds others."""
    seed = torch.arange(first, first + 512).unsqueeze(1)
    u = uniform_float64(hashed(seed, torch.arange(1024)))
    assert flatness((u * 1024).long(), 1024) < 5
    digit = (u * 16).long()
    assert flatness(digit[1:] * 16 + digit[:-1], 256) < 5, "next seed"
    assert flatness(digit[:, 1:] * 16 + digit[:, :-1], 256) < 5, "next position"
    lanes = (uniform_float64(hashed(seed[:64], torch.arange(64))) * 16).long()
    others = (uniform_float64(hashed(seed[:64], torch.arange(64), torch.tensor(1))) * 16).long()
    assert flatness(lanes * 16 + others, 256) < 5, "next lane"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1))
def test_two_draws_give_the_exponential_of_their_48_bits(high, low):
    """Against the exact −log(1 − U) in float64, within float32's rounding, wherever U is not clamped."""
    u_high, u_low = (torch.tensor([n * 2.0**-24], dtype=torch.float32) for n in (high, low))
    e = exponential_from_two_draws(u_high, u_low).item()
    exact = min(max(high * 2.0**-24 + low * 2.0**-48, 2.0**-48), 1 - 2.0**-24)
    near_1 = 2.0**-24 / (1 - exact)  # rounding U to float32 moves 1 − U by that much at most
    assert e == pytest.approx(-math.log1p(-exact), rel=3e-7 + 2 * near_1)


def sources(seeds: list[int | None], generators: dict[int, torch.Generator] | None = None) -> Sources:
    return Sources(
        torch.device("cpu"),
        torch.tensor([seed or 0 for seed in seeds]),
        torch.zeros(len(seeds), dtype=torch.int64),
        torch.tensor([seed is not None for seed in seeds]),
        any(seed is not None for seed in seeds),
        all(seed is not None for seed in seeds),
        generators or {},
    )


def test_each_row_takes_its_number_from_its_own_source():
    own = torch.Generator().manual_seed(4)
    noise = inverse_cdf_noise(sources([7, None, None], {1: own}), torch.Generator().manual_seed(1))
    assert noise.u[0] == uniform_float64(hashed(torch.tensor([7]), torch.tensor([0]))).item()
    assert noise.u[1] == torch.rand(1, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).item()
    assert noise.u[2] == torch.rand(3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))[2]


def test_the_race_gives_each_row_its_lanes_from_its_own_source():
    own = torch.Generator().manual_seed(4)
    noise = race_noise(sources([7, None, None], {1: own}), 50, torch.Generator().manual_seed(1)).exponentials
    pair = torch.rand(2, 50, generator=torch.Generator().manual_seed(4))
    assert torch.equal(noise[1], exponential_from_two_draws(pair[0], pair[1]))
    lane = torch.arange(50)
    bits = hashed(torch.tensor([7]), torch.tensor([0]), lane)
    assert torch.equal(noise[0], exponential_from_two_draws(*uniform_pair_float32(bits)))


def test_what_a_pick_leaves_of_the_uniform_is_its_place_within_the_picked_weight():
    noise = InverseCdf(torch.tensor([0.55], dtype=torch.float64))
    assert noise.pick(torch.tensor([[0.5, 0.25, 0.25]])).item() == 1
    assert noise.u.item() == pytest.approx(0.2)
    assert noise.pick(torch.tensor([[0.9, 1.1, 3.0]])).item() == 1, "0.2 of 5 is 1.0"
    assert noise.u.item() == pytest.approx(0.1 / 1.1)

"""A seeded row draws by its seed and position alone: by itself, in any batch, at any place, after any change."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage.sampling import Request, SamplingBatch, sample

VOCAB = 3000
KINDS = (
    {},
    {"temperature": 0.6, "min_p": 0.01},
    {"top_k": 40},
    {"top_k": 40, "top_p": 0.8},
    {"top_p": 0.9},
    {"top_k": 2000, "temperature": 1.4},
)
WIDE = pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])


def logits_of(row: int) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(row))


def batch_of(requests: list[Request], wide: bool = True) -> SamplingBatch:
    return SamplingBatch.from_requests(requests, VOCAB, wide=wide)


def tokens_alone(request: Request, row: int, steps: int, wide: bool = True) -> list[int]:
    batch = batch_of([request], wide)
    return [sample(logits_of(row).unsqueeze(0), batch).item() for _ in range(steps)]


@WIDE
@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(({"temperature": 0.0}, {"seed": 99}, *KINDS)), max_size=5),
    st.integers(0, 5),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 2**40),
)
def test_a_seeded_row_draws_the_same_alone_and_at_any_place_of_any_batch(wide, kind, others, place, seed, position):
    request = Request("seeded", seed=seed, position=position, **kind)
    expected = tokens_alone(request, 0, 2, wide)
    requests = [Request(f"o{i}", **p) for i, p in enumerate(others)]
    place = min(place, len(requests))
    requests.insert(place, request)
    logits = torch.stack([logits_of(0 if r is request else 1 + i) for i, r in enumerate(requests)])
    batch = batch_of(requests, wide)
    assert [sample(logits, batch).tolist()[place] for _ in range(2)] == expected


@WIDE
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_seeded_row_goes_on_unchanged_when_its_batch_is_merged_filtered_and_reordered(wide, kind):
    expected = tokens_alone(Request("seeded", seed=5, **kind), 0, 6, wide)
    batch, rows, drawn = batch_of([Request("seeded", seed=5, **kind)], wide), [0], []
    changes = [
        lambda b, r: (b, r),
        lambda b, r: (b.merge(batch_of([Request("x", top_p=0.5), Request("y")], wide)), [*r, 1, 2]),
        lambda b, r: (b.filter([2, 0, 1]), [r[2], r[0], r[1]]),
        lambda b, r: (batch_of([Request("z", seed=5, temperature=0)], wide).merge(b), [3, *r]),
        lambda b, r: (b, r),
        lambda b, r: (b.filter([2]), [r[2]]),
    ]
    for change in changes:
        batch, rows = change(batch, rows)
        tokens = sample(torch.stack([logits_of(row) for row in rows]), batch).tolist()
        drawn.append(tokens[rows.index(0)])
    assert drawn == expected


@WIDE
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_row_with_its_own_generator_draws_the_same_alone_and_in_a_batch(wide, kind):
    def own() -> Request:
        return Request("own", generator=torch.Generator().manual_seed(77), **kind)

    expected = tokens_alone(own(), 0, 3, wide)
    batch = batch_of([Request("a", top_p=0.7), own(), Request("b", seed=3), Request("c", top_k=2)], wide)
    logits = torch.stack([logits_of(i) for i in (4, 0, 5, 6)])
    assert [sample(logits, batch)[1].item() for _ in range(3)] == expected


@WIDE
def test_positions_and_seeds_give_different_draws(wide):
    """300 draws from 3,000 equals: 285 distinct are expected; fewer than 250 has a chance below 1e-9."""
    flat = torch.zeros(1, VOCAB)
    batch = batch_of([Request("r", seed=1)], wide)
    assert len({sample(flat, batch).item() for _ in range(300)}) > 250
    seeds = batch_of([Request(str(i), seed=i) for i in range(300)], wide)
    assert len(set(sample(flat.expand(300, -1), seeds).tolist())) > 250


def test_the_generator_for_unseeded_rows_makes_them_repeatable_and_leaves_seeded_rows_alone():
    requests = [Request("a"), Request("s", seed=3), Request("b", top_p=0.9)]
    logits = torch.zeros(3, VOCAB)
    draws = [
        sample(logits, batch_of(requests), generator=torch.Generator().manual_seed(seed)).tolist()
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1]
    assert draws[0][1] == draws[2][1]
    assert draws[0][0] != draws[2][0]


def test_the_same_request_in_half_precision_draws_by_the_same_uniform():
    """Flat logits: the token is ⌊u·V⌋ whatever their type."""
    flat = torch.zeros(1, VOCAB)
    tokens = {
        sample(flat.to(dtype), batch_of([Request("r", seed=8)])).item()
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    }
    assert len(tokens) == 1

"""The tokens that may be drawn are those of an independent slow reference, exactly, for any parameters."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sampler_reference import drawable, kept_tokens
from xpu_triage.sampling import Path, Request, SamplingBatch, kept, sample, sampler

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Tensor, list[Request]]:
    """Logits [B, V] and their requests: rounded to make ties, with forbidden tokens, in every type."""
    vocab, batch = draw(st.integers(1, 150)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randn(batch, vocab, generator=generator) * draw(st.sampled_from([0.0, 0.1, 1.0, 8.0]))
    if draw(st.booleans()):
        logits = (logits * draw(st.sampled_from([1, 4]))).round()
    if draw(st.booleans()):
        forbidden = torch.rand(batch, vocab, generator=generator) < draw(st.sampled_from([0.2, 0.9]))
        forbidden[:, draw(st.integers(0, vocab - 1))] = False
        logits = logits.masked_fill(forbidden, -torch.inf)
    request = st.builds(
        Request,
        request_id=st.just("r"),
        temperature=st.sampled_from([0.0, 1e-4, 0.3, 1.0, 1.7, 50.0]),
        top_k=st.none() | st.integers(0, vocab + 2),
        top_p=st.none() | st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]) | st.floats(0, 1),
        min_p=st.sampled_from([0.0, 0.0, 0.013, 0.27, 1.0]),
    )
    requests = draw(st.lists(request, min_size=batch, max_size=batch))
    return logits.to(draw(st.sampled_from(DTYPES))), requests


def tokens_kept(logits: Tensor, batch: SamplingBatch, requests: list[Request]) -> list[set[int]]:
    mask = kept(logits, batch)
    kept_by_row = [set(row.nonzero().flatten().tolist()) for row in mask]
    can_be_drawn = map(drawable, logits, requests)
    return [tokens & can for tokens, can in zip(kept_by_row, can_be_drawn, strict=True)]


def as_unknown(requests: list[Request]) -> Tensor:
    return torch.tensor(
        [[r.temperature, r.top_k or 0, 1.0 if r.top_p is None else r.top_p, r.min_p] for r in requests],
        dtype=torch.float64,
    )


@settings(max_examples=800, deadline=None, derandomize=True)
@given(rows())
def test_kept_tokens_are_those_of_the_slow_reference(case):
    logits, requests = case
    batch = SamplingBatch.from_requests(requests, logits.shape[1])
    expected = [kept_tokens(row, request) for row, request in zip(logits, requests, strict=True)]
    assert tokens_kept(logits, batch, requests) == expected
    drawn = sample(logits, batch).tolist()
    assert all(token in tokens for token, tokens in zip(drawn, expected, strict=True))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(rows(), st.sampled_from([5, 11, 16]))
def test_parameters_known_to_the_device_alone_keep_the_same_tokens_by_digits_of_any_width(case, width):
    logits, requests = case
    batch = SamplingBatch.from_device(["r"] * len(requests), as_unknown(requests), logits.shape[1])
    assert not batch.known
    assert set(batch.paths) == {Path.GENERAL}
    expected = [kept_tokens(row, request) for row, request in zip(logits, requests, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "digit_bits", lambda vocab: width)
        assert tokens_kept(logits, batch, requests) == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "parameters",
    [
        {"top_k": 50},
        {"top_k": 1024, "top_p": 0.95},
        {"top_k": 3000},
        {"top_k": 3000, "top_p": 0.8, "temperature": 1.3},
        {"top_p": 0.9},
        {"top_p": 0.999, "temperature": 3.0},
        {"top_p": 0.5, "min_p": 0.01},
        {"min_p": 0.02, "temperature": 0.7},
    ],
    ids=str,
)
def test_a_whole_vocabulary_is_cut_where_the_slow_reference_cuts_it(dtype, parameters):
    logits = (torch.randn(2, 20_011, generator=torch.Generator().manual_seed(5)) * 3).to(dtype)
    request = Request("r", **parameters)
    batch = SamplingBatch.from_requests([request] * 2, logits.shape[1])
    assert tokens_kept(logits, batch, [request] * 2) == [kept_tokens(row, request) for row in logits]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "parameters", [{"top_p": 0.9}, {"top_p": 0.9999, "temperature": 4.0}, {"top_k": 60_000, "top_p": 0.97}], ids=str
)
def test_beyond_65536_tokens_too(dtype, parameters):
    logits = (torch.randn(1, 70_001, generator=torch.Generator().manual_seed(6)) * 3).to(dtype)
    request = Request("r", **parameters)
    batch = SamplingBatch.from_requests([request], logits.shape[1])
    assert tokens_kept(logits, batch, [request]) == [kept_tokens(logits[0], request)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(rows())
def test_in_float32_alone_the_nucleus_is_right_to_float32(case):
    """Devices without float64: the mass kept is the one asked for within 1e-5, and the order is the same."""
    logits, requests = case
    batch = SamplingBatch.from_requests(requests, logits.shape[1], wide=False)
    for row, request, tokens in zip(logits, requests, tokens_kept(logits, batch, requests), strict=True):
        assert kept_tokens(row, replaced(request, -1e-5)) <= tokens <= kept_tokens(row, replaced(request, 1e-5))


def replaced(request: Request, by: float) -> Request:
    """`request` with its shares moved a little: more kept for `by` > 0, fewer for `by` < 0."""
    top_p, min_p = request.top_p, request.min_p
    if top_p is not None and 0 < top_p < 1:
        top_p = min(max(top_p + by, 0.0), 1.0)
    if 0 < min_p < 1:
        min_p = math.exp(math.log(min_p) - by)
    return Request("r", request.temperature, request.top_k, top_p, min_p)

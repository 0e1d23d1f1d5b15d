"""The draws have the distribution that was asked for, in the middle, over the width, and in the tails.

Every test draws from seeded streams, so each gives the same result each time. Where a chi-square is judged,
its p-value must exceed 1e-6: with other seeds a right sampler would fail one test in a million runs.
"""

from __future__ import annotations

import math

import pytest
import torch

from sampler_reference import exact_distribution
from xpu_triage.sampling import Request, SamplingBatch, draw, sample
from xpu_triage.sampling.noise import (
    InverseCdf,
    Race,
    exponential_from_one_draw,
    exponential_from_two_draws,
    race,
)
from xpu_triage.sampling.sampler import block_size

FALSE_ALARM = 1e-6
WIDE = pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])


def chi_square_p(observed: torch.Tensor, expected: torch.Tensor) -> float:
    """The chance of counts at least this far from the expected ones. Cells with few expected are merged."""
    order = expected.argsort()
    observed, expected = observed.double()[order], expected.double()[order]
    small = int((expected.cumsum(0) < 5).sum()) + 1
    observed = torch.cat([observed[:small].sum().view(1), observed[small:]])
    expected = torch.cat([expected[:small].sum().view(1), expected[small:]])
    if len(expected) == 1:
        return 1.0
    statistic = ((observed - expected) ** 2 / expected).sum()
    return torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2).double(), statistic / 2).item()


def test_the_chi_square_itself_matches_a_table():
    """Upper 5 % points: 3.841 for 1 degree of freedom, 16.919 for 9."""
    for freedom, point in ((1, 3.841), (9, 16.919)):
        expected = torch.full((freedom + 1,), 1000.0)
        observed = expected.clone()
        shift = math.sqrt(point * 1000 / 2)
        observed[0] += shift
        observed[1] -= shift
        assert chi_square_p(observed, expected) == pytest.approx(0.05, abs=2e-4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(rows: int, vocab: int, wide: bool, seed: int = 0) -> InverseCdf | Race:
    """Noise for `rows` draws over `vocab` tokens, as `sample` would make it."""
    if wide:
        return InverseCdf(torch.rand(rows, dtype=torch.float64, generator=generator(seed)))
    lanes = -(-vocab // block_size(vocab)) + block_size(vocab)
    pair = torch.rand(2, rows, lanes, generator=generator(seed))
    return Race(exponential_from_two_draws(pair[0], pair[1]))


# --------------------------------------------------------------------------------------- against the exact one
PARAMETERS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0, "min_p": 0.2},
    {"top_k": 5},
    {"top_k": 12, "top_p": 0.8, "temperature": 1.5},
    {"top_k": 9, "min_p": 0.05},
    {"top_p": 0.7},
    {"top_p": 0.95, "temperature": 2.0, "min_p": 0.02},
]


@WIDE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_all_kinds_of_rows_in_one_batch_follow_their_exact_distribution(wide, dtype):
    rows, vocab = 3000, 40
    logits = (torch.randn(vocab, generator=generator(7)) * 1.5).to(dtype)
    requests = [Request(str(i), **PARAMETERS[i % len(PARAMETERS)]) for i in range(rows)]
    batch = SamplingBatch.from_requests(requests, vocab, wide=wide)
    counts = torch.zeros(len(PARAMETERS), vocab)
    source = generator(11)
    for _ in range(3):
        tokens = sample(logits.expand(rows, -1), batch, generator=source)
        for kind in range(len(PARAMETERS)):
            counts[kind] += torch.bincount(tokens[kind :: len(PARAMETERS)], minlength=vocab)
    for kind, parameters in enumerate(PARAMETERS):
        exact = exact_distribution(logits, Request("r", **parameters))
        expected = torch.tensor([exact.get(i, 0.0) for i in range(vocab)]) * counts[kind].sum()
        assert counts[kind][expected == 0].sum() == 0
        assert chi_square_p(counts[kind][expected > 0], expected[expected > 0]) > FALSE_ALARM, parameters


@WIDE
@pytest.mark.parametrize("parameters", [{}, {"temperature": 0.5}, {"top_k": 20}], ids=str)
def test_200_thousand_draws_follow_the_exact_distribution(wide, parameters):
    rows, vocab, source = 20_000, 64, generator(2)
    logits = torch.randn(vocab, generator=generator(1)) * 2
    batch = SamplingBatch.from_requests([Request("r", **parameters)] * rows, vocab, wide=wide)
    tokens = torch.cat([sample(logits.expand(rows, -1), batch, generator=source) for _ in range(10)])
    counts = torch.bincount(tokens, minlength=vocab)
    exact = exact_distribution(logits, Request("r", **parameters))
    expected = torch.tensor([exact.get(i, 0.0) for i in range(vocab)]) * len(tokens)
    assert chi_square_p(counts[expected > 0], expected[expected > 0]) > FALSE_ALARM


@WIDE
def test_unseeded_rows_beside_seeded_ones_keep_their_distribution(wide):
    """A plugin took −log of the unseeded rows' noise twice in mixed batches: chi-square 17,596 at 7 degrees."""
    rows, vocab = 20_000, 8
    logits = torch.tensor([0.0, 1, 2, 0, 1, 2, 0, 1])
    requests = [Request(str(i), seed=i if i % 2 else None) for i in range(rows)]
    batch = SamplingBatch.from_requests(requests, vocab, wide=wide)
    tokens = sample(logits.expand(rows, -1), batch, generator=generator(3))
    expected = logits.softmax(0) * (rows // 2)
    for part in (tokens[0::2], tokens[1::2]):
        assert chi_square_p(torch.bincount(part, minlength=vocab), expected) > FALSE_ALARM


# --------------------------------------------------------------------------------------------- over the width
@WIDE
@pytest.mark.parametrize("bins", [16, 152])
def test_a_flat_vocabulary_of_152_thousand_is_drawn_evenly(wide, bins):
    rows, vocab = 10_000, 152_000
    tokens = draw(torch.full((1, vocab), 0.3).expand(rows, -1), noise(rows, vocab, wide, seed=5))
    counts = torch.bincount(tokens * bins // vocab, minlength=bins)
    assert chi_square_p(counts, torch.full((bins,), rows / bins)) > FALSE_ALARM


def test_a_flat_vocabulary_is_drawn_evenly_through_the_whole_sampler():
    rows, vocab = 256, 152_000
    batch = SamplingBatch.from_requests([Request("r")] * rows, vocab)
    source = generator(9)
    logits = torch.zeros(1, vocab, dtype=torch.bfloat16).expand(rows, -1)
    tokens = torch.cat([sample(logits, batch, generator=source) for _ in range(4)])
    counts = torch.bincount(tokens * 16 // vocab, minlength=16)
    assert chi_square_p(counts, torch.full((16,), len(tokens) / 16)) > FALSE_ALARM


# ---------------------------------------------------------------------------------------------- in the tails
@pytest.mark.parametrize("p", [1e-6, 1e-7, 1e-8])
@pytest.mark.parametrize("rare", [1, 700, 151_999], ids=["block of the head", "block of its own", "last block"])
def test_the_inverse_cdf_gives_a_rare_token_the_share_of_uniforms_that_it_weighs(p, rare):
    """Exactly, not by counting draws: uniforms on a grid of p/1000 around the token's interval."""
    vocab, head = 152_000, 0
    weights = torch.zeros(1, vocab)
    weights[0, head], weights[0, rare] = 1.0, p
    start, width = 1 / (1 + p), p / (1 + p)
    u = start + width * (torch.arange(-300, 1000, dtype=torch.float64) + 0.5) / 1000
    tokens = draw(weights.expand(len(u), -1), InverseCdf(u.clamp(max=1 - 2.0**-53)))
    assert set(tokens.tolist()) == {head, rare}
    assert (tokens == rare).sum().item() == pytest.approx(1000, abs=2)


def test_the_uniform_is_fine_enough_for_tails():
    """Multiples of 2⁻⁵³: below 1e-6 there are some billion of them, where float32 has 17."""
    u = torch.rand(100_000, dtype=torch.float64, generator=generator(0))
    assert len(u.unique()) == len(u)
    assert chi_square_p(torch.bincount((u * 2**53).long() % 64, minlength=64), torch.full((64,), 1e5 / 64)) > 1e-6


def share_of_a_rare_token(p: float, exponential_near_0, strata: int) -> float:
    """How often a token of probability p wins its race, over p.

    Drawn where it can win alone: with its uniform among the `strata` lowest multiples of 2⁻²⁴, which has a
    chance of strata · 2⁻²⁴. Strata reach so far that it wins outside with a chance below e⁻⁶⁰.
    """
    n, source = 4_000_000, generator(13)
    head = torch.rand(n, dtype=torch.float64, generator=source).neg_().log1p_().neg_().float()
    steps = torch.randint(strata, (n,), generator=source)
    rare = exponential_near_0(steps, torch.rand(n, generator=source))
    wins = race(torch.tensor([[1 - p, p]]).expand(n, -1), torch.stack([head, rare], 1))
    return wins.sum().item() / n * strata * 2.0**-24 / p


@pytest.mark.parametrize(("p", "strata"), [(1e-6, 1024), (1e-7, 128), (1e-8, 16)])
def test_the_race_of_two_draws_gives_rare_tokens_their_rate(p, strata):
    """Within 3 %; the estimate's own deviation is below 0.6 %."""
    share = share_of_a_rare_token(
        p, lambda steps, low: exponential_from_two_draws(steps.float() * 2.0**-24, low), strata
    )
    assert share == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("p", "strata", "low", "high"), [(1e-6, 1024, 0.94, 0.99), (1e-7, 128, 0.68, 0.78), (1e-8, 16, 0.0, 0.05)]
)
def test_the_race_of_one_draw_gives_rare_tokens_too_little(p, strata, low, high):
    """Why the incident's form is not used: −log U is smallest just below U = 1, in steps of 6e-8."""
    share = share_of_a_rare_token(
        p, lambda steps, _: exponential_from_one_draw(1 - (steps + 1).float() * 2.0**-24), strata
    )
    assert low <= share <= high

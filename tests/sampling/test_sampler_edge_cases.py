"""Each edge case that a sampler in use has got wrong, with the right value worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from xpu_triage.sampling import BadRequest, Request, SamplingBatch, check_logits, draw, kept, sample
from xpu_triage.sampling.noise import InverseCdf, Race, exponential_from_one_draw, exponential_from_two_draws, race

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ONE_OF_EACH_PATH = [{}, {"temperature": 0}, {"top_k": 5}, {"top_p": 0.9}, {"top_k": 1500, "min_p": 0.1}]
WIDE = pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])


def batch_of(*parameters: dict, vocab: int, wide: bool = True) -> SamplingBatch:
    requests = [Request(f"r{i}", **p) for i, p in enumerate(parameters)]
    return SamplingBatch.from_requests(requests, vocab, wide=wide)


def kept_by(logits: torch.Tensor, **parameters: object) -> list[int]:
    """The tokens kept of one row."""
    batch = batch_of(parameters, vocab=logits.shape[-1])
    return kept(logits.view(1, -1), batch).squeeze(0).nonzero().flatten().tolist()


def drawn_many(logits: torch.Tensor, rows: int = 200, wide: bool = True, **parameters: object) -> set[int]:
    """The tokens that many rows of the same logits draw."""
    batch = batch_of(*[parameters] * rows, vocab=logits.shape[-1], wide=wide)
    generator = torch.Generator().manual_seed(1)
    return set(sample(logits.expand(rows, -1), batch, generator=generator).tolist())


# ------------------------------------------------------------------------------------- noise at its extremes
@pytest.mark.parametrize("lowest", [0.0, -0.0])
def test_a_masked_token_never_wins_even_where_noise_of_zero_makes_it_0_over_0(lowest):
    weights = torch.tensor([[0.0, 1.0, 0.0]])
    assert race(weights, torch.tensor([[lowest, 1.0, 1.0]])).tolist() == [1]
    native = (weights / torch.tensor([[lowest, 1.0, 1.0]])).argmax(1)
    assert native.tolist() == [0], "the plain form picks the masked token: NaN is the largest for argmax"


def test_the_exponential_of_the_incidents_fix_can_be_infinite_and_then_the_only_live_token_loses():
    assert exponential_from_one_draw(torch.tensor([0.0])).item() == math.inf
    weights, noise = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, math.inf]])
    assert race(weights, noise).tolist() == [0], "every score is 0, and argmax takes the first"


def test_the_exponential_of_two_draws_is_positive_and_finite_at_both_ends_of_the_uniform():
    low, high = torch.tensor([0.0]), torch.tensor([1 - 2.0**-24])
    ends = [exponential_from_two_draws(a.clone(), b.clone()).item() for a in (low, high) for b in (low, high)]
    assert all(0 < e < math.inf for e in ends)
    assert ends[0] == 2.0**-48
    assert max(ends) == pytest.approx(24 * math.log(2))


def test_the_other_exponential_of_one_draw_is_zero_where_the_uniform_is_and_the_one_of_two_draws_is_not():
    """−log1p(−U). `uniform_` gives multiples of 2⁻²⁴: 0 in one of 16.8 million draws, 18.5 times in 3.1e8 (16 were
    counted), 4 times in the 67 million here; Poisson's chance of none is 1.8 %, of more than 14 it is 3e-5."""
    generator, zeros = torch.Generator().manual_seed(0), 0
    for _ in range(8):
        u = torch.rand(1 << 23, generator=generator)
        noise = u.neg().log1p_().neg_()
        zeros += int((noise == 0).sum())
        assert torch.equal(noise == 0, u == 0)
        of_two = exponential_from_two_draws(u[u == 0], torch.zeros(int((u == 0).sum())))
        assert (of_two == 2.0**-48).all()
    assert 1 <= zeros <= 14
    # such a zero takes the race from every other token: w ÷ 0 = inf
    assert (torch.tensor([1e-8, 1.0]) / torch.tensor([0.0, 1.0])).argmax() == 0


@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
def test_the_inverse_cdf_picks_a_live_token_for_every_uniform(u):
    weights = torch.tensor([[0.0, 0.0, 3.0, 0.0, 1e-30, 0.0]])
    drawn = draw(weights, InverseCdf(torch.tensor([u], dtype=torch.float64))).item()
    assert drawn == 2 if u < 1 - 2.0**-53 else drawn in (2, 4)
    weights = torch.rand(2000, 60, generator=torch.Generator().manual_seed(1))
    weights[:, 20:] = 0.0  # at the largest u the target must not reach the total, behind which nothing weighs
    tokens = InverseCdf(torch.full((2000,), u, dtype=torch.float64)).pick(weights)
    assert (tokens < 20).all()
    for block_of_the_live in range(0, 4000, 777):
        row = torch.zeros(1, 4000)
        row[0, block_of_the_live] = 0.1
        assert draw(row, InverseCdf(torch.tensor([u], dtype=torch.float64))).item() == block_of_the_live


@WIDE
def test_forbidden_tokens_are_never_drawn(wide):
    logits = torch.full((3000,), -torch.inf)
    logits[[7, 1500, 2999]] = torch.tensor([0.0, 0.0, 0.0])
    assert drawn_many(logits, wide=wide) == {7, 1500, 2999}
    assert drawn_many(logits, wide=wide, top_p=0.9) == {7, 1500, 2999}
    assert drawn_many(logits, wide=wide, top_k=50) == {7, 1500, 2999}
    assert drawn_many(logits, wide=wide, top_k=2000) == {7, 1500, 2999}


@WIDE
def test_rows_with_the_same_logits_draw_independently(wide):
    """One row of noise expanded over the batch gave 64 identical rows one token. Of 64 draws from 1,000
    equals 62 are expected to be distinct; fewer than 50 has a chance below 1e-9."""
    assert len(drawn_many(torch.zeros(1000), rows=64, wide=wide)) >= 50


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@WIDE
def test_half_precision_logits_do_not_draw_from_the_front(dtype, wide):
    """Noise in the logits' own type put 99 % of the picks into the first sixteenth of a flat vocabulary.
    Here a sixteenth of 400 rows is 25 ± 4.8; outside [1, 60] has a chance below 1e-9."""
    logits = torch.zeros(1, 16_000, dtype=dtype).expand(400, -1)
    batch = batch_of(*[{}] * 400, vocab=16_000, wide=wide)
    first = (sample(logits, batch, generator=torch.Generator().manual_seed(3)) < 1000).sum().item()
    assert 1 <= first <= 60


# ------------------------------------------------------------------------------------------------- dead rows
@WIDE
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parameters", ONE_OF_EACH_PATH)
def test_a_row_without_any_allowed_token_gives_token_0_and_does_not_touch_its_neighbours(wide, dtype, parameters):
    logits = torch.full((3, 2000), -torch.inf, dtype=dtype)
    logits[0, 1234] = 0
    logits[2, 1999] = 0
    assert sample(logits, batch_of(*[parameters] * 3, vocab=2000, wide=wide)).tolist() == [1234, 0, 1999]


@WIDE
@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("parameters", ONE_OF_EACH_PATH)
def test_a_poisoned_row_gives_some_token_in_range_and_does_not_touch_its_neighbours(wide, poison, parameters):
    logits = torch.full((3, 2000), -torch.inf)
    logits[0, 1234] = logits[2, 1999] = 0
    logits[1] = torch.randn(2000)
    logits[1, 77] = poison
    tokens = sample(logits, batch_of(*[parameters] * 3, vocab=2000, wide=wide)).tolist()
    assert (tokens[0], tokens[2]) == (1234, 1999)
    assert 0 <= tokens[1] < 2000


@pytest.mark.parametrize(("value", "says"), [(-math.inf, "−inf throughout"), (math.nan, "NaN"), (math.inf, r"\+inf")])
def test_on_demand_the_logits_are_looked_at_and_the_request_is_named(value, says):
    logits = torch.zeros(2, 9)
    batch = batch_of({}, {}, vocab=9)
    check_logits(logits, batch)
    logits[1] = value
    with pytest.raises(BadRequest, match=f"request 'r1', logits: .*{says}"):
        check_logits(logits, batch)


# ------------------------------------------------------------------------------------------------------ top-p
@pytest.mark.parametrize("dtype", DTYPES)
def test_top_p_of_zero_keeps_one_token(dtype):
    assert kept_by(torch.tensor([1.0, 3.0, 3.0, 0.0], dtype=dtype), top_p=0.0) == [1]


def test_the_nucleus_is_the_shortest_prefix_that_holds_the_mass():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert kept_by(logits, top_p=0.39) == [0]
    assert kept_by(logits, top_p=0.41) == [0, 1]
    assert kept_by(logits, top_p=0.69) == [0, 1]
    assert kept_by(logits, top_p=0.71) == [0, 1, 2]
    assert kept_by(logits, top_p=0.99) == [0, 1, 2, 3]


@pytest.mark.parametrize(("p", "count"), [(0.1, 1), (0.3, 3), (0.5, 5), (0.7, 7), (0.9, 9), (0.91, 10)])
def test_equal_tokens_are_kept_up_to_the_exact_share_the_lowest_indices_first(p, count):
    assert kept_by(torch.zeros(10), top_p=p) == list(range(count))


def test_a_row_with_p_1_in_a_mixed_batch_keeps_its_whole_tail():
    """The rule `cumsum − p > top_p` in float32 dropped up to 27,174 tokens of such a row: its running sum
    passes 1 before the end."""
    logits = torch.randn(2, 152_000, generator=torch.Generator().manual_seed(0))
    batch = batch_of({"top_p": 1.0, "top_k": 151_999}, {"top_p": 0.9}, vocab=152_000)
    mask = kept(logits, batch)
    assert mask[0].sum().item() == 151_999
    assert not mask[0, logits[0].argmin()]


def test_a_share_just_below_1_drops_what_is_beyond_it_and_no_more():
    logits = torch.zeros(100_000)
    assert len(kept_by(logits, top_p=1 - 1.5e-5)) == 99_999
    assert len(kept_by(logits, top_p=1 - 2.5e-5)) == 99_998
    assert len(kept_by(logits, top_p=1 - 1e-12)) == 100_000


def test_top_p_after_top_k_is_a_share_of_what_top_k_left():
    logits = torch.tensor([0.3, 0.3, 0.2, 0.2]).log()
    assert kept_by(logits, top_k=2, top_p=0.5) == [0]
    assert kept_by(logits, top_p=0.5) == [0, 1]


# ------------------------------------------------------------------------------------------------------ top-k
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_ties_at_the_kth_place_keep_k_tokens_and_not_more(dtype, k):
    assert kept_by(torch.tensor([0.0, 5.0, 3.0, 3.0, 3.0, 5.0], dtype=dtype), top_k=k) == sorted([1, 5, 2, 3][:k])


def test_ties_above_1024_keep_k_tokens_and_not_more():
    assert kept_by(torch.zeros(5000), top_k=1500) == list(range(1500))
    assert kept_by(torch.zeros(5000), top_k=1024) == list(range(1024))


def test_minus_zero_and_zero_are_equal():
    logits = torch.tensor([-0.0, 0.0, -0.0, -1.0])
    assert kept_by(logits, top_k=2) == [0, 1]
    assert kept_by(logits, top_p=0.5) == [0, 1]
    assert kept_by(logits, temperature=0) == [0]


@pytest.mark.parametrize("k", [None, 0, 8, 9, 10**9])
def test_a_k_of_zero_or_beyond_the_vocabulary_keeps_all(k):
    assert kept_by(torch.arange(8.0), top_k=k) == list(range(8))


def test_tokens_with_nothing_left_of_their_weight_do_not_count_for_anything():
    logits = torch.tensor([0.0, -torch.inf, -torch.inf, -1.0])
    assert kept_by(logits, top_k=3) == [0, 3]


# ------------------------------------------------------------------------------------------------------ min-p
def test_min_p_is_relative_to_the_likeliest_token():
    logits = torch.tensor([0.5, 0.26, 0.24, 0.049, 0.051]).log()
    assert kept_by(logits, min_p=0.5) == [0, 1]
    assert kept_by(logits, min_p=0.1) == [0, 1, 2, 4]
    assert kept_by(logits, min_p=1.0) == [0]
    assert kept_by(logits, min_p=0.5, temperature=2.0) == [0, 1, 2], "√ of each: 0.71, 0.51, 0.49; 0.22 is out"
    assert kept_by(logits, min_p=0.1, top_k=3) == [0, 1, 2]
    assert kept_by(logits, min_p=0.1, top_p=0.99) == [0, 1, 2, 4]


# ----------------------------------------------------------------------------------------------- temperature
@pytest.mark.parametrize("temperature", [0, 1e-9, 9.9e-6])
def test_below_1e_minus_5_the_largest_logit_is_taken_and_the_first_among_equals(temperature):
    logits = torch.tensor([1.0, 2.0, 2.0, 1.9999]).repeat(500)
    assert drawn_many(logits, temperature=temperature) == {1}


def test_a_temperature_of_1e_minus_5_does_not_overflow():
    logits = torch.tensor([3e4, 3e4 - 1, -3e4])
    assert drawn_many(logits, temperature=1e-5) == {0}
    assert drawn_many(logits, temperature=1e-5, top_p=0.9) == {0}


def test_small_differences_of_large_logits_survive_a_small_temperature():
    """x / T first would round 1000.0001 / 1e-3 to a multiple of 0.06; (x − max) / T is exact: e⁻⁰·⁹⁸ here."""
    logits = torch.tensor([1000.0, 1000.0 - 2.0**-10, -1000.0])
    expected = math.exp(-(2.0**-10) / 1e-3)
    share = torch.tensor([1.0, expected, 0]) / (1 + expected)
    assert kept_by(logits, temperature=1e-3, top_p=share[0].item() + 1e-6) == [0, 1]
    assert kept_by(logits, temperature=1e-3, top_p=share[0].item() - 1e-6) == [0]


def test_the_same_logits_draw_the_same_whether_another_row_of_the_batch_is_scaled_or_not():
    """With no temperature in the batch a pass is left out; it must not change a bit of the weights."""
    logits = torch.randn(2, 4096, generator=torch.Generator().manual_seed(2)) * 5
    alone = batch_of({"seed": 4}, {"seed": 5}, vocab=4096)
    beside = batch_of({"seed": 4}, {"seed": 5}, {"temperature": 0.5}, vocab=4096)
    for _ in range(50):
        first = sample(logits, alone)
        assert torch.equal(first, sample(torch.cat([logits, logits[:1]]), beside)[:2])


# ---------------------------------------------------------------------------------------------- mixed batches
@WIDE
def test_greedy_and_random_rows_share_a_batch(wide):
    logits = torch.randn(6, 3000, generator=torch.Generator().manual_seed(0))
    parameters = [{"temperature": 0}, {}, {"top_p": 0.5}, {"temperature": 0, "top_k": 9}, {"top_k": 2000}, {"top_k": 4}]
    tokens = sample(logits, batch_of(*parameters, vocab=3000, wide=wide))
    largest = logits.argmax(1)
    assert tokens[0] == largest[0]
    assert tokens[3] == largest[3]


@WIDE
@pytest.mark.parametrize("vocab", [1, 2, 3, 17, 1023, 1024, 1025])
def test_any_size_of_vocabulary_is_drawn_from(vocab, wide):
    logits = torch.zeros(8, vocab)
    logits[:, -1] = 30.0
    for parameters in ({}, {"top_k": 3}, {"top_p": 0.7}, {"temperature": 0}, {"top_k": vocab - 1, "top_p": 0.3}):
        tokens = sample(logits, batch_of(*[parameters] * 8, vocab=vocab, wide=wide))
        assert tokens.tolist() == [vocab - 1] * 8
        assert tokens.dtype is torch.int64


def test_logits_are_left_as_they_were():
    logits = torch.randn(3, 2000)
    before = logits.clone()
    sample(logits, batch_of({"top_p": 0.5, "min_p": 0.1}, {"temperature": 2}, {"top_k": 5}, vocab=2000))
    assert torch.equal(logits, before)


def test_rows_in_strides_are_rows():
    wide_logits = torch.randn(4, 2, 1500, generator=torch.Generator().manual_seed(0))
    logits = wide_logits[:, 1]
    assert not logits.is_contiguous()
    for parameters in ({"seed": 1}, {"seed": 1, "top_k": 5}, {"seed": 1, "top_p": 0.9}):
        strided = sample(logits, batch_of(*[parameters] * 4, vocab=1500))
        assert torch.equal(strided, sample(logits.contiguous(), batch_of(*[parameters] * 4, vocab=1500)))


def test_a_race_needs_no_noise_matrix_over_the_vocabulary():
    lanes = 4096 // 64 + 64
    noise = Race(torch.ones(1, lanes))
    assert draw(torch.ones(1, 4096), noise).shape == (1,)
    assert noise.used == lanes

"""Two baselines side by side: what is claimed, what is only shown, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baseline_runs import ENVIRONMENT, Paper, record_of
from xpu_triage.baseline.compare import FALSE_ALARMS, MATTERS, State, compare
from xpu_triage.baseline.dimension import dimension
from xpu_triage.baseline.records import BenchRecord, Environment, Requests, Stat
from xpu_triage.baseline.store import Baseline, Cell, baseline
from xpu_triage.baseline.tables import to_json
from xpu_triage.errors import UnusableInput

SLOWER = 1.1


def slowed(paper: Paper, factor: float) -> Paper:
    return replace(paper, **{name: getattr(paper, name) * factor
                             for name in ("fixed", "prefill", "queue", "decode", "context")})


def plain(ttft: float, tpot: float, *, n: int = 40, concurrency: float = 4, prompt: float = 128, output: float = 64,
          seed: int = 0, spread: float = 0.02, **more: object) -> BenchRecord:
    """A run of requests around two latencies."""
    rng = np.random.default_rng(seed)
    first, token = ttft * rng.lognormal(0, spread, n), tpot * rng.lognormal(0, spread, n)
    e2e = first + token * (output - 1)
    return record_of(Requests(first, e2e, token, np.full(n, prompt), np.full(n, output),
                              np.cumsum(e2e) / 1000 / concurrency), concurrency, **more)


def summary(ttft: Stat, *, prompt: float = 128, **more: object) -> BenchRecord:
    """A run whose tool kept no requests."""
    made = BenchRecord("file", "vllm bench serve", ENVIRONMENT, 8.0, None, prompt, 64.0, {"ttft": ttft}, 10.0, 100, 0,
                       500.0, 10.0)
    return replace(made, **more)


def one(record: BenchRecord, **environment: str) -> Baseline:
    return baseline([replace(record, environment=replace(record.environment, **environment))], source="x.json")


# ---- noise


def test_two_recordings_of_one_server_raise_no_alarm():
    """100 pairs of 4 loads with 4 figures each, and those over all loads: 2,000 chances of a false alarm. Noise of a
    request 8 to 16 %, of all that run together 1.5 %, of a run 0.7 %."""
    paper, grid = Paper(shared=0.015), ((1, 8), (128, 2048), (64,))
    alarms = 0
    for pair in range(100):
        found = compare(paper.baseline(2 * pair, 120, grid), paper.baseline(2 * pair + 1, 120, grid))
        alarms += any(one.state in (State.WORSE, State.BETTER) for one in (*found.entries, *found.pooled))
    assert alarms <= 1


@pytest.mark.parametrize("concurrency", [1, 8, 32])
def test_ten_per_cent_slower_is_found_with_200_requests(concurrency):
    paper, grid = Paper(shared=0.015), ((concurrency,), (128,), (64,))
    found = 0
    for pair in range(100):
        entries = compare(paper.baseline(10_000 + 2 * pair, 200, grid),
                          slowed(paper, SLOWER).baseline(10_001 + 2 * pair, 200, grid)).entries
        found += any(entry.state is State.WORSE for entry in entries)
    assert found >= 95


def test_intervals_hold_the_true_ratio_as_often_as_they_say():
    """60 pairs, 10 % slower, all intervals of a comparison at once: 99 of 100 are promised."""
    paper, grid = Paper(shared=0.015), ((8,), (128, 512), (64,))
    missed = 0
    for pair in range(60):
        entries = compare(paper.baseline(20_000 + 2 * pair, 150, grid),
                          slowed(paper, SLOWER).baseline(20_001 + 2 * pair, 150, grid)).entries
        truth = {"throughput": 1 / SLOWER}
        missed += any(not entry.low <= truth.get(entry.metric, SLOWER) <= entry.high for entry in entries)
    assert missed <= 2


def test_a_few_stalled_requests_are_no_regression():
    old, new = plain(50, 10, seed=1), plain(50, 10, seed=2)
    new.requests.ttft_ms[7:10] *= 40
    new.requests.e2e_ms[7:10] += 2000
    found = compare(one(old), one(new))
    assert not found.with_state(State.WORSE)
    assert found.entry(found.cells[0], "ttft").ratio == pytest.approx(1, abs=0.03)


def test_a_difference_that_is_sure_and_small_is_no_regression():
    found = compare(one(plain(50, 10, n=2000, seed=1)), one(plain(51.5, 10.3, n=2000, seed=2)))  # 3 %
    assert not found.with_state(State.WORSE)
    assert {entry.state for entry in found.entries} == {State.SAME}


def test_what_is_too_noisy_says_so():
    found = compare(one(plain(50, 10, n=12, spread=0.5, seed=1)), one(plain(50, 10, n=12, spread=0.5, seed=2)))
    assert found.entry(found.cells[0], "ttft").state is State.UNCLEAR


def test_a_small_slow_down_of_all_loads_is_sure_in_all_together():
    paper = Paper(own=0.12, shared=0.01, run=0.0)
    grid = ((1, 2), (128, 512, 2048), (64, 256))
    found = compare(paper.baseline(1, 20, grid), slowed(paper, 1.09).baseline(2, 20, grid))
    assert next(one for one in found.pooled if one.metric == "e2e").state is State.WORSE
    assert sum(entry.state is State.WORSE for entry in found.entries if entry.metric == "e2e") < 12


# ---- figures


def test_ratios_of_a_run_worked_by_hand():
    """Without noise: 40 to 60 ms is 1.5; 10 to 8 ms is 0.8; 63 gaps: 670 to 564 ms is 0.8418."""
    found = compare(one(plain(40, 10, spread=0)), one(plain(60, 8, spread=0)))
    cell = Cell(4, None, 128, 64)
    assert found.cells == (cell,)
    assert {entry.metric: round(entry.ratio, 4) for entry in found.entries if entry.metric != "throughput"} == {
        "ttft": 1.5, "itl": 0.8, "e2e": 0.8418}
    assert [found.entry(cell, metric).state for metric in ("ttft", "itl")] == [State.WORSE, State.BETTER]
    assert found.entry(cell, "ttft").basis == "typical request"
    assert found.entry(cell, "ttft").n_old == found.entry(cell, "ttft").n_new == 40
    # a throughput that falls is worse, one that rises is better
    rate = found.entry(cell, "throughput")
    assert rate.effect == pytest.approx(-math.log(rate.ratio))


def test_without_single_requests_a_ratio_is_shown_and_nothing_is_claimed():
    found = compare(one(summary(Stat(p50=100.0, mean=130.0, n=100))), one(summary(Stat(p50=300.0, mean=310.0, n=90))))
    entry = found.entry(found.cells[0], "ttft")
    assert (entry.ratio, entry.basis, entry.state) == (3.0, "p50 ttft", State.UNKNOWN)
    assert (entry.low, entry.high, entry.n_old, entry.n_new) == (None, None, 100, 90)
    assert any("2 of 2 ratios without an interval" in note for note in found.notes)


def test_a_median_is_never_held_against_a_mean():
    found = compare(one(summary(Stat(p50=100.0, mean=120.0))), one(summary(Stat(mean=180.0))))
    assert found.entry(found.cells[0], "ttft").basis == "mean ttft"
    assert found.entry(found.cells[0], "ttft").ratio == pytest.approx(1.5)


def test_an_unknown_latency_is_no_entry():
    for unknown in (Stat(), Stat(p50=0.0), Stat(p50=float("nan"), mean=float("inf"))):
        found = compare(one(summary(Stat(p50=100.0))), one(summary(unknown)))
        assert found.entry(found.cells[0], "ttft") is None
        assert found.entry(found.cells[0], "throughput") is not None


def test_requests_that_are_unknown_or_impossible_are_left_out():
    old, new = plain(50, 10, seed=1), plain(50, 10, seed=2)
    new.requests.ttft_ms[:5] = [np.nan, 0.0, -3.0, np.inf, np.nan]
    entry = compare(one(old), one(new)).entries[0]
    assert (entry.metric, entry.n_old, entry.n_new) == ("ttft", 40, 35)
    assert entry.ratio == pytest.approx(1, abs=0.03)


def test_at_a_rate_from_outside_a_throughput_has_no_interval():
    open_loop = {"concurrency": None, "request_rate": 5.0}
    found = compare(one(replace(plain(50, 10, seed=1), **open_loop)), one(replace(plain(50, 10, seed=2), **open_loop)))
    assert found.entry(found.cells[0], "throughput").low is None
    assert found.entry(found.cells[0], "ttft").low is not None


def test_repeats_that_lie_apart_widen_the_interval():
    near = [plain(50, 10, seed=seed) for seed in (1, 2)]
    apart = [plain(45, 10, seed=1), plain(55, 10, seed=2)]
    new = one(plain(50, 10, seed=3))
    narrow, wide = (compare(baseline(runs), new).entries[0] for runs in (near, apart))
    assert narrow.n_old == 80
    assert wide.se > 3 * narrow.se
    assert wide.se == pytest.approx(math.log(55 / 45) / 2, rel=0.1)  # of two: their distance ÷ √2 ÷ √2


# ---- loads


def test_loads_are_matched_by_the_nearest_within_ten_per_cent():
    old = baseline([plain(50, 10, prompt=prompt) for prompt in (128, 512)])
    new = baseline([plain(50, 10, prompt=prompt, seed=5) for prompt in (120, 135, 2048)])
    found = compare(old, new)
    assert found.cells == (Cell(4, None, 128, 64),)
    assert [cell.prompt_tokens for cell in found.only_old] == [512]
    assert [cell.prompt_tokens for cell in found.only_new] == [120, 2048]  # 135 is nearer to 128 than 120 is


def test_no_common_load_is_one_line():
    with pytest.raises(UnusableInput, match="measured in both: concurrency 4, prompt 128, output 64 in one"):
        compare(one(plain(50, 10)), one(plain(50, 10, concurrency=8)))


def test_a_length_unknown_in_one_is_no_match_and_in_both_is_one():
    unknown = replace(plain(50, 10), prompt_tokens=None)
    with pytest.raises(UnusableInput, match="no load was measured in both"):
        compare(one(plain(50, 10)), one(unknown))
    assert "lengths unknown in both: taken as the same" in compare(one(unknown), one(unknown)).notes


# ---- environments


@pytest.mark.parametrize(("part", "a", "b"), [
    ("model", "m/model-8b", "m/model-70b"), ("device", "NVIDIA L40S", "NVIDIA H100"),
    ("model", "a/model-8b", "b/model-8b"),
])
def test_another_model_or_device_is_refused_unless_told(part, a, b):
    old, new = one(plain(50, 10), **{part: a}), one(plain(50, 10), **{part: b})
    with pytest.raises(UnusableInput) as refusal:
        compare(old, new)
    assert f"{part} {a} and {b}" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert any(f"{part} {a} and {b}" in note for note in compare(old, new, anyway=True).notes)


def test_both_differences_are_named_at_once():
    with pytest.raises(UnusableInput, match="model a and b; device c and d"):
        compare(one(plain(50, 10), model="a", device="c"), one(plain(50, 10), model="b", device="d"))


@pytest.mark.parametrize(("a", "b"), [("Model-8B", "model-8b"), ("/models/m/Model-8B/", "Model-8B")])
def test_one_model_under_two_names_is_one(a, b):
    assert any(f"model taken as one: {a} and {b}" in note
               for note in compare(one(plain(50, 10), model=a), one(plain(50, 10), model=b)).notes)


def test_another_engine_version_is_the_point_and_is_said():
    notes = compare(one(plain(50, 10)), one(plain(50, 10), engine_version="0.10")).notes
    assert "engine version: 0.9, now 0.10" in notes


def test_an_unknown_device_is_said_and_not_refused():
    notes = compare(one(plain(50, 10)), one(plain(50, 10), device="")).notes
    assert "device unknown in the new one: whether it is the same cannot be told" in notes


def test_two_clients_are_said():
    notes = compare(one(plain(50, 10)), one(replace(plain(50, 10), tool="guidellm"))).notes
    assert any("measured by xpu-triage, now by guidellm" in note for note in notes)


# ---- the client, and failures


def test_what_the_client_delays_is_not_blamed_on_the_server():
    old = plain(50, 10, seed=1, extra={"client_lag_mean_ms": 0.2})
    late = plain(70, 10, seed=2, extra={"client_lag_mean_ms": 12.0})  # 20 ms more, 11.8 of them the client's
    on_time = plain(70, 10, seed=2, extra={"client_lag_mean_ms": 3.0})
    doubted, believed = compare(one(old), one(late)), compare(one(old), one(on_time))
    assert doubted.entry(doubted.cells[0], "ttft").state is State.CLIENT
    assert any("the client was late by as much as ttft grew" in note for note in doubted.notes)
    assert believed.entry(believed.cells[0], "ttft").state is State.WORSE


@pytest.mark.parametrize(("old", "new", "more"), [((0, 200), (12, 188), True), ((0, 200), (2, 198), False),
                                                  ((20, 180), (24, 176), False), ((0, 10_000), (30, 9_970), False)])
def test_failures_are_told_from_chance(old, new, more):
    a, b = (plain(50, 10, failed=failed, completed=completed, duration_s=None) for failed, completed in (old, new))
    found = compare(one(a), one(b)).failures
    assert [(one.old, one.new, one.more) for one in found] == [(old[0], new[0], more)]


def test_invalid_first_tokens_are_said():
    assert any("3 times to first token of 0 left out" in note
               for note in compare(one(plain(50, 10, invalid_ttft=3)), one(plain(50, 10))).notes)


def test_the_promises_are_those_that_the_simulations_hold():
    assert FALSE_ALARMS == 0.01
    assert 1 < MATTERS < SLOWER


def test_an_environment_that_knows_nothing_is_compared_with_a_warning():
    bare = Environment()
    found = compare(one(replace(plain(50, 10), environment=bare)), one(replace(plain(50, 10), environment=bare)))
    assert sum("unknown in both" in note for note in found.notes) == 2


# ---- whatever a file holds

SIZES = st.none() | st.sampled_from([0.0, -1.0, 1.0, 8.0, 1e300]) | st.floats(0, 1e6)
TIMES = st.floats(-1, 1e6) | st.sampled_from([float("nan"), 1e-300, 1e300, 0.0])
COUNTS = st.none() | st.integers(-5, 10**6)


@st.composite
def any_record(draw):
    n = draw(st.integers(0, 20))
    column = st.lists(TIMES, min_size=n, max_size=n).map(lambda values: np.array(values, dtype=float))
    gaps = tuple(draw(st.lists(column, min_size=n, max_size=n))) if n and draw(st.booleans()) else ()
    requests = draw(st.none() | st.builds(Requests, column, column, column, column, column, column, st.just(gaps)))
    latencies = draw(st.dictionaries(st.sampled_from(["ttft", "tpot", "itl", "e2e"]),
                                     st.builds(Stat, mean=SIZES, p50=SIZES, n=COUNTS)))
    return BenchRecord("f", "t", Environment(), draw(SIZES), draw(SIZES), draw(SIZES), draw(SIZES), latencies, None,
                       draw(COUNTS), draw(COUNTS), draw(SIZES), None, requests=requests)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(any_record(), min_size=1, max_size=3), st.data())
def test_any_two_baselines_are_compared_or_refused(records, data):
    others = [replace(record, requests=other.requests, latencies=other.latencies) for record, other in
              zip(records, [data.draw(any_record()) for _ in records], strict=True)]
    try:
        found = compare(baseline(records), baseline(others))
    except UnusableInput:
        return
    verdict = dimension(found)
    json.dumps(to_json(found, verdict), allow_nan=False)
    assert verdict.exit_code in (0, 1, 3)
    assert all(entry.low is None or entry.low <= entry.high for entry in found.entries)

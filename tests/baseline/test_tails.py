"""The slowest tenth of the requests: compared for itself, in the same budget, and named when it alone is worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline_runs import ENVIRONMENT, Paper, record_of
from xpu_triage.baseline.compare import State, compare
from xpu_triage.baseline.dimension import Kind, dimension
from xpu_triage.baseline.records import BenchRecord, Requests, Stat
from xpu_triage.baseline.store import Baseline, baseline


def run(seed: int, n: int = 200, *, spread: float = 0.05, tokens: int = 16, each: int = 1) -> BenchRecord:
    """200 ms to the first token and 10 ms a token, with gaps; `each` tokens in a chunk."""
    rng = np.random.default_rng(seed)
    first = 200 * rng.lognormal(0, spread, n)
    gaps = tuple(10 * each * rng.lognormal(0, spread, (tokens - 1) // each) for _ in range(n))
    e2e = first + np.array([gap.sum() for gap in gaps])
    full = np.ones(n)
    return record_of(Requests(first, e2e, (e2e - first) / (tokens - 1), 1024 * full, tokens * full,
                              np.cumsum(e2e) / 4000, gaps), 4)


def later(record: BenchRecord, every: int, ms: float) -> BenchRecord:
    """Every so many-th first token is that much later."""
    record.requests.ttft_ms[::every] += ms
    record.requests.e2e_ms[::every] += ms
    return record


def stalled(record: BenchRecord, every: int, ms: float) -> BenchRecord:
    """Every so many-th request has one gap that much longer."""
    for i in range(0, len(record.requests), every):
        record.requests.itl_ms[i][5] += ms
    record.requests.e2e_ms[::every] += ms
    return record


def one(record: BenchRecord) -> Baseline:
    return baseline([record], source="x.json")


def test_a_tenth_of_the_requests_twenty_times_later_is_the_tail_and_not_the_typical_request():
    found = compare(one(run(1)), one(later(run(2), 10, 3800)))
    verdict = dimension(found)
    assert (verdict.kind, verdict.exit_code) == (Kind.TAIL, 1)
    assert "wait for their first token" in verdict.text
    cell = found.cells[0]
    assert {found.entry(cell, metric).state for metric in ("ttft", "itl", "e2e")} == {State.SAME}
    assert found.entry(cell, "ttft_tail").ratio == pytest.approx(4000 / 218, rel=0.1)  # a tenth of 5 %: 200 · e^(1.75σ)
    assert found.entry(cell, "itl_tail").state is State.SAME


def test_gaps_of_two_seconds_in_every_fifth_request_are_stalls_between_tokens():
    found = compare(one(run(1)), one(stalled(run(2), 5, 2000)))
    verdict = dimension(found)
    assert verdict.kind is Kind.TAIL
    assert "held up between two tokens" in verdict.text
    assert found.entry(found.cells[0], "itl_tail").new == pytest.approx(2010, rel=0.01)
    assert found.entry(found.cells[0], "ttft_tail").state is State.SAME


def test_the_slowest_tenth_worked_by_hand():
    """20 of 200 at 800 ms, the others at 200: the mean of their logarithms is 800."""
    old, new = run(1, spread=0), later(run(2, spread=0), 10, 600)
    entry = compare(one(old), one(new)).entry(compare(one(old), one(new)).cells[0], "ttft_tail")
    assert (entry.old, entry.new, entry.basis) == (pytest.approx(200), pytest.approx(800), "slowest tenth")


def test_a_tail_that_gets_shorter_is_better_and_no_regression():
    found = compare(one(later(run(1), 10, 3800)), one(run(2)))
    assert found.entry(found.cells[0], "ttft_tail").state is State.BETTER
    assert dimension(found).kind is Kind.NONE


def test_one_outlier_among_200_is_no_tail():
    new = run(2)
    new.requests.ttft_ms[77] *= 100
    new.requests.e2e_ms[77] += 20_000
    found = compare(one(run(1)), one(new))
    assert found.entry(found.cells[0], "ttft_tail").state is State.UNCLEAR
    assert dimension(found).exit_code == 0
    entry = found.entry(found.cells[0], "ttft_tail")
    assert f"× {entry.ratio:.2f} (99 % within {entry.low:.2f} to {entry.high:.2f})" in dimension(found).text
    assert "1 of 200 requests waited more than 1 s for the first token" in dimension(found).text
    assert "may be chance (p = 0.5, Fisher)" in dimension(found).text


def test_few_requests_have_no_tail():
    found = compare(one(run(1, 49)), one(run(2, 49)))
    assert not any(entry.metric.endswith("_tail") for entry in found.entries)


def test_gaps_of_larger_chunks_are_not_held_against_those_of_tokens():
    found = compare(one(run(1)), one(run(2, each=3)))
    assert found.entry(found.cells[0], "itl_tail") is None
    assert found.entry(found.cells[0], "ttft_tail") is not None


@pytest.mark.parametrize("each", [2, 4])
def test_without_a_first_token_gaps_of_larger_chunks_are_no_slower_tokens(each):
    """The same server, 10 ms a token; what differs is how many of them come at once. Times per token need the first
    one's time, which neither client has."""
    def blind(record: BenchRecord) -> Baseline:
        record.requests.ttft_ms[:] = record.requests.tpot_ms[:] = np.nan
        return one(replace(record, latencies={"e2e": record.stat("e2e")}))

    found = compare(blind(run(1, tokens=33)), blind(run(2, tokens=33, each=each)))
    assert found.entry(found.cells[0], "itl") is None
    assert found.entry(found.cells[0], "e2e").state is State.SAME
    assert not dimension(found).regression
    alike = compare(blind(run(1, tokens=33, each=each)), blind(run(2, tokens=33, each=each)))
    assert alike.entry(alike.cells[0], "itl").basis == "typical gap"


def test_medians_of_gaps_between_unlike_chunks_are_no_ratio_and_of_unknown_ones_no_claim():
    def summary(gap: float, gaps: int | None) -> Baseline:
        return one(BenchRecord("f", "sglang", ENVIRONMENT, 8.0, None, 128, 33, {"itl": Stat(p50=gap, n=gaps)}, 10.0,
                               400, 0, 500.0, 10.0))

    differ = compare(summary(10.0, 400 * 32), summary(40.0, 400 * 8))
    assert differ.entry(differ.cells[0], "itl") is None
    unknown = compare(summary(10.0, None), summary(40.0, None))
    entry = unknown.entry(unknown.cells[0], "itl")
    assert (entry.ratio, entry.state) == (4.0, State.UNKNOWN)


def test_a_typical_request_that_is_slower_takes_the_verdict_from_the_tail():
    new = later(run(2), 10, 3800)
    new.requests.ttft_ms[:] *= 1.5
    new.requests.e2e_ms[:] += 100
    assert dimension(compare(one(run(1)), one(new))).kind is Kind.QUEUE_OR_PREFILL


def test_a_p99_of_a_summary_is_shown_and_nothing_is_claimed():
    def summary(p99: float, n: int = 400) -> BenchRecord:
        return BenchRecord("f", "vllm bench serve", ENVIRONMENT, 8.0, None, 128, 64, {"ttft": Stat(p50=100.0, p99=p99)},
                           10.0, n, 0, 500.0, 10.0)

    found = compare(one(summary(150.0)), one(summary(900.0)))
    entry = found.entry(found.cells[0], "ttft_tail")
    assert (entry.ratio, entry.basis, entry.state) == (6.0, "p99 ttft", State.UNKNOWN)
    few = compare(one(summary(150.0, 40)), one(summary(900.0, 40)))
    assert few.entry(few.cells[0], "ttft_tail") is None, "of 40 requests a p99 is the largest"


@pytest.mark.parametrize("shared", [0.015, 0.03])
def test_tails_raise_no_false_alarm_and_hide_no_ten_per_cent(shared):
    """60 pairs of a load of 200 requests: the tails are in the same budget, so that no more alarms may come of them."""
    paper, grid = Paper(shared=shared), ((4,), (128,), (64,))
    alarms = found = 0
    slow = replace(paper, decode=paper.decode * 1.1, context=paper.context * 1.1)
    for pair in range(60):
        old = paper.baseline(70_000 + 2 * pair, 200, grid)
        alarms += any(entry.state in (State.WORSE, State.BETTER)
                      for entry in compare(old, paper.baseline(70_001 + 2 * pair, 200, grid)).entries)
        found += any(entry.state is State.WORSE and entry.metric == "itl"
                     for entry in compare(old, slow.baseline(70_001 + 2 * pair, 200, grid)).entries)
    assert alarms <= 1
    assert found >= (57 if shared < 0.02 else 40)

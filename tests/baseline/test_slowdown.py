"""How much slower at least, and how much at most: what is sure, what is left open, and what allows neither."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from baseline_runs import Paper, summaries
from sheets import verdict_of
from xpu_triage.baseline.compare import Comparison, Failures, State, compare
from xpu_triage.baseline.resampling import Difference
from xpu_triage.baseline.slowdown import LEAST, MOST, slowdown

ONE = ((8,), (128,), (64,))


def found(now: Paper, grid: tuple = ONE, n: int = 200) -> Comparison:
    return compare(Paper().baseline(1, n, grid), now.baseline(2, n, grid))


def with_entries(comparison: Comparison, **parts: object) -> Comparison:
    return replace(comparison, entries=tuple(replace(entry, **parts) for entry in comparison.entries), pooled=())


def test_the_least_is_the_lower_end_that_is_farthest_from_one_of_what_is_called_worse():
    """By hand: time per token × 2 within 1.6 to 2.5; throughput × 0.5 within 0.45 to 0.55, so 1 ÷ 0.55 = 1.82."""
    whole = found(Paper())
    entries = []
    for entry in whole.entries:
        state, low, high = {"itl": (State.WORSE, 1.6, 2.5), "throughput": (State.WORSE, 0.45, 0.55),
                            "ttft": (State.UNCLEAR, 1.9, 90.0)}.get(entry.metric, (State.SAME, 0.9, 1.1))
        entries.append(replace(entry, state=state, low=low, high=high))
    least = slowdown(replace(whole, entries=tuple(entries), pooled=())).least
    assert least.ratio == pytest.approx(1 / 0.55)
    assert least.where == "throughput at concurrency 8, prompt 128, output 64"


def test_the_most_is_the_largest_upper_end_of_a_typical_time():
    """Logarithms of 0.02 ± t(0.975, 60) · √(0.03² + 2 · 0.01²) = 0.02 ± 2.0003 · 0.03317: at most e^0.0863 = 1.090."""
    same = with_entries(found(Paper()), state=State.SAME, difference=Difference(0.02, 0.03, 60), old=100.0,
                        new=100 * math.exp(0.02))
    assert slowdown(same).most.ratio == pytest.approx(1.0902, abs=2e-4)
    assert slowdown(same).least.ratio == 1


def test_a_server_that_takes_half_as_long_again_lies_between_the_two():
    both = slowdown(found(Paper(decode=12.0, context=0.0015)))
    assert 1.3 < both.least.ratio < 1.5 < both.most.ratio < 1.7
    assert both.sure
    assert both.least.cell.concurrency == 8


def test_a_slow_down_that_only_all_loads_together_show_is_sure_and_of_no_one_load():
    grid = ((1, 8), (128, 2048), (64, 512))
    both = found(Paper(decode=8.6, context=0.00107), grid)
    bare = replace(both, entries=tuple(replace(entry, state=State.UNCLEAR) for entry in both.entries))
    assert any(pooled.state is State.WORSE for pooled in both.pooled)
    least = slowdown(bare).least
    assert least.cell is None
    assert "over all 8 loads together" in least.where
    assert 1 < least.ratio < 1.08


def test_without_single_requests_nothing_is_known():
    both = slowdown(compare(summaries(100.0), summaries(400.0)))
    assert (both.least.ratio, both.most.ratio, both.sure) == (None, None, False)
    assert "times of 12 single requests" in both.least.where


def test_a_client_that_was_late_allows_neither():
    late = with_entries(found(Paper(decode=12.0)), state=State.CLIENT)
    assert (slowdown(late).least.ratio, slowdown(late).most.ratio) == (None, None)
    assert "the client itself was late" in slowdown(late).most.where


def test_requests_that_fail_have_no_time_so_that_nothing_is_as_before():
    same = found(Paper())
    failing = replace(same, failures=(Failures(same.cells[0], 0, 200, 90, 200, more=True),))
    assert slowdown(failing).most.ratio is None
    assert "more requests fail" in slowdown(failing).most.where


def test_one_figure_without_an_interval_leaves_the_most_open():
    same = found(Paper())
    bare = replace(same, entries=tuple(replace(entry, difference=None) if entry.metric == "ttft" else entry
                                       for entry in same.entries))
    assert slowdown(bare).least.ratio == 1
    assert slowdown(bare).most.ratio is None
    assert slowdown(bare).most.where.startswith("ttft at ")


def test_a_fifth_slower_does_not_pass_for_as_before_and_the_same_server_does():
    """30 pairs of 200 requests, eight in flight; 1.15 is what the page of no-fault asks for."""
    slow = Paper(decode=9.6, context=0.0012)
    pairs = [(Paper().baseline(2 * i, 200, ONE), i) for i in range(30)]
    assert not any(slowdown(compare(old, slow.baseline(2 * i + 1, 200, ONE))).most.ratio <= 1.15 for old, i in pairs)
    same = sum(slowdown(compare(old, Paper().baseline(2 * i + 1, 200, ONE))).most.ratio <= 1.15 for old, i in pairs)
    assert same >= 28


# ---- the rules


def test_requests_that_take_as_long_as_when_it_was_right_are_no_fault():
    assert verdict_of({LEAST: 1.0, MOST: 1.08}).id == "no-fault"
    assert verdict_of({LEAST: 1.0, MOST: 1.4}).id is None, "a slow-down of 40 % would not have shown"


def test_a_sure_slow_down_is_no_all_clear_whatever_the_rate_says():
    """As fast as the reference by its rate, and first tokens four times as late."""
    as_before = {"serving.decode_tokens_per_s": 2980, "serving.reference_tokens_per_s": 3010}
    assert verdict_of(as_before).id == "no-fault"
    verdict = verdict_of({**as_before, LEAST: 3.8, MOST: 4.4})
    assert verdict.id is None
    assert [one.id for one in verdict.hypotheses] == [], "nothing is left that speaks for an all-clear"


@pytest.mark.parametrize("artefact", [{"host.timed_sum_ratio": 0.08}, {"ab.drained_span_ratio": 0.1}])
def test_a_figure_that_was_measured_wrong_does_not_explain_a_sure_slow_down(artefact):
    assert verdict_of(artefact).id == "no-fault"
    assert verdict_of({**artefact, LEAST: 1.3, MOST: 1.6}).id != "no-fault"


def test_a_profiler_or_repeats_that_differ_by_as_much_do_explain_it():
    assert verdict_of({"ab.profiler_ratio": 1.6, LEAST: 1.3, MOST: 1.6}).id == "no-fault"
    spread = {"ab.spread_fraction": 0.35, "kv.prefix_hit_fraction": 0.6, "kv.shared_prefix_fraction": 0.1}
    assert verdict_of({**spread, LEAST: 1.3, MOST: 1.6}).id == "no-fault"
    assert verdict_of({**spread, LEAST: 1.8, MOST: 2.1}).id != "no-fault"

"""Requests that stall: counted against those before, shown with how likely chance is, and never claimed."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest

from baseline_runs import record_of
from sheets import verdict_of
from xpu_triage.baseline import signals as bench
from xpu_triage.baseline.against import against
from xpu_triage.baseline.compare import State, compare
from xpu_triage.baseline.dimension import Kind, dimension
from xpu_triage.baseline.fold import REFERENCE, fold
from xpu_triage.baseline.records import BenchRecord, Requests
from xpu_triage.baseline.slowdown import LEAST, MOST, TAIL, slowdown
from xpu_triage.baseline.stalls import at_least
from xpu_triage.baseline.store import Baseline, baseline
from xpu_triage.baseline.tables import to_json
from xpu_triage.signals import Signals


def run(seed: int, n: int = 320, lanes: int = 8, *, share: float = 0.0, stall_ms: float = 11_000.0,
        at: tuple[int, ...] = ()) -> Baseline:
    """200 ms to the first token, 15 gaps of 30 ms, each with noise of 5 %, `lanes` at a time. A share of the requests,
    or those at `at`, has one gap that much longer."""
    rng = np.random.default_rng(seed)
    first = 200 * rng.lognormal(0, 0.05, n)
    gaps = 30 * rng.lognormal(0, 0.05, (n, 15))
    stalled = (rng.random(n) < share) | np.isin(np.arange(n), at)
    gaps[stalled, 7] += stall_ms
    e2e = first + gaps.sum(axis=1)
    free, start = np.zeros(lanes), np.zeros(n)
    for i in range(n):
        lane = int(np.argmin(free))
        start[i] = free[lane]
        free[lane] += e2e[i] / 1000
    full = np.ones(n)
    return baseline([record_of(Requests(first, e2e, gaps.mean(axis=1), 512 * full, 16 * full, start, tuple(gaps)),
                               lanes)], source="x.json")


def only(kept: Baseline) -> BenchRecord:
    return kept.records[0]


# ---- the count


@pytest.mark.parametrize(("new", "stalled", "of_new", "of_all"), [(4, 4, 320, 640), (1, 1, 200, 400), (3, 5, 50, 120),
                                                                  (0, 2, 10, 20)])
def test_chance_by_counting_all_ways_to_choose(new, stalled, of_new, of_all):
    ways = sum(comb(of_new, k) * comb(of_all - of_new, stalled - k) for k in range(new, stalled + 1))
    assert at_least(new, stalled, of_new, of_all) == pytest.approx(ways / comb(of_all, stalled))


def test_four_stalls_of_320_are_said_with_what_chance_makes_of_them():
    """A gap counts from 5 usual longest ones on. 320 · 319 · 318 · 317 ÷ (640 · 639 · 638 · 637) = 0.0619."""
    found = compare(run(1), run(2, at=(10, 100, 200, 300)))
    (one,) = found.stalls
    assert (one.tail, one.old, one.of_old, one.new, one.of_new) == ("itl_tail", 0, 320, 4, 320)
    assert one.p == pytest.approx(0.0619, abs=1e-4)
    assert 5 * 30 < one.longer_than_ms < 5 * 36
    assert one.longest_new_ms == pytest.approx(11_030, rel=0.01)
    verdict = dimension(found)
    assert (verdict.kind, verdict.exit_code) == (Kind.OPEN, 3)
    assert "4 of 320 requests had a gap of more than 160 ms between tokens (the longest 11 s), before none of 320" in (
        verdict.text)
    assert "may be chance (p = 0.062, Fisher)" in verdict.text
    assert "No regression" not in verdict.text
    assert verdict.record_next == found.cells
    assert to_json(found, verdict)["stalls"][0]["new"] == 4


def test_a_late_first_token_is_named_once_and_not_as_a_long_request_too():
    new = run(2)
    for i in (10, 100):
        only(new).requests.ttft_ms[i] += 30_000
        only(new).requests.e2e_ms[i] += 30_000
    assert [one.tail for one in compare(run(1), new).stalls] == ["ttft_tail"]


def test_as_many_stalls_before_are_no_finding_nor_are_fewer():
    for old, new in (((5, 90), (7, 80)), ((5, 90, 200), (7,)), ((5,), ())):
        assert compare(run(1, at=old), run(2, at=new)).stalls == ()


def test_gaps_of_larger_chunks_are_no_stalls():
    old, new = run(1), run(2, at=(10, 100, 200, 300))
    fewer = tuple(gaps.reshape(5, 3).sum(axis=1) for gaps in only(new).requests.itl_ms)
    chunks = baseline([replace(only(new), requests=replace(only(new).requests, itl_ms=fewer))])
    assert [one.tail for one in compare(old, chunks).stalls] == ["e2e_tail"]


# ---- the promise


def test_two_recordings_of_a_server_that_stalls_now_and_then_raise_no_alarm():
    """60 pairs, stalls of 20 usual requests in 1.5 % of them: a run whose last request stalls lasts half as long
    again."""
    alarms = 0
    for pair in range(60):
        found = compare(run(2 * pair, 200, 32, share=0.015), run(2 * pair + 1, 200, 32, share=0.015))
        alarms += any(one.state in (State.WORSE, State.BETTER) for one in found.entries)
    assert alarms <= 1


def test_a_throughput_is_not_lower_because_one_late_request_holds_the_run_open():
    """200 requests of 650 ms, 32 at a time, take 4.5 s; if the last one stalls, 15. What 32 in flight give falls by
    its 11 s of 141."""
    old, new = run(1, 200, 32), run(2, 200, 32, at=(199,))
    assert only(new).output_tokens_per_s < 0.4 * only(old).output_tokens_per_s
    found = compare(old, new)
    entry = found.entry(found.cells[0], "throughput")
    assert entry.ratio == pytest.approx(130 / 141, rel=0.02)
    assert entry.low < 1 < entry.high
    assert entry.basis == "tokens/s while all run"


# ---- what follows


def test_a_throughput_alone_that_is_lower_beside_stalls_is_the_tail():
    found = compare(run(1), run(2, share=0.04))
    states = {"throughput": State.WORSE, "itl_tail": State.UNCLEAR, "e2e_tail": State.UNCLEAR}
    entries = tuple(replace(entry, state=states.get(entry.metric, State.SAME)) for entry in found.entries)
    verdict = dimension(replace(found, entries=entries))
    assert verdict.kind is Kind.TAIL
    assert "held up between two tokens" in verdict.text
    assert "had a gap of more than" in verdict.text
    unsure = tuple(replace(entry, state=State.UNCLEAR) if entry.metric == "e2e" else entry for entry in entries)
    assert dimension(replace(found, entries=unsure)).kind is Kind.UNPLACED


def test_the_slowest_at_most_is_the_longest_now_over_the_longest_before_where_more_stall():
    both = run(1), run(2, at=(10, 100, 200, 300))
    found = compare(*both)
    tail = slowdown(found).tail
    longest = [max(gaps.max() for gaps in only(kept).requests.itl_ms) for kept in both]
    assert tail.ratio == pytest.approx(longest[1] / longest[0])
    assert "4 of 320 requests" in tail.where
    assert slowdown(found).least.ratio == 1
    assert 1 < slowdown(compare(run(1), run(2))).tail.ratio < 1.2


def test_few_requests_leave_the_slowest_unknown():
    tail = slowdown(compare(run(1, 40), run(2, 40))).tail
    assert (tail.ratio, tail.where) == (None, "no load has times of 50 single requests or more in both")


def test_a_diagnosis_says_what_stalls_and_holds_the_reference_back():
    kept, now = run(1), run(2, at=(10, 100), stall_ms=1500)
    held = against(kept, now.records)
    assert held.says.startswith("Nothing is surely slower than in the baseline, but 2 of 320 requests had a gap of ")
    measured = fold(kept, Signals(bench.measure(now.records).signals), now.records, held=held)
    found = {signal.name: signal.value for signal in measured.signals}
    assert found[TAIL] > 40
    assert REFERENCE not in found
    assert "2 of 320 requests had a gap" in measured.unknown[REFERENCE]


def test_a_device_that_nobody_knows_is_said_once():
    bare = [baseline([replace(only(kept), environment=replace(only(kept).environment, device=""))])
            for kept in (run(1), run(2))]
    measured = fold(bare[0], Signals(bench.measure(bare[1].records).signals), bare[1].records)
    assert sum("device" in note for note in measured.notes) == 1


def test_a_tail_that_may_be_twice_as_slow_is_no_all_clear():
    assert verdict_of({LEAST: 1.0, MOST: 1.05, TAIL: 1.4}).id == "no-fault"
    assert verdict_of({LEAST: 1.0, MOST: 1.05, TAIL: 22.0}).id is None


def test_clocks_do_not_make_a_rate_lower_that_typical_requests_do_not_show():
    lower = {"serving.decode_tokens_per_s": 580, "serving.reference_tokens_per_s": 1017}
    ids = [{one.id for one in verdict_of({**lower, **more}).hypotheses}
           for more in ({LEAST: 1.2, MOST: 1.7}, {LEAST: 1.2, MOST: 1.04})]
    assert ["throttling" in found for found in ids] == [True, False]

"""Loads that look like one and are two; what the recordings themselves say; and no more than was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline_runs import Paper, record_of
from xpu_triage.baseline.compare import State, compare
from xpu_triage.baseline.course import course
from xpu_triage.baseline.dimension import Kind, dimension
from xpu_triage.baseline.loads import unlike
from xpu_triage.baseline.records import BenchRecord, Requests
from xpu_triage.baseline.store import Baseline, baseline
from xpu_triage.errors import UnusableInput


def run(seed: int = 0, n: int = 200, *, prompts: object = 1024, outputs: object = 32, concurrency: float | None = 4,
        spread: float = 0.05, first: object = 200.0, **more: object) -> BenchRecord:
    rng = np.random.default_rng(seed)
    full = np.ones(n)
    ttft = first * full * rng.lognormal(0, spread, n)
    token = 10 * rng.lognormal(0, spread, n)
    e2e = ttft + token * (np.asarray(outputs) * full - 1)
    return record_of(Requests(ttft, e2e, token, prompts * full, outputs * full,
                              np.cumsum(e2e) / 1000 / (concurrency or n)), concurrency, **more)


def one(record: BenchRecord) -> Baseline:
    return baseline([record], source="x.json")


MIXED = np.where(np.arange(200) % 5 < 2, 8192, 1024)  # the median is 1,024, the mean 0.4 · 8,192 + 0.6 · 1,024 = 3,891


# ---- loads


def test_another_mix_of_prompts_with_the_same_median_is_another_load():
    assert unlike([run()], [run(1, prompts=MIXED)]) == "other prompts: mean 1,024 and 3,891 tokens"
    with pytest.raises(UnusableInput, match="not compared, concurrency 4, prompt 1,024, output 32: other prompts"):
        compare(one(run()), one(run(1, prompts=MIXED)))


def test_another_mix_of_outputs_is_another_load():
    assert unlike([run()], [run(1, outputs=np.where(np.arange(200) % 5 < 2, 512, 32))]).startswith("other outputs")


def test_a_refused_load_is_left_out_and_the_others_are_compared():
    old = baseline([run(), run(concurrency=8)])
    found = compare(old, baseline([run(1), run(1, prompts=MIXED, concurrency=8)]))
    assert [cell.concurrency for cell in found.cells] == [4]
    assert [cell.concurrency for cell in found.only_old] == [cell.concurrency for cell in found.only_new] == [8]
    assert any(note.startswith("not compared, concurrency 8") for note in found.notes)


def test_answers_that_end_by_themselves_are_one_load():
    """Geometric lengths of mean 100: their means differ by 10 % and more in 60 requests, by chance."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, b = (run(n=60, outputs=rng.geometric(0.01, 60)) for _ in range(2))
        assert unlike([a], [b]) == ""


def test_a_template_of_a_few_tokens_is_the_same_load():
    assert unlike([run(prompts=128)], [run(1, prompts=134)]) == ""


def test_all_prompts_at_once_are_another_load_if_they_are_more():
    few, many = (run(n=n, concurrency=None) for n in (100, 400))
    assert unlike([few], [many]).startswith("100 requests sent as fast as the client can, and 400")
    assert unlike([few], [run(1, 105, concurrency=None)]) == ""
    bare = [replace(record, requests=None) for record in (few, many)]
    assert "100 requests" in unlike(bare[:1], bare[1:])
    assert unlike([replace(few, request_rate=5.0)], [replace(many, request_rate=5.0)]) == ""
    assert unlike([run(n=100)], [run(n=400)]) == "", "with 4 kept in flight their number is no part of the load"


def test_another_rhythm_of_arrivals_is_another_load():
    steady, bursts = (run(concurrency=None, request_rate=5.0, extra={"burstiness": b}) for b in (1.0, 0.1))
    assert unlike([steady], [bursts]) == "burstiness 1 and 0.1: requests arrive in another rhythm"
    assert unlike([steady], [steady]) == unlike([steady], [replace(bursts, extra={})]) == ""


# ---- what the recordings say


def test_notes_of_both_recordings_are_repeated_and_bounded():
    old = run(notes=("the file breaks off", "asked with temperature=0"))
    new = run(1, notes=("asked with temperature=0", *(f"note {i}" for i in range(9))))
    notes = compare(one(old), one(new)).notes
    assert "the old one: the file breaks off" in notes
    assert "the new one: note 0" in notes
    assert sum("temperature" in note for note in notes) == 1
    assert "both: asked with temperature=0" in notes
    assert "the new one: 3 more notes" in notes
    assert "the new one: note 6" not in notes


def test_a_slow_start_and_a_slow_end_are_told():
    slow = np.where(np.arange(200) < 60, 800.0, 200.0)
    assert course(run(first=slow).requests).startswith("the first 30 % of the requests have 4.0 times the time to ")
    assert course(run(first=slow[::-1]).requests).startswith("the last 30 % of the requests have 4.0 times")
    found = dimension(compare(one(run()), one(run(1, first=slow))))
    assert found.regression
    assert "a warm-up" in found.text
    assert compare(one(run(2, first=slow)), one(run(1, first=slow))).course == (), "so begin both: it is the load's"


@pytest.mark.parametrize("first", [200.0, np.where(np.arange(200) % 3, 200.0, 800.0),
                                   np.where(np.arange(200) < 120, 800.0, 200.0)])
def test_a_steady_run_and_one_that_is_slow_for_most_of_its_time_have_no_course(first):
    assert course(run(first=first).requests) == ""


def test_runs_of_the_paper_server_have_no_course():
    for record in Paper().baseline(5, 120).records:
        assert course(record.requests) == ""


def test_few_requests_and_unknown_starts_have_no_course():
    slow = np.where(np.arange(40) < 12, 800.0, 200.0)
    assert course(run(n=40, first=slow).requests) == ""
    unknown = run(first=np.where(np.arange(200) < 60, 800.0, 200.0)).requests
    unknown.start_s[3] = np.nan
    assert course(unknown) == ""


# ---- no more than was measured


def test_a_stage_that_was_not_measured_is_not_called_as_before():
    new = run(1, first=400.0)
    new.requests.tpot_ms[:] = np.nan
    found = dimension(compare(one(run()), one(replace(new, latencies={}))))
    assert found.kind is Kind.QUEUE_OR_PREFILL
    assert "The time per token was not measured in both" in found.text
    assert "as before" not in found.text.replace("may be", "")


def test_a_first_token_that_is_later_while_requests_end_as_before_is_a_held_back_stream():
    new = run(1)
    new.requests.ttft_ms[:] = new.requests.e2e_ms
    new.requests.tpot_ms[:] = np.nan
    found = dimension(compare(one(run()), one(replace(new, latencies={}))))
    assert (found.kind, found.exit_code) == (Kind.HELD_BACK, 1)


def test_a_later_first_token_that_long_answers_hide_is_no_held_back_stream():
    """200 to 600 ms, and 5.3 to 5.7 s a request: 8 % more, all of it the first token's."""
    found = dimension(compare(one(run(outputs=512)), one(run(1, outputs=512, first=600.0))))
    assert found.kind is Kind.QUEUE_OR_PREFILL


def test_a_metric_that_is_too_noisy_to_rule_out_ten_per_cent_is_no_all_clear():
    wild = [run(seed, 60) for seed in (1, 2)]
    for seed, record in enumerate(wild):
        record.requests.ttft_ms[:] *= np.random.default_rng(seed).lognormal(0, 0.5, 60)
    found = dimension(compare(one(wild[0]), one(wild[1])))
    assert (found.kind, found.exit_code) == (Kind.OPEN, 3)
    assert "too noisy to rule out a slow-down of 10 % (ttft)" in found.text


def test_everything_twice_as_slow_with_a_first_token_too_noisy_to_say_so_is_not_called_decode():
    """20 requests whose first tokens spread by a factor of three; both stages take twice as long."""
    def noisy(seed: int, times: float) -> BenchRecord:
        record = run(seed, 20, first=200.0 * times)
        rng = np.random.default_rng(seed)
        late = record.requests.ttft_ms * rng.lognormal(0, 1.2, 20)
        return replace(record, requests=replace(record.requests, ttft_ms=late, tpot_ms=record.requests.tpot_ms * times,
                                                e2e_ms=late + record.requests.tpot_ms * times * 31))

    found = compare(one(noisy(1, 1.0)), one(noisy(1, 2.0)))
    verdict = dimension(found)
    assert found.entry(found.cells[0], "itl").state is State.WORSE
    assert found.entry(found.cells[0], "ttft").state is State.UNCLEAR
    assert (verdict.kind, verdict.exit_code) == (Kind.ONE_OR_BOTH, 1)
    assert "decode, or the device or the build" in verdict.text


def test_slower_tokens_beside_a_noisy_first_token_that_did_not_move_are_decode():
    def noisy(seed: int, times: float) -> BenchRecord:
        record = run(seed, 20)
        late = record.requests.ttft_ms * np.random.default_rng(seed).lognormal(0, 1.2, 20)
        return replace(record, requests=replace(record.requests, ttft_ms=late, tpot_ms=record.requests.tpot_ms * times,
                                                e2e_ms=late + record.requests.tpot_ms * times * 31))

    assert dimension(compare(one(noisy(1, 1.0)), one(noisy(1, 2.0)))).kind is Kind.DECODE

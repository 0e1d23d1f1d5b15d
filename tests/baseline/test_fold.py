"""A baseline in a diagnosis: which load's rate is the reference, what is said, and what is held back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baseline_runs import ENVIRONMENT, Paper
from xpu_triage.baseline import signals as bench
from xpu_triage.baseline.against import against
from xpu_triage.baseline.fold import REFERENCE, fold
from xpu_triage.baseline.records import BenchRecord, Environment, Stat
from xpu_triage.baseline.slowdown import LEAST, MOST, TAIL
from xpu_triage.baseline.store import Baseline, baseline
from xpu_triage.signals import Signal, Signals


def summary(concurrency: float | None = 8, prompt: float | None = 2048, output: float | None = 128, rate: float = 400.0,
            ttft: float = 100.0, token: float = 15.0, **more: object) -> BenchRecord:
    """A run whose tool kept no single requests."""
    made = BenchRecord("old.json", "vllm bench serve", ENVIRONMENT, concurrency, None, prompt, output,
                       {"ttft": Stat(p50=ttft), "tpot": Stat(p50=token), "e2e": Stat(p50=2000.0)}, 60.0, 100, 0, rate,
                       3.0)
    return replace(made, **more)


def given(**values: float | str) -> Signals:
    return Signals(Signal(name.replace("__", ".", 1), value, "metrics") for name, value in values.items())


NOW = {"serving__running": 8.0, "serving__waiting": 0.0, "serving__prompt_tokens": 2048.0}
KEPT = baseline([summary(), summary(concurrency=32, rate=900.0), summary(prompt=128, rate=500.0)], source="old.json")


def reference(kept: Baseline, signals: Signals, *records: BenchRecord) -> float | None:
    return next((signal.value for signal in fold(kept, signals, records).signals if signal.name == REFERENCE), None)


def why(kept: Baseline, signals: Signals, *records: BenchRecord, **more: str) -> str:
    return fold(kept, signals, records, **more).unknown.get(REFERENCE, "")


# ---- the reference


def test_the_load_that_runs_now_gives_the_reference_and_says_which_it_was():
    (signal,) = fold(KEPT, given(**NOW)).signals
    assert (signal.name, signal.value, signal.how, signal.source) == (REFERENCE, 400.0, "bench", "old.json")
    assert signal.window == "baseline: concurrency 8, prompt 2,048, output 128"


@pytest.mark.parametrize(("running", "waiting", "rate"), [(8.7, 0.0, 400.0), (7.3, 0.0, 400.0), (6.0, 2.0, 400.0),
                                                         (30.0, 2.0, 900.0), (9.0, 0.0, None), (16.0, 0.0, None)])
def test_requests_in_flight_are_those_that_run_and_wait_and_ten_per_cent_is_the_same_load(running, waiting, rate):
    now = NOW | {"serving__running": running, "serving__waiting": waiting}
    assert reference(KEPT, given(**now)) == rate


def test_without_a_load_that_is_near_nothing_is_taken_and_the_loads_that_exist_are_said():
    reason = why(KEPT, given(**NOW | {"serving__running": 16.0}))
    assert reason.startswith("concurrency 16, prompt 2,048 runs, and it has concurrency 8, prompt 128, output 128; ")
    assert "concurrency 32, prompt 2,048, output 128" in reason
    assert "record that load" in reason


def test_many_loads_are_said_by_the_values_of_their_parts():
    kept = baseline([summary(c, p, o) for c in (1, 8, 32) for p in (128, 2048) for o in (64, 256)])
    assert "12 loads of concurrency 1, 8, 32 × prompt 128, 2,048 × output 64, 256" in why(
        kept, given(**NOW | {"serving__running": 100.0}))


def test_unknown_requests_in_flight_are_not_none():
    reason = why(KEPT, given(serving__prompt_tokens=2048.0))
    assert reason.startswith("how many requests are in flight now is not known")


def test_requests_that_may_wait_are_said_to_be_taken_as_none():
    measured = fold(KEPT, given(serving__running=8.0, serving__prompt_tokens=2048.0))
    assert measured.signals[0].value == 400.0
    assert any("those that run are taken as all that are in flight" in note for note in measured.notes)


def test_several_loads_that_fit_give_a_reference_only_where_they_agree():
    now = given(serving__running=8.0, serving__waiting=0.0)
    assert "2 loads of the baseline fit" in why(KEPT, now), "prompts of 128 and of 2,048: 500 and 400 tokens/s"
    alike = baseline([summary(rate=400.0), summary(output=512, rate=420.0)])
    (signal,) = fold(alike, now).signals
    assert signal.value == pytest.approx((400 * 420) ** 0.5, rel=1e-5)
    assert signal.window.endswith("and 1 more within 10%")


def test_the_rate_of_one_request_is_held_against_one_of_its_kind():
    """The rules divide the rate of one request by the reference where the aggregate is not known. 15 ms a token."""
    alone = given(**NOW, serving__request_decode_tokens_per_s=40.0)
    (signal,) = fold(KEPT, alone).signals
    assert signal.value == pytest.approx(1000 / 15, rel=1e-5)
    assert "one request" in signal.window
    assert reference(KEPT, given(**NOW, serving__request_decode_tokens_per_s=40.0,
                                 serving__decode_tokens_per_s=300.0)) == 400.0


def test_what_a_person_typed_stays_and_a_difference_is_said():
    typed = Signals([*given(**NOW).values(), Signal(REFERENCE, 700.0, "typed")])
    measured = fold(KEPT, typed)
    assert measured.signals == ()
    assert set(measured.unknown) == {LEAST, MOST, TAIL}, "nothing of a load generator to compare"
    assert any("stays as given, 700 tokens/s; the baseline has 400 tokens/s" in note for note in measured.notes)
    near = fold(KEPT, Signals([*given(**NOW).values(), Signal(REFERENCE, 410.0, "typed")]))
    assert not any("stays as given" in note for note in near.notes)


def test_a_baseline_without_a_rate_says_so():
    for rate in (None, float("nan"), 0.0):
        assert why(baseline([summary(rate=rate)]), given(**NOW)).startswith("the baseline has no rate at")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "many", True])
def test_a_load_that_is_no_number_is_unknown(value):
    assert "not known" in why(KEPT, given(serving__running=value))


# ---- of what the baseline is


def test_another_model_or_device_gives_nothing_and_says_why():
    other = replace(summary(), environment=replace(ENVIRONMENT, model="m/other-70b"))
    measured = fold(KEPT, given(**NOW), [other])
    assert measured.signals == ()
    assert measured.unknown[REFERENCE].endswith("it is of model m/model-8b, and m/other-70b runs")
    assert "H100" in why(KEPT, given(**NOW), device="NVIDIA H100 80GB HBM3")
    assert why(KEPT, given(**NOW), device="L40S") == "", "the same device under its short name"


def test_a_model_under_its_name_alone_is_the_same_and_another_owner_s_is_not():
    assert why(KEPT, given(**NOW), replace(summary(), environment=Environment("model-8b"))) == ""
    assert "of model" in why(KEPT, given(**NOW), replace(summary(), environment=Environment("you/model-8b")))


def test_a_device_that_nobody_knows_is_not_called_another_one():
    measured = fold(KEPT, given(**NOW), device="XPU 9000")
    assert measured.signals[0].value == 400.0
    assert any("same model and device is not known" in note for note in measured.notes)


def test_hostile_names_are_written_out():
    other = replace(summary(), environment=replace(ENVIRONMENT, model="m/x\x1b[31m\n<script>"))
    measured = fold(KEPT, given(**NOW), [other])
    assert not any("\x1b" in text or "\n" in text for text in (*measured.notes, *measured.unknown.values()))


# ---- latencies


def test_latencies_are_multiples_of_the_baseline_s_and_what_is_as_before_is_said():
    notes = fold(KEPT, given(**NOW, latency__ttft_ms=250.0, latency__itl_ms=15.5)).notes
    where = "at concurrency 8, prompt 2,048, output 128: "
    assert f"{where}latency.ttft_ms 250 ms is 2.5 times the baseline's 100 ms" in notes
    assert f"{where}latency.itl_ms as in the baseline" in notes
    assert any("what clients saw, the present latencies are the engine's own" in note for note in notes)


def test_a_duration_of_answers_of_unknown_length_is_not_compared():
    notes = fold(KEPT, given(**NOW, latency__e2e_ms=9000.0)).notes
    assert not any("e2e" in note for note in notes)


# ---- a rate that is as it was, and something that is not


def test_a_rate_that_is_as_it_was_is_held_back_where_a_latency_is_not():
    """The rate alone would read as an all-clear."""
    now = NOW | {"serving__decode_tokens_per_s": 395.0}
    assert reference(KEPT, given(**now, latency__ttft_ms=105.0)) == 400.0
    assert why(KEPT, given(**now, latency__ttft_ms=250.0)) == (
        "the rate is as it was, 400 tokens/s, and latency.ttft_ms is 2.5 times what it was: it would hide that")
    assert reference(KEPT, given(**now | {"serving__decode_tokens_per_s": 200.0}, latency__ttft_ms=250.0)) == 400.0


def test_runs_whose_first_token_is_surely_later_at_the_same_rate_say_so_by_a_signal():
    """64 tokens of 8 ms: 400 ms more to the first token would be seen in the rate, of 2,048 tokens they are 2 %. 16 to
    416 ms, × 26: the rate is as it was, and it may stand beside a figure that speaks against an all-clear."""
    found = values(folded(Paper(), Paper(fixed=412.0), ((1,), (128,), (2048,))))
    assert set(found) == {REFERENCE, LEAST, MOST, TAIL}
    assert 20 < found[LEAST] < 26 < found[MOST]


def test_summaries_whose_first_token_is_later_give_no_reference_though_nothing_is_sure():
    kept, run = (baseline([summary(ttft=ttft)]) for ttft in (100.0, 400.0))
    measured = fold(kept, Signals(bench.measure(run.records).signals), run.records)
    assert measured.signals == ()
    assert "ttft × 4 at concurrency 8, prompt 2,048, output 128 (no interval): " in measured.unknown[REFERENCE]
    assert measured.unknown[LEAST] == measured.unknown[MOST] == (
        "no load has times of 12 single requests or more in both")


def test_a_rate_that_the_clients_set_is_no_reference_until_the_server_falls_behind():
    def paced(gave: float) -> Baseline:
        return baseline([summary(concurrency=None, request_rate=5.0, requests_per_s=gave)])

    now = Signals([*given(serving__offered_requests_per_s=5.0, serving__prompt_tokens=2048.0).values()])
    assert "clients set the rate" in why(paced(5.0), now)
    assert reference(paced(3.0), now) == 400.0


def test_a_load_of_other_lengths_gives_no_reference():
    run = Paper().baseline(2, 200, ((8,), (128,), (64,)))
    run.records[0].requests.prompt_tokens[:90] *= 8  # the median stays
    kept = Paper().baseline(1, 200, ((8,), (128,), (64,)))
    measured = fold(kept, Signals(bench.measure(run.records).signals), run.records)
    assert measured.signals == ()
    assert "is another load: other prompts" in measured.unknown[REFERENCE]


def test_runs_of_which_only_the_slowest_are_slower_are_surely_slower():
    kept, run = (Paper().baseline(seed, 200, ((8,), (128,), (2048,))) for seed in (1, 2))
    run.records[0].requests.ttft_ms[::10] += 2000
    measured = fold(kept, Signals(bench.measure(run.records).signals), run.records)
    found = values(measured)
    assert found[LEAST] > 10
    assert found[MOST] < 1.2, "of the typical request"
    assert any("the tail" in note for note in measured.notes)


# ---- runs of the same loads


def values(measured) -> dict[str, float]:
    return {signal.name: signal.value for signal in measured.signals}


def folded(old: Paper, new: Paper, grid: tuple, now: tuple | None = None):
    kept, runs = old.baseline(1, 200, grid), new.baseline(2, 200, now or grid)
    return fold(kept, Signals(bench.measure(runs.records).signals), runs.records)


GRID = ((1, 8), (128, 2048), (64,))


def test_runs_of_several_loads_are_compared_and_the_dimension_is_said():
    measured = folded(Paper(), Paper(decode=12.0), GRID)
    assert any(note.startswith("against the baseline (4 loads in common)") and "decode" in note
               for note in measured.notes)
    assert any(note.startswith("at concurrency 8, prompt 2,048, output 64, now ÷ baseline: ttft × ")
               for note in measured.notes)
    assert [signal.name for signal in measured.signals] == [LEAST, MOST, TAIL, REFERENCE]


def test_the_same_server_twice_is_no_regression_and_keeps_its_reference():
    measured = folded(Paper(), Paper(), GRID)
    assert any("No regression found" in note for note in measured.notes)
    found = values(measured)
    assert set(found) == {REFERENCE, LEAST, MOST, TAIL}
    assert found[LEAST] == 1
    assert 1 < found[MOST] < 1.15


def only_one_at_a_time_is_slower() -> tuple[Baseline, list[BenchRecord]]:
    return Paper().baseline(1, 200, GRID), [*Paper(decode=16.0).baseline(2, 200, ((1,), *GRID[1:])).records,
                                            *Paper().baseline(3, 200, ((8,), *GRID[1:])).records]


def test_figures_of_a_load_that_is_as_it_was_are_said_to_be_so_where_others_are_slower():
    kept, runs = only_one_at_a_time_is_slower()
    measured = fold(kept, Signals(bench.measure(runs).signals), runs)
    assert any("is not surely slower than it was, and itl at concurrency 1, prompt " in note for note in measured.notes)
    assert values(measured)[LEAST] > 1.5


def test_the_load_that_is_surely_slower_speaks_and_not_the_heaviest():
    """8 to 16 ms a token with one request; with eight as before."""
    kept, runs = only_one_at_a_time_is_slower()
    held = against(kept, runs)
    assert held.speaks.concurrency == 1
    measured = bench.measure(runs, held.speaks)
    assert {signal.value for signal in measured.signals if signal.name == "serving.concurrency"} == {1}
    assert any(note.startswith("the figures are of 1 in flight, ") and "surely slower than in the baseline" in note
               and "3 other runs not used" in note for note in measured.notes)
    folded_in = fold(kept, Signals(measured.signals), runs, held=held)
    assert folded_in == fold(kept, Signals(measured.signals), runs), "it is what fold finds by itself"
    assert not any("which is not surely slower" in note for note in folded_in.notes)


def test_of_loads_that_differ_in_their_answers_alone_the_reference_is_that_of_the_one_that_speaks():
    grid = ((4,), (128,), (64, 512))
    kept, now = Paper().baseline(1, 200, grid), Paper(decode=16.0).baseline(2, 200, grid)
    for record, was in zip(now.records, kept.records, strict=True):
        measured = fold(kept, Signals(bench.measure(now.records, record).signals), now.records)
        assert values(measured)[REFERENCE] == pytest.approx(was.output_tokens_per_s, rel=1e-5)


@pytest.mark.parametrize("now", [Paper(), Paper(decode=6.0)])
def test_without_a_load_that_is_surely_slower_the_heaviest_speaks(now):
    runs = now.baseline(2, 200, GRID).records
    assert against(Paper().baseline(1, 200, GRID), runs).speaks is None
    assert any("in flight" in note and ": the heaviest load; " in note for note in bench.measure(runs).notes)


def test_a_baseline_of_another_model_says_nothing_of_how_much_slower_it_is():
    runs = [replace(record, environment=replace(ENVIRONMENT, model="m/other-70b"))
            for record in Paper(decode=16.0).baseline(2, 200, GRID).records]
    measured = fold(Paper().baseline(1, 200, GRID), Signals(bench.measure(runs).signals), runs)
    assert measured.signals == ()
    assert all("of something else" in measured.unknown[name] for name in (REFERENCE, LEAST, MOST))


def test_runs_of_two_servers_are_not_compared_and_the_reason_is_said():
    runs = [summary(), replace(summary(), environment=replace(ENVIRONMENT, engine_version="1.0"))]
    assert any(note.startswith("not compared with the baseline: ") for note in fold(KEPT, given(**NOW), runs).notes)


def test_runs_without_a_completed_request_say_nothing():
    measured = fold(KEPT, given(**NOW), [summary(completed=0)])
    assert not any("against the baseline" in note for note in measured.notes)


def test_folding_changes_nothing_and_gives_the_same_again():
    signals = given(**NOW, latency__ttft_ms=250.0)
    assert fold(KEPT, signals) == fold(KEPT, signals)
    assert len(KEPT.records) == 3

"""Units that cannot be are refused; what a failure, a hang, a pause or a mixture of lengths explains is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline_runs import record_of
from xpu_triage.baseline.compare import compare
from xpu_triage.baseline.doubted import paused, units_doubted
from xpu_triage.baseline.fold import REFERENCE, fold
from xpu_triage.baseline.records import BenchRecord, Requests, Stat
from xpu_triage.baseline.signals import measure
from xpu_triage.baseline.store import baseline
from xpu_triage.errors import UnusableInput
from xpu_triage.signals import Signal, Signals


def run(n: int = 200, concurrency: float | None = 4, *, outputs: object = 32, first: float = 200.0, token: float = 10.0,
        **more: object) -> BenchRecord:
    """First tokens after 200 ms, then 10 ms each: 510 ms a request of 32 tokens, 25.5 s for 200 of them, four at a
    time."""
    full = np.ones(n)
    output = np.asarray(outputs) * full
    e2e = first + token * (output - 1)
    start = (np.cumsum(e2e) - e2e) / 1000 / (concurrency or n)
    seconds = float(e2e.sum()) / 1000 / (concurrency or n)
    made = record_of(Requests(first * full, e2e, np.where(output > 1, token, np.nan), 1024 * full, output, start),
                     concurrency, duration_s=seconds, output_tokens_per_s=float(output.sum()) / seconds)
    return replace(made, **more)


def summary(record: BenchRecord, **latencies: float) -> BenchRecord:
    """Its summary alone, each named latency times a factor."""
    def times(stat: Stat, factor: float) -> Stat:
        parts = {name: getattr(stat, name) * factor for name in ("mean", "p50", "p90", "p99", "max")}
        return replace(stat, **parts)

    return replace(record, requests=None, latencies={
        name: times(stat, latencies.get(name, 1.0)) for name, stat in record.latencies.items()})


# ---- what explains itself


@pytest.mark.parametrize("make", [lambda record: record, summary], ids=["requests", "summary"])
@pytest.mark.parametrize("more", [{"failed": 1}, {"failed": 0}, {"failed": None}])
def test_one_request_that_failed_or_hung_keeps_a_run_open_and_is_no_wrong_unit(make, more):
    """63 of 64 that take 510 ms, all at once, and a run of 300 s: 63 · 0.51 ÷ 300 = 0.107 in flight, of 64."""
    record = make(replace(run(63, 64), duration_s=300.0, **more))
    assert units_doubted(record) == ""
    assert paused(record).startswith("63 requests of 510 ms in 300 s are 0.107 in flight, and 64 were kept")
    assert ("1 request failed" if more["failed"] else "one that hung") in paused(record)


def test_with_the_requests_it_is_said_when_the_last_of_them_ended():
    """63 requests of 510 ms that begin 0.51 ÷ 64 s apart: the last ends at 62 · 7.97 ms + 510 ms = 1.004 s."""
    assert "the last of them ended after 1 s" in paused(replace(run(63, 64), duration_s=300.0))


@given(st.floats(0.05, 5000))
def test_pauses_between_requests_are_no_wrong_unit(factor):
    good = run()
    for record in (good, summary(good)):
        assert units_doubted(replace(record, duration_s=good.duration_s * factor)) == ""


def test_answers_of_two_tokens_and_of_thousands_are_one_run():
    """55 of 100 have 2 tokens, the others 7,500: the median length is 2 and the mean 3,376."""
    record = run(200, 32, outputs=np.where(np.arange(200) % 100 < 55, 2, 7500), first=50.0, token=20.0)
    assert record.output_tokens == 2
    assert record.stat("e2e").mean > 67_000
    assert units_doubted(record) == units_doubted(summary(record)) == ""


def test_short_answers_that_stall_beside_long_ones_that_do_not_are_one_run():
    """Half wait 5 s for their second token, half have 4,000 of 10 ms: mean time per token 2.5 s, mean length 2,001, and
    no request takes 2.5 s · 2,000."""
    output = np.where(np.arange(200) % 2, 4000, 2)
    token = np.where(output == 2, 5000.0, 10.0)
    e2e = 100 + token * (output - 1)
    full = np.ones(200)
    record = record_of(Requests(100 * full, e2e, token, full, output * full, np.cumsum(e2e) / 4000), 4)
    assert units_doubted(record) == units_doubted(summary(record)) == ""


def test_a_stream_that_a_proxy_holds_back_is_no_wrong_unit():
    """All tokens come at once with the last: the first after 500 ms, the others 0.01 ms apart."""
    assert units_doubted(run(first=500.0, token=0.01)) == ""


# ---- what does not


@pytest.mark.parametrize("factor", [1e-3, 1e3, 1e6])
def test_durations_in_another_unit_than_their_tokens_are_refused(factor):
    good = run()
    wrong = replace(good, requests=replace(good.requests, e2e_ms=good.requests.e2e_ms * factor))
    assert units_doubted(good) == ""
    assert "the tokens of a request take 510 ms, and a request takes" in units_doubted(wrong)
    assert units_doubted(summary(good, e2e=factor)) != ""


def test_first_tokens_in_another_unit_are_refused():
    assert "200,000 ms to the first token, and a request takes 510 ms" in units_doubted(summary(run(), ttft=1e3))


def test_times_per_token_in_another_unit_are_refused():
    assert "10,000 ms for each token, and a request takes 510 ms" in units_doubted(summary(run(), tpot=1e3))


def test_all_in_seconds_under_names_in_ms_is_refused_for_no_model_is_as_fast():
    """0.51 ms for 32 tokens, and 0.004 in flight of 4."""
    good = run()
    wrong = summary(good, ttft=1e-3, tpot=1e-3, e2e=1e-3)
    assert "units contradict each other: 200 requests of 0.51 ms in 25.5 s are 0.004 in flight" in units_doubted(wrong)
    with pytest.raises(UnusableInput, match="units contradict"):
        baseline([wrong])
    assert units_doubted(replace(wrong, latencies={"e2e": wrong.stat("e2e")}, concurrency=None)) == "", (
        "nothing to hold it against")


def test_requests_that_take_longer_than_their_run_are_of_another_unit_whatever_the_load():
    """200 requests of 510 ms in 25.5 s. In µs they would be 510,000 ms: 4,000 in flight of 200."""
    bare = replace(run(), concurrency=None, requests=None)
    bare = replace(bare, latencies={"e2e": bare.stat("e2e")})
    assert units_doubted(bare) == ""
    wrong = replace(bare, latencies={"e2e": replace(bare.stat("e2e"), mean=bare.stat("e2e").mean * 1000)})
    assert "there were no more than those" in units_doubted(wrong)


# ---- what a run that waited does not say


def test_the_rate_of_a_run_that_waited_most_of_its_time_is_unknown_and_no_reference():
    good = run(64, 64)
    waited = replace(good, duration_s=300.0, output_tokens_per_s=64 * 32 / 300, failed=1)
    said = measure([waited])
    assert "serving.decode_tokens_per_s" not in {signal.name for signal in said.signals}
    assert "rates of this run are not those of its load" in said.unknown["serving.decode_tokens_per_s"]
    now = Signals([*measure([good]).signals, Signal("serving.decode_tokens_per_s", 4000.0, "bench")])
    assert REFERENCE in {signal.name for signal in fold(baseline([good]), now).signals}
    assert REFERENCE not in {signal.name for signal in fold(baseline([waited]), now).signals}


def test_summaries_of_runs_that_waited_have_no_throughput_to_compare():
    good, waited = summary(run(63, 64)), summary(replace(run(63, 64), duration_s=300.0))
    found = compare(baseline([good]), baseline([waited]))
    assert {entry.metric for entry in found.entries} & {"throughput"} == set()
    assert {entry.metric for entry in found.entries} >= {"ttft", "itl", "e2e"}

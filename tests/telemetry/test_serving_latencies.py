"""Latencies and step times between two scrapes: medians by bucket, means where they can stand in, else unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrape_dumps import histogram, scrape, values, window
from xpu_triage.telemetry.histograms import Spread
from xpu_triage.telemetry.measured import Measured
from xpu_triage.telemetry.serving import measure


@pytest.mark.parametrize("name", ["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
                                  "sglang:inter_token_latency_seconds", "lmdeploy:time_per_output_token_seconds",
                                  "trtllm_time_per_output_token_seconds"])
def test_a_median_is_of_the_difference_and_not_of_the_lifetime(name: str) -> None:
    """Before: 1,000 gaps under 25 ms. Between: 10 more there, 30 in (25, 50], so rank 20 of 40 is 25 + 25 × 10/30."""
    before = histogram(name, 10.0, _0_01=0, _0_025=1000, _0_05=1000)
    after = histogram(name, 12.0, _0_01=0, _0_025=1010, _0_05=1040)
    measured = measure([scrape(before, 0.0), scrape(after, 10.0)])
    assert values(measured)["latency.engine_itl_ms"] == pytest.approx(33.3333, abs=0.001)
    assert "median of 40" in window(measured, "latency.engine_itl_ms")


def queue(total: float, **below: float) -> Measured:
    name = "vllm:request_queue_time_seconds"
    return measure([scrape(histogram(name, 0.0, **dict.fromkeys(below, 0.0)), 0.0),
                    scrape(histogram(name, total, **below), 10.0)])


def test_under_the_first_bound_the_mean_stands_in_and_says_so() -> None:
    measured = queue(0.4, _0_3=20, _0_5=20)
    assert values(measured)["latency.queue_ms"] == pytest.approx(20)
    assert "mean of 20" in window(measured, "latency.queue_ms")


def test_a_mean_that_its_tail_made_is_no_median() -> None:
    """11 of 20 under 0.3 s, the mean 1.5 s: the median is somewhere under 0.3 s."""
    measured = queue(30.0, _0_3=11, _5_0=20)
    assert "latency.queue_ms" not in values(measured)
    assert "between 0 and 300 ms, the mean is 1,500 ms" in measured.unknown["latency.queue_ms"]


def test_no_mean_stands_in_for_the_time_to_first_token() -> None:
    name = "vllm:time_to_first_token_seconds"
    measured = measure([scrape(histogram(name, 0.0, _0_1=0)), scrape(histogram(name, 1.2, _0_1=20))])
    assert "latency.ttft_ms" not in values(measured)
    assert "the mean is 60 ms" in measured.unknown["latency.ttft_ms"]


def test_prefill_takes_the_mean_where_it_must() -> None:
    name = "vllm:request_prefill_time_seconds"
    measured = measure([scrape(histogram(name, 0.0, _0_3=0, _5_0=0)), scrape(histogram(name, 30.0, _0_3=11, _5_0=20))])
    assert values(measured)["latency.prefill_ms"] == 1500


def test_exactly_zero_is_no_latency() -> None:
    assert "exactly 0" in queue(0.0, _0_3=20).unknown["latency.queue_ms"]


def test_nothing_observed_is_unknown() -> None:
    measured = queue(0.0, _0_3=0)
    assert "latency.queue_ms" not in values(measured)
    assert "none was observed" in measured.unknown["latency.queue_ms"]


def test_a_p99_needs_a_hundred_gaps() -> None:
    name = "vllm:inter_token_latency_seconds"

    def p99(count: float) -> object:
        before, after = (histogram(name, n / 50, _0_01=0, _0_025=n) for n in (0.0, count))
        return values(measure([scrape(before), scrape(after)])).get("latency.itl_p99_ms")

    assert p99(99) is None
    assert p99(200) == pytest.approx(24.85)  # 10 + 15 × 0.99


def test_histograms_of_two_engines_are_one() -> None:
    name = "vllm:e2e_request_latency_seconds"
    zero = {key.replace("{", f"{{engine={e},") if "{" in key else f"{key}{{engine={e}}}": value for e in (0, 1)
            for key, value in histogram(name, 0.0, _1_0=0, _2_0=0).items()}
    late = {key.replace("{", f"{{engine={e},") if "{" in key else f"{key}{{engine={e}}}": value for e in (0, 1)
            for key, value in histogram(name, 15.0, _1_0=2 * e, _2_0=10).items()}
    # 2 at or under 1 s, 18 in (1, 2]: rank 10 of 20 is 1 + 8/18
    assert values(measure([scrape(zero), scrape(late)]))["latency.e2e_ms"] == pytest.approx(1444.44, abs=0.01)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_its_bucket(counts: list[int], share: float) -> None:
    bounds = (0.1, 0.2, 0.4)
    below = {bound: float(sum(counts[:i + 1])) for i, bound in enumerate(bounds)}
    spread = Spread(float(sum(counts)), None, below)
    found, value = spread.bucket(share), spread.quantile(share)
    if value is not None and found is not None:
        assert found[0] <= value <= found[1]
        assert below[found[0]] <= share * spread.count + 1e-9 <= below[found[1]] + 2e-9
    assert (value is None) == (not any(counts) or counts[0] >= share * sum(counts))


# step time

def steps(*readings: tuple[float, float, float]) -> Measured:
    """(time, running, iterations) of each scrape."""
    return measure([scrape({"vllm:num_requests_running": running, "vllm:iteration_tokens_total_count": count}, time)
                    for time, running, count in readings])


def test_a_step_is_the_median_over_intervals_with_requests_at_both_ends() -> None:
    """50, 100 and 60 ms; the idle minute between is no step of a minute."""
    measured = steps((0, 1, 0), (10, 1, 200), (20, 1, 300), (80, 0, 301), (140, 1, 302), (146, 1, 402))
    assert values(measured)["step.wall_ms"] == 60
    assert "median over 3 intervals under load" in window(measured, "step.wall_ms")


def test_an_interval_that_was_idle_at_an_end_gives_no_step_time() -> None:
    measured = steps((0, 0, 0), (60, 2, 100))
    assert "step.wall_ms" not in values(measured)
    assert "without work" in measured.unknown["step.wall_ms"]


def test_engines_that_step_differently_are_not_averaged_over_their_steps() -> None:
    """Engine 0 steps in 10 ms, engine 1 in 30: their sum of steps over the time would say 7.5 ms."""
    pair = [{"vllm:num_requests_running{engine=0}": 8, "vllm:num_requests_running{engine=1}": 8,
             "vllm:iteration_tokens_total_count{engine=0}": a, "vllm:iteration_tokens_total_count{engine=1}": b}
            for a, b in ((0, 0), (300, 100))]
    measured = measure([scrape(pair[0], 0.0), scrape(pair[1], 3.0)])
    assert values(measured)["step.wall_ms"] == 20
    assert values(measured)["serving.running"] == 16
    assert "10 to 30 ms" in measured.notes[0]

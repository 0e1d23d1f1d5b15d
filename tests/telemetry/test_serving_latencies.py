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


# running at both ends is not running throughout

def paced(*readings: tuple[float, float, float, float, float], name: str = "vllm:inter_token_latency_seconds",
          ) -> Measured:
    """(time, running, iterations, gaps, seconds in them) of each scrape."""
    return measure([scrape({"vllm:num_requests_running": running, "vllm:iteration_tokens_total_count": count,
                            f"{name}_count": tokens, f"{name}_sum": total}, time)
                    for time, running, count, tokens, total in readings])


@pytest.mark.parametrize("name", ["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
                                  "vllm:request_time_per_output_token_seconds"])
def test_time_by_steps_is_no_step_time_where_tokens_come_far_closer(name: str) -> None:
    """40 steps in 30 s are 750 ms; the 40 tokens of one request were 17.5 ms apart."""
    measured = paced((0, 1, 0, 0, 0.0), (30, 1, 40, 40, 0.7), name=name)
    assert "step.wall_ms" not in values(measured)
    assert "750 ms, but the engine's tokens come 17.5 ms apart: there was time without work" in \
        measured.unknown["step.wall_ms"]
    assert values(measured)["step.count"] == 40


@pytest.mark.parametrize(("seconds", "count", "running", "gap", "step"), [
    (30, 600, 64, 0.050, 50),
    (58.68, 12, 256, 4.89, 4890),                     # slow steps are steps: the tokens come as slowly
    (30, 600, 64, 0.030, 50),                         # prefill steps beside few requests
    (30, 600, 8, 0.2, 50),                            # four stages of a pipeline
])
def test_where_the_gaps_bear_it_out_it_is_the_step(seconds: float, count: float, running: float, gap: float,
                                                   step: float) -> None:
    measured = paced((0, running, 0, 0, 0.0), (seconds, running, count, count * running, count * running * gap))
    assert values(measured)["step.wall_ms"] == pytest.approx(step)


def test_intervals_with_time_without_work_are_left_out_and_it_is_said() -> None:
    """200 steps of 50 ms, then 40 in 30 s, with gaps of 3 s ÷ 160."""
    measured = paced((0, 4, 0, 0, 0.0), (10, 4, 200, 800, 40.0), (40, 4, 240, 960, 43.0))
    assert values(measured)["step.wall_ms"] == 50
    assert "1 left out (time ÷ steps is 750 ms, but the engine's tokens come 18.8 ms apart" in \
        window(measured, "step.wall_ms")


def test_speculation_makes_several_tokens_a_step() -> None:
    """3 accepted a step: gaps of 10 ms beside steps of 30. Without that figure the steps would have idle time in them.
    """
    def served(**accepted: float) -> Measured:
        return measure([scrape({"sglang:num_running_reqs": 4, "sglang:cuda_graph_passes_total": passes,
                                "sglang:inter_token_latency_seconds_count": passes * 12,
                                "sglang:inter_token_latency_seconds_sum": passes * 0.12,
                                **{f"sglang:{name}": value for name, value in accepted.items()}}, passes * 0.03)
                        for passes in (0, 1000)])
    assert values(served(spec_accept_length=3.0))["step.wall_ms"] == 30
    assert "without work" in served().unknown["step.wall_ms"]


def test_each_engine_is_held_against_its_own_tokens() -> None:
    """Engine 0 made 40 steps in 30 s with its tokens 17.5 ms apart, engine 1 worked: 600 steps of 50 ms."""
    first, last = ({f"vllm:{name}{{engine={engine}}}": value for engine, figures in enumerate(both)
                    for name, value in zip(("num_requests_running", "iteration_tokens_total_count",
                                            "inter_token_latency_seconds_count", "inter_token_latency_seconds_sum"),
                                           figures, strict=True)}
                   for both in (((1, 0, 0, 0.0), (8, 0, 0, 0.0)), ((1, 40, 40, 0.7), (8, 600, 4800, 240.0))))
    assert values(measure([scrape(first, 0.0), scrape(last, 30.0)]))["step.wall_ms"] == 50


def counted(seconds: float, running: float, steps: float, **figures: float) -> Measured:
    """Without gaps: nothing, then `figures`."""
    return measure([scrape({"vllm:num_requests_running": running, "vllm:iteration_tokens_total_count": 0,
                            **{f"vllm:{name}": 0 for name in figures}}, 0.0),
                    scrape({"vllm:num_requests_running": running, "vllm:iteration_tokens_total_count": steps,
                            **{f"vllm:{name}": value for name, value in figures.items()}}, seconds)])


def test_without_gaps_the_durations_of_requests_tell() -> None:
    """Three requests of 0.24 s each in 30 s: 0.024 ran on average, though one ran at both scrapes."""
    name = "e2e_request_latency_seconds"
    idle = counted(30, 1, 40, **{f"{name}_count": 3, f"{name}_sum": 0.72})
    assert "0.024 ran on average and not the 1 of the scrapes" in idle.unknown["step.wall_ms"]
    busy = counted(30, 4, 600, **{f"{name}_count": 60, f"{name}_sum": 120.0})          # 4 on average
    assert values(busy)["step.wall_ms"] == 50
    long = counted(30, 4, 600, **{f"{name}_count": 1, f"{name}_sum": 20.0})            # most have not ended
    assert values(long)["step.wall_ms"] == 50


def test_without_either_the_tokens_of_a_step_tell() -> None:
    """Eight ran at both scrapes; 100 steps made 100 tokens in the one case and 400, with prompts, in the other."""
    assert "1 tokens a step are far fewer than the 8 requests" in \
        counted(10, 8, 100, generation_tokens_total=100).unknown["step.wall_ms"]
    assert values(counted(10, 8, 100, generation_tokens_total=400))["step.wall_ms"] == 100


def test_an_interval_counts_as_often_as_it_had_steps() -> None:
    """Ten long prefills take one interval, ten another; 500 steps of 20 ms lie between."""
    assert values(steps((0, 9, 0), (10, 9, 10), (20, 9, 510), (30, 9, 520)))["step.wall_ms"] == 20


def test_the_share_of_the_queue_is_of_means_and_not_of_two_coarse_medians() -> None:
    """7 of 9 s on average; both medians are read off the bucket of 5 to 10 s, at 7.5 s."""
    def at(count: int) -> dict[str, float]:
        return (histogram("vllm:request_queue_time_seconds", 7.0 * count, _5_0=0, _10_0=count)
                | histogram("vllm:time_to_first_token_seconds", 9.0 * count, _5_0=0, _10_0=count))
    measured = measure([scrape(at(0), 0.0), scrape(at(30), 10.0)])
    found = values(measured)
    assert found["latency.queue_ms"] == found["latency.ttft_ms"] == 7500
    assert found["serving.queued_fraction"] == pytest.approx(7 / 9, rel=1e-5)
    assert "7,000 of 9,000 ms" in window(measured, "serving.queued_fraction")


def test_a_queue_longer_than_the_first_token_is_of_other_requests() -> None:
    def at(count: int) -> dict[str, float]:
        return (histogram("vllm:request_queue_time_seconds", 9.0 * count, _5_0=0, _10_0=count)
                | histogram("vllm:time_to_first_token_seconds", 7.0 * count, _5_0=0, _10_0=count))
    measured = measure([scrape(at(0), 0.0), scrape(at(30), 10.0)])
    assert "serving.queued_fraction" not in values(measured)
    assert "of different requests" in measured.unknown["serving.queued_fraction"]

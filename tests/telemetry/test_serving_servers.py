"""Whose scrapes they are: two servers behind one address, two hosts in one folder, a restart. Their counters are never
subtracted from each other, and what cannot be of one server is not measured."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scrape_dumps import histogram, scrape, values, window
from xpu_triage.samples import Scrape
from xpu_triage.telemetry.engines import Source
from xpu_triage.telemetry.measured import Measured
from xpu_triage.telemetry.scrape_runs import runs
from xpu_triage.telemetry.scrape_views import View, Who
from xpu_triage.telemetry.serving import measure

OLD = 1_000_000
"""What the older of two servers has counted more."""


def counted(time: float, count: float, *, source: str = "a.prom", **more: float) -> Scrape:
    """`count` tokens by a server of one request, one token a step."""
    return scrape({"vllm:num_requests_running": 1, "vllm:generation_tokens_total": count,
                   "vllm:iteration_tokens_total_count": count,
                   **{f"vllm:{name}": value for name, value in more.items()}}, time, source=source)


def test_two_servers_that_answer_by_turns_are_told_apart() -> None:
    """Each makes 10 tokens a second; one has counted a million before. 200 tokens in 20 s of the one seen last."""
    measured = measure([counted(t, 10 * t + (OLD if t % 10 else 100), source="new.prom" if t % 10 == 0 else "old.prom")
                        for t in (0, 5, 10, 15, 20)])
    assert values(measured)["serving.decode_tokens_per_s"] == 10
    assert values(measured)["step.wall_ms"] == 100
    assert {signal.source for signal in measured.signals} == {"new.prom"}
    assert any("2 servers answered by turns" in note for note in measured.notes)


def test_dumps_of_two_hosts_at_the_same_moments_are_told_apart() -> None:
    mixed = [counted(t, 10 * t + more, source=f"{host}.prom") for t in (0, 10, 20)
             for host, more in (("a", 100), ("b", OLD))]
    assert values(measure(mixed))["serving.decode_tokens_per_s"] == 10
    assert {len({view.scrape.source for view in run.views}) for run in runs(mixed)[0]} == {1}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 10)), min_size=3, max_size=12))
def test_no_run_holds_two_servers_once_a_counter_fell(answers: list[tuple[bool, int]]) -> None:
    assume(any(old and not later for (old, _), (later, _) in pairwise(answers)))
    count = {False: 10, True: OLD}
    scrapes = []
    for time, (old, rise) in enumerate(answers):
        count[old] += rise
        scrapes.append(counted(float(time), count[old], source=str(old)))
    for run in runs(scrapes)[0]:
        assert len({view.scrape.source for view in run.views}) == 1


def test_a_restart_is_no_second_server_though_the_new_counters_pass_the_old() -> None:
    """1,000 tokens each ten seconds, before it and after it."""
    measured = measure([counted(t, n) for t, n in ((0, 1000), (10, 2000), (20, 500), (30, 1500), (40, 2500))])
    assert values(measured)["serving.decode_tokens_per_s"] == 100
    assert any("the server was restarted" in note and "3 of 5" in note for note in measured.notes)


def test_a_counter_that_began_at_another_time_is_of_another_process() -> None:
    """Nothing fell and the address is the same, but the counter says when it began."""
    born = "generation_tokens_created"
    measured = measure([counted(0, 100, **{born: 1000.0}), counted(10, 5000, **{born: 2000.0}),
                        counted(20, 5300, **{born: 2000.0})])
    assert values(measured)["serving.decode_tokens_per_s"] == 30
    assert any("2 servers" in note for note in measured.notes)


def test_a_counter_that_began_between_the_scrapes_is_of_the_same_process() -> None:
    first = counted(0, 100, generation_tokens_created=1000.0)
    later = counted(10, 400, generation_tokens_created=1000.0, num_preemptions_created=1004.0)
    assert values(measure([first, later]))["serving.decode_tokens_per_s"] == 30


def gaps(time: float, steps: float | None, running: float, total: float, **below: float) -> Scrape:
    figures = {"vllm:num_requests_running": running}
    if steps is not None:
        figures["vllm:iteration_tokens_total_count"] = steps
    return scrape(figures | histogram("vllm:inter_token_latency_seconds", total, **below), time)


def test_steps_far_shorter_than_the_gaps_between_tokens_are_of_two_servers() -> None:
    """75,000 steps in 5 s are 0.0667 ms each; 2,000,000 tokens come 40 ms apart."""
    measured = measure([gaps(0, 1000, 30, 10.0, _0_025=0, _0_05=400),
                        gaps(5, 76_000, 30, 80_010.0, _0_025=0, _0_05=2_000_400)])
    assert values(measured) == {"serving.running": 30}
    for name in ("step.wall_ms", "latency.engine_itl_ms", "serving.decode_tokens_per_s"):
        assert "75,000 steps in 5 s are 0.0667 ms each, but tokens of a request come 40 ms apart" in \
            measured.unknown[name]
    assert any("Only the last scrape is read" in note for note in measured.notes)


def test_more_tokens_than_the_running_requests_can_make_are_of_two_servers() -> None:
    """Where steps are not counted: 1,000,000 tokens 40 ms apart in 5 s need 8,000 requests, and 30 ran."""
    measured = measure([gaps(0, None, 30, 10.0, _0_025=0, _0_05=400),
                        gaps(5, None, 30, 40_010.0, _0_025=0, _0_05=1_000_400)])
    assert values(measured) == {"serving.running": 30}
    assert "need 8,000 requests at once, and 30 ran" in measured.unknown["latency.engine_itl_ms"]


def test_a_stall_that_ends_is_no_second_server() -> None:
    """256 requests get their next token after a minute, then 49 more each, 20 ms apart: 50 steps in the second, and a
    mean gap of 1.22 s that a few gaps made."""
    stalled = 256 * 60 + 256 * 49 * 0.02
    measured = measure([gaps(0, 0, 256, 0.0, _0_01=0, _0_025=0, _80_0=0),
                        gaps(1, 50, 256, stalled, _0_01=0, _0_025=256 * 49, _80_0=256 * 50)])
    assert values(measured)["step.wall_ms"] == 20
    assert not measured.notes


# limits that hold

def trt(running: float, waiting: float, time: float = 0.0, **limits: float) -> Scrape:
    return scrape({"trtllm_num_requests_running": running, "trtllm_num_requests_waiting": waiting,
                   **{f"trtllm_{name.replace('__', '{engine=')}{'}' if '__' in name else ''}": value
                      for name, value in limits.items()}}, time)


def test_of_two_limits_the_smaller_binds() -> None:
    measured = measure([trt(8, 40, max_num_active_requests=2048, max_batch_size_runtime=8)])
    assert values(measured)["serving.running_limit"] == 8
    assert "max_batch_size_runtime" in window(measured, "serving.running_limit")
    assert "max_num_active" not in window(measured, "serving.running_limit")


def test_limits_of_engines_add_up_and_zero_is_no_limit() -> None:
    measured = measure([trt(8, 40, max_num_active_requests__0=2048, max_batch_size_runtime__0=8,
                            max_num_active_requests__1=4, max_batch_size_runtime__1=16)])
    assert values(measured)["serving.running_limit"] == 12
    assert values(measure([trt(8, 0, max_num_active_requests=64, max_batch_size_runtime=0)]))[
        "serving.running_limit"] == 64


def at_a_limit(*read: tuple[float, float]) -> Measured:
    return measure([scrape({"vllm:num_requests_running": running, "vllm:num_requests_waiting": waiting}, float(i))
                    for i, (running, waiting) in enumerate(read)])


def test_as_many_at_every_scrape_while_others_wait_is_said_to_be_a_limit_and_given_no_name() -> None:
    measured = at_a_limit((256, 20), (255, 90), (256, 400))
    assert any("255 to 256 requests run at each of 3 scrapes while 20 to 400 wait" in note for note in measured.notes)
    assert "serving.running_limit" not in values(measured)


@pytest.mark.parametrize("read", [
    [(256, 20), (256, 90)],                                                                  # two scrapes
    [(256, 20), (256, 0), (256, 9)],                                                         # nobody waited at one
    [(256, 20), (200, 20), (230, 20)],                                                       # it changes
    [(1, 7), (1, 7), (1, 7)], [(0, 6), (0, 6), (0, 6)]])                                     # a stall looks like that
def test_what_is_no_limit_is_not_said_to_be_one(read: list[tuple[float, float]]) -> None:
    assert not any("limit" in note for note in at_a_limit(*read).notes)


# time

def test_work_grows_with_the_number_of_scrapes_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    inner = View._worked_out

    def counting(self: View, source: Source, end: str, label: Mapping[str, str]) -> dict[Who, float]:
        nonlocal calls
        calls += 1
        return inner(self, source, end, label)

    monkeypatch.setattr(View, "_worked_out", counting)
    work = []
    for count in (50, 100):
        calls = 0
        measure([gaps(i, 10.0 * i, 4, i * 0.4, _0_01=0, _0_1=10 * i, _1_0=10 * i) for i in range(count)])
        work.append(calls)
    assert work[1] < 2.2 * work[0]

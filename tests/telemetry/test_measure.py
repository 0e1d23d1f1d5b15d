"""All telemetry together: when requests ran, and how the parts are joined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage import telemetry
from xpu_triage.samples import EngineLog, Recorder, Scrape, Telemetry
from xpu_triage.telemetry.load import busy_spans


def scrape(time: float | None, running: float | None, generated: float | None = None,
           name: str = "vllm:num_requests_running") -> Scrape:
    values = {}
    if running is not None:
        values[name] = (({"engine": "0"}, running), ({"engine": "1"}, 0.0))
    if generated is not None:
        values["vllm:generation_tokens_total"] = (({}, generated),)
    return Scrape("metrics", time, values)


def test_requests_ran_between_scrapes_that_both_see_some() -> None:
    scrapes = [scrape(time, running) for time, running in ((0, 0), (1, 4), (2, 4), (3, 1), (4, 0), (5, 2), (6, 2))]
    assert busy_spans(scrapes) == ((1, 3), (5, 6))


@pytest.mark.parametrize("name", ["sglang:num_running_reqs", "sglang_num_running_reqs", "tgi_batch_current_size"])
def test_other_servers_names(name: str) -> None:
    assert busy_spans([scrape(0, 1, name=name), scrape(1, 1, name=name)]) == ((0, 1),)


def test_tokens_tell_where_no_gauge_does_and_a_reset_does_not() -> None:
    scrapes = [scrape(time, None, made) for time, made in ((0, 5), (1, 9), (2, 9), (3, 2))]
    assert busy_spans(scrapes) == ((0, 1),)


@pytest.mark.parametrize("scrapes", [[], [scrape(1, 4)], [scrape(None, 4), scrape(None, 4)],
                                     [scrape(1, None), scrape(2, None)], [scrape(1, float("nan")), scrape(2, 4)]])
def test_without_two_scrapes_that_say_so_it_is_not_known(scrapes: list[Scrape]) -> None:
    assert busy_spans(scrapes) is None


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), max_size=20))
def test_spans_are_in_order_apart_and_do_not_depend_on_the_order(read: list[tuple[int, int]]) -> None:
    scrapes = [scrape(float(time), float(running)) for time, running in dict(read).items()]
    spans = busy_spans(scrapes)
    assert spans == busy_spans(scrapes[::-1])
    ends = [end for span in spans or () for end in span]
    assert ends == sorted(set(ends))


def test_all_kinds_of_telemetry_give_their_signals_and_the_device_counts_while_requests_ran() -> None:
    recorder = Recorder()
    for second in range(20):
        recorder.add("0", "utilization", 0.0 if second < 10 else 0.5, time=float(second))
        recorder.add("42", "cpu", 1.0, time=float(second), kind="process")
    recorder.say("42", "role", "engine", kind="process")
    samples = recorder.samples("tool", "samples", clock="epoch")
    one = np.ones(3)
    log = EngineLog("log", "vllm", {"elapsed_ms": one * 40, "context_requests": one * 0, "generation_requests": one,
                                    "generation_tokens": one, "index": np.arange(3.0)})
    measured = telemetry.measure(Telemetry((samples,), (scrape(10, 4), scrape(19, 4)), (), (log,)))
    first = {signal.name: signal.value for signal in reversed(measured.signals)}
    assert first["device.utilization_fraction"] == 0.5
    assert first["step.wall_ms"] == 40
    assert first["process.busiest_name"] == "engine"
    order = [signal.how for signal in measured.signals]
    assert order == sorted(order, key=["smi", "metrics", "log", "stacks", "os"].index)
    assert first["serving.running"] == 4  # the server's own figure comes before the log's


def test_requests_that_only_wait_are_a_load_too() -> None:
    stalled = [Scrape("metrics", time, {"vllm:num_requests_running": (({"engine": "0"}, 0.0),),
                                        "vllm:num_requests_waiting": (({"engine": "0"}, 6.0),)}) for time in (0, 10)]
    assert busy_spans(stalled) == ((0, 10),)

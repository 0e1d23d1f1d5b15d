"""Periodic lines of a log: the last of several levels, the step that follows from them, prefill by itself. By hand."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from xpu_triage.evidence import engine_log
from xpu_triage.telemetry import iterations
from xpu_triage.telemetry.measured import Measured

DRAFTS = "INFO 11-29 10:00:00 [m.py:1] SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 9 tokens"


def line(second: int, running: int, rate: float, *, prompt: float = 0.0, waiting: int = 0, engine: int = 0) -> str:
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return (f"INFO 11-29 {clock} [loggers.py:123] Engine {engine:03}: Avg prompt throughput: {prompt} tokens/s, Avg "
            f"generation throughput: {rate} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache "
            "usage: 40.0%, Prefix cache hit rate: 0.0%")


def vllm(*parts: tuple[int, int, float], prompt: float = 0.0) -> list[str]:
    """Ten seconds a line; of each part lines, running, tokens per second."""
    rows = [(running, rate) for count, running, rate in parts for _ in range(count)]
    return [line(10 * i, running, rate, prompt=prompt) for i, (running, rate) in enumerate(rows)]


def prefill(second: int, *, running: int = 0, waiting: int = 5, new: int = 8192, more: str = "") -> str:
    return (f"[2026-11-30 06:{second // 60:02}:{second % 60:02} TP0] Prefill batch. #new-seq: 1, #new-token: {new}, "
            f"#cached-token: 0, token usage: 0.30, #running-req: {running}, #queue-req: {waiting}, {more}")


def decode(second: int, running: int, rate: float) -> str:
    return (f"[2026-11-30 06:{second // 60:02}:{second % 60:02} TP0] Decode batch. #running-req: {running}, "
            f"#token: 400, token usage: 0.50, cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 3,")


def of(*lines: str) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return iterations.measure([engine_log.read(path)])


def value(measured: Measured, name: str) -> object:
    return next((signal.value for signal in measured.signals if signal.name == name), None)


def window(measured: Measured, name: str) -> str:
    return next(signal.window for signal in measured.signals if signal.name == name)


# --- a log of a day

def test_of_a_day_the_last_minutes_count_and_the_day_is_said_beside_them() -> None:
    """Two hours of 3,200 tokens/s at 128, then ten minutes of 52.4 at 256: 61 times less."""
    found = of(*vllm((720, 128, 3200.0), (60, 256, 52.4)))
    assert value(found, "serving.decode_tokens_per_s") == pytest.approx(52.4)
    assert value(found, "serving.running") == 256
    assert "10 min of the log since 11-29 02:00" in window(found, "serving.decode_tokens_per_s")
    (note,) = found.notes
    assert "52.4 tokens/s at 256 running in the last 10 min since 11-29 02:00" in note
    assert "3,200 tokens/s at 128 running in the 2 h before: 61.1 times less" in note


def test_what_came_before_is_no_reference_as_the_log_does_not_tell_that_the_load_was_the_same() -> None:
    found = of(*vllm((720, 128, 3200.0), (60, 256, 52.4)))
    assert value(found, "serving.reference_tokens_per_s") is None
    assert "at 128 running, not 256" in found.unknown["serving.reference_tokens_per_s"]
    same = of(*vllm((720, 128, 3200.0), (60, 128, 52.4)))
    assert "at as many running" in same.unknown["serving.reference_tokens_per_s"]


def test_a_recovery_is_told_the_same_way_and_lacks_no_reference() -> None:
    found = of(*vllm((60, 256, 52.4), (60, 256, 3200.0)))
    assert value(found, "serving.decode_tokens_per_s") == 3200
    assert "61.1 times more" in found.notes[0]
    assert "serving.reference_tokens_per_s" not in found.unknown


def test_a_log_of_one_load_is_taken_whole() -> None:
    found = of(*vllm((30, 128, 3200.0), (30, 128, 2000.0)))
    assert value(found, "serving.decode_tokens_per_s") == pytest.approx((29 * 3200 + 30 * 2000) / 59)
    assert found.notes == ()


def test_a_load_that_ran_out_at_the_end_is_left_out() -> None:
    found = of(*vllm((60, 64, 1600.0), (10, 2, 80.0)))
    assert value(found, "serving.running") == 64
    assert "without the 100 s at the end in which the load ran out" in found.notes[0]


def test_requests_that_wait_before_an_engine_that_stands_still_are_the_last_level() -> None:
    busy = vllm((60, 64, 1600.0))
    found = of(*busy, *(line(600 + 10 * i, 0, 0.0, waiting=6) for i in range(20)))
    assert (value(found, "serving.running"), value(found, "serving.waiting")) == (0, 6)
    assert "0 tokens/s at 0 running" in found.notes[0]


def test_a_last_line_of_no_token_may_be_a_standstill_and_is_said() -> None:
    found = of(*vllm((60, 64, 1600.0), (1, 64, 0.0)))
    assert any("0 tokens/s with 64 requests running" in note for note in found.notes)
    assert not any("0 tokens/s with" in note for note in of(*vllm((60, 64, 1600.0))).notes)


def test_decode_lines_fall_apart_in_time_too() -> None:
    found = of(*(decode(10 * i, 64, 1600.0) for i in range(30)), *(decode(300 + 60 * i, 64, 13.0) for i in range(1, 6)))
    assert value(found, "serving.decode_tokens_per_s") == 13
    assert value(found, "step.wall_ms") == pytest.approx(64 / 13 * 1000)
    assert "decode lines of the log fall apart in time" in found.notes[0]


# --- the step of periodic lines

def test_running_over_generation_rate_is_the_step_and_is_marked_as_derived() -> None:
    """256 ÷ 52.4 tokens/s = 4.885 s."""
    found = of(*vllm((60, 256, 52.4), prompt=10.0))
    assert value(found, "step.wall_ms") == pytest.approx(4885.5, abs=0.1)
    assert value(found, "step.method") == "log"
    text = window(found, "step.wall_ms")
    assert text.startswith("derived: running ÷ generation rate, mean of 59 intervals")
    assert "no drafts in the log, prompts at 10 tokens/s at most" in text


@pytest.mark.parametrize(("lines", "expected"), [
    (vllm((30, 1, 20.0)), 50.0),                              # one that runs throughout: no prompt came in
    (vllm((30, 64, 1600.0), prompt=1600.0), 40.0),            # 64 prompt tokens a step
    (vllm((30, 256, 52.4), prompt=250.0), 4885.5),            # many a step, and next to nothing per second
    (vllm((30, 1, 20.0), prompt=5.0), None),                  # one request after another, with pauses perhaps
    (vllm((30, 64, 1600.0), prompt=16_000.0), None),          # 640 prompt tokens a step: arithmetic
    (vllm((2, 256, 52.4)), None),                             # one interval
    (vllm((5, 64, 1.0)), None),                               # 0.6 of a step
    ([x for i in range(15) for x in (line(20 * i, 64, 800.0), line(20 * i + 10, 0, 800.0))], None),  # bursts
    ([line(10 * i, 10 + 10 * (i % 2), 300.0) for i in range(30)], None),  # up and down
    ([*vllm((30, 256, 52.4)), DRAFTS], None),
])
def test_a_step_follows_only_where_every_request_got_a_token_from_each(lines: list[str], expected: float | None
                                                                       ) -> None:
    found = of(*lines)
    if expected is None:
        assert value(found, "step.wall_ms") is None
        assert found.unknown["step.wall_ms"]
    else:
        assert value(found, "step.wall_ms") == pytest.approx(expected, abs=0.1)


def test_iteration_lines_say_it_better() -> None:
    timed = [f"INFO 11-29 00:00:{4 * i:02} [a.py:1] Engine 000: Iteration({i}): 0 context requests, 0 context tokens, "
             "256 generation requests, 256 generation tokens, iteration elapsed time: 4000.00 ms" for i in range(5)]
    assert value(of(*vllm((60, 256, 52.4)), *timed), "step.wall_ms") == 4000


# --- prefill lines alone

def test_prefill_lines_alone_give_the_rate_of_prompts_and_what_waits() -> None:
    """8,192 tokens a second; what its lines do not say is unknown and not none."""
    found = of(*(prefill(i, waiting=5 + i % 3) for i in range(40)))
    assert value(found, "serving.prefill_tokens_per_s") == 8192
    assert value(found, "serving.waiting") == pytest.approx((14 * 5 + 13 * 6 + 13 * 7) / 40)
    assert value(found, "kv.usage_fraction") == pytest.approx(0.3)
    assert value(found, "serving.running") is None
    assert "counts the requests that decode" in found.unknown["serving.running"]
    assert "40 prefill batches" in found.unknown["serving.decode_tokens_per_s"]
    assert "serving.prefill_run_steps" in found.unknown
    assert "no decode batch in 40 lines" in found.notes[0]


@pytest.mark.parametrize(("lines", "expected"), [
    # a pause of a minute after a line at which nobody waits is no part of it: 20 batches a second apart around it
    ([*(prefill(i, waiting=int(i < 20)) for i in range(21)), *(prefill(80 + i) for i in range(21))], 8192),
    # two seconds by stamps of whole seconds are no measurement; the line's own figure is
    ([prefill(i, more="input throughput (token/s): 5000.00") for i in range(3)], 5000),
    ([prefill(i) for i in range(3)], None),
    ([prefill(i, waiting=0) for i in range(40)], None),
    ([prefill(i, new=100 if i < 20 else 300) for i in range(41)], 200),
])
def test_the_rate_is_tokens_over_time_while_requests_wait(lines: list[str], expected: float | None) -> None:
    found = of(*lines)
    if expected is None:
        assert value(found, "serving.prefill_tokens_per_s") is None
        assert found.unknown["serving.prefill_tokens_per_s"]
    else:
        assert value(found, "serving.prefill_tokens_per_s") == pytest.approx(expected, rel=0.03)


def test_beside_decode_lines_a_rate_of_prefill_runs_alone_is_not_the_load_s() -> None:
    found = of(*(prefill(i, running=4) for i in range(20)), *(decode(20 + i, 4, 40.0) for i in range(20)))
    assert value(found, "serving.prefill_tokens_per_s") is None
    assert value(found, "serving.running") == 4


def test_prefill_lines_after_the_last_decode_line_are_said_where_they_go_on() -> None:
    lines = [decode(i, 4, 40.0) for i in range(20)]
    assert any("ends with 70 prefill batches in 70 s and no decode line" in note
               for note in of(*lines, *(prefill(20 + i, running=4) for i in range(70))).notes)
    assert not of(*lines, *(prefill(20 + i, running=4) for i in range(30))).notes


def test_an_idle_server_of_that_kind_gives_no_rate() -> None:
    assert "no request ran" in of(decode(0, 0, 0.0)).unknown["serving.decode_tokens_per_s"]

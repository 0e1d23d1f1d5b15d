"""Signals from engines' logs, with values worked by hand; recorded logs against a plain search."""

from __future__ import annotations

import random
import re
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.catalogue import CATALOGUE
from xpu_triage.evidence import engine_log
from xpu_triage.samples import EngineLog
from xpu_triage.telemetry import iterations
from xpu_triage.telemetry.measured import Measured

Step = tuple[int, int, int, float]
"""Context requests, context tokens, generation requests, elapsed milliseconds."""


def detail(index: int, step: Step, usage: float | None = None) -> str:
    requests, tokens, running, ms = step
    return (f"Iteration({index}): {requests} context requests, {tokens} context tokens, {running} generation requests, "
            f"{running} generation tokens, iteration elapsed time: {ms:.4f} ms"
            + ("" if usage is None else f", GPU KV cache usage: {usage:.3f}%"))


def stamped(second: float, line: str) -> str:
    whole = int(second)
    clock = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"INFO 11-29 {clock} [loggers.py:199] Engine 000: {line}"


def read(text: str, name: str = "engine.log") -> EngineLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text + "\n", encoding="utf-8")
        log = engine_log.read(path)
    return EngineLog(name, log.engine, log.iterations, log.stats, log.facts, log.lines, log.skipped, log.notes)


def of(*lines: str) -> Measured:
    return iterations.measure([read("\n".join(lines))])


def steps(*done: Step) -> Measured:
    return of(*(detail(i, step) for i, step in enumerate(done)))


def values(measured: Measured) -> dict[str, object]:
    names = [signal.name for signal in measured.signals]
    assert len(names) == len(set(names)), "one figure for one quantity"
    assert all(signal.how == "log" and signal.name in CATALOGUE for signal in measured.signals)
    assert set(measured.unknown) <= set(CATALOGUE)
    return {signal.name: signal.value for signal in measured.signals}


def test_the_step_is_the_median_of_pure_decode_iterations() -> None:
    found = values(steps((2, 90, 0, 500), (0, 0, 2, 10), (0, 0, 2, 12), (1, 45, 2, 300), (0, 0, 3, 11)))
    assert found["step.wall_ms"] == 11
    assert found["step.count"] == 3
    assert found["step.method"] == "log"
    assert found["serving.running"] == pytest.approx(7 / 3)
    assert found["serving.decode_tokens_per_s"] == pytest.approx(7 / 0.033)


def test_profiled_steps_do_not_count_and_are_said() -> None:
    measured = of("INFO 11-29 10:00:00 [a.py:1] Starting profiler...",
                  *(stamped(36000 + i, detail(i, (0, 0, 4, 40))) for i in range(3)),
                  "INFO 11-29 10:00:03 [a.py:1] Profiler stopped.",
                  *(stamped(36003 + i, detail(i, (0, 0, 4, 20))) for i in range(3, 5)))
    assert values(measured)["step.wall_ms"] == 20
    assert "3 under the profiler left out" in measured.signals[0].window


def test_a_rate_over_several_loads_is_not_given() -> None:
    measured = steps(*[(0, 0, 4, 10.0)] * 20, *[(0, 0, 4, 400.0)] * 10)
    assert "serving.decode_tokens_per_s" not in values(measured)
    assert "10.0 to 400.0 ms" in measured.unknown["serving.decode_tokens_per_s"]


@pytest.mark.parametrize("with_stamps", [True, False])
def test_of_steps_that_fall_apart_in_time_the_last_level_is_measured(with_stamps: bool) -> None:
    """Ten minutes of 40 ms at 128, then two of 4,885 ms at 256: the median of all would be 40 ms."""
    done = [(0, 0, 128, 40.0)] * 15_000 + [(0, 0, 256, 4885.0)] * 25
    seconds = np.concatenate(([0.0], np.cumsum([ms / 1000 for *_, ms in done])))
    measured = of(*(stamped(second, detail(i, step)) if with_stamps else detail(i, step)
                    for i, (step, second) in enumerate(zip(done, seconds, strict=False))))
    found = values(measured)
    assert found["step.wall_ms"] == pytest.approx(4885, rel=0.02)
    assert found["serving.running"] == 256
    assert found["serving.decode_tokens_per_s"] == pytest.approx(52.4, rel=0.02)
    note = next(note for note in measured.notes if "fall apart in time" in note)
    assert "61.1 times less" in note
    assert ("since 11-29 00:10" in note) is with_stamps
    assert "of the log" in measured.signals[0].window
    assert "at 128 running, not 256" in measured.unknown["serving.reference_tokens_per_s"]


def test_elapsed_times_that_leave_out_the_scheduler_give_way_to_the_stamps() -> None:
    # 100 steps a line apart by 0.5 s, of which the engine times 0.1 s
    measured = of(*(stamped(36000 + i / 2, detail(i, (0, 0, 4, 100))) for i in range(100)))
    assert values(measured)["step.wall_ms"] == pytest.approx(500, rel=0.03)
    assert values(measured)["serving.decode_tokens_per_s"] == pytest.approx(8, rel=0.03)
    assert any("add up to less than the time between the lines" in note for note in measured.notes)


def test_a_pause_between_requests_is_no_step_time() -> None:
    # every ten decode steps of 100 ms a new request, a minute later
    lines, second = [], 36000.0
    for i in range(100):
        second += 60 if i % 10 == 0 else 0.1
        lines.append(stamped(second, detail(i, (1, 5, 0, 100) if i % 10 == 0 else (0, 0, 1, 100))))
    assert values(of(*lines))["step.wall_ms"] == 100


def test_the_slowest_of_several_engines_is_measured_and_they_are_not_mixed() -> None:
    lines = [f"INFO 11-29 10:00:00 [a.py:1] Engine {e:03}: " + detail(i, (0, 0, 2, 10 * (e + 1)))
             for i in range(6) for e in range(3)]
    lines += ["INFO 11-29 10:00:00 [a.py:1] Engine 009: " + detail(0, (0, 0, 1, 900))]  # hardly any work
    measured = of(*lines)
    assert values(measured)["step.wall_ms"] == 30
    assert "10.00 to 30.00 ms" in measured.notes[0]


@pytest.mark.parametrize(("done", "expected"), [
    # 4 decode; 3 prefills of one request each; then 7 decode: the 4 waited in all three
    ([(0, 0, 4, 10), (1, 90, 0, 50), (1, 80, 0, 50), (1, 70, 0, 50), (0, 0, 7, 10)], 3),
    # the same from an empty engine: what is prefilled first waits for what comes after
    ([(1, 90, 0, 50), (1, 80, 0, 50), (1, 70, 0, 50), (0, 0, 3, 10)], 2),
    # one prompt in chunks of 512 while 2 wait: all five of them
    ([(0, 0, 2, 9), *[(1, 512, 0, 90)] * 4, (1, 100, 0, 20), (0, 0, 3, 9)], 5),
    # one prompt in chunks, nobody waits
    ([*[(1, 512, 0, 90)] * 4, (1, 100, 0, 20), (0, 0, 1, 9)], 0),
    # prompts computed beside decodes keep nobody waiting
    ([(0, 0, 2, 9), *[(1, 512, 2, 90)] * 4, (0, 0, 3, 9)], 0),
])
def test_prefill_runs_count_while_others_waited(done: list[Step], expected: int) -> None:
    assert values(steps(*done))["serving.prefill_run_steps"] == expected


def test_the_time_of_prefills_that_kept_others_waiting_is_that_of_their_steps() -> None:
    # 4 wait in three prefills of 50, 60 and 70 ms, and in a single one of 80; 300 ms in all
    found = values(steps((0, 0, 4, 10), (1, 90, 0, 50), (1, 80, 0, 60), (1, 70, 0, 70), (0, 0, 7, 15), (1, 60, 0, 80),
                         (0, 0, 8, 15)))
    assert found["serving.prefill_run_ms"] == 180
    assert found["serving.prefill_run_fraction"] == pytest.approx(180 / 300)


def test_a_prefill_run_that_may_have_kept_others_waiting_is_unknown() -> None:
    # two decoded before; after two prefills two decode, which may be the old ones or the new ones
    measured = steps((0, 0, 2, 9), (1, 90, 0, 50), (1, 80, 0, 50), (0, 0, 2, 9))
    assert "serving.prefill_run_steps" not in values(measured)
    assert "does not say whether decodes were pending" in measured.unknown["serving.prefill_run_steps"]


def test_without_a_prompt_nothing_is_said_about_prefill() -> None:
    measured = steps(*[(0, 0, 4, 10)] * 5)
    assert not {"serving.prefill_run_steps", "latency.prefill_ms"} & {*values(measured), *measured.unknown}


def test_the_chunks_of_a_lone_prompt_add_up() -> None:
    lone = [(1, 512, 0, 90), (1, 512, 0, 90), (1, 100, 0, 20), (0, 0, 1, 9)]
    assert values(steps(*lone * 3))["latency.prefill_ms"] == 200
    assert "latency.prefill_ms" not in values(steps(*lone * 2))


@pytest.mark.parametrize(("usage", "expected"), [((5.0, 5.0), 2.0), ((5.0, 9.0), None), ((None, None), None)])
def test_a_drift_needs_a_sustained_run_at_equal_lengths(usage: tuple[float | None, float | None],
                                                        expected: float | None) -> None:
    measured = of(*(detail(i, (0, 0, 4, 100 if i < 500 else 200), usage[i >= 500]) for i in range(1000)))
    assert values(measured).get("step.drift_ratio") == expected
    assert ("step.drift_ratio" in measured.unknown) == (expected is None)


def test_a_short_run_says_nothing_of_drift() -> None:
    measured = of(*(detail(i, (0, 0, 4, 10 if i < 500 else 20), 5.0) for i in range(1000)))
    assert "step.drift_ratio" not in {*values(measured), *measured.unknown}


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20), st.floats(0.01, 20))
def test_steps_scale_with_time(elapsed: list[float], factor: float) -> None:
    """As long as they are less than a minute in all, too short for several levels."""
    once, scaled = (values(steps(*((0, 0, 4, ms * by) for ms in elapsed))) for by in (1, factor))
    assert scaled["step.wall_ms"] == pytest.approx(float(str(once["step.wall_ms"])) * factor, rel=0.06, abs=1e-4)


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_logs_does_not_matter(order: random.Random) -> None:
    logs = [read(detail(0, (0, 0, 4, 10)), "a"), read(detail(0, (0, 0, 4, 30)), "b"),
            read("INFO 11-29 10:00:00 [a.py:1] Automatically detected platform cuda.", "c"),
            read("INFO 11-29 10:00:00 [a.py:1] Using XFormers backend.", "d")]
    expected = iterations.measure(logs)
    order.shuffle(logs)
    measured = iterations.measure(logs)
    assert measured == expected
    assert values(measured)["step.wall_ms"] == 30
    assert values(measured)["log.backend"] == "XFormers, cuda"


def periodic(running: int, waiting: int, rate: float, more: str = "") -> str:
    return (f"INFO 11-29 10:00:00 [loggers.py:335] Engine 000: Avg prompt throughput: 50.0 tokens/s, Avg generation "
            f"throughput: {rate} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs{more}, GPU KV cache usage: "
            f"{running}.0%, Prefix cache hit rate: 40.0%")


def test_periodic_lines_give_the_load_and_rates_of_loaded_intervals_only() -> None:
    found = values(of(periodic(0, 0, 0), periodic(8, 2, 100), periodic(8, 4, 300), periodic(8, 6, 340),
                      periodic(0, 0, 20)))
    assert found["serving.running"] == 8
    assert found["serving.waiting"] == 4
    assert found["serving.decode_tokens_per_s"] == 320  # the first loaded interval began idle
    assert found["kv.usage_fraction"] == pytest.approx(0.08)
    assert found["kv.prefix_hit_fraction"] == pytest.approx(0.4)


def test_waiting_counts_when_nothing_runs() -> None:
    assert values(of(periodic(0, 7, 0), periodic(0, 9, 0)))["serving.waiting"] == 8


def test_an_idle_log_gives_no_rate() -> None:
    measured = of(periodic(0, 0, 0))
    assert values(measured) == {}
    assert "no request ran" in measured.unknown["serving.decode_tokens_per_s"]


def access(count: int) -> list[str]:
    return ['INFO:     127.0.0.1:53904 - "POST /v1/completions HTTP/1.1" 200 OK'] * count


def test_preemptions_are_counted_against_requests_answered() -> None:
    found = values(of(periodic(8, 2, 100, ", Preemptions: 3"), periodic(8, 2, 100, ", Preemptions: 2"), *access(4),
                      'INFO:     127.0.0.1:53904 - "GET /metrics HTTP/1.1" 200 OK'))
    assert found["kv.preemptions_per_request"] == 1.25
    assert found["log.kv_exhausted"] is True


def test_preemptions_without_requests_are_unknown_and_no_preemption_line_is_not_none() -> None:
    unknown = of(periodic(8, 2, 9, ", Preemptions: 3")).unknown
    assert "requests answered are not" in unknown["kv.preemptions_per_request"]
    assert "kv.preemptions_per_request" not in values(of(periodic(8, 2, 9), *access(4)))
    assert "log.kv_exhausted" not in values(of(periodic(8, 2, 9), *access(4)))


@pytest.mark.parametrize(("count", "expected"), [(1, None), (101, 25.25)])
def test_the_first_of_every_fifty_preemptions_is_no_count(count: int, expected: float | None) -> None:
    line = (f"WARNING 05-22 10:00:00 scheduler.py:1057] Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE "
            "mode because there is not enough KV cache space. This can affect the end-to-end performance. "
            f"total_num_cumulative_preemption={count}")
    found = values(of(line, *access(4)))
    assert found.get("kv.preemptions_per_request") == expected
    assert found["log.kv_exhausted"] is True


def decode(running: int, tokens: int, rate: float, more: str = "cuda graph: True, ") -> str:
    return (f"[2025-09-03 05:49:04 TP0] Decode batch. #running-req: {running}, #token: {tokens}, token usage: 0.50, "
            f"{more}gen throughput (token/s): {rate}, #queue-req: 3,")


def prefill(running: int) -> str:
    return (f"[2025-09-03 05:49:04 TP0] Prefill batch. #new-seq: 1, #new-token: 115, #cached-token: 345, token usage: "
            f"0.50, #running-req: {running}, #queue-req: 3,")


def test_sglang_steps_are_batch_over_throughput_between_decode_lines() -> None:
    measured = of(prefill(0), decode(10, 400, 2.0), decode(10, 800, 100), decode(10, 1200, 200), decode(10, 1600, 100),
                  prefill(10), decode(11, 2000, 20))
    found = values(measured)
    assert found["step.wall_ms"] == 100  # 10 ÷ 100/s; neither the idle time before nor the prefill is in it
    assert found["serving.decode_tokens_per_s"] == pytest.approx(400 / 3)
    assert found["kv.prefix_hit_fraction"] == 0.75
    assert found["log.kv_exhausted"] is False
    assert "about 40 batches" in measured.unknown["serving.prefill_run_steps"]


def test_accepted_drafts_count_as_tokens_of_one_step() -> None:
    draft = "accept len: 2.50, accept rate: 0.5, cuda graph: True, "
    assert values(of(*[decode(10, 400, 250, draft)] * 3))["step.wall_ms"] == 100


def test_where_every_decode_batch_is_printed_prefill_runs_are_counted() -> None:
    found = values(of(decode(4, 400, 40), decode(4, 404, 40), prefill(4), prefill(5), prefill(6), decode(7, 411, 40)))
    assert found["serving.prefill_run_steps"] == 3


def test_decode_batches_without_a_captured_graph_are_said() -> None:
    measured = of(*[decode(4, 400, 40, "cuda graph: False, ")] * 3, decode(4, 400, 40))
    assert "3 of 4 decode lines say that no captured graph was replayed" in measured.notes


def test_placement_of_a_model_partly_on_the_host() -> None:
    found = values(of("llm_load_tensors: offloaded 23/33 layers to GPU",
                      "llm_load_tensors:        CPU buffer size = 1 MiB",
                      "llm_load_tensors:        CPU model buffer size = 25215.87 MiB",
                      "llm_load_tensors:      CUDA0 model buffer size = 17999.66 MiB",
                      "llama_new_context_with_model: graph splits = 199"))
    assert found["placement.planned_fraction"] == pytest.approx(23 / 33)
    assert found["placement.loaded_fraction"] == pytest.approx(0.41651, abs=1e-5)
    assert found["placement.host_ops"] == 199


def test_a_model_on_the_cpu_alone_has_no_work_that_was_meant_elsewhere() -> None:
    found = values(of("load_tensors:          CPU model buffer size =   225.49 MiB", "llama_context: graph splits = 1",
                      "load_tensors:   CUDA_Host model buffer size =    10.00 MiB"))
    assert found == {"placement.loaded_fraction": 0}


def test_layers_count_where_no_buffer_is_printed() -> None:
    found = values(of("load_tensors: layer   0 assigned to device CPU, is_swa = 0",
                      "load_tensors: layer   1 assigned to device CUDA0, is_swa = 0",
                      "load_tensors: layer   2 assigned to device CUDA0, is_swa = 0",
                      "load_tensors: offloaded 2/3 layers to GPU"))
    assert found["placement.loaded_fraction"] == pytest.approx(2 / 3)


def test_a_cache_on_the_cpu_is_said() -> None:
    measured = of("load_tensors:      CUDA0 model buffer size = 100.00 MiB",
                  "llama_kv_cache_unified: layer  0: dev = CPU", "llama_kv_cache_unified: layer  1: dev = CUDA0")
    assert "50% of the KV cache is on the CPU, with the model on the device" in measured.notes


def test_no_log_gives_nothing() -> None:
    assert iterations.measure([]) == Measured()


def plain(pattern: str, text: str) -> list[Sequence[str]]:
    return re.findall(pattern, text)


def test_recorded_logs_give_what_a_plain_search_gives(shared: Path) -> None:
    for path in sorted((shared / "samples" / "logs").glob("vllm*.log")):
        text = path.read_text(encoding="utf-8", errors="replace")
        unprofiled = re.sub(r"(?s)Starting profiler.*?Max profiling iterations reached", "", text)
        rows = plain(r"Iteration\(\d+\): (\d+) context requests.*? (\d+) generation requests.*?time: ([\d.]+) ms",
                     unprofiled)
        elapsed = [float(ms) for context, running, ms in rows if context == "0" and running != "0"]
        found = values(iterations.measure([engine_log.read(path)]))
        assert found["step.wall_ms"] == pytest.approx(statistics.median(elapsed))
        assert found["step.count"] == len(elapsed)
        assert found["serving.prefill_run_steps"] == 0  # no two prefill steps follow each other
        alone = [float(ms) for context, running, ms in rows if context == "1" and running == "0"]
        assert found["latency.prefill_ms"] == pytest.approx(statistics.median(alone))

"""Engines' logs: lines as vLLM, SGLang, TensorRT-LLM, llama.cpp and torch print them, and what must not be taken."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import engine_log
from xpu_triage.samples import EngineLog

DETAIL = ("Iteration({}): {} context requests, {} context tokens, {} generation requests, {} generation tokens, "
          "iteration elapsed time: {} ms")
VLLM = "(APIServer pid=27832) INFO 11-29 23:21:{:02} [loggers.py:199] Engine 000: "


def log_of(tmp_path: Path, *lines: str) -> EngineLog:
    path = tmp_path / "engine.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert engine_log.matches(text[:1 << 18])
    return engine_log.read(path)


def facts(log: EngineLog, name: str) -> list[str]:
    return [fact.value for fact in log.facts if fact.name == name]


def test_an_iteration_line_gives_its_six_figures(tmp_path: Path) -> None:
    log = log_of(tmp_path, VLLM.format(7) + DETAIL.format(9, 3, 195, 1, 1, "1511.57") + ", CPU KV cache usage: 0.1%")
    assert log.engine == "vllm"
    assert {name: column.tolist() for name, column in log.iterations.items() if name != "time"} == {
        "engine": [0], "index": [9], "elapsed_ms": [1511.57], "context_requests": [3], "context_tokens": [195],
        "generation_requests": [1], "generation_tokens": [1], "kv_usage_fraction": [0.001], "profiled": [0]}


@pytest.mark.parametrize("prefix", [
    "", "INFO 11-29 23:21:07 [core.py:402] ", "(EngineCore_DP0 pid=28100) INFO 11-29 23:21:07 [core.py:402] ",
    "INFO 06-30 12:00:01 core.py:402] ", "\x1b[0;36m(EngineCore pid=1)\x1b[0;0m INFO 11-29 23:21:07 [core.py:1] ",
    "vllm-1  | INFO 11-29 23:21:07 [core.py:402] ",
    "2026-11-29T23:21:07.123456789Z stdout F INFO 11-29 23:21:07 [core.py:402] ",
    "Nov 29 23:21:07 host env[2827]: (EngineCore_DP0 pid=2827) INFO 11-29 23:21:07 [core.py:4] ",
])
def test_prefixes_of_versions_and_containers_are_taken_off(tmp_path: Path, prefix: str) -> None:
    log = log_of(tmp_path, prefix + DETAIL.format(1, 0, 0, 4, 4, "10.90"))
    assert log.iterations["elapsed_ms"].tolist() == [10.9]


def test_a_rank_without_requests_is_left_out_and_said(tmp_path: Path) -> None:
    log = log_of(tmp_path, DETAIL.format(1, 0, 0, 4, 4, "10.90"), DETAIL.format(2, 0, 0, 0, 0, "9.00") + " (dummy)")
    assert len(log.iterations["index"]) == 1
    assert "1 iteration of a rank without requests" in log.notes[0]


def test_engines_are_told_apart_by_number_or_rank(tmp_path: Path) -> None:
    log = log_of(tmp_path, "INFO 11-29 23:21:07 [l.py:1] Engine 001: " + DETAIL.format(1, 0, 0, 4, 4, "10"),
                 "(EngineCore_DP2 pid=7) INFO 11-29 23:21:07 [l.py:1] " + DETAIL.format(1, 0, 0, 4, 4, "20"))
    assert log.iterations["engine"].tolist() == [1, 2]


@pytest.mark.parametrize(("line", "expected"), [
    ("INFO 11-29 23:21:31 [loggers.py:335] Engine 000: Avg prompt throughput: 45.3 tokens/s, Avg generation throughput:"
     " 20.8 tokens/s, Running: 4 reqs, Waiting: 2 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 40.0%",
     {"running": 4, "waiting": 2, "kv_usage_fraction": 0.125, "prefix_hit_fraction": 0.4,
      "prefill_tokens_per_s": 45.3, "decode_tokens_per_s": 20.8}),
    ("INFO 12-31 08:30:11 metrics.py:486] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 13.0 tokens/s"
     ", Running: 1 reqs, Swapped: 3 reqs, Pending: 5 reqs, GPU KV cache usage: 10.5%, CPU KV cache usage: 80.0%.",
     {"running": 1, "waiting": 5, "swapped": 3, "kv_usage_fraction": 0.105, "decode_tokens_per_s": 13}),
    ("INFO 11-29 23:21:31 [loggers.py:335] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
     "9.0 tokens/s, Running: 8 reqs, Waiting: 3 reqs, Deferred: 1 reqs, Preemptions: 7, GPU KV cache usage: 99.9%, "
     "Prefix cache hit rate: n/a", {"running": 8, "waiting": 3, "preempted": 7, "kv_usage_fraction": 0.999}),
])
def test_periodic_lines_old_and_new(tmp_path: Path, line: str, expected: dict[str, float]) -> None:
    log = log_of(tmp_path, line)
    read = {name: column[0] for name, column in log.stats.items()}
    assert {name: read[name] for name in expected} == pytest.approx(expected)
    for name in {"swapped", "prefix_hit_fraction", "preempted"} - set(expected):
        assert np.isnan(read[name]), name


@pytest.mark.parametrize("line", [
    "INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.49, Accepted throughput: "
    "0.12 tokens/s, Drafted throughput: 0.34 tokens/s, Accepted: 92 tokens, Drafted: 259 tokens",
    "INFO 12-16 16:46:04 metrics.py:482] Speculative metrics: Draft acceptance rate: 0.797, System efficiency: 0.640"])
def test_drafted_tokens_are_a_fact_of_the_log(tmp_path: Path, line: str) -> None:
    assert facts(log_of(tmp_path, line), "serving.speculation") == ["true"]
    assert not facts(log_of(tmp_path, "INFO 12-16 16:46:04 [a.py:1] prompt: " + line), "serving.speculation")


def test_of_a_log_that_holds_too_much_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of both kinds, and facts between them: the last figures are there, of every table as far back."""
    monkeypatch.setattr(engine_log, "MAX_READINGS", 1000)
    lines = []
    for i in range(500):
        at = f"INFO 11-29 10:{i // 60:02}:{i % 60:02} [a.py:1] "
        lines.append(at + DETAIL.format(i, 0, 0, 4, 4, "10"))
        lines.append(f"{at}Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {i}.0 "
                     "tokens/s, Running: 4 reqs, Waiting: 0 reqs")
    log = log_of(tmp_path, "INFO 11-29 10:00:00 [c.py:4] Automatically detected platform cuda.", *lines)
    index, rate = log.iterations["index"], log.stats["decode_tokens_per_s"]
    assert (index[-1], rate[-1]) == (499, 499)
    assert np.diff(index).tolist() == [1] * (len(index) - 1)
    assert np.diff(rate).tolist() == [1] * (len(rate) - 1)
    assert abs(index[0] - rate[0]) <= 1
    columns = len(engine_log.ITERATION_COLUMNS) * len(index) + len(engine_log.STATS_COLUMNS) * len(rate)
    assert 700 < columns < 1000
    assert facts(log, "log.backend") == ["cuda"]
    left = int(re.findall(r"those of the first ([\d,]+) lines are left out", log.notes[-1])[0].replace(",", ""))
    assert left == 1 + 2 * int(index[0]) - (rate[0] < index[0])
    assert log.lines == 1001


def test_a_log_that_fits_is_whole(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(f"INFO 11-29 10:00:{i:02} [a.py:1] " + DETAIL.format(i, 0, 0, 4, 4, "10")
                             for i in range(60)))
    assert len(log.iterations["index"]) == 60
    assert log.notes == ()


def test_the_cache_named_after_the_cpu_names_the_backend_but_swap_space_does_not(tmp_path: Path) -> None:
    line = "INFO 12-31 08:30:11 [x.py:1] Avg prompt throughput: 0 tokens/s, Avg generation throughput: 1 tokens/s, "
    assert facts(log_of(tmp_path, line + "CPU KV cache usage: 1.0%"), "log.backend") == ["cpu"]
    assert facts(log_of(tmp_path, line + "GPU KV cache usage: 1%, CPU KV cache usage: 1.0%"), "log.backend") == []


@pytest.mark.parametrize("line", [
    "[2025-09-03 05:49:04 TP0] Decode batch. #running-req: 6, #token: 501, token usage: 0.02, cuda graph: False, "
    "gen throughput (token/s): 65.75, #queue-req: 3,",
    "[2026-02-09 03:51:09] Decode batch, #running-req: 6, #full token: 501, full token usage: 0.01, #swa token: 14, "
    "swa token usage: 0.02, cuda graph: False, gen throughput (token/s): 65.75, #queue-req: 3",
    "[2025-01-10 10:00:00] Decode batch. #running-req: 6, #token: 501, token usage: 0.02, npu graph: False, "
    "gen throughput (token/s): 65.75, #queue-req: 3",
])
def test_a_decode_batch_of_sglang(tmp_path: Path, line: str) -> None:
    log = log_of(tmp_path, line)
    read = {name: column[0] for name, column in log.stats.items()}
    assert log.engine == "sglang"
    assert (read["running"], read["waiting"], read["tokens"], read["kv_usage_fraction"]) == (6, 3, 501, 0.02)
    assert (read["decode_tokens_per_s"], read["graph"], read["is_prefill"]) == (65.75, 0, 0)


def test_a_prefill_batch_of_sglang(tmp_path: Path) -> None:
    log = log_of(tmp_path, "[2026-09-17 04:05:06.250] Prefill batch, #new-seq: 2, #new-token: 300, #cached-token: 100, "
                 "token usage: 0.10, #running-req: 4, #queue-req: 1, #pending-token: 0, cuda graph: False, "
                 "input throughput (token/s): 9.43")
    read = {name: column[0] for name, column in log.stats.items()}
    assert read["prefix_hit_fraction"] == 0.25
    assert (read["is_prefill"], read["new_requests"], read["running"], read["prefill_tokens_per_s"]) == (1, 2, 4, 9.43)
    assert read["time"] == 1789617906.25  # date -u -d '2026-09-17 04:05:06.25' +%s.%N


def test_tensor_parallel_ranks_repeat_a_line_and_count_once(tmp_path: Path) -> None:
    lines = [f"[2025-10-29 11:25:58 DP{dp} TP{tp}] Decode batch. #running-req: {tp}, #token: 1, token usage: 0.02, "
             "gen throughput (token/s): 65.75, #queue-req: 3" for tp in (1, 2, 0) for dp in (0, 1)]
    lines += [f"[2025-10-29 11:25:59 DP0 TP{tp}] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
              "#new_token_ratio: 0.9998 -> 1.0000" for tp in (0, 1, 2)]
    log = log_of(tmp_path, *lines)
    assert sorted(zip(log.stats["engine"].tolist(), log.stats["running"].tolist(), strict=True)) == [(0, 0), (1, 0)]
    assert facts(log, "kv.preempted") == ["2"]
    assert facts(log, "log.kv_exhausted") == ["true"]


@pytest.mark.parametrize("states", [
    "num_scheduled_requests = 6, kv_cache_util = 0.125, currank_total_requests = 0/1, host_step_time = 19.5ms, "
    "prev_device_step_time = N/A, timestamp = 2026-08-04 19:08:13",
    "currank_total_requests = 0/1, host_step_time = 19.5ms, prev_device_step_time = 11.97ms, timestamp = "
    "2026-08-04 19:08:13, num_scheduled_requests: 6",
])
def test_iterations_of_tensorrt_llm_in_either_order(tmp_path: Path, states: str) -> None:
    log = log_of(tmp_path, "0: [08/04/2026-19:08:13] [TRT-LLM] [I] [_torch][RANK 0] iter = 12, global_rank = 0, "
                 f"rank = 0, {states}, states = {{'num_ctx_requests': 2, 'num_ctx_tokens': 90, "
                 "'num_generation_tokens': 4}")
    read = {name: column[0] for name, column in log.iterations.items()}
    assert (read["index"], read["elapsed_ms"]) == (12, 19.5)
    assert (read["context_requests"], read["generation_requests"]) == (2, 4)
    assert log.engine == "tensorrt-llm"


@pytest.mark.parametrize(("line", "operator"), [
    ("[W610 18:26:03.055846726 VariableFallbackKernel.cpp:250] Warning: CAUTION: The operator 'aten::isin.Tensor_Tensor"
     "' is not currently supported on the NPU backend and will fall back to run on the CPU. This may have performance "
     "implications. (function npu_cpu_fallback)", "aten::isin.Tensor_Tensor"),
    ("/usr/lib/python3.9/site-packages/torch/_tensor_str.py:103: UserWarning: The operator "
     "'aten::bitwise_and.Tensor_out' is not currently supported on the MPS backend and will fall back "
     "to run on the CPU.",
     "aten::bitwise_and.Tensor_out"),
    ("[W1 file.cpp:3] Warning: The operator 'aten::nms on the XPU backend is falling back to run on the CPU.",
     "aten::nms"),
    ("UserWarning: Aten Op fallback from XPU to CPU happends. This may have performance implications.",
     "not named (XPU)"),
])
def test_operators_sent_to_the_cpu_are_named(tmp_path: Path, line: str, operator: str) -> None:
    assert facts(log_of(tmp_path, line), "log.fallback_op") == [operator]


@pytest.mark.parametrize(("message", "backend", "chosen"), [
    ("Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN'].", "FLASH_ATTN", []),
    ("Using TRITON_ATTN attention backend out of potential backends: ('FLASH_ATTN', 'TRITON_ATTN')", "TRITON_ATTN",
     ["TRITON_ATTN (FLASH_ATTN was there)"]),
    ("Using Flash Attention backend on V1 engine.", "Flash Attention", []),
    ("Using XFormers backend.", "XFormers", []),
    ("Automatically detected platform cuda.", "cuda", []),
])
def test_what_was_started_and_what_stood_back(tmp_path: Path, message: str, backend: str, chosen: list[str]) -> None:
    log = log_of(tmp_path, "INFO 11-29 23:21:07 [cuda.py:4] " + message)
    assert facts(log, "log.backend") == [backend]
    assert facts(log, "log.implementation") == chosen


def test_slower_in_place_of_better_is_what_the_line_says(tmp_path: Path) -> None:
    log = log_of(tmp_path, "WARNING 11-29 23:21:07 [t.py:4] Using a slow tokenizer. This might cause a significant "
                 "slowdown.", "WARNING 11-29 23:21:07 [m.py:4] Using default MoE config. Performance might be "
                 "sub-optimal! Config file not found at /models/secret.json")
    assert facts(log, "log.implementation") == ["default MoE config", "slow tokenizer"]


def test_compilations_count_only_once_requests_are_served(tmp_path: Path) -> None:
    compiles = "WARNING 11-29 23:21:07 [hpu.py:4] Configuration: ('prompt', 16, 896) was not warmed-up!"
    jit = "WARNING 11-29 23:21:07 [jit_monitor.py:4] Triton kernel JIT compilation during inference: _topk_kernel"
    start = "INFO:     Application startup complete."
    log = log_of(tmp_path, compiles, "INFO 11-29 23:21:07 [b.py:1] Compiling a graph for dynamic shape takes 15.5 s",
                 start, compiles, jit, jit)
    assert facts(log, "warmup.compiles") == ["3"]


def test_steps_under_the_profiler_are_marked(tmp_path: Path) -> None:
    line = "INFO 11-29 23:21:07 [a.py:1] "
    log = log_of(tmp_path, line + DETAIL.format(1, 0, 0, 4, 4, "10"), line + "Starting profiler...",
                 line + DETAIL.format(2, 0, 0, 4, 4, "30"), line + "Profiler stopped.",
                 line + DETAIL.format(3, 0, 0, 4, 4, "10"))
    assert log.iterations["profiled"].tolist() == [0, 1, 0]


def test_placement_of_llama_cpp(tmp_path: Path) -> None:
    log = log_of(tmp_path, "llm_load_tensors: offloaded 23/33 layers to GPU",
                 "0.00.043.531 I llm_load_tensors:        CPU model buffer size = 25215.87 MiB",
                 "llm_load_tensors:      CUDA0 model buffer size = 17999.66 MiB",
                 "llama_context: graph splits = 749 (with bs=512), 26 (with bs=1)")
    assert log.engine == "llama.cpp"
    assert facts(log, "placement.planned") == ["23/33"]
    assert facts(log, "placement.model_buffer") == ["CPU 25215.9 MiB", "CUDA0 17999.7 MiB"]
    assert facts(log, "placement.host_ops") == ["26"]


def test_vllm_stamps_go_on_into_the_next_year(tmp_path: Path) -> None:
    log = log_of(tmp_path, "INFO 12-31 23:59:58 [a.py:1] " + DETAIL.format(1, 0, 0, 4, 4, "10"),
                 "INFO 01-01 00:00:01 [a.py:1] " + DETAIL.format(2, 0, 0, 4, 4, "10"))
    assert np.diff(log.iterations["time"]).tolist() == [3]


def test_a_prompt_that_looks_like_an_iteration_is_none_and_no_prompt_is_kept(tmp_path: Path) -> None:
    fake = DETAIL.format(5, 0, 0, 9, 9, "99999")
    real = "INFO 11-29 23:21:07 [a.py:1] " + DETAIL.format(1, 0, 0, 4, 4, "10")
    log = log_of(tmp_path, real,
                 f"INFO 12-06 14:09:27 logger.py:37] Received request cmpl-24f-0: prompt: 'SECRET {fake}', params: S()",
                 "INFO 12-06 14:09:27 logger.py:37] Received request cmpl-25: prompt: 'The operator 'aten::SECRET' is "
                 "not currently supported on the NPU backend and will fall back to run on the CPU.'",
                 "INFO 12-06 14:09:27 [u.py:2] non-default args: {'api_key': 'SECRET', 'model': 'SECRET'}", fake)
    assert log.iterations["elapsed_ms"].tolist() == [10]
    assert log.skipped == 1  # the quoted line of its own, without a prefix among lines that have one
    assert "without the logger's prefix" in log.notes[0]
    assert "SECRET" not in repr((log.facts, log.notes))


def test_hostile_lines_cost_nothing(tmp_path: Path) -> None:
    real = "INFO 11-29 23:21:07 [a.py:1] " + DETAIL.format(1, 0, 0, 4, 4, "10")
    started = time.process_time()
    log = log_of(tmp_path, real, "INFO 11-29 23:21:07 [a.py:1] " + "A" * (1 << 20), "(" * 100_000, "1: [" * 50_000,
                 "Falling back to CPU for operator: \x07<b>x</b>", DETAIL.format(2, 0, 0, 4, 4, "1.2.3"),
                 DETAIL.format("9" * 400, 0, 0, 4, 4, "1"), "Iteration(7): 1 context requests, 4 con",
                 real.replace("000", "\x1b[31m000").replace("10 ms", "1" * 400 + " ms"))
    assert time.process_time() - started < 20  # quadratic would take hours
    assert log.iterations["elapsed_ms"][0] == 10
    assert log.skipped >= 1
    assert all("\x07" not in fact.value for fact in log.facts)


def test_a_text_without_a_line_of_an_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("hello\nworld: 3 ms\nIteration 4 took 3 ms\n")
    assert not engine_log.matches(path.read_text())
    with pytest.raises(UnusableInput, match="no line of an engine's log"):
        engine_log.read(path)
    with pytest.raises(UnusableInput, match="cannot be read"):
        engine_log.read(tmp_path / "missing.log")


@pytest.mark.parametrize("head", ["", "signals:\n  step.wall_ms: 3\n",
                                  "timestamp,pid,tid,role,cpu_cores\n1,2,,engine,1\n",
                                  "# HELP vllm:num_requests_running x\nvllm:num_requests_running 3\n",
                                  "+-----+\n| NVIDIA-SMI 550.54 |\n"])
def test_other_evidence_is_no_log(head: str) -> None:
    assert not engine_log.matches(head)


def test_recorded_logs_are_read_as_a_plain_search_reads_them(shared: Path) -> None:
    paths = sorted((shared / "samples" / "logs").glob("*.log"))
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        elapsed = [float(ms) for ms in re.findall(r"Iteration\(\d+\): .*?elapsed time: ([\d.]+) ms", text)]
        running = [int(n) for n in re.findall(r"Avg prompt throughput.*?Running: (\d+) reqs", text)]
        log = engine_log.read(path)
        assert log.iterations["elapsed_ms"].tolist() == elapsed
        assert log.stats["running"].tolist() == running
        assert log.lines == sum(bool(line.strip()) for line in text.split("\n"))
        assert log.skipped == 0
        for arguments in re.findall(r"non-default args: (.*)", text):
            for value in re.findall(r"'([^']{4,})'", arguments):
                assert value not in repr((log.facts, log.notes))

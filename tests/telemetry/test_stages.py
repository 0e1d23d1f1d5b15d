"""The stage split of logs and benchmark results, and the growth of TTFT with the prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xpu_triage.baseline.records import BenchRecord, Environment, Requests, Stat
from xpu_triage.evidence import engine_log
from xpu_triage.samples import EngineLog
from xpu_triage.telemetry import stages

NAN = float("nan")


def log(rows: list[tuple[float, ...]], columns: str = "index elapsed_ms context_requests context_tokens "
        "generation_requests") -> EngineLog:
    table = np.array(rows, dtype=float).T
    return EngineLog("engine.log", "vllm", dict(zip(columns.split(), table, strict=True)))


def record(prompts: list[float], ttfts: list[float], *, concurrency: float | None = 1, itl: Stat | None = None,
           gaps: tuple[list[float], ...] = ()) -> BenchRecord:
    size = len(prompts)
    unknown = np.full(size, NAN)
    requests = Requests(np.array(ttfts), unknown, unknown, np.array(prompts), unknown, unknown,
                        tuple(np.array(each) for each in gaps))
    return BenchRecord("r.json", "llmeter", Environment(), concurrency, None, float(np.median(prompts)), 64,
                       {"itl": itl} if itl else {}, None, size, 0, None, None, requests=requests)


def test_the_iterations_of_a_log_are_split() -> None:
    found = stages.of_log(log([(1, 20, 0, 0, 4), (2, 100, 1, 512, 0), (3, 20, 0, 0, 5), (4, 60, 1, 100, 5)]))["0"]
    assert [(p.phase, p.total_ms) for p in found.phases] == [("prefill", 100), ("mixed", 60), ("decode", 40)]
    assert found.worst_gap_ms == 120
    assert found.prefills_ms == (100,)


def test_a_missing_line_and_a_profiled_one_are_holes() -> None:
    rows = [(1.0, 20.0, 0.0, 0.0, 4.0, 0.0), (2.0, 900.0, 1.0, 512.0, 0.0, 1.0), (3.0, 20.0, 0.0, 0.0, 4.0, 0.0)]
    columns = "index elapsed_ms context_requests context_tokens generation_requests profiled"
    assert stages.of_log(log(rows, columns))["0"].worst_gap_ms is None
    jump = [(1.0, 20.0, 0.0, 0.0, 4.0), (7.0, 20.0, 0.0, 0.0, 4.0)]
    assert stages.of_log(log(jump))["0"].worst_gap_ms is None


def test_engines_are_not_mixed() -> None:
    rows = [(1, 20, 0, 0, 4, 0), (1, 500, 1, 99, 0, 1), (2, 20, 0, 0, 4, 0), (2, 500, 1, 99, 0, 1)]
    found = stages.of_log(log([tuple(map(float, row)) for row in rows],
                              "index elapsed_ms context_requests context_tokens generation_requests engine"))
    assert {engine: [p.phase for p in each.phases] for engine, each in found.items()} == {
        "0": ["decode"], "1": ["prefill"]}


def test_lines_that_lack_a_count_have_no_phase() -> None:
    found = stages.of_log(log([(1, 20, NAN, NAN, 4), (2, NAN, 1, 5, 0), (3, 20, 0, 0, NAN)]))["0"]
    assert found.phases == ()
    assert stages.of_log(EngineLog("e", "")) == {}


def test_the_worst_gap_of_a_run_beside_the_usual_one() -> None:
    told = record([100], [50], itl=Stat(p50=20, p99=30, max=900), concurrency=8)
    counted = record([100, 100], [50, 50], itl=Stat(p50=20), gaps=([19, 21], [NAN, 400]))
    unknown = record([100], [50])
    rows = stages.interference([told, counted, unknown])
    assert [(row.worst_gap_ms, row.worst_ratio) for row in rows] == [(900, 45), (400, 20), (None, None)]
    assert "at concurrency 8 the longest token gap is 900 ms, 45 usual ones" in stages.measure(records=[told]).notes


def test_ttft_against_length_is_taken_from_the_run_with_least_beside_it() -> None:
    # 40 ms + 0.1 ms a token + 5e-6 ms a token²: at 8,192 tokens 40 + 819.2 + 335.5 = 1,194.7 ms, 28 % of it square
    lengths = [512.0, 1024.0, 2048.0, 4096.0, 8192.0] * 3
    alone = record(lengths, [40 + 0.1 * n + 5e-6 * n * n for n in lengths])
    crowd = record(lengths, [9000.0] * 15, concurrency=64)
    tokens, times, caution = stages.ttft_points([crowd, alone])
    assert (len(tokens), float(times.max()), caution) == (15, pytest.approx(1194.74, abs=0.01), "")
    notes = stages.measure(records=[crowd, alone]).notes
    assert any("the square is 28% of it" in note for note in notes)
    assert "a queue may be in the time" in stages.ttft_points([crowd])[2]


def test_one_length_says_nothing_and_no_record_neither() -> None:
    assert stages.measure(records=[record([500.0] * 20, [80.0] * 20)]).notes == ()
    assert stages.measure().notes == ()


def test_a_recorded_log(shared: Path) -> None:
    # counted with grep: 1,346 lines with 0 context requests, 23 with context and no generation requests, 20 with both
    path = shared / "samples" / "logs" / "vllm-0.32.0-cpu-iteration-details.log"
    if not path.exists():
        pytest.skip(f"no ../shared/{path.relative_to(shared)}: logs of others are not part of the repository")
    found = stages.of_log(engine_log.read(path))["0"]
    assert {p.phase: p.steps for p in found.phases} == {"prefill": 23, "mixed": 20, "decode": 1346}

"""What travels of one rank: who it is, what it takes and waits, and nothing of its trace."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet_job import COST_US, LAYER_US, LAYERS, STEPS, drawn, written_job
from kineto_files import text_of, written
from xpu_triage.fleet import summary
from xpu_triage.fleet.inputs import Piece
from xpu_triage.fleet.result import RankResult
from xpu_triage.fleet.summary import diagnose_rank, spans, word


def of(path: Path, rank: int | None = None) -> RankResult:
    return diagnose_rank(Piece(str(path), (str(path),), rank))


def told(tmp_path: Path, info: Any, rank: int | None = None) -> RankResult:
    return of(written(tmp_path / "t.json", text_of(drawn(1)[0], distributedInfo=info)), rank)


def test_own_time_compute_and_collectives_are_those_that_were_drawn(tmp_path: Path) -> None:
    waiter, late = map(of, written_job(tmp_path, 2, slower={1: 1.4}))

    assert waiter.steps is not None
    assert late.steps is not None
    assert waiter.calls is not None
    assert late.calls is not None
    assert waiter.steps.compute.tolist() == pytest.approx([(LAYERS * LAYER_US + 30) / 1e3] * STEPS, rel=1e-5)
    assert late.steps.compute.tolist() == pytest.approx([(LAYERS * LAYER_US * 1.4 + 30) / 1e3] * STEPS, rel=1e-5)
    assert late.calls.us.tolist() == pytest.approx([COST_US] * LAYERS * STEPS, abs=0.01)
    assert waiter.calls.us.tolist() == pytest.approx([COST_US + 0.4 * LAYER_US] * LAYERS * STEPS, abs=0.01)
    assert waiter.calls.words == ("all-reduce",)
    assert waiter.calls.step.tolist() == [step for step in range(STEPS) for _ in range(LAYERS)]
    both = waiter.steps.wall - waiter.steps.comm
    assert waiter.steps.own.tolist() == pytest.approx(both.tolist(), abs=1e-3)


def test_a_result_is_a_few_kilobytes_whatever_the_trace(tmp_path: Path) -> None:
    path = written_job(tmp_path, 1, steps=200)[0]
    result = of(path)

    assert len(pickle.dumps(result)) < 40_000
    assert len(pickle.dumps(result)) < path.stat().st_size / 20


def test_what_is_too_much_is_cut_at_whole_steps_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "MAX_CALLS", 7)
    monkeypatch.setattr(summary, "MAX_STEPS", 3)
    result = of(written_job(tmp_path, 1)[0])

    assert result.calls is not None
    assert result.steps is not None
    assert result.calls.step.tolist() == [0, 0, 0, 1, 1, 1]
    assert result.calls.steps == 2
    assert len(result.steps) == 3
    assert {"12 collectives: compared by the first 6", "4 steps: compared by the first 3"} <= set(result.notes)
    monkeypatch.setattr(summary, "MAX_CALLS", 2)
    first = of(tmp_path / "rank0.json").calls
    assert first is not None
    assert (len(first), first.steps) == (2, 1)


def test_the_trace_is_believed_before_the_name_and_a_disagreement_is_said(tmp_path: Path) -> None:
    result = told(tmp_path, {"rank": 5, "world_size": 8}, rank=3)

    assert (result.rank, result.rank_from, result.world_size) == (5, "trace", 8)
    assert "its name says rank 3, its trace rank 5: the trace is believed" in result.notes
    assert told(tmp_path, {"rank": "6", "world_size": "8"}).rank == 6
    assert told(tmp_path, {}, rank=3).rank_from == "name"
    assert told(tmp_path, {}).rank is None


@pytest.mark.parametrize("info", [
    [], "rank 3", None, {"rank": True}, {"rank": -1}, {"rank": 1e300}, {"rank": 10**30}, {"rank": [3]},
    {"rank": "3\u0000"}, {"rank": None, "world_size": {"a": 1}}, {"rank": " 7"}])
def test_hostile_words_about_the_rank_are_no_rank(tmp_path: Path, info: Any) -> None:
    result = told(tmp_path, info)

    assert (result.error, result.rank, result.world_size) == ("", None, None)


def test_the_group_is_the_smallest_that_can_exchange_on_the_device_and_holds_the_rank(tmp_path: Path) -> None:
    def group(ranks: Any, backend: str = "cuda:nccl") -> dict[str, Any]:
        return {"pg_name": "0", "backend_config": backend, "ranks": ranks}

    config = [group([0, 1, 2, 3, 4, 5, 6, 7]), group([1, 0, 2, 3]), group([1, 5], "cpu:gloo,cuda:gloo"), group([1]),
              group([4, 5, 6, 7]), group("all"), group([1, None, "x", -3]), "no group", group([[1, 2]])]
    result = told(tmp_path, {"rank": 1, "world_size": 8, "pg_config": config})

    assert (result.group, result.groups) == ("0-3", 2)
    assert told(tmp_path, {"rank": 1, "world_size": 8, "pg_config": {"a": 1}}).group == ""


@pytest.mark.parametrize(("ranks", "text"), [
    ([], ""), ([4], "4"), ([4, 5], "4,5"), ([0, 1, 2], "0-2"), ([0, 8, 16, 17, 18], "0,8,16-18")])
def test_ranks_are_written_in_short(ranks: list[int], text: str) -> None:
    assert spans(ranks) == text


@pytest.mark.parametrize(("name", "said"), [
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all-reduce"),
    ("void multimem_all_reduce_kernel<c10::BFloat16>", "all-reduce"),
    ("void vllm::cross_device_reduce_1stage<half, 8>", "all-reduce"),
    ("hcom_reduceScatter__857_3_1", "reduce-scatter"), ("hcom_allGather__857_0_1", "all-gather"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)", "send-receive"), ("hcom_send__1_2", "send"),
    ("hcom_receive__1_2", "receive"), ("hcom_alltoallv_", "all-to-all"),
    ("ncclDevKernel_Broadcast_RING_LL", "broadcast"), ("mystery_17_42", "mystery__"), ("e\x1b[0m", "e\\xb[m")])
def test_collectives_are_told_by_what_they_do_not_by_how(name: str, said: str) -> None:
    assert word(name) == said


def test_several_devices_are_compared_by_the_busiest_and_that_is_said(tmp_path: Path) -> None:
    first, second = drawn(2)
    for event in second:
        if event["cat"] == "kernel":
            event["pid"] = event["args"]["device"] = 1
        elif "args" in event:
            event["tid"] = 200
    second = [event for event in second if event["cat"] != "user_annotation"]
    result = of(written(tmp_path / "two.json", text_of([*first, *second])))

    assert any(note.startswith("2 devices in one trace: compared by 0") for note in result.notes)


def test_a_rank_without_trace_has_its_signals_and_nothing_to_compare(tmp_path: Path) -> None:
    sheet = tmp_path / "rank3.yaml"
    sheet.write_text("schema: 1\nsignals:\n  clock.core_fraction: 0.6\n")
    result = of(sheet, 3)

    assert (result.has_trace, result.steps, result.calls) == (False, None, None)
    assert result.number("clock.core_fraction") == 0.6
    assert result.number("fallback.op") is None


def test_files_of_one_rank_are_read_together_and_one_that_nobody_reads_is_said(tmp_path: Path) -> None:
    trace = written_job(tmp_path, 1)[0]
    sheet, other = tmp_path / "rank0.yaml", tmp_path / "rank0.bin"
    sheet.write_text("schema: 1\nsignals:\n  clock.core_fraction: 0.6\n")
    other.write_bytes(b"\0\1\2")
    paths = tuple(map(str, (trace, sheet, other)))
    result = diagnose_rank(Piece("rank 0", paths, 0))

    assert result.error == ""
    assert result.number("clock.core_fraction") == 0.6
    assert any("rank0.bin" in note and note.startswith("not used") for note in result.notes)
    assert "binary data" in diagnose_rank(Piece("rank 0", (str(other), str(other)), 0)).error


@pytest.mark.parametrize("content", [
    b"", b"\x1f\x8b\x08\0", b"{", b"[1, 2", b"nothing of ours", b'{"traceEvents": []}'])
def test_evidence_that_cannot_be_read_is_one_line_and_keeps_its_rank(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank4\x1b[31m.json"
    path.write_bytes(content)
    result = of(path, 4)

    assert result.rank == 4
    assert result.error
    assert result.error.isprintable()


def test_a_defect_met_in_one_rank_is_told_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("by\nzero\x1b[2J")

    monkeypatch.setattr(summary, "diagnose", broken)
    result = of(written_job(tmp_path, 1)[0], 0)

    assert result.error.endswith("could not be diagnosed (ZeroDivisionError: by zero\\x1b[2J)")


def test_the_same_name_has_the_same_number_everywhere(tmp_path: Path) -> None:
    one, two = (of(path) for path in written_job(tmp_path, 2))

    assert one.steps is not None
    assert two.steps is not None
    assert one.steps.key.tolist() == two.steps.key.tolist()
    assert len(np.unique(one.steps.key)) == STEPS
    assert one.kernels.tolist() == two.kernels.tolist()
    assert len(one.kernels) == 5                        # four of each layer, and argmax
    repeated = of(written_job(tmp_path, 1, marks="execute_context_0(0)_generation_8(8)")[0])
    assert repeated.steps is not None
    assert len(repeated.steps.key) == 0

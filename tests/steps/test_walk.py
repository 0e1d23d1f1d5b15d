"""The whole walk, on recorded traces of others where they are at hand, and on traces with nothing in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import Rows
from xpu_triage.evidence import kineto
from xpu_triage.steps.host import NameTable
from xpu_triage.steps.results import CAUSES, Cause, Walk
from xpu_triage.steps.step_names import is_engine_step, is_profiler_step
from xpu_triage.steps.step_time import find_steps
from xpu_triage.steps.utilization import MOST_DEVICES
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind, Trace

WITHIN = 1e-3
"""The share by which a figure may differ from the one that was computed independently."""

_walks: dict[str, Walk] = {}


def walked(shared: Path, name: str) -> Walk:
    found = sorted((shared / "traces" / "kineto").glob(f"{name}*"))
    if not found:
        pytest.skip(f"no recorded trace {name}")
    if found[0].name not in _walks:
        _walks[found[0].name] = walk(kineto.read(found[0]))
    return _walks[found[0].name]


def values(walk_: Walk) -> dict[str, Any]:
    return {signal.name: signal.value for signal in walk_.signals}


def idle(walk_: Walk) -> dict[Cause, float]:
    assert walk_.busiest is not None
    return {cause: ns / walk_.steps.window for cause, ns in walk_.busiest.gaps.by_cause().items()}


RECORDED = [
    "a100-alexnet-cold-start", "a100-recsys-train-5-steps", "a100-tiny-event-sync-item",
    "b200-vllm-eager-tp8-host-bound", "cpu-vllm-0.32-async-llm", "cpu-vllm-0.32-worker",
    "h100-qwen-prefill-kernel-bound", "h100-timesformer-host-prep-hidden-sync", "host-only-rank-of-gpu-job",
    "mi210-device-and-runtime-only", "mi300x-sglang-decode-cut-out", "mi300x-triton-kernel-bound",
    "mi300x-vllm-decode-graph-replay", "mtia-inference", "pair-a-a100-6-steps", "pair-b-v100-6-steps",
    "v100-resnet50-torch-1.9-categories", "xpu-aurora-4-events"]
BY_HAND = {"xpu-aurora-4-events": {"span_ms": 44.332734, "busy_ms": 0.00896, "steps": []}}
"""Of files that `truth.json` leaves out: one operator of 44,332.734 µs, and within it the only kernel, of 8.96 µs."""


@pytest.mark.parametrize("name", RECORDED)
def test_span_busy_and_every_step_agree_with_an_independent_computation(shared: Path, name: str) -> None:
    truth = json.loads((shared / "traces" / "truth.json").read_text())
    true = BY_HAND.get(name) or next(truth[key] for key in truth if key.startswith(name))
    result = walked(shared, name)
    assert result.trace.span / 1e6 == pytest.approx(true["span_ms"], rel=WITHIN)
    busy = sum(int((use.busy_end - use.busy_start).sum()) for use in result.devices) / 1e6
    assert busy == pytest.approx(true["busy_ms"], rel=WITHIN, abs=1e-4)
    if not true["steps"]:
        assert result.steps.method != "annotation"
        return
    assert result.steps.method == "annotation"
    assert [s.name for s in result.steps.steps] == [s["name"] for s in true["steps"]]
    for i, (step, expected) in enumerate(zip(result.steps.steps, true["steps"], strict=True)):
        in_step = int(result.busiest.busy[i]) / 1e6 if result.busiest else 0.0
        assert step.start / 1e6 == pytest.approx(expected["start_ms"], rel=WITHIN, abs=1e-3)
        assert step.wall / 1e6 == pytest.approx(expected["wall_ms"], rel=WITHIN)
        assert in_step == pytest.approx(expected["busy_ms"], rel=WITHIN, abs=1e-3)


@pytest.mark.parametrize("name", RECORDED)
def test_the_causes_add_up_on_every_recorded_trace(shared: Path, name: str) -> None:
    result = walked(shared, name)
    for use in result.devices:
        assert int(use.busy.sum()) + sum(use.gaps.by_cause().values()) == result.steps.window
        assert (use.compute + use.copy + use.comm == use.busy).all()
    for found in result.findings:
        assert 0 < found.share <= found.total_share * (1 + 1e-9) <= 1 + 1e-9
        assert found.others


@pytest.mark.parametrize("name", RECORDED)
def test_no_recorded_trace_has_a_fallback(shared: Path, name: str) -> None:
    assert values(walked(shared, name)).get("fallback.op", "none") == "none"


@pytest.mark.parametrize("name", [
    "a100-recsys-train-5-steps", "pair-a-a100-6-steps", "pair-b-v100-6-steps", "v100-resnet50-torch-1.9-categories"])
def test_without_its_annotations_a_trace_keeps_its_period(shared: Path, name: str) -> None:
    result = walked(shared, name)
    bare = without_marks(result.trace)
    steps = find_steps(bare)
    assert steps.method == "anchor"
    # whole periods only: the last step, which holds the tail of the device's work, has none
    true = [step.wall for step in result.steps.steps[:-1]]
    assert steps.window / len(steps.steps) == pytest.approx(sum(true) / len(true), rel=0.02)
    first, second = idle(result), idle(walk(bare))
    assert all(abs(first[cause] - second[cause]) < 0.02 for cause in CAUSES)


def without_marks(trace: Trace) -> Trace:
    """The trace with its steps' marks taken out."""
    marks = NameTable(trace).rows(lambda n: is_profiler_step(n) or is_engine_step(n), Kind.ANNOTATION, Kind.HOST_OP)
    keep = np.flatnonzero(~marks)
    place = np.full(len(trace), -1)
    place[keep] = np.arange(len(keep))
    columns = {name: getattr(trace, name)[keep] for name in (
        "start", "dur", "name", "kind", "device", "stream", "thread", "correlation", "launch", "blocking")}
    columns["launch"] = np.where(columns["launch"] >= 0, place[columns["launch"]], columns["launch"])
    columns["start"] = columns["start"] - columns["start"].min()
    return Trace(**columns, names=trace.names, devices=trace.devices, streams=trace.streams, threads=trace.threads)


# -- what an expert would say of each
def test_an_eager_engine_is_bound_by_launching_and_its_operators_are_named(shared: Path) -> None:
    result = walked(shared, "b200-vllm-eager")
    assert idle(result)[Cause.LAUNCHING] > 0.6
    found = result.finding("launching")
    assert found is not None
    assert found.spread
    assert {"vllm::moe_forward", "aten::addmm"} <= set(dict(found.others))
    assert result.steps.steps[0].prefill_tokens == 888


def test_a_cold_start_is_first_use(shared: Path) -> None:
    assert idle(walked(shared, "a100-alexnet"))[Cause.FIRST_USE] > 0.95


@pytest.mark.parametrize(("name", "least"), [
    ("mi300x-sglang-decode-cut-out", 0.9), ("mi300x-vllm-decode-graph-replay", 0.4), ("a100-recsys-train", 0.5)])
def test_what_the_capture_lacks_is_hidden_and_never_launching(shared: Path, name: str, least: float) -> None:
    result = walked(shared, name)
    assert idle(result)[Cause.HIDDEN] > least
    assert idle(result)[Cause.LAUNCHING] < 0.02
    assert any("busy is a lower bound" in note for note in result.notes)


def test_preparation_on_the_host_and_the_hidden_sync_are_named(shared: Path) -> None:
    result = walked(shared, "h100-timesformer")
    assert idle(result)[Cause.HOST_OP] > 0.5
    assert "_preprocess_image" in values(result)["idle.host_op"]
    assert "cudaMemcpyAsync" in values(result)["sync.site"]
    assert any("hidden synchronization: 1 call" in note and "125.95 ms" in note for note in result.notes)


@pytest.mark.parametrize("name", ["h100-qwen", "mi300x-triton", "mi210", "pair-b"])
def test_busy_devices_are_busy(shared: Path, name: str) -> None:
    assert values(walked(shared, name))["device.busy_fraction"] > 0.85


@pytest.mark.parametrize("name", ["pair-a-a100-6-steps", "pair-b-v100-6-steps"])
def test_items_that_wait_for_a_busy_device_are_no_fault(shared: Path, name: str) -> None:
    result = walked(shared, name)
    assert values(result)["sync.wait_fraction"] > 0.1
    assert idle(result)[Cause.AFTER_SYNC] < 0.02


def test_a_rank_without_device_events_is_told_in_words_and_answered_from_the_host(shared: Path) -> None:
    result = walked(shared, "host-only-rank")
    assert result.devices == ()
    assert any("no device events" in note and "5 read-backs take 4.82 ms" in note for note in result.notes)
    found = result.finding("host")
    assert found is not None
    assert "## backward ##" in dict(found.others)


def test_an_engine_on_a_cpu_is_a_cpu_run_with_its_batch_and_its_operator(shared: Path) -> None:
    result = walked(shared, "cpu-vllm-0.32-worker")
    assert any("a CPU run" in note for note in result.notes)
    assert values(result)["serving.running"] == 4.0
    found = result.finding("host")
    assert found is not None
    assert found.name == "aten::mm"


def test_a_loader_that_feeds_a_training_is_host_work(shared: Path) -> None:
    found = walked(shared, "v100-resnet50").finding("host_op")
    assert found is not None
    assert "DataLoader" in found.name
    assert found.total_share > 0.3


# -- nothing in it
def test_a_single_row_is_walked() -> None:
    for kind in ("op", "python", "annotation", "call", "overhead", "kernel", "copy", "comm"):
        rows = Rows()
        getattr(rows, kind)("lonely", 0, 10)
        assert walk(rows.trace()).steps.window == 10_000


def test_rows_of_no_length_are_walked() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 0)
    rows.launch(0, "gemm", 0, 0, call_dur=0)
    result = walk(rows.trace())
    assert result.steps.window == 0
    assert values(result)["device.busy_fraction"] == 0.0


def test_a_trace_without_rows_is_walked() -> None:
    result = walk(Rows().trace())
    assert result.devices == ()
    assert result.steps.method == "window"


def test_the_walk_leaves_the_trace_as_it_is() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 90)
    rows.python("torch/autograd/profiler.py(7): __enter__", 90, 10)
    rows.annotation("ProfilerStep#0", 95, 100)
    trace = rows.trace()
    before = {name: value.copy() for name, value in vars(trace).items() if isinstance(value, np.ndarray)}
    walk(trace)
    assert all((getattr(trace, name) == value).all() for name, value in before.items())


# -- many devices
def on_devices(count: int) -> Rows:
    """Each device works 5 of every 7 µs of its turn, eight times; device 0 twice as long as the others."""
    rows = Rows()
    for device in range(count):
        for turn in range(8):
            at = 7.0 * (device + count * turn)
            rows.launch(at, f"k{turn % 3}", at + 1, 10 if device == 0 else 5, device=str(device))
    return rows


def test_names_are_read_once_for_all_devices_and_not_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    codes = NameTable._codes
    monkeypatch.setattr(NameTable, "_codes", lambda self, *args: asked.append(1) or codes(self, *args))

    def looks(count: int) -> int:
        asked.clear()
        walk(on_devices(count).trace())
        return len(asked)

    assert looks(24) == looks(3)


def test_of_thousands_of_devices_those_with_most_work_are_looked_at_and_that_is_said() -> None:
    walked = walk(on_devices(MOST_DEVICES + 900).trace())
    assert len(walked.devices) == MOST_DEVICES
    assert walked.devices[0].device == "0"
    assert f"of 1,156 devices the {MOST_DEVICES} with most work were looked at" in walked.notes

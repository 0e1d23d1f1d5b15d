"""The reader against recorded traces of others: counts, span and busy time computed there independently."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from xpu_triage.evidence import kineto
from xpu_triage.trace import Trace

NAMES = (
    "a100-alexnet-cold-start", "a100-recsys-train-5-steps", "a100-tiny-event-sync-item",
    "b200-vllm-eager-tp8-host-bound", "cpu-vllm-0.32-async-llm.pt.trace", "cpu-vllm-0.32-worker.pt.trace",
    "h100-qwen-prefill-kernel-bound", "h100-timesformer-host-prep-hidden-sync", "host-only-rank-of-gpu-job",
    "mi210-device-and-runtime-only", "mi300x-sglang-decode-cut-out", "mi300x-triton-kernel-bound",
    "mi300x-vllm-decode-graph-replay", "mtia-inference", "pair-a-a100-6-steps", "pair-b-v100-6-steps",
    "v100-resnet50-torch-1.9-categories")


def busy_ns(trace: Trace) -> int:
    """Length of the union of device rows, by a walk over sorted intervals, one at a time."""
    total, reached = 0, -1
    rows = zip(trace.start[trace.on_device].tolist(), trace.end[trace.on_device].tolist(), strict=True)
    for start, end in sorted(rows):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


@pytest.fixture(params=NAMES)
def recorded(request: pytest.FixtureRequest, shared: Path) -> tuple[Path, dict[str, Any]]:
    path = shared / "traces" / "kineto" / f"{request.param}.json.gz"
    return path, json.loads((shared / "traces" / "truth.json").read_text())[path.name]


def test_span_busy_and_device_events_are_those_computed_elsewhere(recorded: tuple[Path, dict[str, Any]]) -> None:
    path, truth = recorded
    trace = kineto.read(path)
    assert trace.span / 1e6 == pytest.approx(truth["span_ms"], abs=1e-4)
    assert busy_ns(trace) / 1e6 == pytest.approx(truth["busy_ms"], abs=1e-4)
    assert int(trace.on_device.sum()) == truth["device_events"]
    assert len(trace.devices) == (1 if truth["device_events"] else 0)
    assert trace.notes == ()
    assert trace.counts.unplaced == trace.counts.unreadable == trace.counts.unmatched == 0


def test_every_complete_event_is_kept_or_counted_as_repeated(recorded: tuple[Path, dict[str, Any]]) -> None:
    path, _ = recorded
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    trace = kineto.read(path)
    complete = [event for event in events if event.get("ph") == "X"]
    assert trace.counts.events == len(events)
    assert trace.counts.kept + trace.counts.repeated == len(complete)
    kept = Counter(event["name"] for event in complete
                   if event["cat"] not in ("gpu_user_annotation", "cuda_sync", "Trace"))
    assert Counter(trace.names[i] for i in trace.name.tolist()) == kept


def test_a_launch_is_a_call_of_the_same_id_that_starts_before_the_work(recorded: tuple[Path, dict[str, Any]]) -> None:
    path, _ = recorded
    trace = kineto.read(path)
    linked = trace.launch >= 0
    call = trace.launch[linked]
    assert (trace.on_device[linked]).all()
    assert not trace.on_device[call].any()
    assert (trace.correlation[linked] == trace.correlation[call]).all()
    # clocks of host and device differ by microseconds on some machines
    assert (trace.start[call] <= trace.start[linked] + 20_000).mean() > 0.99 if linked.any() else True


def test_an_ascend_trace_is_refused_by_name(shared: Path) -> None:
    from xpu_triage.errors import UnusableInput
    for path in sorted((shared / "traces" / "ascend").rglob("trace_view*.json")):
        with pytest.raises(UnusableInput, match="Ascend"):
            kineto.read(path)

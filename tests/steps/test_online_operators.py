"""Operators that Ascend's single-operator interface compiles or selects in each call are spoken of."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_files import AscendRun
from xpu_triage.evidence import ascend
from xpu_triage.steps.results import Walk
from xpu_triage.steps.walk import walk


def walked(folder: Path, calls: list[float], name: str = "AscendCL@aclopCompileAndExecute", steps: int = 4) -> Walk:
    """Steps of 1,000 µs in which the queue's thread is `calls[i]` µs in such a call."""
    run = AscendRun()
    for i in range(steps):
        start = 1000.0 * i
        run.row(f"ProfilerStep#{i}", start, 1000, "user_annotation")
        op = run.row("aten::conv2d", start + 10, 30)
        took = calls[i] if i < len(calls) else 0
        call = run.queued(op, "Conv2D", start + 20, start + 40, took or 10, launch=name if took else "Node@launch")
        run.kernel(call, op, start + 960, 20, "Conv2D")
    return walk(ascend.read(run.text(folder / "run")))


def notes(found: Walk) -> str:
    return " ".join(note for note in found.notes if "compiled or selected online" in note)


def share(found: Walk) -> object:
    return next((signal.value for signal in found.signals if signal.name == "host.online_fraction"), None)


def test_calls_in_every_step_are_counted_with_their_time(tmp_path: Path) -> None:
    found = walked(tmp_path, [400, 300, 500, 400])
    said = notes(found)
    # each call lies 4 µs inside its row of the queue: 396 + 296 + 496 + 396 µs
    assert "4 calls of aclopCompileAndExecute in 4 of 4 steps take 1.58 ms of host time, 40% of the window" in said
    assert "torch.npu.set_compile_mode(jit_compile=False)" in said
    assert share(found) == pytest.approx(1_584 / 4_000)


@pytest.mark.parametrize("calls", [[900], [20, 20, 20, 20]])
def test_a_first_use_and_short_calls_are_not_spoken_of(tmp_path: Path, calls: list[float]) -> None:
    assert not notes(walked(tmp_path, calls))


def test_a_call_in_one_of_many_steps_gives_no_share_and_short_ones_a_small_one(tmp_path: Path) -> None:
    assert share(walked(tmp_path / "first use", [900])) is None
    assert share(walked(tmp_path / "short", [20, 20, 20, 20])) == pytest.approx(4 * 16 / 4_000)


def test_other_calls_are_not_spoken_of(tmp_path: Path) -> None:
    found = walked(tmp_path, [400, 300, 500, 400], name="AscendCL@aclnnConvolution")
    assert not notes(found)
    assert share(found) is None

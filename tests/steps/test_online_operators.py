"""Operators that Ascend's single-operator interface compiles or selects in each call are spoken of."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_files import AscendRun
from xpu_triage.evidence import ascend
from xpu_triage.steps.walk import walk


def notes(folder: Path, calls: list[float], name: str = "AscendCL@aclopCompileAndExecute", steps: int = 4) -> str:
    """What is said of steps of 1,000 µs in which the queue's thread is `calls[i]` µs in such a call."""
    run = AscendRun()
    for i in range(steps):
        start = 1000.0 * i
        run.row(f"ProfilerStep#{i}", start, 1000, "user_annotation")
        op = run.row("aten::conv2d", start + 10, 30)
        took = calls[i] if i < len(calls) else 0
        call = run.queued(op, "Conv2D", start + 20, start + 40, took or 10, launch=name if took else "Node@launch")
        run.kernel(call, op, start + 960, 20, "Conv2D")
    found = walk(ascend.read(run.text(folder / "run")))
    return " ".join(note for note in found.notes if "compiled or selected online" in note)


def test_calls_in_every_step_are_counted_with_their_time(tmp_path: Path) -> None:
    said = notes(tmp_path, [400, 300, 500, 400])
    # each call lies 4 µs inside its row of the queue: 396 + 296 + 496 + 396 µs
    assert "4 calls of aclopCompileAndExecute in 4 of 4 steps take 1.58 ms of host time, 40% of the window" in said
    assert "torch.npu.set_compile_mode(jit_compile=False)" in said


@pytest.mark.parametrize("calls", [[900], [20, 20, 20, 20]])
def test_a_first_use_and_short_calls_are_not_spoken_of(tmp_path: Path, calls: list[float]) -> None:
    assert not notes(tmp_path, calls)


def test_other_calls_are_not_spoken_of(tmp_path: Path) -> None:
    assert not notes(tmp_path, [400, 300, 500, 400], name="AscendCL@aclnnConvolution")

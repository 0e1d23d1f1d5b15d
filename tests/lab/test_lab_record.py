"""What is written down: the profiler's form, nothing of this machine, utilization as a vendor tool counts
it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from xpu_triage.lab import files, kineto
from xpu_triage.lab.cost_model import H100_LIKE, P800_LIKE
from xpu_triage.lab.engine import Engine
from xpu_triage.lab.frames import Frames, shown_name
from xpu_triage.lab.record import Recorder, Step

DEVICE = "xpulab"


def rows(engine: Engine) -> list[tuple[str, str]]:
    return [(row.category, row.name) for row in engine.recorder.rows]


def inside(engine: Engine, name: str) -> list[str]:
    """Names of the host rows within the first row of this name, in order."""
    outer = next(row for row in engine.recorder.rows if row.name == name)
    return [
        row.name
        for row in engine.recorder.rows
        if not row.on_device and row is not outer and outer.start <= row.start and row.end <= outer.end
    ]


def test_a_kernel_is_an_operator_a_call_and_a_piece_of_device_work_joined_by_an_id(virtual: Engine):
    x = torch.ones(8, device=DEVICE)
    virtual.recorder.on = True
    x.exp_()
    assert rows(virtual) == [
        ("cpu_op", "aten::exp_"),
        ("privateuse1_runtime", "xpulabLaunchKernel"),
        ("kernel", "exp_kernel"),
    ]
    op, call, kernel = virtual.recorder.rows
    assert call.correlation == kernel.correlation > 0
    assert op.start < call.start < call.end < op.end
    assert kernel.start == call.end + 5_000  # `start_us` of the model, on a dry device


def test_reading_a_number_back_shows_the_copy_and_the_wait_under_the_item(virtual: Engine):
    x = torch.ones((), device=DEVICE)
    virtual.recorder.on = True
    x.item()
    assert inside(virtual, "aten::item") == [
        "aten::_local_scalar_dense",
        "xpulabMemcpyAsync",
        "xpulabStreamSynchronize",
    ]


def test_a_fallback_holds_its_copies_and_the_operator_itself(virtual: Engine):
    virtual.configure(P800_LIKE)
    x = torch.empty(8, device=DEVICE)
    virtual.recorder.on = True
    x.exponential_()
    assert inside(virtual, "aten::exponential_") == [
        "aten::_to_copy",
        "aten::copy_",
        "xpulabMemcpyAsync",
        "xpulabStreamSynchronize",
        "aten::exponential_",
        "aten::copy_",
        "xpulabMemcpyAsync",
        "xpulabStreamSynchronize",
    ]
    assert [row.name for row in virtual.recorder.rows if row.category == "gpu_memcpy"] == [
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy HtoD (Pageable -> Device)",
    ]


def test_nothing_is_kept_while_nothing_is_recorded(virtual: Engine):
    torch.ones(8, device=DEVICE).exp_().sum().item()
    assert virtual.recorder.rows == []


def test_frames_of_the_program_are_rows_with_file_and_line_and_the_device_s_own_are_not(virtual: Engine):
    x, frames = torch.ones(8, device=DEVICE), Frames(virtual)

    def outer() -> None:
        inner()
        [x.exp_() for _ in range(2)]

    def inner() -> None:
        x.exp_()

    virtual.recorder.on = True
    frames.start()
    outer()
    frames.stop()
    first = outer.__code__.co_firstlineno
    python = [row for row in virtual.recorder.rows if row.category == "python_function"]
    assert [row.name for row in python] == [
        f"test_lab_record.py({first}): outer",
        f"test_lab_record.py({first + 4}): inner",
    ]
    assert inside(virtual, python[0].name).count("aten::exp_") == 3
    assert inside(virtual, python[1].name).count("aten::exp_") == 1


def test_a_frame_that_raises_is_closed(virtual: Engine):
    frames, x = Frames(virtual), torch.ones(8, device=DEVICE)

    def broken() -> None:
        x.exp_()
        raise ValueError

    virtual.recorder.on = True
    frames.start()
    with pytest.raises(ValueError):  # noqa: PT011
        broken()
    x.exp_()
    frames.stop()
    assert len(inside(virtual, f"test_lab_record.py({broken.__code__.co_firstlineno}): broken")) == 2


def test_frames_of_the_package_are_named_by_their_place_in_it():
    from xpu_triage.lab.decoder import rotate

    line = rotate.__code__.co_firstlineno
    assert shown_name(rotate.__code__) == f"xpu_triage/lab/decoder.py({line}): rotate"


@pytest.mark.parametrize(
    "function", [torch.nn.Module.__call__, Path.resolve, shown_name], ids=lambda f: f.__name__
)
def test_frames_of_torch_python_and_the_device_are_no_rows(function):
    assert shown_name(function.__code__) is None


def test_the_trace_has_times_in_microseconds_from_its_own_start(virtual: Engine):
    recorder = Recorder()
    recorder.on = True
    recorder.call("xpulabLaunchKernel", 5_000_000, 5_006_500, correlation=3)
    recorder.device("exp_kernel", 5_010_000, 2_345, 3, None)
    recorder.device("Memcpy HtoD (Pinned -> Device)", 5_020_000, 1_000, 4, 64)
    events = [e for e in kineto.trace(recorder, H100_LIKE)["traceEvents"] if e["ph"] == "X"]
    assert [(e["cat"], e["ts"], e["dur"], e["args"]) for e in events] == [
        ("privateuse1_runtime", 0.0, 6.5, {"correlation": 3}),
        ("kernel", 10.0, 2.345, {"device": 0, "stream": 7, "correlation": 3}),
        ("gpu_memcpy", 20.0, 1.0, {"device": 0, "stream": 7, "correlation": 4, "bytes": 64}),
    ]


def test_the_same_rows_make_the_same_bytes_whatever_the_file_is_called(tmp_path: Path):
    recorder = Recorder()
    recorder.on = True
    recorder.call("xpulabLaunchKernel", 0, 1_000, correlation=1)
    for name in ("a.json.gz", "b.json.gz"):
        kineto.write(tmp_path / name, recorder, H100_LIKE)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def recorded(
    *kernels_ms: tuple[float, float], until_ms: float, copies_ms: tuple[tuple[float, float], ...] = ()
) -> Recorder:
    recorder = Recorder()
    recorder.on = True
    for start, end in kernels_ms:
        recorder.device("k", int(start * 1e6), int((end - start) * 1e6), 1, None)
    for start, end in copies_ms:
        recorder.device("c", int(start * 1e6), int((end - start) * 1e6), 1, 100)
    recorder.steps.append(Step("s", 0, int(until_ms * 1e6)))
    return recorder


def test_utilization_is_the_share_of_each_period_in_which_a_kernel_ran():
    # periods of 100 ms: 30 + 20 of the first, 50 of the second, the third is cut off
    assert files.samples(recorded((10, 40), (80, 150), until_ms=240)) == [50, 50]


def test_copies_do_not_count_as_utilization():
    assert files.samples(recorded((0, 10), until_ms=200, copies_ms=((10, 200),))) == [10, 0]


def test_a_run_shorter_than_a_period_has_one_sample():
    assert files.samples(recorded((10, 40), until_ms=60)) == [50]


def test_json_is_strict(virtual: Engine):
    recorder = recorded((10, 40), until_ms=60)
    json.dumps(kineto.trace(recorder, H100_LIKE), allow_nan=False)

"""A capture without device rows: what it is, and what to do about it first."""

from __future__ import annotations

from builders import Rows
from xpu_triage.steps.results import Walk
from xpu_triage.steps.walk import walk


def host_only(add: str) -> Walk:
    rows = Rows()
    for at in (0, 1_000, 2_000):
        rows.annotation("ProfilerStep#1", at, 1_000)
        if add == "front end":
            rows.python("api_server.py(7): serve", at + 10, 900)
            continue
        rows.op("aten::mm", at + 10, 300)
        if add == "launches":
            rows.call("cudaLaunchKernel", at + 20, 5)
        if add == "read-backs":
            rows.op("nccl:all_reduce", at + 320, 5)
            rows.op("aten::_local_scalar_dense", at + 400, 200)
    return walk(rows.trace())


def test_a_front_end_is_not_called_a_run_of_operators_and_asks_for_the_process_that_runs_the_model() -> None:
    found = host_only("front end")
    assert found.next.startswith("Profile the process that runs the model")
    assert "no operators" in found.unknown["device.busy_fraction"]


def test_device_work_that_was_lost_asks_for_its_activities_first() -> None:
    for lost in ("launches", "read-backs"):
        assert host_only(lost).next.startswith("Record again with the device's activities on"), lost


def test_a_run_on_the_cpu_asks_which_device_was_meant() -> None:
    assert host_only("operators").next.startswith("Say which device was meant")


def test_a_capture_with_device_work_asks_for_nothing() -> None:
    rows = Rows()
    for at in (0, 1_000, 2_000):
        rows.annotation("ProfilerStep#1", at, 1_000)
        rows.launch(at + 10, "gemm", at + 20, 500)
    assert walk(rows.trace()).next == ""

"""Collectives of a capture that holds several ranks, worked out by hand. Times in µs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from builders import Rows
from xpu_triage import fingerprints
from xpu_triage.contradictions import contradictions
from xpu_triage.signals import Signals
from xpu_triage.steps.results import Walk
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Exchange, Kind
from xpu_triage.verdict import Level, Verdict, judge

NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def judged(rows: Rows) -> tuple[Walk, Verdict]:
    walked = walk(rows.trace())
    found = Signals(walked.signals)
    return walked, judge(found, fingerprints.load(), contradictions(found))


def job(compute: Sequence[float], exchange: float = 20, steps: int = 6, layers: int = 4,
        names: Sequence[str] = (NAME, NAME), left_out: int = 0) -> Rows:
    """Two devices in one capture, each fed by its own thread that runs ahead: a layer computes for so long on each of
    them, then both exchange; whoever comes first waits inside."""
    rows, at, host = Rows(), 0.0, 0.0
    for step in range(steps):
        begin = at
        for _ in range(layers):
            ready = at + max(compute)
            for device, (mine, name) in enumerate(zip(compute, names, strict=True)):
                lane = {"thread": f"rank {device}", "device": str(device)}
                rows.launch(host, "gemm", at + 8, mine - 9, call_dur=2, **lane)
                if not (left_out and device and step == 0):
                    call = rows.call("cudaLaunchKernel", host + 3, 2, thread=f"rank {device}")
                    rows.comm(name, at + mine, ready + exchange - at - mine, call, device=str(device))
            at, host = ready + exchange, host + 6
        rows.annotation(f"ProfilerStep#{step}", begin, at - begin, thread="rank 0")
        host = max(host, at - 50)
    return rows


def signals(walked: Walk) -> dict[str, object]:
    return {signal.name: signal.value for signal in walked.signals}


def test_ranks_of_one_capture_tell_the_exchange_from_waiting_for_the_slower_device() -> None:
    walked, verdict = judged(job([100, 400]))
    taken = signals(walked)
    assert taken["comm.min_us"] == pytest.approx(20)
    assert taken["comm.max_us"] == pytest.approx(320)
    assert taken["comm.skew_ms"] == pytest.approx(4 * 0.3)
    assert (verdict.level, verdict.id) == (Level.NOT_ENOUGH, None)
    assert verdict.next.startswith("Look at the rank that comes last")
    note = next(note for note in walked.notes if "ranks of one group" in note)
    assert "device 1 comes last for 100% of the 7.20 ms" in note                # 6 steps × 4 layers × 300 µs
    assert "the exchange itself takes 0.48 ms" in note


def test_where_all_ranks_come_together_and_the_exchange_is_long_it_is_the_fault() -> None:
    walked, verdict = judged(job([100, 100], exchange=300))
    assert signals(walked)["comm.skew_ms"] == 0
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "comm-bound")
    assert not any("ranks of one group" in note for note in walked.notes)


@pytest.mark.parametrize("how", [
    {"names": (NAME, NAME.replace("AllReduce", "AllGather"))},
    {"names": ("ncclDevKernel_SendRecv", "ncclDevKernel_SendRecv")},
    {"left_out": 1},
], ids=["other collectives", "receives", "some not recorded"])
def test_devices_that_do_not_make_the_same_collectives_are_not_compared(how: dict[str, object]) -> None:
    walked, verdict = judged(job([100, 100], exchange=300, **how))
    assert "comm.skew_ms" not in signals(walked)
    assert verdict.id != "comm-bound"


def test_devices_of_two_jobs_that_are_never_in_a_collective_together_are_no_ranks_of_one() -> None:
    rows = Rows()
    for i in range(8):
        for device in (0, 1):
            at = 1_000.0 * i + 500 * device
            rows.launch(at, "gemm", at + 10, 200, thread=str(device), device=str(device))
            rows.comm(NAME, at + 220, 200, rows.call("cudaLaunchKernel", at + 5, 3, thread=str(device)),
                      device=str(device))
        rows.annotation(f"ProfilerStep#{i}", 1_000.0 * i, 999, thread="0")
    assert "comm.skew_ms" not in signals(judged(rows)[0])


def told(rows: Rows, *of_device: Exchange, **fields: Any) -> Walk:
    """Walked, with what the profiler says of the collectives of each device."""
    trace = rows.trace()
    device = np.where(trace.kind == Kind.COMM, trace.device, -1) if of_device else np.zeros(0)
    return walk(rows.trace(exchange=device.astype(np.int32), exchanges=of_device, **fields))


def test_two_ranks_of_a_group_of_four_do_not_tell_whom_both_wait_for() -> None:
    walked = told(job([100, 100], exchange=300), *[Exchange("0", 4096, 4)] * 2)
    assert "comm.skew_ms" not in signals(walked)
    assert "groups of 4 ranks, of which 2 are in this capture" in walked.unknown["comm.skew_ms"]
    found = Signals(walked.signals)
    verdict = judge(found, fingerprints.load(), contradictions(found))
    assert verdict.level is Level.NOT_ENOUGH
    assert "traces of all ranks" in verdict.next


def test_two_ranks_of_a_group_of_two_are_all_of_it_whatever_the_job_has() -> None:
    walked = told(job([100, 100]), *[Exchange("0", 4096, 2)] * 2, meta={"distributedInfo": {"world_size": 8}})
    assert signals(walked)["comm.skew_ms"] == 0


def test_devices_of_different_groups_are_not_compared() -> None:
    walked = told(job([100, 100]), Exchange("tp 0", 4096, 2), Exchange("tp 1", 4096, 2))
    assert "different process groups" in walked.unknown["comm.skew_ms"]


@pytest.mark.parametrize(("world", "known"), [(2, True), (4, False), ("4", True), (None, True)])
def test_where_no_group_is_told_the_job_must_have_no_more_ranks_than_the_capture(world: object, known: bool) -> None:
    walked = told(job([100, 100]), meta={"distributedInfo": {"world_size": world}})
    assert ("comm.skew_ms" in signals(walked)) is known


def test_kernels_that_multiply_and_exchange_in_one_are_no_proof_that_the_device_is_the_limit() -> None:
    rows = Rows()
    for i in range(40):
        rows.launch(5 * i, "MatmulAllReduce" if i % 2 else "attention", 10 + 100 * i, 99)
    walked, verdict = judged(rows)
    assert signals(walked)["comm.fused_fraction"] == pytest.approx(0.495, abs=0.01)
    assert verdict.level is Level.NOT_ENOUGH
    assert "multiply and exchange with other ranks in one" in verdict.summary

"""Four Ascend ranks, as their profiler's folders, one of them slow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascend_files import AscendRun
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import find_ranks
from xpu_triage.fleet.summary import diagnose_rank

COMPUTE_US, SLOW_US, COST_US, STEPS = 800.0, 1300.0, 40.0, 5


def drawn(compute_us: float) -> AscendRun:
    """Steps of 2 ms: four kernels, a collective from their end to 40 µs after the slow rank's, one more, a sync."""
    run = AscendRun()
    for step in range(STEPS):
        t = 2000.0 * step
        run.row(f"ProfilerStep#{step + 1}", t, 1990)
        at = t + 100
        for i in range(4):
            op = run.row(f"aten::mm{i}", t + 10 + 20 * i, 15)
            run.kernel(run.queued(op, f"aclnnMm{i}", t + 12 + 20 * i, t + 16 + 20 * i, 8), op, at, compute_us / 4,
                       f"MatMul{i}")
            at += compute_us / 4
        reduce = run.row("c10d::allreduce_", t + 92, 15)
        run.collective(run.queued(reduce, "HcclAllreduce", t + 94, t + 98, 8), reduce, at,
                       t + 100 + SLOW_US + COST_US - at, step)
        add = run.row("aten::add", t + 110, 15)
        run.kernel(run.queued(add, "aclnnAdd", t + 112, t + 116, 8), add, t + 1450, 500, "Add", "AI_VECTOR_CORE")
        run.call("AscendCL@aclrtSynchronizeStreamWithTimeout", t + 130, 1822)
    return run


@pytest.fixture(params=["text", "database"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> FleetDiagnosis:
    for rank in range(4):
        folder = tmp_path / f"node_{4000 + rank}_2026_ascend_pt"
        output = folder / "ASCEND_PROFILER_OUTPUT"
        run = drawn(SLOW_US if rank == 2 else COMPUTE_US)
        if request.param == "text":
            run.text(output)
        else:
            run.database(output / f"ascend_pytorch_profiler_{rank}.db")
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    return judge_ranks([diagnose_rank(piece) for piece in find_ranks([str(tmp_path)]).pieces])


def test_the_slow_rank_is_named_and_communication_is_not_to_blame(found: FleetDiagnosis) -> None:
    rows = found.comparison.rows

    assert [(row.result.rank, row.result.rank_from) for row in rows] == [(rank, "trace") for rank in range(4)]
    assert [row.late for row in rows] == [False, False, True, False]
    assert (found.verdict.id, found.verdict.rank) == ("straggler", "rank 2")
    assert found.verdict.fingerprint != "comm-bound"
    assert "communication is not to blame" in found.verdict.summary


def test_true_cost_and_skew_are_those_that_were_drawn(found: FleetDiagnosis) -> None:
    values = {signal.name: signal.value for signal in found.comparison.signals}

    assert values["comm.min_us"] == pytest.approx(COST_US, abs=0.01)
    assert values["comm.max_us"] == pytest.approx(COST_US + SLOW_US - COMPUTE_US, abs=0.01)
    assert values["comm.skew_ms"] == pytest.approx((SLOW_US - COMPUTE_US) / 1e3, rel=1e-4)
    assert values["comm.compute_spread_ratio"] == pytest.approx((SLOW_US + 500) / (COMPUTE_US + 500), rel=1e-4)

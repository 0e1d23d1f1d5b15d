"""What a capture cannot tell is withheld from the rules, of that evidence alone, and is said."""

from __future__ import annotations

import pytest

from sheets import typed
from xpu_triage import fingerprints, limits
from xpu_triage.errors import TriageError
from xpu_triage.signals import Signal, Signals
from xpu_triage.verdict import Level, judge

HIDDEN = {"idle.hidden_fraction": 0.45, "device.busy_fraction": 0.3, "idle.launching_fraction": 0.2,
          "kernel.per_step": 900, "kernel.graph_fraction": 0, "step.count": 8, "sync.per_step": 4}


def test_a_capture_that_lacks_work_gives_no_cause_of_idle_and_no_busy_time():
    values, applied = limits.applied(typed(HIDDEN), limits.load())
    assert set(values) == {"step.count"}
    assert "busy time is a lower bound" in applied[0].says


def test_the_verdict_on_it_is_not_enough_evidence_and_says_what_to_record():
    verdict = judge(typed(HIDDEN), fingerprints.load())
    assert verdict.level is Level.NOT_ENOUGH
    assert "the capture lacks device work" in verdict.summary
    assert "Record again" in verdict.next


def test_a_controlled_comparison_stands_beside_a_capture_that_lacks_work():
    verdict = judge(typed({**HIDDEN, "ab.graph_ratio": 0.5}), fingerprints.load())
    assert (verdict.level, verdict.id) == (Level.CONFIRMED, "launch-bound")
    assert "the capture lacks device work" in verdict.summary


def test_figures_from_other_evidence_are_not_withheld():
    trace = [Signal(name, value, "trace", source="trace.json") for name, value in HIDDEN.items()]
    smi = [Signal("device.utilization_fraction", 0.9, "smi", source="smi.txt"),
           Signal("kernel.top_ms", 3.0, "typed", source="notes.yaml")]
    values, _ = limits.applied(Signals([*trace, *smi]), limits.load())
    assert {"device.utilization_fraction", "kernel.top_ms"} <= set(values)
    assert "kernel.per_step" not in values


@pytest.mark.parametrize(("figures", "withheld"), [
    # fewer than thirty device events: 7 kernels in 4 steps
    ({"kernel.per_step": 7, "step.count": 4, "device.busy_fraction": 0.1, "idle.host_op_fraction": 0.8},
     "idle.host_op_fraction"),
    # most of the idle lies before work that has no launch
    ({"idle.before_unlinked_fraction": 0.5, "device.busy_fraction": 0.2, "idle.launching_fraction": 0.6},
     "idle.launching_fraction"),
    # the largest part of the idle has no rows on the host
    ({"idle.unrecorded_fraction": 0.3, "idle.profiler_fraction": 0.1, "idle.launching_fraction": 0.3,
      "idle.host_op_fraction": 0.0, "idle.after_sync_fraction": 0.0, "idle.first_use_fraction": 0.0,
      "idle.peer_wait_fraction": 0.0}, "idle.launching_fraction"),
    # no steps, and a device that hardly did anything
    ({"step.method": "window", "device.busy_fraction": 0.01, "idle.host_op_fraction": 0.9}, "idle.host_op_fraction"),
])
def test_other_captures_that_cannot_tell(figures, withheld):
    values, applied = limits.applied(typed(figures), limits.load())
    assert withheld not in values
    assert applied


@pytest.mark.parametrize("figures", [
    {"kernel.per_step": 8, "step.count": 4, "device.busy_fraction": 0.1, "idle.host_op_fraction": 0.8},
    {"kernel.per_step": 7, "step.count": 4, "device.busy_fraction": 0.9, "idle.host_op_fraction": 0.05},
    {"idle.before_unlinked_fraction": 0.1, "device.busy_fraction": 0.8, "idle.launching_fraction": 0.15},
    {"idle.hidden_fraction": 0.2, "idle.launching_fraction": 0.3},
    {"step.method": "anchor", "device.busy_fraction": 0.01, "idle.host_op_fraction": 0.9},
    {"step.method": "log"},
])
def test_captures_on_the_other_side_of_the_line_are_left_alone(figures):
    values, applied = limits.applied(typed(figures), limits.load())
    assert set(values) == set(figures)
    assert applied == ()


def test_a_trace_without_device_work_says_so_in_words():
    verdict = judge(typed({"step.method": "annotation", "step.wall_ms": 70}), fingerprints.load())
    assert verdict.level is Level.NOT_ENOUGH
    assert "holds no device work" in verdict.summary


def test_without_device_work_it_asks_for_the_device_where_operators_are_there_and_else_for_the_process():
    nothing = {"step.method": "annotation", "step.wall_ms": 70}
    pages = fingerprints.load()
    assert "Record the process that runs the model" in judge(typed(nothing), pages).next
    operators = judge(typed({**nothing, "host.top_op": "aten::addmm"}), pages)
    assert "which device was meant" in operators.next
    assert "Record the process" not in operators.next


@pytest.mark.parametrize(("text", "says"), [
    ("---\nlimits:\n  - {when: step.wall_ms > 3}\n---\n", "a limit has the parts"),
    ("---\nlimits:\n  - {when: step.wall_ms, withhold: [], says: a, next: b, source: c}\n---\n", "is no condition"),
    ("---\nlimits:\n  - {when: step.wall_ms > 3, withhold: [idel.*], says: a, next: b, source: c}\n---\n",
     "no signal is called 'idel.*'"),
    ("---\nlimit: []\n---\n", "limits"),
    ("---\n- 3\n---\n", "front matter"),
])
def test_a_page_with_a_mistake_is_refused(tmp_path, text, says):
    path = tmp_path / "limits.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TriageError, match=r".") as refusal:
        limits.load(path)
    assert says in str(refusal.value)


RANK = {"step.method": "window", "device.comm_fraction": 0.6, "device.compute_fraction": 0.3}
BOUND = {"comm.calls_per_step": 20, "step.wall_ms": 100}


def spoken_of(figures):
    return any("one rank's collectives" in limit.says for limit in limits.applied(typed(figures), limits.load())[1])


@pytest.mark.parametrize("figures", [{}, {"comm.min_us": 2900}, {"comm.isolated_us": 2900}, BOUND,
                                     {**BOUND, "comm.min_us": 10}, {**BOUND, "comm.min_us": 2900},
                                     {"idle.peer_wait_fraction": 0.2, "device.comm_fraction": 0.0,
                                      "device.compute_fraction": 0.1}])
def test_one_ranks_collectives_are_doubted_until_their_cost_is_known(figures):
    assert spoken_of({**RANK, **figures})


@pytest.mark.parametrize("figures", [{**BOUND, "comm.isolated_us": 2900}, {"comm.skew_ms": 3},
                                     {"ab.no_comm_ratio": 0.5}])
def test_the_cost_alone_or_all_ranks_lift_the_doubt(figures):
    assert not spoken_of({**RANK, **figures})


LEVEL0 = {"step.method": "annotation", "device.busy_fraction": 0.13, "idle.host_op_fraction": 0.19,
          "idle.unrecorded_fraction": 0.01, "kernel.median_us": 4.1, "kernel.per_step": 274, "step.wall_ms": 14}


def test_where_the_calls_are_not_recorded_neither_launching_nor_the_host_is_to_blame_for_most_of_the_idle():
    verdict = judge(typed(LEVEL0), fingerprints.load())                     # 0.67 of the window is one of three causes
    assert verdict.level is Level.NOT_ENOUGH
    assert "nothing tells which" in verdict.summary
    assert "profiler_level=Level1" in verdict.next
    many = judge(typed({**LEVEL0, "kernel.per_step": 1400, "idle.host_op_fraction": 0.02}), fingerprints.load())
    assert many.level is Level.NOT_ENOUGH


def test_where_the_calls_are_not_recorded_host_work_that_holds_most_of_the_idle_is_still_named():
    verdict = judge(typed({**LEVEL0, "idle.host_op_fraction": 0.6}), fingerprints.load())
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "host-bound")


def test_figures_over_ranks_that_somebody_typed_are_not_doubted():
    assert not spoken_of({"device.comm_fraction": 0.42, "device.compute_fraction": 0.3, "device.busy_fraction": 0.9})

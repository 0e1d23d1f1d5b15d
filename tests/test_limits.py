"""What a capture cannot tell is withheld from the rules, of that evidence alone, and is said."""

from __future__ import annotations

import pytest

from sheets import typed, verdict_of
from xpu_triage import fingerprints, limits
from xpu_triage.errors import TriageError
from xpu_triage.expressions import replaced
from xpu_triage.rules import from_page
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


NO_CALLS = {"step.method": "annotation", "step.wall_ms": 4.9, "device.busy_fraction": 0.25,
            "device.compute_fraction": 0.25, "idle.host_op_fraction": 0.1, "idle.step_gap_ms": 0.8}
"""Of 0.75 idle 0.65 has no cause: the calls that launch and wait are not recorded."""
UNSEEN = {"step.method": "annotation", "step.wall_ms": 12, "device.busy_fraction": 0.26,
          "device.compute_fraction": 0.26, "idle.unrecorded_fraction": 0.73, "idle.profiler_fraction": 0.0,
          "idle.launching_fraction": 0.0,
          "idle.host_op_fraction": 0.0, "idle.after_sync_fraction": 0.0, "idle.first_use_fraction": 0.0,
          "idle.peer_wait_fraction": 0.0, "idle.step_gap_ms": 9.0}
"""A request of 3 ms every 12, and a host that has no rows between them."""


@pytest.mark.parametrize("figures", [NO_CALLS, UNSEEN])
def test_a_gap_between_steps_is_no_host_work_where_the_causes_of_idle_are_withheld(figures):
    verdict = judge(typed(figures), fingerprints.load())
    assert verdict.level is Level.NOT_ENOUGH
    assert not any(h.id in ("host-bound", "launch-bound") for h in verdict.hypotheses)
    assert "Record again" in verdict.next


def test_a_gap_between_steps_that_was_measured_by_itself_stays_a_sign_of_host_work():
    figures = {name: NO_CALLS[name] for name in ("step.wall_ms", "idle.step_gap_ms")}
    assert verdict_of(figures).id == "host-bound"


STANDS_IN = {"signal": "device.busy_fraction", "comparison": "<=", "threshold": 0.6, "weight": 1, "says": "idle",
             "source": "judgement"}


@pytest.mark.parametrize("given", [
    "not known(idle.launching_fraction)", "unless(known(idle.launching_fraction))", "known(idle.launching_fraction)",
    "unless(known(step.method) and not known(idle.launching_fraction))"])
def test_a_rule_that_asks_whether_a_withheld_signal_is_known_says_nothing_of_the_same_evidence(given):
    """Nobody looked, and it cannot be believed, are two things: neither answer would be right."""
    rule = from_page({**STANDS_IN, "given": given})
    values, _ = limits.applied(typed(UNSEEN), limits.load())
    assert "idle.launching_fraction" not in values
    assert rule.holds(values) is None


def test_a_rule_that_holds_with_either_answer_holds():
    rule = from_page({**STANDS_IN, "given": "step.wall_ms > 3 or known(idle.launching_fraction)"})
    values, _ = limits.applied(typed(UNSEEN), limits.load())
    assert rule.holds(values) is True


def test_other_evidence_stands_in_for_a_withheld_figure_as_for_one_that_nobody_took():
    rule = from_page({**STANDS_IN, "given": "not known(idle.launching_fraction)"})
    trace = [Signal(name, value, "trace", source="trace.json") for name, value in UNSEEN.items()
             if name != "device.busy_fraction"]
    beside = Signal("device.busy_fraction", 0.26, "typed", source="notes.yaml")
    values, _ = limits.applied(Signals([*trace, beside]), limits.load())
    assert rule.holds(values) is True


def test_what_is_withheld_stays_so_where_another_figure_is_put_right():
    rule = from_page({**STANDS_IN, "given": "not known(idle.launching_fraction)"})
    values, _ = limits.applied(typed(UNSEEN), limits.load())
    assert rule.holds(replaced(values, "step.wall_ms", 3)) is None
    assert rule.holds(replaced(values, "step.wall_ms", None)) is None
    assert rule.holds(replaced(dict(values), "step.wall_ms", 3)) is True


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



ON_CPU = {"log.backend": "cpu", "step.wall_ms": 103, "step.method": "log", "serving.running": 4.8}


def test_a_cpu_backend_with_no_sign_of_a_device_is_asked_about_first():
    verdict = judge(typed(ON_CPU), fingerprints.load())
    assert verdict.level is Level.NOT_ENOUGH
    assert "started on its CPU backend" in verdict.summary
    assert verdict.next.startswith("Say first whether that is intended")


@pytest.mark.parametrize("beside", [{"device.utilization_fraction": 0.0}, {"placement.loaded_fraction": 0.2},
                                    {"log.backend": "cuda"}])
def test_where_a_device_shows_or_the_backend_is_another_that_is_not_asked(beside):
    assert "whether that is intended" not in judge(typed({**ON_CPU, **beside}), fingerprints.load()).next


def test_what_a_capture_without_device_work_is_says_what_to_do_before_what_holds_for_all_of_them():
    nothing = typed({"step.method": "annotation", "step.wall_ms": 70, "host.top_op": "aten::addmm"})
    pages = fingerprints.load()
    assert judge(nothing, pages, capture="Record again with X.").next == "Record again with X."
    full = typed({"step.method": "annotation", "device.busy_fraction": 0.5})
    assert "Record again with X" not in judge(full, pages, capture="Record again with X.").next


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


FUSED = {"step.method": "annotation", "device.busy_fraction": 0.98, "device.compute_fraction": 0.98,
         "device.comm_fraction": 0, "kernel.top_name": "MatmulAllReduce", "kernel.top_fraction": 0.75}


def test_kernels_that_multiply_and_exchange_in_one_make_no_kernel_the_limit():
    verdict = judge(typed({**FUSED, "comm.fused_fraction": 0.74}), fingerprints.load())
    assert verdict.level is Level.NOT_ENOUGH
    assert "multiply and exchange with other ranks in one" in verdict.summary
    few = judge(typed({**FUSED, "comm.fused_fraction": 0.2}), fingerprints.load())
    assert (few.level, few.id) == (Level.PROBABLE, "kernel-bound")


TURNS = {"step.method": "annotation", "device.busy_fraction": 0.49, "device.compute_fraction": 0.49,
         "device.comm_fraction": 0, "idle.peer_wait_fraction": 0.5, "idle.host_op_fraction": 0,
         "idle.launching_fraction": 0}


def test_devices_in_turns_are_no_ranks_and_nothing_is_said_of_other_ranks():
    verdict = judge(typed({**TURNS, "idle.other_device_fraction": 0.5}), fingerprints.load())
    assert verdict.level is Level.NOT_ENOUGH
    assert "work in turns" in verdict.summary
    assert "traces of all ranks" not in verdict.next
    assert "rank" not in " ".join(reason.text for h in verdict.hypotheses for reason in h.for_)
    ranks = judge(typed(TURNS), fingerprints.load())
    assert "traces of all ranks" in ranks.next


def test_a_rank_with_more_compute_than_collectives_is_sent_to_the_other_ranks_where_these_are_the_finding():
    rank = {"step.method": "annotation", "device.busy_fraction": 0.98, "device.compute_fraction": 0.55,
            "device.comm_fraction": 0.43, "comm.calls_per_step": 40, "idle.peer_wait_fraction": 0}
    assert "traces of all ranks" in judge(typed(rank), fingerprints.load()).next
    late = judge(typed({**rank, "comm.skew_ms": 4, "step.wall_ms": 10}), fingerprints.load())
    assert late.next.startswith("Look at the rank that comes last")

"""The verdict: its levels, its order, what it says. The rules of single faults are tested beside it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sheets import typed, verdict_of
from xpu_triage import fingerprints, limits
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.contradictions import contradictions
from xpu_triage.signals import Signals
from xpu_triage.verdict import Contradiction, Level, judge
from xpu_triage.weighing import weigh

PAGES = fingerprints.load()

P800 = {"device.utilization_fraction": 0, "step.wall_ms": 4890, "serving.running": 256,
        "serving.decode_tokens_per_s": 32, "serving.reference_tokens_per_s": 3201.71}

WORDS = ["none", "aten::item", "aten::exponential_", "cpu", "AI_CPU", "ncclAllReduce", "cudaGraphLaunch", "detokenizer",
         "api server", "penalties, structured output", "weight offload", "slow tokenizer", "thermal", "capacity", "TP8",
         "layer split", "memcpy HtoD", "annotation"]
TEXTS = st.sampled_from([name for name, spec in CATALOGUE.items() if spec.unit == "text"])
BOOLS = st.sampled_from([name for name, spec in CATALOGUE.items() if spec.unit == "bool"])
ZEROS = st.sampled_from([name for name, spec in CATALOGUE.items()
                         if spec.unit not in ("text", "bool") and spec.group != "latency"])
NO_NUMBERS = st.dictionaries(TEXTS, st.sampled_from(WORDS), max_size=6) | \
    st.dictionaries(BOOLS, st.booleans(), max_size=6)


def number(name):
    unit = CATALOGUE[name].unit
    if unit == "bool":
        return st.booleans()
    if unit == "text":
        return st.sampled_from(WORDS)
    if unit == "fraction":
        return st.floats(0, 1)
    example = float(CATALOGUE[name].example)
    return st.floats(example / 100, example * 100)


FIGURES = st.lists(st.sampled_from(sorted(CATALOGUE)), max_size=10, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: number(name) for name in names}))


# -- the levels

def test_the_incident_sheet_is_a_cpu_fallback_and_no_more_than_probable():
    verdict = verdict_of(P800)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "cpu-fallback")
    assert "fallback.fraction" in verdict.next


def test_with_the_operator_and_its_share_it_is_confirmed_and_named():
    verdict = verdict_of({**P800, "fallback.op": "aten::exponential_", "fallback.fraction": 0.93})
    assert (verdict.level, verdict.id) == (Level.CONFIRMED, "cpu-fallback")
    assert "aten::exponential_" in verdict.summary
    assert "93% of the time" in verdict.summary
    assert verdict.hypotheses[0].confirmed_by


def test_one_request_that_took_long_beside_an_idle_device_is_no_fallback_yet():
    """A first request can compile or load for minutes; a fallback is seen over repeated steps."""
    verdict = verdict_of({"device.utilization_fraction": 0, "serving.running": 1, "warmup.first_ms": 95_000})
    assert verdict.level is Level.NOT_ENOUGH


def test_nothing_typed_that_speaks_for_anything_starts_with_the_three_steps():
    verdict = verdict_of({"serving.concurrency": 4})
    assert (verdict.level, verdict.id, verdict.hypotheses) == (Level.NOT_ENOUGH, None, ())
    assert "device.utilization_fraction" in verdict.next
    assert (verdict.fix, verdict.verify, verdict.ruled_out) == ("", "", ())


def test_two_equally_supported_hypotheses_are_no_verdict_and_the_next_measurement_tells_them_apart():
    verdict = verdict_of({"device.busy_fraction": 0.31})
    assert verdict.level is Level.NOT_ENOUGH
    assert "launch-bound" in verdict.summary
    assert "host-bound" in verdict.summary
    assert "idle.launching_fraction" in verdict.next or "idle.host_op_fraction" in verdict.next


def test_what_settles_it_makes_it_confirmed_and_next_is_the_first_action_and_its_proof():
    verdict = verdict_of({"ab.graph_ratio": 0.55, "device.busy_fraction": 0.4})
    assert (verdict.level, verdict.id) == (Level.CONFIRMED, "launch-bound")
    assert verdict.next.startswith("Turn graph capture on")
    assert verdict.next.endswith(verdict.verify)
    assert verdict.fix


def test_a_probable_verdict_says_what_would_settle_it():
    verdict = verdict_of({"idle.launching_fraction": 0.4, "device.busy_fraction": 0.5})
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "launch-bound")
    assert "ab.graph_ratio" in verdict.next


@given(NO_NUMBERS)
@settings(max_examples=150, deadline=None)
def test_texts_and_yes_or_no_alone_never_make_a_verdict(figures):
    assert verdict_of(figures).level is Level.NOT_ENOUGH


@given(st.sets(ZEROS, max_size=6), st.dictionaries(TEXTS, st.sampled_from(WORDS), max_size=3))
@settings(max_examples=150, deadline=None)
def test_zeros_with_texts_alone_never_make_a_verdict(zeros, texts):
    assert verdict_of({**dict.fromkeys(zeros, 0), **texts}).level is Level.NOT_ENOUGH


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_one_line_or_one_zero_alone_never_makes_a_verdict(name):
    spec = CATALOGUE[name]
    alone = WORDS if spec.unit == "text" else [True, False] if spec.unit == "bool" else [0]
    for value in alone:
        if not (spec.group == "latency" and value == 0):
            assert verdict_of({name: value}).level is Level.NOT_ENOUGH


@given(FIGURES)
@settings(max_examples=150, deadline=None)
def test_a_verdict_has_a_number_for_it_and_nothing_decisive_against_it(figures):
    verdict = verdict_of(figures)
    if verdict.level is Level.NOT_ENOUGH:
        assert verdict.id is None
        assert verdict.next
        return
    first = verdict.hypotheses[0]
    assert first.id == verdict.id
    assert any(reason.numeric for reason in first.for_)
    values, _ = limits.applied(typed(figures), limits.load())
    assert weigh(next(page for page in PAGES if page.id == first.id), values).refuted_by is None
    if verdict.level is Level.PROBABLE:
        assert first.score >= 2
        assert all(other.score <= first.score - 0.5 for other in verdict.hypotheses[1:])


# -- unknown is unknown

@given(FIGURES, st.sets(st.sampled_from(sorted(CATALOGUE)), max_size=5))
@settings(max_examples=100, deadline=None)
def test_a_signal_typed_as_unknown_changes_nothing(figures, unknown):
    more = {**dict.fromkeys(unknown), **figures}
    assert verdict_of(more) == verdict_of(figures)


@given(FIGURES, st.sampled_from(PAGES), st.data())
@settings(max_examples=150, deadline=None)
def test_a_signal_that_a_page_does_not_read_does_not_move_it(figures, page, data):
    name = data.draw(st.sampled_from(sorted(set(CATALOGUE) - page.names - {"ab.spread_fraction"})))
    before = weigh(page, {k: v for k, v in figures.items() if k != name})
    after = weigh(page, {**figures, name: data.draw(number(name))})
    assert (after.score, after.for_, after.against, after.refuted_by) == (
        before.score, before.for_, before.against, before.refuted_by)


def test_the_order_of_the_signals_does_not_matter():
    figures = {**P800, "power.draw_fraction": 0.2, "sync.per_step": 3}
    assert verdict_of(figures) == verdict_of(dict(reversed(figures.items())))


# -- order, second finding, what is ruled out

def test_shares_rank_themselves_and_the_second_finding_is_shown():
    verdict = verdict_of({"device.busy_fraction": 0.45, "device.compute_fraction": 0.45, "device.comm_fraction": 0,
                          "idle.launching_fraction": 0.36, "idle.host_op_fraction": 0.17,
                          "idle.after_sync_fraction": 0.01})
    assert verdict.id == "launch-bound"
    assert [h.id for h in verdict.hypotheses[:2]] == ["launch-bound", "host-bound"]
    assert "Second: host-bound (17% of the time)" in verdict.summary


def test_a_busy_device_does_not_bury_the_idle_that_can_be_won():
    verdict = verdict_of({"device.busy_fraction": 0.86, "device.compute_fraction": 0.86, "device.comm_fraction": 0,
                          "idle.launching_fraction": 0.12, "idle.host_op_fraction": 0, "idle.after_sync_fraction": 0})
    assert verdict.id == "kernel-bound"
    assert "Second: launch-bound (12% of the time)" in verdict.summary


def test_look_alikes_are_ruled_out_with_the_reason():
    verdict = verdict_of({"idle.launching_fraction": 0.5, "device.busy_fraction": 0.45, "fallback.fraction": 0.0,
                          "idle.host_op_fraction": 0.01, "idle.after_sync_fraction": 0.01})
    reasons = {r.id: r.why for r in verdict.ruled_out}
    assert verdict.id == "launch-bound"
    assert "fallback.fraction 0 ≤ 0.03" in reasons["cpu-fallback"]
    assert "idle.host_op_fraction 0.01 < 0.03" in reasons["host-bound"]
    assert "warmup-compile" not in reasons  # nobody looked, which rules nothing out


def test_a_look_alike_that_is_as_well_supported_is_not_ruled_out():
    verdict = verdict_of({"device.busy_fraction": 0.31})
    assert "host-bound" not in {r.id for r in verdict.ruled_out}


def test_hypotheses_with_nothing_for_them_are_left_out_and_refuted_ones_come_last():
    verdict = verdict_of({"idle.launching_fraction": 0.5, "device.busy_fraction": 0.4, "kernel.top_fraction": 0.5})
    scores = [h.score for h in verdict.hypotheses]
    assert all(h.for_ for h in verdict.hypotheses)
    assert scores == sorted(scores, reverse=True)


def test_contradictions_are_passed_on():
    found = (Contradiction("1 ÷ 2 is not 3", ("step.wall_ms",)),)
    assert judge(typed({"step.wall_ms": 3}), PAGES, found).contradictions == found


def test_no_signals_at_all_is_not_enough_evidence():
    assert judge(Signals(), PAGES).level is Level.NOT_ENOUGH


def test_names_from_evidence_come_out_harmless():
    verdict = verdict_of({"fallback.op": "aten::x\x1b[31m\n", "fallback.fraction": 0.6})
    texts = [verdict.summary, verdict.next, *(r.text for h in verdict.hypotheses for r in (*h.for_, *h.against))]
    assert not any(ord(c) < 32 for text in texts for c in text)


def test_the_second_finding_is_the_part_with_the_next_largest_share_and_is_not_ruled_out():
    verdict = verdict_of({"device.busy_fraction": 0.86, "device.compute_fraction": 0.66, "device.comm_fraction": 0.2,
                          "idle.launching_fraction": 0.12, "idle.host_op_fraction": 0.01, "step.count": 5})
    assert verdict.id == "kernel-bound"
    assert "Second: comm-bound (20% of the time)" in verdict.summary
    assert "comm-bound" not in {r.id for r in verdict.ruled_out}


def test_two_causes_settled_at_once_are_no_more_than_probable_and_it_is_said():
    close = verdict_of({"ab.graph_ratio": 0.35, "ab.fewer_syncs_ratio": 0.35})
    apart = verdict_of({"ab.no_tokenizer_ratio": 0.2, "fallback.op": "aten::sort", "fallback.fraction": 0.2})
    assert close.id is None
    assert apart.level is Level.PROBABLE
    for verdict in (close, apart):
        assert "2 different causes are settled at once" in verdict.contradictions[-1].text


def test_a_confirmation_whose_figures_contradict_others_is_withdrawn():
    figures = typed({"fallback.op": "aten::sort", "fallback.fraction": 0.7, "device.busy_fraction": 0.6})
    assert judge(figures, PAGES).level is Level.CONFIRMED
    verdict = judge(figures, PAGES, contradictions(figures))                # 0.7 + 0.6 = 1.3
    assert verdict.id is None
    assert "device.busy_fraction" in verdict.next


# -- figures in dispute

def test_a_probable_verdict_that_hangs_on_figures_in_dispute_is_none():
    """25 ms between tokens are 625 steps of 0.04 ms: of two servers. Put right by the other, either leaves nothing."""
    figures = typed({"latency.engine_itl_ms": 25, "latency.itl_p99_ms": 140, "step.wall_ms": 0.04})
    assert (judge(figures, PAGES).level, judge(figures, PAGES).id) == (Level.PROBABLE, "prefill-starves-decode")
    verdict = judge(figures, PAGES, contradictions(figures))
    assert (verdict.level, verdict.id) == (Level.NOT_ENOUGH, None)
    assert "hangs on figures that contradict each other" in verdict.summary
    assert "latency.engine_itl_ms" in verdict.next
    assert "step.wall_ms" in verdict.next


def test_a_probable_verdict_that_holds_whichever_figure_is_wrong_stands():
    """256 ÷ 4.89 s are 52 tokens/s against 32. Put right by the others the step is 8 s, or 156 run: still a fallback.
    That the device reads 0 % beside such steps is a remark and disputes nothing."""
    figures = typed(P800)
    found = contradictions(figures)
    assert {bool(c.repairs) for c in found} == {True, False}
    assert any(c.repairs.get("step.wall_ms") == 8000 and c.repairs["serving.running"] == pytest.approx(156.48)
               for c in found)
    verdict = judge(figures, PAGES, found)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "cpu-fallback")
    assert verdict.contradictions == found


def test_figures_in_dispute_that_the_verdict_does_not_read_leave_it_alone():
    figures = typed({"kv.preemptions_per_request": 0.8, "latency.itl_ms": 50,
                     "serving.request_decode_tokens_per_s": 60})
    assert contradictions(figures)
    assert judge(figures, PAGES, contradictions(figures)).id == "kv-pressure"


@pytest.mark.parametrize(("repaired", "stands"), [(0.5, True), (0.05, False), (None, False)])
def test_a_figure_is_put_right_or_taken_out(repaired, stands):
    figures = typed({"idle.launching_fraction": 0.4, "device.busy_fraction": 0.5})
    dispute = Contradiction("0.4 is not so", ("idle.launching_fraction",), {"idle.launching_fraction": repaired})
    assert (judge(figures, PAGES, [dispute]).id == "launch-bound") is stands
    assert judge(figures, PAGES, [Contradiction("a remark", ("idle.launching_fraction",))]).id == "launch-bound"

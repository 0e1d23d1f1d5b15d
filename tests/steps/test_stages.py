"""The stage split on sequences of steps worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_walks import MS, Row, trace_of
from xpu_triage.steps import stages
from xpu_triage.steps.stages import Iteration, split
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind


def decode(ms: float = 20.0) -> Iteration:
    return Iteration("decode", ms, 0, 0)


def prefill(ms: float, tokens: int | None = 100, requests: int | None = 1) -> Iteration:
    return Iteration("prefill", ms, requests, tokens)


def mixed(ms: float, tokens: int = 100) -> Iteration:
    return Iteration("mixed", ms, 1, tokens)


def test_time_is_split_by_phase() -> None:
    found = split([decode(20), prefill(100), decode(40), mixed(40)])
    assert [(p.phase, p.steps, p.total_ms, p.share) for p in found.phases] == [
        ("prefill", 1, 100, 0.5), ("mixed", 1, 40, 0.2), ("decode", 2, 60, 0.3)]
    assert found.phase("decode") is not None
    assert found.phase("idle") is None
    assert found.unknown_steps == 0
    assert "50% is prefill (1 step, median 100 ms)" in found.notes[0]


def test_the_worst_gap_is_from_token_to_token() -> None:
    # decode, then 3 prefills of 100 ms, then a decode of 20 ms: the token comes 320 ms after the one before it
    found = split([decode(), decode(), decode(), prefill(100), prefill(100), prefill(100), decode(), decode()])
    assert (found.worst_gap_ms, found.worst_gap_steps, found.worst_gap_prompt_ms) == (320, 3, 300)
    assert found.usual_gap_ms == 20
    assert any("waited 320 ms for a token, 16 usual gaps, behind 3 steps with prompts" in note for note in found.notes)


def test_a_mixed_step_gives_tokens_and_its_time_is_the_prompts() -> None:
    found = split([decode(), decode(), mixed(400), decode()])
    assert (found.worst_gap_ms, found.worst_gap_steps, found.worst_gap_prompt_ms) == (400, 1, 400)


def test_a_slow_decode_step_is_not_blamed_on_prompts() -> None:
    found = split([decode(), decode(), decode(), decode(900), decode(), prefill(30), decode()])
    assert found.worst_gap_ms == 900
    assert not any("waited" in note for note in found.notes)


def test_prefills_before_any_decode_keep_nobody_waiting() -> None:
    found = split([prefill(500), prefill(500), decode(), decode()])
    assert (found.worst_gap_ms, found.worst_gap_steps) == (20, 0)


def test_over_a_hole_or_an_unknown_step_no_gap_is_counted() -> None:
    hole = Iteration("prefill", 700, 1, 50, follows=False)
    assert split([decode(), hole, decode()]).worst_gap_ms is None
    found = split([decode(), Iteration("", 700), decode(), decode()])
    assert (found.worst_gap_ms, found.unknown_steps) == (20, 1)


# -- requests prefilled alone
def test_prompts_in_one_step_each() -> None:
    found = split([decode(), prefill(50, 100), decode(), prefill(60, 120), prefill(70, 140), decode()])
    assert found.prefills_ms == (50, 60, 70)


def test_full_chunks_belong_to_the_prompt_that_follows() -> None:
    # two prompts of 2,048 + 2,048 + 500 and of 2,048 + 100; the first is not counted: its beginning is not certain
    found = split([decode(), prefill(9, 10), decode(), prefill(200, 2048), prefill(210, 2048), prefill(60, 500),
                   prefill(200, 2048), prefill(20, 100), decode()])
    assert found.prefills_ms == (470, 220)


def test_prompts_that_others_share_or_interrupt_are_left_out() -> None:
    chunked = [prefill(200, 2048), decode(), prefill(200, 2048), prefill(60, 500)]
    assert split([prefill(9, 10), *chunked]).prefills_ms == ()
    assert split([prefill(50, 100, requests=2), decode(), mixed(50), decode()]).prefills_ms == ()
    assert split([prefill(50, None), prefill(50, 100, None)]).prefills_ms == ()


# -- chunks
def test_time_against_tokens_in_a_step() -> None:
    # 30 ms and 0.1 ms a token
    found = split([prefill(30 + 0.1 * tokens, tokens) for tokens in (256, 512, 700, 1024, 1500, 2048)])
    assert found.chunks is not None
    assert (found.chunks.fixed_ms, found.chunks.ms_per_1k) == (pytest.approx(30), pytest.approx(100))
    assert found.chunks.chunk_for(130) == pytest.approx(1000)
    assert found.chunks.chunk_for(29) is None


@pytest.mark.parametrize("tokens", [[100, 200, 400], [500] * 10, [500, 600, 700, 800, 900, 999]])
def test_chunks_of_one_size_say_nothing_of_their_effect(tokens: list[int]) -> None:
    assert split([prefill(10, n) for n in tokens]).chunks is None


def test_nothing_gives_nothing() -> None:
    found = split([])
    assert (found.phases, found.usual_gap_ms, found.prefills_ms, found.chunks, found.notes) == ((), None, (), None, ())


STEPS = st.lists(st.builds(
    Iteration, st.sampled_from(["prefill", "decode", "mixed", "", "odd"]), st.floats(0, 1e6),
    st.none() | st.integers(0, 3), st.none() | st.integers(0, 4096), st.booleans()), max_size=40)


@given(STEPS)
def test_the_split_adds_up_whatever_the_steps(steps: list[Iteration]) -> None:
    found = split(steps)
    known = [each for each in steps if each.phase in stages.PHASES and each.wall_ms > 0]
    assert sum(p.steps for p in found.phases) == len(known)
    assert sum(p.share for p in found.phases) == pytest.approx(1 if known else 0)
    assert sum(found.prefills_ms) <= sum(e.wall_ms for e in known if e.phase == "prefill") * (1 + 1e-9) + 1e-9
    if found.worst_gap_ms is not None:
        assert 0 <= found.worst_gap_prompt_ms <= found.worst_gap_ms <= sum(e.wall_ms for e in steps) + 1e-6


# -- of a trace
def test_a_trace_with_named_steps_gives_the_prefill_of_single_requests() -> None:
    names = [("step[DECODE bs=4]", 20)] * 8 + [
        ("step[EXTEND bs=1 toks=300]", 60), ("step[DECODE bs=5]", 20), ("step[EXTEND bs=1 toks=500]", 100),
        ("step[DECODE bs=5]", 20), ("step[EXTEND bs=1 toks=400]", 80), ("step[DECODE bs=5]", 20)]
    rows, at = [], 0
    for name, ms in names:
        rows.append(Row(at, ms * MS, name, Kind.ANNOTATION, thread=0))
        at += ms * MS
    walked = walk(trace_of(rows))
    found = stages.measure(walked)
    assert [(s.name, s.value, s.how, s.source) for s in found.signals] == [
        ("latency.prefill_ms", 80.0, "trace", "synthetic.json")]
    assert any("behind 1 step with prompts" in note for note in found.notes)
    assert np.isclose(stages.of_trace(walked.steps).worst_gap_ms or 0, 120)


def test_steps_without_names_have_no_phase() -> None:
    rows = [Row(i * MS, MS, "cudaGraphLaunch", Kind.RUNTIME, thread=0) for i in range(10)]
    found = stages.measure(walk(trace_of(rows)))
    assert (found.signals, found.notes) == ((), ())

"""What a step's name tells, dialect by dialect."""

from __future__ import annotations

import pytest

from xpu_triage.steps.step_names import (
    StepName,
    is_engine_step,
    is_profiler_step,
    is_step_function,
    parse,
    speaks_of_steps,
    template,
)


@pytest.mark.parametrize(("name", "told"), [
    ("execute_context_4(24)_generation_0(0)", StepName("prefill", 4, 24, 0)),
    ("execute_context_0(0)_generation_4(4)", StepName("decode", 0, 0, 4)),
    ("execute_context_1(888_788544)_generation_3(3)", StepName("mixed", 1, 888, 3)),
    ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)", StepName("decode", 0, 0, 32)),
    ("execute_3_context_2(sq512sk512sqsq9sqsk9)_generation_1(sq1sk9sqsq1sqsk9)", StepName("mixed", 2, 512, 1)),
    ("execute_context_0(0)_generation_0(0)", StepName("", 0, 0, 0)),
    ("step[DECODE bs=32]", StepName("decode", 0, 0, 32)),
    ("step[EXTEND bs=2 toks=4096 c_sqsq=80 c_sk=20]", StepName("prefill", 2, 4096, 0)),
    ("step[VERIFY bs=4]", StepName("decode", 0, 0, 4)),
    ("step[MIXED bs=2]", StepName("mixed")),
    ("prefill[bs=2 tok=16384]", StepName("prefill", 2, 16384, 0)),
    ("decode[bs=7]", StepName("decode", 0, 0, 7)),
    ("[Executor] _forward_step 12: 1 ctx reqs, 900 ctx tokens, 32 gen reqs", StepName("mixed", 1, 900, 32)),
    ("[Executor] _forward_step 2: 0 ctx reqs, 32 gen reqs", StepName("decode", 0, None, 32)),
    ("ProfilerStep#41", StepName()),
    ("anything else", StepName()),
])
def test_a_name_tells_phase_requests_and_tokens(name: str, told: StepName) -> None:
    assert parse(name) == told


@pytest.mark.parametrize(("name", "engine"), [
    ("execute_context_4(24)_generation_0(0)", True),
    ("step[DECODE bs=32]", True),
    ("step[DRAFT_EXTEND bs=32]", False),   # a part of a speculative step
    ("step[IDLE bs=0]", False),            # nothing ran
    ("[Executor] _forward_step 2: 0 ctx reqs, 32 gen reqs", True),
    ("ProfilerStep#3", False),
    ("execute_model", False),
])
def test_marks_of_engines_are_known(name: str, engine: bool) -> None:
    assert is_engine_step(name) is engine


def test_the_profilers_own_mark_is_known() -> None:
    assert is_profiler_step("ProfilerStep#12")
    assert is_profiler_step("ProfilerStep*")
    assert not is_profiler_step("my ProfilerStep#12")


@pytest.mark.parametrize(("name", "speaks"), [
    ("train_step 12", True), ("iteration 3", True), ("Iter#7", True), ("step", True), ("[pl]run_training_batch", True),
    ("Optimizer.step#Adam.step", False), ("stepping stone", False), ("## forward ##", False),
])
def test_other_programs_marks_speak_of_steps(name: str, speaks: bool) -> None:
    assert speaks_of_steps(name) is speaks


def test_a_step_function_is_told_from_its_frame() -> None:
    assert is_step_function("vllm/v1/worker/gpu_model_runner.py(3939): execute_model")
    assert is_step_function("sglang/srt/managers/scheduler.py(1): run_batch")
    assert not is_step_function("torch/optim/adam.py(3): step")


def test_the_template_of_a_name_is_the_same_for_all_steps_of_a_kind() -> None:
    assert template("step 12 of 40") == template("step 3 of 41") == "step # of #"

"""Where steps begin and end, by every kind of mark."""

from __future__ import annotations

import dataclasses

import pytest

from builders import Rows
from xpu_triage.steps.results import Steps
from xpu_triage.steps.step_time import find_steps

MS = 1_000_000


def bounds(steps: Steps) -> list[tuple[float, float]]:
    return [(step.start / MS, step.end / MS) for step in steps.steps]


def decode_steps(mark: str, count: int = 4, step: float = 1000, thread: str = "main", rows: Rows | None = None) -> Rows:
    """`count` steps of 800 µs every `step` µs, each launching one kernel that ends 50 µs after its step's mark."""
    rows = rows or Rows()
    for i in range(count):
        at = i * step
        rows.annotation(mark.replace("{i}", str(i)), at, 800, thread)
        rows.launch(at + 10, "gemm", at + 300, 550, thread=thread, stream=thread)
    return rows


@pytest.mark.parametrize("mark", [
    "ProfilerStep#{i}", "execute_context_0(0)_generation_4(4)", "step[DECODE bs=4]", "decode[bs=4]",
    "[Executor] _forward_step {i}: 0 ctx reqs, 0 ctx tokens, 4 gen reqs", "my train_step {i}"])
def test_a_step_runs_to_the_next_start_and_the_last_to_the_end_of_its_device_work(mark: str) -> None:
    steps = find_steps(decode_steps(mark).trace())
    assert steps.method == "annotation"
    assert bounds(steps) == [(0, 1), (1, 2), (2, 3), (3, 3.85)]


def test_the_last_step_ends_with_its_mark_where_its_device_work_ends_earlier() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#1", 0, 900)
    rows.launch(10, "gemm", 20, 30)
    rows.launch(950, "of no step", 960, 500)
    assert bounds(find_steps(rows.trace())) == [(0, 0.9)]


def test_names_tell_phase_and_batch_of_each_step() -> None:
    rows = Rows()
    rows.annotation("execute_context_2(512)_generation_0(0)", 0, 80)
    rows.annotation("execute_context_0(0)_generation_2(2)", 100, 20)
    steps = find_steps(rows.trace()).steps
    assert [(s.phase, s.prefill_requests, s.prefill_tokens, s.decode_requests) for s in steps] == [
        ("prefill", 2, 512, 0), ("decode", 0, 0, 2)]


def test_a_step_nested_in_another_counts_once() -> None:
    rows = Rows()
    for i in range(3):
        rows.annotation("execute_32_context_0(sq0)_generation_32(sq32)", 100 * i, 90)
        rows.annotation("step[DECODE bs=32]", 100 * i + 5, 80)
    steps = find_steps(rows.trace())
    assert [s.name for s in steps.steps] == ["execute_32_context_0(sq0)_generation_32(sq32)"] * 3


def test_a_profiler_step_takes_its_phase_from_the_engine_step_in_it() -> None:
    rows = Rows()
    for i, name in enumerate(("step[EXTEND bs=1 toks=9]", "step[DECODE bs=1]", "step[DECODE bs=1]")):
        rows.annotation(f"ProfilerStep#{i}", 100 * i, 100)
        rows.annotation(name, 100 * i + 5, 80)
    steps = find_steps(rows.trace())
    assert steps.detail == "ProfilerStep##"
    assert [s.phase for s in steps.steps] == ["prefill", "decode", "decode"]


def test_a_profiler_step_around_many_engine_steps_is_the_capture_and_not_a_step() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 500)
    for i in range(4):
        rows.annotation("step[DECODE bs=1]", 100 * i + 5, 80)
    assert len(find_steps(rows.trace()).steps) == 4


def test_a_step_drawn_on_two_threads_counts_once() -> None:
    rows = decode_steps("ProfilerStep#{i}")
    for i in range(4):
        rows.annotation(f"ProfilerStep#{i}", 1000 * i + 3, 790, thread="autograd")
    steps = find_steps(rows.trace())
    assert bounds(steps) == [(0, 1), (1, 2), (2, 3), (3, 3.85)]
    assert not any("threads" in note for note in steps.notes)


def test_of_two_engines_in_one_trace_the_one_that_feeds_the_device_most_gives_the_steps() -> None:
    rows = decode_steps("execute_context_0(0)_generation_4(4)", thread="engine 1")
    for i in range(7):
        rows.annotation("execute_context_0(0)_generation_8(8)", 100 + 500 * i, 400, thread="engine 2")
        rows.launch(110 + 500 * i, "small", 120 + 500 * i, 9, thread="engine 2", stream="engine 2")
    steps = find_steps(rows.trace())
    assert [s.decode_requests for s in steps.steps] == [4, 4, 4, 4]
    assert any("2 threads" in note and "engine 1" in note for note in steps.notes)


def test_steps_that_hop_from_thread_to_thread_are_one_series() -> None:
    rows = Rows()
    for i in range(4):
        rows.annotation("step[DECODE bs=1]", 100 * i, 80, thread=f"worker {i % 2}")
    assert len(find_steps(rows.trace()).steps) == 4


def test_an_optimizers_step_is_no_step() -> None:
    rows = Rows()
    for i in range(4):
        rows.annotation("Optimizer.step#Adam.step", 100 * i, 30)
    assert find_steps(rows.trace()).method != "annotation"


def layered(count: int, extra: bool = True) -> Rows:
    """`count` periods of 1 ms without any mark: embedding, three layers of two kernels, head. Launched by operators."""
    rows = Rows()
    for i in range(count):
        at = i * 1000.0
        names = ["embed"] + ["attention", "mlp"] * 3 + ["head"]
        for j, name in enumerate(names):
            rows.op(f"op {name}", at + 100 * j, 20)
            rows.launch(at + 100 * j + 5, name, at + 100 * j + 30, 50)
    return rows


def test_without_marks_the_rarest_names_that_recur_evenly_mark_the_steps_and_not_the_layers() -> None:
    rows = layered(6)
    for i in range(6):
        rows.launch(1000 * i + 950, "sample", 1000 * i + 960, 20)
    steps = find_steps(rows.trace())
    assert steps.method == "anchor"
    assert len(steps.steps) == 5                                   # six marks, five whole periods
    assert {step.wall for step in steps.steps} == {1 * MS}


def test_layers_are_no_steps_where_what_runs_once_a_step_never_recurs() -> None:
    rows = Rows()
    for i in range(6):
        for j, name in enumerate([f"embed {i}", *["norm", "attention", "mlp"] * 3, f"head {i}", f"sample {i}"]):
            rows.launch(1000 * i + 80 * j, name, 1000 * i + 80 * j + 10, 50)
    assert find_steps(rows.trace()).method == "window"


def forward(inside: str = "", graph: bool = False, ops: bool = False, read: bool = False, first: str = "embed",
            last: str = "", spans: bool = False) -> Rows:
    """One forward pass of 40 equal layers of 13 kernels, after one kernel of its own: layers recur evenly too. `last`:
    one more kernel in each of them. `spans`: each in an annotation."""
    rows = Rows()
    if inside.startswith("nn.Module"):
        rows.python(inside, 0, 41_000)
    elif inside:
        rows.op(inside, 0, 41_000)
    rows.launch(5, first, 15, 40)
    replay = rows.call("cudaGraphLaunch", 60, 30) if graph else None
    for layer in range(40):
        for k in range(13):
            at = 110 + 1000.0 * layer + 60 * k
            if ops:
                rows.op(f"aten::op{k}", at, 30)
            if replay is not None:
                rows.kernel(f"k{k}", at + 10, 40, replay)
            else:
                rows.launch(at + 3, f"k{k}", at + 10, 40)
        if spans:
            rows.annotation("block", 105 + 1000.0 * layer, 980)
        if last:
            rows.launch(892 + 1000.0 * layer, last, 895 + 1000.0 * layer, 20)
        if read:
            rows.down(900 + 1000.0 * layer, 930 + 1000.0 * layer, 2, call_dur=40)
    return rows


@pytest.mark.parametrize("how", [
    {"inside": "nn.Module: LlamaModel_0"}, {"inside": "nn.Module: LlamaModel_0", "read": True},
    {"inside": "## Call CompiledFxGraph f3a ##"}, {"inside": "vllm::unified_forward"}, {"graph": True}, {"ops": True},
    {}, {"read": True}, {"read": True, "ops": True}, {"read": True, "first": "indexSelectSmallIndex<float>"},
    {"read": True, "last": "reduce_kernel<ArgMaxOps>"}, {"read": True, "spans": True},
], ids=str)
def test_layers_of_one_forward_pass_are_no_steps(how: dict[str, object]) -> None:
    assert find_steps(forward(**how).trace()).method == "window"


def test_a_period_that_ends_in_the_choice_of_a_token_and_its_read_may_have_names_of_its_own_before_it() -> None:
    steps = find_steps(forward(read=True, first="fill", last="reduce_kernel<ArgMaxOps>").trace())
    assert (steps.method, len(steps.steps)) == ("anchor", 39)


def test_periods_that_may_be_steps_or_layers_are_neither_and_that_is_said() -> None:
    steps = find_steps(forward(read=True, first="fill").trace())
    assert steps.method == "window"
    assert "k0 comes round 40 times, every 1.00 ms" in steps.notes[0]
    assert "steps, or layers" in steps.notes[0]


def one_after_another(periods: int, layers: int, names: tuple[str, ...] = ()) -> Rows:
    """Periods of `layers` equal layers of three kernels, then `names` and a read-back; nothing before or behind."""
    rows, at = Rows(), 0.0
    for _ in range(periods):
        for name in [*["qkv", "attention", "mlp"] * layers, *names]:
            rows.launch(at, name, at + 10, 50)
            at += 60
        rows.down(at, at + 5, 2, call_dur=20)
        at += 100
    return rows


def test_layers_out_of_the_middle_of_one_pass_are_no_steps_though_no_name_comes_more_seldom() -> None:
    steps = find_steps(one_after_another(periods=30, layers=1).trace())
    assert steps.method == "window"
    assert "qkv comes round 30 times, every 0.28 ms" in steps.notes[0]
    assert "steps, or layers" in steps.notes[0]


def test_a_period_that_could_hold_its_layers_or_chooses_a_token_is_a_step() -> None:
    assert find_steps(one_after_another(30, layers=8, names=("fill",)).trace()).method == "window"    # one mark alone
    three = ("fill", "norm", "head")
    assert find_steps(one_after_another(30, layers=8, names=three).trace()).method == "anchor"
    assert find_steps(one_after_another(30, layers=7, names=three).trace()).method == "window"
    assert find_steps(one_after_another(30, layers=1, names=("ArgMaxOps",)).trace()).method == "anchor"


def test_steps_that_a_table_lists_run_from_ones_first_device_work_to_that_of_the_next() -> None:
    rows = layered(4)
    listed = tuple((f"ProfilerStep#{10 + i}", (1000 * i + 30) * 1000, (1000 * i + 780) * 1000) for i in range(4))
    steps = find_steps(rows.trace(steps=listed))
    assert (steps.method, len(steps.steps)) == ("annotation", 4)
    assert bounds(steps) == [(0.03, 1.03), (1.03, 2.03), (2.03, 3.03), (3.03, 3.78)]
    assert "the table gives its rows" in steps.notes[0]
    assert find_steps(rows.trace(steps=listed[:1])).method != "annotation"       # one may hold several


def test_steps_that_each_call_the_model_are_not_in_one_call() -> None:
    rows = layered(6)
    for i in range(6):
        rows.python("nn.Module: LlamaForCausalLM_0", 1000 * i, 930)
        rows.launch(1000 * i + 950, "sample", 1000 * i + 960, 20)
    rows.python("generate.py(1): generate", 0, 6_000)
    assert len(find_steps(rows.trace()).steps) == 5


def test_a_graph_replay_a_step_is_an_anchor() -> None:
    rows = Rows()
    for i in range(5):
        call = rows.call("cudaGraphLaunch", 1000 * i, 50)
        for j in range(40):
            rows.kernel(f"k{j % 8}", 1000 * i + 60 + 20 * j, 15, call)
    steps = find_steps(rows.trace())
    assert (steps.method, steps.detail) == ("anchor", "anchor: cudaGraphLaunch × 5")
    assert {step.wall for step in steps.steps} == {1 * MS}


def test_calls_of_an_engines_step_function_mark_steps_even_where_they_are_uneven() -> None:
    rows = Rows()
    for at, dur in ((0, 900), (1000, 90), (1100, 700), (1900, 400)):
        rows.python("vllm/v1/worker/gpu_worker.py(1): execute_model", at, dur)
        rows.python("vllm/v1/worker/gpu_model_runner.py(9): execute_model", at + 1, dur - 2)
    steps = find_steps(rows.trace())
    assert steps.detail == "anchor: vllm/v1/worker/gpu_worker.py(1): execute_model × 4"
    assert bounds(steps) == [(0, 1), (1, 1.1), (1.1, 1.9)]


def test_without_any_mark_the_whole_capture_is_one_window_and_that_is_said() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 500)
    rows.launch(600, "softmax", 610, 90)
    steps = find_steps(rows.trace())
    assert (steps.method, bounds(steps)) == ("window", [(0, 0.7)])
    assert "no figure is a step time" in steps.notes[0]


def test_uneven_recurrence_is_no_anchor() -> None:
    rows = Rows()
    for at in (0, 10, 30, 500, 520, 4000):
        for name in ("a", "b", "c"):
            rows.launch(at, name, at + 5, 1)
    assert find_steps(rows.trace()).method == "window"


def test_one_step_in_a_long_capture_is_said_to_leave_most_out() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 5000)
    rows.annotation("execute_context_0(0)_generation_4(4)", 9000, 400)
    rows.launch(9010, "gemm", 9020, 200)
    notes = " ".join(find_steps(rows.trace()).notes)
    assert "1 step was found, over 0.4 ms of a capture of 9.4 ms" in notes
    assert "96% of the recorded device time lies outside" in notes  # 5000 of 5200 µs


def test_a_host_that_runs_ahead_is_said_to_make_single_steps_times_of_launching() -> None:
    rows = Rows()
    for i in range(4):
        rows.annotation(f"ProfilerStep#{i}", 100 * i, 90)
        rows.launch(100 * i + 5, "gemm", 1000 * i + 500, 1000)
    assert any("runs ahead" in note for note in find_steps(rows.trace()).notes)
    assert not any("runs ahead" in note for note in find_steps(decode_steps("ProfilerStep#{i}").trace()).notes)


def test_a_first_step_far_above_the_others_is_set_apart_in_words() -> None:
    rows = Rows()
    for i, at in enumerate((0, 5_000, 6_000, 7_000)):
        rows.annotation(f"ProfilerStep#{i}", at, 5_000 if not i else 1_000)
    assert any("the first step takes 5.0 ms, the others 1.0 ms" in note for note in find_steps(rows.trace()).notes)


def test_removing_the_marks_keeps_the_period() -> None:
    rows = layered(6)
    for i in range(6):
        rows.annotation(f"ProfilerStep#{i}", 1000 * i, 990)
        rows.launch(1000 * i + 950, "sample", 1000 * i + 960, 20)
    trace = rows.trace()
    blank = tuple("note" if name.startswith("ProfilerStep") else name for name in trace.names)
    marked, unmarked = find_steps(trace), find_steps(dataclasses.replace(trace, names=blank))
    assert (marked.method, unmarked.method) == ("annotation", "anchor")
    assert unmarked.window / len(unmarked.steps) == pytest.approx(marked.window / len(marked.steps), rel=0.01)

"""Step 3 from stacks: the right thread, the operator that is proved and no other, no more than so many looks allow."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage import fingerprints
from xpu_triage.evidence import pyspy
from xpu_triage.evidence.stack_frames import parse_frame
from xpu_triage.samples import Frame, Stack, Stacks
from xpu_triage.signals import Signal, Signals
from xpu_triage.telemetry import stack_threads
from xpu_triage.telemetry.measured import Measured
from xpu_triage.telemetry.stack_looks import Doing, Look, look
from xpu_triage.telemetry.stack_names import operator_of
from xpu_triage.telemetry.stacks import Row, folded, interval, measure, profile
from xpu_triage.verdict import Level, judge

STEP = """\
execute_model (vllm/v1/worker/gpu_model_runner.py:4022)
worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1)"""
QUEUE = """\
sched_yield (vllm/distributed/utils.py:46)
SpinCondition.wait (vllm/distributed/device_communicators/shm_broadcast.py:208)
MessageQueue.acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:864)
_GeneratorContextManager.__enter__ (contextlib.py:137)
MessageQueue.dequeue (vllm/distributed/device_communicators/shm_broadcast.py:971)
"""
IDLE_WORKER = QUEUE + "WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1030)"
WAITING_CORE = QUEUE + """\
MultiprocExecutor.collective_rpc.<locals>.get_response (vllm/v1/executor/multiproc_executor.py:440)
EngineCore.step (vllm/v1/engine/core.py:674)
EngineCoreProc.run_busy_loop (vllm/v1/engine/core.py:1555)"""
ON_CPU = """\
0x7f10 (libm.so.6)
at::TensorIteratorBase::serial_for_each (libtorch_cpu.so)
at::native::templates::cpu::(anonymous namespace)::exponential_kernel<at::CPUGeneratorImpl*> (libtorch_cpu.so)
at::native::(anonymous namespace)::exponential_kernel (libtorch_cpu.so)
at::native::exponential_ (libtorch_cpu.so)
"""
METHOD = """\
at::_ops::exponential_::call (libtorch_cpu.so)
torch::autograd::THPVariable_exponential_ (libtorch_python.so)
random_sample (vllm/v1/sample/ops/topk_topp_sampler.py:88)
"""
FALLS_BACK = f"""\
{ON_CPU}c10::OperatorHandle::callBoxed (libtorch_cpu.so)
at::native::cpu_fallback (libtorch_cpu.so)
at_npu::native::npu_cpu_fallback (libtorch_npu.so)
{METHOD}{STEP}"""
LAUNCHES = f"""\
cudaLaunchKernel (libcudart.so.12)
at::(anonymous namespace)::wrapper_CUDA_mm (libtorch_cuda.so)
at::_ops::mm::call (libtorch_cpu.so)
RowParallelLinear.forward (vllm/model_executor/layers/linear.py:1778)
{STEP}"""
READS_BACK = f"""\
cuStreamSynchronize (libcuda.so.1)
at::native::_local_scalar_dense_cuda (libtorch_cuda.so)
at::_ops::_local_scalar_dense::call (libtorch_cpu.so)
torch::autograd::THPVariable_item (libtorch_python.so)
apply_penalties (vllm/v1/sample/ops/penalties.py:31)
{STEP}"""
TOKENS = f"""\
synchronize (torch/cuda/streams.py:231)
_to_list (vllm/v1/worker/gpu_model_runner.py:5100)
{STEP}"""
TOKENIZES = """\
_encode_plus (transformers/tokenization_utils_fast.py:553)
tokenize (vllm/entrypoints/openai/serving_engine.py:88)
run (asyncio/events.py:84)
run_forever (asyncio/base_events.py:641)"""


def frames(text: str) -> tuple[Frame, ...]:
    found = [parse_frame(line) for line in text.splitlines()]
    assert all(found)
    return tuple(frame for frame in found if frame)


def stack(text: str, *, process: str = "7 VLLM::Worker", thread: str = "MainThread", active: bool | None = True,
          samples: int = 1) -> Stack:
    return Stack(process, thread, active, None, frames(text), samples)


def dumps(*stacks: Stack) -> list[Stacks]:
    """Each stack a dump of its own."""
    return [Stacks(f"dump-{at}.txt", "py-spy dump", (one,)) for at, one in enumerate(stacks)]


def recording(*stacks: Stack) -> list[Stacks]:
    return [Stacks("record.raw", "py-spy record (raw)", stacks)]


def values(measured: Measured) -> dict[str, object]:
    return {signal.name: signal.value for signal in measured.signals}


def window(measured: Measured, name: str) -> str:
    return next(signal.window for signal in measured.signals if signal.name == name)


# ---- shares


@pytest.mark.parametrize(("seen", "of", "low", "high"), [
    # by hand: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) ÷ (1 + z²/n), z = 1.96
    (4, 5, 0.3755, 0.9638), (0, 5, 0.0, 0.4345), (5, 5, 0.5655, 1.0), (1, 1, 0.2065, 1.0), (50, 100, 0.4038, 0.5962)])
def test_an_interval_is_wilsons(seen: int, of: int, low: float, high: float) -> None:
    assert interval(seen, of) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10 ** 6).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_an_interval_holds_its_share_and_stays_inside_0_and_1(case: tuple[int, int]) -> None:
    seen, of = case
    low, high = interval(seen, of)
    assert 0 <= low <= seen / of + 1e-12
    assert seen / of - 1e-12 <= high <= 1


def test_from_three_agreeing_looks_on_the_lower_end_is_a_third_of_the_share() -> None:
    for of in range(5, 2000):
        assert interval(3, of)[0] >= 3 / of / 3
    assert interval(2, 2000)[0] < 2 / 2000 / 3


def test_one_dump_is_an_observation_without_a_share() -> None:
    measured = measure(dumps(stack(f"_apply (penaltylib/min_new_tokens.py:78)\n{STEP}")))
    assert values(measured) == {"host.top_op": "_apply (penaltylib/min_new_tokens.py)"}
    assert window(measured, "host.top_op") == "1 of 1 dump: MainThread of 7 VLLM::Worker"
    assert "5 looks" in measured.unknown["host.top_op_fraction"]


def test_five_dumps_give_a_share_with_its_interval() -> None:
    work = stack(f"_apply (penalties.py:78)\n{STEP}")
    measured = measure(dumps(work, work, stack(f"other (a.py:1)\n{STEP}"), work, work))
    assert values(measured) == {"host.top_op": "_apply (penalties.py)", "host.top_op_fraction": 0.8}
    assert window(measured, "host.top_op_fraction") == "4 of 5 dumps, 38–96 %: MainThread of 7 VLLM::Worker"
    assert {signal.how for signal in measured.signals} == {"stacks"}
    assert {signal.source for signal in measured.signals} == {"dump-0.txt and 4 more"}


def test_two_of_five_are_named_and_not_measured() -> None:
    looks = [stack(f"{name} (a.py:1)\n{STEP}") for name in ("f", "f", "g", "h", "i")]
    measured = measure(dumps(*looks))
    assert values(measured) == {"host.top_op": "f (a.py)"}
    assert measured.unknown["host.top_op_fraction"].startswith("2 of 5 dumps, 12–77 %")


def test_where_two_places_are_seen_equally_often_none_is_the_top() -> None:
    measured = measure(dumps(*[stack(f"{name} (a.py:1)\n{STEP}") for name in ("f", "g")]))
    assert "host.top_op" not in values(measured)
    assert "f (a.py), g (a.py)" in measured.unknown["host.top_op"]


def test_a_profile_of_times_gives_milliseconds_and_no_interval_and_looks_come_before_it() -> None:
    timed = Stacks("p.json", "speedscope (times)", (stack(f"f (a.py:1)\n{STEP}", samples=299),
                                                    stack(f"g (a.py:1)\n{STEP}", samples=101)))
    measured = measure([timed])
    assert window(measured, "host.top_op_fraction") == "299 of 400 ms: MainThread of 7 VLLM::Worker"
    both = measure([timed, *dumps(stack(f"g (a.py:1)\n{STEP}"))])
    assert values(both) == {"host.top_op": "g (a.py)"}
    assert any("left out" in note for note in both.notes)


# ---- which function


@pytest.mark.parametrize("wrapper", [
    "Module._call_impl (torch/nn/modules/module.py:1789)",
    "BasevLLMParameter.__torch_function__ (vllm/parameter.py:124)",
    "context_decorator.<locals>.decorate_context (torch/utils/_contextlib.py:124)",
    "OpOverloadPacket.__call__ (torch/_ops.py:1279)", "dispatch.<locals>.<lambda> (vllm/layers/utils.py:603)",
    "_GeneratorContextManager.__enter__ (contextlib.py:137)", "sync_wrapper (vllm/tracing/otel.py:178)",
    "_auto_dump_wrapper (flashinfer/api_logging.py:2333)", "_find_and_load (<frozen importlib._bootstrap>:1176)"])
def test_a_wrapper_passes_its_sample_to_its_caller(wrapper: str) -> None:
    seen = look(stack(f"{wrapper}\ncpu_gemm (vllm/layers/utils.py:617)\n{STEP}"))
    assert seen.name == "cpu_gemm (vllm/layers/utils.py)"


def test_lines_of_one_function_add_up_and_the_table_names_the_line_seen_most() -> None:
    looks = recording(stack(f"f (a.py:10)\n{STEP}", samples=3), stack(f"f (a.py:12)\n{STEP}", samples=5),
                      stack(f"g (a.py:2)\nf (a.py:30)\n{STEP}", samples=2))
    assert profile(looks)[0] == Row("f", "a.py", 12, "works", 8, 0.8, 10)
    assert values(measure(looks)) == {"host.top_op": "f (a.py)", "host.top_op_fraction": 0.8}


# ---- which thread


def test_the_worker_is_told_and_not_the_core_that_waits_for_it() -> None:
    core = stack(WAITING_CORE, process="1 VLLM::EngineCore")
    work = stack(f"rotary_embedding (vllm/_custom_ops.py:221)\n{STEP}")
    measured = measure(dumps(core, work, core, core))
    assert values(measured) == {"host.top_op": "rotary_embedding (vllm/_custom_ops.py)"}
    assert window(measured, "host.top_op").endswith("MainThread of 7 VLLM::Worker")


def test_a_core_alone_that_waits_says_which_process_to_dump() -> None:
    measured = measure(dumps(stack(WAITING_CORE, process="1 VLLM::EngineCore")))
    assert measured.signals == ()
    assert "never seen at work" in measured.unknown["host.top_op"]
    assert any("dump the process that does (a worker, a scheduler), if it is another" in note
               for note in measured.notes)


LAB_WAITS = """\
Condition.wait (threading.py:355)
ServingEngine._turn (xpu_triage/lab/serving.py:281)
ServingEngine._run (xpu_triage/lab/serving.py:240)"""
LAB_HELD = """\
InverseCdf.pick (xpu_triage/sampling/noise.py:60)
DecodeLoop.step (xpu_triage/lab/decoder.py:145)
ServingEngine._turn (xpu_triage/lab/serving.py:281)"""
MAIN_WAITS = """\
Event.wait (threading.py:629)
run (xpu_triage/lab_serve.py:50)"""


def test_the_thread_that_runs_the_model_leads_though_it_only_waits_in_most_dumps() -> None:
    looks = [stack(MAIN_WAITS, process="9", active=False) for _ in range(5)]
    looks += [stack(LAB_WAITS if at != 2 else LAB_HELD, process="9", thread="engine-loop", active=False)
              for at in range(5)]
    measured = measure(dumps(*looks))
    assert not [note for note in measured.notes if "MainThread" in note or "dump the process" in note]
    assert any(note.startswith("engine-loop of 9 waits for work or for another process in 4 of 5") for note in
               measured.notes)


def test_in_an_unknown_engine_tensors_tell_the_thread_before_the_name_of_the_main_one() -> None:
    held = "matmul (torch/_tensor.py:9)\nrun_it (fastapi/other.py:5)"
    waits = "Event.wait (threading.py:629)\nserve (fastapi/other.py:7)"
    threads = stack_threads.gathered(dumps(stack(held, process="9", thread="t-1", active=False),
                                           stack(waits, process="9", active=False)))
    lead = stack_threads.leading(threads)
    assert lead is not None
    assert (lead.thread, lead.model, lead.engaged) == ("t-1", False, 0)


def test_in_the_uniprocess_executor_the_core_is_the_one_that_runs_the_model() -> None:
    text = "f (a.py:1)\nexecute_model (gpu_worker.py:3)\nEngineCore.step (vllm/v1/engine/core.py:674)\n" \
           "EngineCoreProc.run_busy_loop (vllm/v1/engine/core.py:1555)"
    measured = measure(dumps(stack(text, process="1 VLLM::EngineCore")))
    assert values(measured) == {"host.top_op": "f (a.py)"}


def test_pollers_of_the_same_process_do_not_count() -> None:
    poller = stack("Condition.wait (threading.py:331)\nTMonitor.run (tqdm/_monitor.py:69)", thread="tqdm_monitor",
                   active=False, samples=900)
    measured = measure(recording(poller, stack(f"f (a.py:1)\n{STEP}", samples=10)))
    assert values(measured)["host.top_op_fraction"] == 1.0


def test_a_recording_without_thread_names_is_split_by_what_each_thread_started_with() -> None:
    poller = ("Condition.wait (threading.py:331)\nTMonitor.run (tqdm/_monitor.py:69)\n"
              "Thread._bootstrap (threading.py:1002)")
    looks = recording(stack(poller, process="", thread="", samples=90),
                      stack(f"f (a.py:1)\n{STEP}\n<module> (<string>:1)", process="", thread="", samples=10))
    measured = measure(looks)
    assert values(measured) == {"host.top_op": "f (a.py)", "host.top_op_fraction": 1.0}
    assert window(measured, "host.top_op").endswith("main thread")


def test_a_worker_without_work_beside_a_front_end_at_work_leads_to_the_front_end() -> None:
    idle, front = stack(IDLE_WORKER), stack(TOKENIZES, process="3 api_server")
    measured = measure(dumps(*[idle] * 5, *[front] * 5))
    assert values(measured) == {"host.top_op": "_encode_plus (transformers/tokenization_utils_fast.py)",
                                "host.top_op_fraction": 1.0}
    assert any("VLLM::Worker, which runs the model, waits for work in 5 of 5" in note for note in measured.notes)


def test_a_worker_that_only_waits_has_no_top_operator() -> None:
    measured = measure(dumps(*[stack(IDLE_WORKER)] * 5))
    assert measured.signals == ()
    assert any("waits for work or for another process in 5 of 5 dumps, 57–100 %: the time is lost elsewhere" in note
               for note in measured.notes)


def test_of_several_ranks_the_one_with_most_work_is_told() -> None:
    busy = [stack(f"f (a.py:1)\n{STEP}", process="8 VLLM::Worker_TP1")] * 3
    measured = measure(dumps(*busy, stack(IDLE_WORKER), stack(IDLE_WORKER), stack(f"g (a.py:2)\n{STEP}")))
    assert values(measured)["host.top_op"] == "f (a.py)"
    assert any(note.startswith("2 processes run the model; MainThread of 8 VLLM::Worker_TP1")
               for note in measured.notes)


def test_a_title_that_only_one_dump_gives_does_not_split_the_process() -> None:
    one, other = stack(f"f (a.py:1)\n{STEP}"), stack(f"f (a.py:1)\n{STEP}", process="7")
    assert window(measure(dumps(one, other)), "host.top_op").startswith("2 of 2 dumps")


def test_start_up_is_no_step() -> None:
    start = stack("top_k (flashinfer/sampling.py:1548)\ncompile_or_warm_up_model (gpu_worker.py:866)")
    alone = measure(dumps(start))
    assert values(alone) == {"host.top_op": "top_k (flashinfer/sampling.py)"}
    assert window(alone, "host.top_op").endswith("starting up")
    both = measure(dumps(start, start, stack(f"f (a.py:1)\n{STEP}")))
    assert values(both) == {"host.top_op": "f (a.py)"}
    assert any("from start-up or capture: left out" in note for note in both.notes)


def test_compiling_inside_a_step_is_said() -> None:
    text = f"compile_fx (torch/_inductor/compile_fx.py:9)\nforward (models/llama.py:3)\n{STEP}"
    assert any("compiles or tunes" in note for note in measure(dumps(stack(text))).notes)


# ---- whose process


CLIENT = """\
encode (transformers/tokenization_utils_base.py:2600)
sample_sharegpt_requests (benchmark_serving.py:100)
main (benchmark_serving.py:800)"""
TRAINS = """\
at::native::exponential_kernel (libtorch_cpu.so)
at::_ops::exponential_::call (libtorch_cpu.so)
sample (train.py:44)
Module._call_impl (torch/nn/modules/module.py:1789)
<module> (train.py:88)"""
ENGINES_OWN_BENCHMARK = """\
encode (vllm/transformers_utils/tokenizer.py:80)
sample (vllm/benchmarks/datasets.py:300)
main (vllm/benchmarks/serve.py:900)"""
HOME_MADE = """\
sample (transformers/generation/utils.py:2700)
generate (app.py:31)
run_endpoint_function (fastapi/routing.py:212)"""


@pytest.mark.parametrize(("text", "process"), [
    (CLIENT, "99 benchmark_serving.py"), (TRAINS, "7 train.py"), (ENGINES_OWN_BENCHMARK, "9 vllm"),
    ("f (a.py:1)", "7 main.py"), ("f (a.py:1)", "")])
def test_a_process_that_shows_no_engine_has_no_top_operator_and_it_is_said(text: str, process: str) -> None:
    measured = measure(dumps(*[stack(text, process=process)] * 8))
    assert measured.signals == ()
    named = process or "a process without a name"
    assert measured.unknown["host.top_op"].startswith(f"{named}: neither title nor frames show an inference service")
    assert profile(dumps(*[stack(text, process=process)] * 8)) == []


def test_a_busy_stranger_beside_a_worker_does_not_lead() -> None:
    measured = measure(dumps(*[stack(CLIENT, process="99 benchmark_serving.py")] * 8, *[stack(IDLE_WORKER)] * 5))
    assert "host.top_op" not in values(measured)
    assert any(note.startswith("left out: 99 benchmark_serving.py") for note in measured.notes)


@pytest.mark.parametrize(("text", "process"), [
    ("f (a.py:1)", "7 VLLM::Worker"), ("f (a.py:1)", "7 vllm.entrypoints.openai.api_server"),
    (f"f (a.py:1)\n{STEP}", ""), (HOME_MADE, "7 app.py"), (f"f (a.py:1)\n{STEP}", "7 train_rl.py")])
def test_a_title_or_a_frame_of_an_engine_or_a_server_is_enough(text: str, process: str) -> None:
    assert "host.top_op" in values(measure(dumps(*[stack(text, process=process)] * 5)))


# ---- waits without native frames


@pytest.mark.parametrize("wait", ["_to_list (vllm/v1/worker/gpu_model_runner.py:2500)",
                                  "AsyncOutput.get_output (vllm/v1/worker/gpu_model_runner.py:200)",
                                  "resolve_last_batch_result (sglang/srt/managers/tp_worker_overlap_thread.py:220)"])
def test_a_stack_that_ends_in_the_wait_for_the_tokens_waits(wait: str) -> None:
    measured = measure(dumps(*[stack(f"{wait}\n{STEP}")] * 8))
    assert values(measured) == {}
    assert "never seen at work: waits for the device" in measured.unknown["host.top_op"]
    assert any("every step ends so" in note for note in measured.notes)


def test_with_native_frames_the_same_function_may_be_at_work() -> None:
    text = f"PyList_New (libpython3.12.so)\n_to_list (vllm/v1/worker/gpu_model_runner.py:2500)\n{STEP}"
    assert values(measure(dumps(*[stack(text)] * 5)))["host.top_op"] == "_to_list (vllm/v1/worker/gpu_model_runner.py)"


def test_what_prepares_with_the_framework_is_named_by_the_engine_s_function() -> None:
    text = ("at::native::(anonymous namespace)::cpu_index_kernel (libtorch_cpu.so)\n"
            "at::_ops::index_Tensor::call (libtorch_cpu.so)\n__getitem__ (torch/_tensor.py:100)\n"
            f"_prepare_inputs (vllm/v1/worker/gpu_model_runner.py:900)\n{STEP}")
    measured = measure(dumps(*[stack(text)] * 5))
    assert values(measured) == {"host.top_op": "_prepare_inputs (vllm/v1/worker/gpu_model_runner.py)",
                                "host.top_op_fraction": 1.0}


# ---- many stacks


def test_equal_stacks_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 dumps of three different stacks in two threads: three are read."""
    read: list[Stack] = []

    def counted(one: Stack) -> Look:
        read.append(one)
        return look(one)

    monkeypatch.setattr(stack_threads, "look", counted)
    kinds = [f"f{at} (a.py:1)\n{STEP}" for at in range(3)]
    looks = [stack(kinds[(0, 0, 1, 2, 1, 0, 0, 2, 1, 0)[at % 10]], thread=f"T{at % 2}") for at in range(1000)]
    measured = measure([Stacks("d", "py-spy dump", tuple(looks))])
    assert len(read) == 3
    # T0 has every other one, 0 1 1 0 1: f1 in three of five; T1 has 0 2 0 2 0: f0 in three of five
    assert values(measured) == {"host.top_op": "f1 (a.py)", "host.top_op_fraction": 0.6}


# ---- operators on a CPU


def test_a_fallback_that_native_frames_prove_is_named_and_measured() -> None:
    measured = measure(dumps(*[stack(FALLS_BACK)] * 4, stack(LAUNCHES)))
    assert values(measured) == {"host.top_op": "aten::exponential_", "host.top_op_fraction": 0.8,
                                "fallback.op": "aten::exponential_", "fallback.fraction": 0.8}
    assert window(measured, "fallback.fraction") == "4 of 5 dumps, 38–96 %: MainThread of 7 VLLM::Worker"


def test_a_cpu_kernel_of_a_model_on_a_device_is_one_too() -> None:
    measured = measure(dumps(*[stack(f"{ON_CPU}{METHOD}{STEP}")] * 4, stack(LAUNCHES)))
    assert values(measured)["fallback.op"] == "aten::exponential_"


def test_without_a_sign_of_a_device_an_operator_on_a_cpu_is_no_fallback() -> None:
    measured = measure(dumps(*[stack(f"{ON_CPU}{METHOD}{STEP}")] * 5))
    assert "fallback.op" not in values(measured)
    assert "nothing in these stacks tells that a device was meant" in measured.unknown["fallback.op"]
    assert values(measured)["host.top_op"] == "aten::exponential_"


def test_in_a_run_meant_for_the_cpu_nothing_fell_back_and_no_operator_is_named() -> None:
    cpu = f"{ON_CPU}{METHOD}CPUAttentionBackendImpl.forward (vllm/v1/attention/backends/cpu_attn.py:440)\n{STEP}"
    measured = measure(dumps(*[stack(cpu)] * 5))
    assert values(measured) == {"host.top_op": "random_sample (vllm/v1/sample/ops/topk_topp_sampler.py)",
                                "host.top_op_fraction": 1.0}
    assert "meant for the CPU" in measured.unknown["fallback.op"]


def test_python_frames_alone_prove_no_fallback_and_no_absence_of_one() -> None:
    measured = measure(dumps(*[stack(f"random_sample (vllm/v1/sample/ops/topk_topp_sampler.py:88)\n{STEP}")] * 9))
    assert not {"fallback.op", "fallback.fraction"} & set(values(measured))
    assert "--native" in measured.unknown["fallback.op"]


def test_native_frames_without_one_are_no_proof_of_absence() -> None:
    measured = measure(dumps(*[stack(LAUNCHES)] * 9))
    assert not {"fallback.op", "fallback.fraction"} & set(values(measured))
    assert "no operator was seen on a CPU" in measured.unknown["fallback.op"]


def test_looks_without_native_frames_do_not_dilute_the_share() -> None:
    plain = stack(f"f (a.py:1)\n{STEP}")
    measured = measure(dumps(*[stack(FALLS_BACK)] * 4, stack(LAUNCHES), *[plain] * 5))
    assert values(measured)["fallback.fraction"] == 0.8


@pytest.mark.parametrize("function", ["_prepare_inputs", "GPUModelRunner._update_states", "collate_fn", "schedule"])
def test_host_tensors_of_the_inputs_belong_on_the_host(function: str) -> None:
    seen = look(stack(f"{ON_CPU}{METHOD}{function} (vllm/v1/worker/gpu_model_runner.py:2144)\n{STEP}"))
    assert seen.doing is Doing.WORK
    assert "aten::" not in seen.name


def test_a_copy_on_the_host_computes_nothing() -> None:
    copy = ON_CPU.replace("exponential_", "copy_") + METHOD.replace("exponential_", "copy_")
    assert look(stack(f"{copy}{STEP}")).doing is Doing.WORK


@pytest.mark.parametrize(("native", "operator"), [
    ("at::_ops::exponential_::redispatch (l.so)\nat::_ops::exponential_::call (l.so)", "aten::exponential_"),
    ("x<&at::wrapper_CPU_Tensor_add(at::Tensor)>::call (l.so)\nat::_ops::add_Tensor::call (l.so)", "aten::add"),
    ("at::_ops::add__Tensor::call (l.so)\ntorch::autograd::THPVariable_add_ (l.so)", "aten::add_"),
    ("at::_ops::sum_dim_IntList::call (l.so)\nTHPVariable_sum (l.so)", "aten::sum"),
    ("at::_ops::_softmax::call (l.so)\nat::_ops::softmax_int::call (l.so)\nTHPVariable_softmax (l.so)",
     "aten::_softmax"),
    ("at::_ops::topk::call (l.so)", "aten::topk"), ("THPVariable_sort (l.so)", "aten::sort"),
    ("malloc (libc.so.6)", "")])
def test_an_operator_is_named_without_its_overload(native: str, operator: str) -> None:
    assert operator_of(frames(native)) == operator


# ---- waits for the device


def test_a_read_back_inside_the_step_is_a_site_and_no_cause() -> None:
    measured = measure(dumps(*[stack(READS_BACK)] * 4, stack(LAUNCHES)))
    assert values(measured)["sync.site"] == "aten::item in apply_penalties (vllm/v1/sample/ops/penalties.py:31)"
    assert values(measured)["host.top_op"] == "cudaLaunchKernel (libcudart.so.12)"
    assert "host.top_op_fraction" not in values(measured)
    assert any("a wait is not a cause" in note for note in measured.notes)


def test_the_wait_for_a_steps_tokens_is_said_and_is_no_site() -> None:
    measured = measure(dumps(*[stack(TOKENS)] * 4, stack(f"f (a.py:1)\n{STEP}")))
    assert values(measured) == {"host.top_op": "f (a.py)"}
    assert "ends each step" in measured.unknown["sync.site"]
    assert any("waits for the tokens of the step in 4 of 5 dumps" in note for note in measured.notes)


@pytest.mark.parametrize("call", ["cudaStreamSynchronize", "cudaMemcpy", "cuEventSynchronize", "hipMemcpy",
                                  "aclrtSynchronizeStreamWithTimeout", "cudaDeviceSynchronize", "cuMemcpyDtoH_v2"])
def test_blocking_calls_of_the_runtimes_hold_the_host(call: str) -> None:
    seen = look(stack(f"{call} (libcudart.so.12)\nf (a.py:1)\n{STEP}"))
    assert (seen.doing, seen.name) == (Doing.DEVICE, f"{call} in f (a.py:1)")


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventQuery", "hipMemcpyAsync"])
def test_calls_that_return_at_once_do_not(call: str) -> None:
    assert look(stack(f"{call} (libcudart.so.12)\nf (a.py:1)\n{STEP}")).doing is Doing.WORK


def test_a_function_of_ones_own_that_is_called_synchronize_is_work() -> None:
    assert look(stack(f"synchronize (myapp/state.py:3)\n{STEP}")).doing is Doing.WORK


def test_a_thread_asleep_in_the_step_is_not_at_work() -> None:
    measured = measure(dumps(*[stack(f"f (a.py:1)\n{STEP}", active=False)] * 5))
    assert measured.signals == ()
    assert any("asleep in 5 of 5 dumps" in note for note in measured.notes)


# ---- what the pages make of it


def judged(*looks: Stack, **typed: float) -> tuple[Level, str | None, dict[str, float]]:
    signals = Signals((*measure(dumps(*looks)).signals,
                       *(Signal(name.replace("__", "."), value, "typed") for name, value in typed.items())))
    verdict = judge(signals, fingerprints.load(), ())
    return verdict.level, verdict.id, {one.id: one.score for one in verdict.hypotheses}


def test_proved_fallback_frames_confirm_the_fallback() -> None:
    level, page, _ = judged(*[stack(FALLS_BACK)] * 9, stack(LAUNCHES))
    assert (level, page) == (Level.CONFIRMED, "cpu-fallback")


def test_a_python_frame_of_the_sampler_confirms_nothing() -> None:
    level, page, _ = judged(*[stack(f"random_sample (vllm/v1/sample/ops/topk_topp_sampler.py:88)\n{STEP}")] * 10)
    assert (level, page) == (Level.NOT_ENOUGH, None)


def test_an_operator_on_the_host_beside_an_idle_device_points_at_the_fallback() -> None:
    looks = [stack(f"{ON_CPU}{METHOD}{STEP}")] * 10
    *_, scores = judged(*looks, device__utilization_fraction=0.0, serving__running=256.0)
    assert max(scores, key=lambda page: scores[page]) == "cpu-fallback"


def test_tokenizing_speaks_for_the_tokenizer_and_not_for_the_engines_host_work() -> None:
    *_, scores = judged(*[stack(IDLE_WORKER)] * 5, *[stack(TOKENIZES, process="3 api_server")] * 5)
    assert scores["tokenizer-cpu"] == 1.5
    assert "host-bound" not in scores


def test_a_read_back_speaks_for_the_sync_and_a_steps_own_wait_does_not() -> None:
    *_, scores = judged(*[stack(READS_BACK)] * 5)
    assert scores["implicit-sync"] == 0.5
    *_, scores = judged(*[stack(TOKENS)] * 5)
    assert "implicit-sync" not in scores


def test_penalties_built_in_python_speak_for_the_hosts_work() -> None:
    *_, scores = judged(*[stack(f"_apply (penaltylib/min_new_tokens.py:78)\n{STEP}")] * 5)
    assert max(scores, key=lambda page: scores[page]) == "host-bound"


# ---- properties and hostile input

STEPS = st.sampled_from([FALLS_BACK, LAUNCHES, READS_BACK, TOKENS, IDLE_WORKER, WAITING_CORE, TOKENIZES,
                         f"f (a.py:1)\n{STEP}", "read (libc.so.6)"])
LOOKS = st.builds(stack, STEPS, process=st.sampled_from(["", "7", "7 VLLM::Worker", "8 VLLM::Worker_TP1"]),
                  thread=st.sampled_from(["", "MainThread", "12"]), active=st.sampled_from([True, False, None]),
                  samples=st.integers(1, 50))


@settings(max_examples=60, deadline=None)
@given(st.lists(LOOKS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_looks_does_not_matter(looks: list[Stack], rng: random.Random) -> None:
    mixed = looks.copy()
    rng.shuffle(mixed)
    assert measure(recording(*looks)) == measure(recording(*mixed))
    pieces = dumps(*looks)
    shuffled = pieces.copy()
    rng.shuffle(shuffled)
    assert measure(pieces) == measure(shuffled)
    assert profile(pieces) == profile(shuffled)


@settings(max_examples=60, deadline=None)
@given(st.lists(LOOKS, min_size=1, max_size=12))
def test_shares_and_counts_add_up(looks: list[Stack]) -> None:
    lines = folded(recording(*looks))
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == sum(one.samples for one in looks)
    rows = profile(recording(*looks))
    assert sum(row.share for row in rows) == pytest.approx(1 if rows else 0)
    assert all(row.samples <= row.total for row in rows)
    measured = values(measure(recording(*looks)))
    assert float(str(measured.get("fallback.fraction", 0))) <= 1


def test_folded_lines_are_read_back_as_they_were(tmp_path: Path) -> None:
    looks = recording(stack(FALLS_BACK, process="", thread="", samples=3), stack(f"f (a.py:1)\n{STEP}", process="",
                                                                                thread="", samples=2))
    path = tmp_path / "again.raw"
    path.write_text("\n".join(folded(looks)) + "\n")
    again = pyspy.read(path)
    assert [(one.frames, one.samples) for one in again.stacks] == [(one.frames, one.samples) for one in looks[0].stacks]


def test_nothing_is_measured_of_nothing() -> None:
    assert measure([]) == measure([Stacks("x", "py-spy dump", ())]) == Measured()
    assert (profile([]), folded([])) == ([], [])


def test_threads_without_python_say_so() -> None:
    measured = measure(dumps(stack("read (libc.so.6)", thread="1")))
    assert measured.unknown == {"host.top_op": "no thread of these stacks runs Python code"}


def test_names_made_of_pieces_of_the_patterns_are_read_as_work() -> None:
    hostile = Stack("7", "MainThread", True, None, tuple(
        Frame(text * 200, "a.py", 1)
        for text in ("a::", "<", "at::native::(anonymous namespace)::_", "wrapper_", "_a")))
    assert look(hostile).doing is Doing.WORK


# ---- recorded by others


def recorded(shared: Path, *names: str) -> list[Stacks]:
    return [pyspy.read(shared / "samples" / "pyspy" / name) for name in names]


WORKER = [f"vllm-0.32.0-cpu-worker-decode-{at}.txt" for at in range(1, 6)]


@pytest.mark.parametrize(("name", "top"), [
    ("sglang-12076-scheduler-penalty-op.txt", "_apply (penaltylib/min_new_tokens.py)"),
    ("vllm-17676-enginecore-flashinfer-sampler.txt", "top_k_top_p_sampling_from_logits (flashinfer/sampling.py)"),
    (WORKER[0], "cpu_unquantized_gemm (vllm/model_executor/layers/utils.py)"),
    (WORKER[1], "rotary_embedding (vllm/_custom_ops.py)"),
    (WORKER[2], "cpu_unquantized_gemm (vllm/model_executor/layers/utils.py)"),
    (WORKER[3], "_compute_slot_mapping_kernel_impl (vllm/utils/cpu_triton_utils.py)"),
    (WORKER[4], "cpu_attention_with_kv_cache (vllm/_custom_ops.py)"),
    ("vllm-0.32.0-cpu-worker-decode-native.txt", "rotary_embedding (vllm/_custom_ops.py)"),
    ("vllm-0.32.0-cpu-enginecore-decode.txt", None), ("vllm-0.32.0-cpu-enginecore-decode.json", None)])
def test_a_dump_of_others_names_this_function(shared: Path, name: str, top: str | None) -> None:
    assert values(measure(recorded(shared, name))) == ({"host.top_op": top} if top else {})


def test_five_dumps_and_a_recording_of_one_server_agree_within_their_intervals(shared: Path) -> None:
    five = measure(recorded(shared, *WORKER))
    record = measure(recorded(shared, "vllm-0.32.0-cpu-worker-record.raw.txt"))
    assert values(five)["host.top_op"] == values(record)["host.top_op"]
    # by hand: 452 samples, 53 of them of the two pollers; 45 + 45 + 37 + 47 + 10 + 1 in the matrix product
    assert values(record)["host.top_op_fraction"] == pytest.approx(185 / 399)
    low, high = interval(2, 5)
    assert low < 185 / 399 < high


def test_the_recordings_waits_are_in_the_table_and_not_at_its_top(shared: Path) -> None:
    rows = profile(recorded(shared, "vllm-0.32.0-cpu-worker-record.raw.txt"))
    assert (rows[0].function, rows[0].line, rows[0].samples) == ("cpu_unquantized_gemm", 617, 185)
    assert [row.samples for row in rows if row.doing == Doing.WAIT] == [29, 1]
    assert sum(row.samples for row in rows) == 399


def test_a_run_on_the_cpu_of_others_has_no_fallback(shared: Path) -> None:
    measured = measure(recorded(shared, *WORKER, "vllm-0.32.0-cpu-worker-decode-native.txt",
                                "vllm-0.32.0-cpu-enginecore-decode.txt"))
    assert not {"fallback.op", "fallback.fraction", "sync.site"} & set(values(measured))
    assert measured.unknown["fallback.op"] == "this run was meant for the CPU: nothing fell back"

"""Names as profilers and programs write them, and what they must and must not be taken for."""

from __future__ import annotations

import re

import pytest

from xpu_triage.steps import patterns


@pytest.mark.parametrize(("frame", "waits"), [
    ("selectors.py(415): select", True),
    ("<built-in method poll of select.poll object at 0x7fdf>", True),
    ("<built-in method acquire of _thread.lock object at 0x7fdf>", True),
    ("<method 'acquire' of '_thread.lock' objects>", True),
    ("<built-in method acquire of _multiprocessing.SemLock object at 0x7f>", True),
    ("<built-in method get of _queue.SimpleQueue object at 0x7f>", True),
    ("<built-in function sleep>", True),
    ("threading.py(629): wait", True),
    ("queue.py(171): get", True),
    ("zmq/sugar/poll.py(80): poll", True),
    ("zmq/sugar/socket.py(785): recv_multipart", True),
    ("multiprocessing/connection.py(395): _recv", True),
    ("vllm/distributed/device_communicators/shm_broadcast.py(961): dequeue", True),
    ("vllm/distributed/device_communicators/shm_broadcast.py(880): acquire_read", True),
    ("concurrent/futures/_base.py(428): result", True),
    ("<built-in method select of Tensor object at 0x7f>", False),
    ("sglang/srt/managers/scheduler.py(900): recv_requests", False),
    ("zmq/sugar/socket.py(638): send", False),
    ("torch/cuda/streams.py(193): wait", False),
    ("torch/cuda/streams.py(42): wait_event", False),
    ("<built-in method wait of Event object at 0x7f1b>", False),
    ("engine/spec_decode.py(3): accept", False),
    ("engine/cache.py(3): acquire", False),
    ("triton/knobs.py(130): get", False),
    ("<built-in method get of dict object at 0x7c>", False),
])
def test_frames_that_wait_for_work(frame: str, waits: bool) -> None:
    assert patterns.is_wait(frame) is waits


@pytest.mark.parametrize(("pattern", "yes", "no"), [
    (patterns.GRAPH_LAUNCH, ["cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch", "aclmdlRIExecuteAsync"],
     ["cudaLaunchKernel", "cudaGraphInstantiate"]),
    (patterns.LAUNCH_CALL, ["cudaLaunchKernel", "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch", "cudaGraphLaunch"],
     ["cudaMalloc", "cudaStreamSynchronize"]),
    (patterns.TO_HOST, ["Memcpy DtoH (Device -> Pageable)", "CopyDeviceToHost", "enqueueCommand memcpyDtoHAsync"],
     ["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)"]),
    (patterns.TO_DEVICE, ["Memcpy HtoD (Pinned -> Device)", "CopyHostToDevice"], ["Memcpy DtoD (Device -> Device)"]),
    (patterns.COMPILE, ["torch/_inductor/compile_fx.py(1): compile_fx", "triton/compiler/compiler.py(300): compile",
                        "triton/runtime/autotuner.py(150): _bench", "nvrtcCompileProgram"],
     ["torch/_inductor/utils.py(3): run", "triton/runtime/autotuner.py(190): run", "Torch-Compiled Region: 0/0"]),
    (patterns.HOST_EXCHANGE, ["gloo:all_reduce", "c10d::barrier", "engine/tp.py(3): broadcast_pyobj"],
     ["nccl:all_reduce", "c10d::allreduce_", "vllm::all_reduce"]),
    (patterns.OPERATOR, ["aten::mm", "_C::rotary_embedding", "cpu_fallback aten::isin", "torch_ipex::mm"],
     ["enumerate(DataLoader)#x.__next__", "ProfilerStep#3", "autograd::engine::evaluate_function: MulBackward0"]),
    (patterns.NOT_COMPUTE, ["aten::to", "aten::_to_copy", "aten::copy_", "aten::pin_memory", "aten::empty_strided",
                            "c10d::allreduce_"],
     ["aten::exponential_", "aten::isin", "aten::topk", "aten::cumsum", "aten::set_difference"]),
    (patterns.DEVICE_WAIT, ["event_wait", "EVENT_WAIT", "Event Wait", "Notify_Wait"], ["event_record", "await_kernel"]),
    (patterns.CONTROL_CPU, ["AI_CPU Cast", "AICPU_MaskedScatter"], ["AI_CORE", "MAICPUS"]),
])
def test_names_match_what_they_are(pattern: re.Pattern[str], yes: list[str], no: list[str]) -> None:
    assert [name for name in yes if not pattern.search(name)] == []
    assert [name for name in no if pattern.search(name)] == []


@pytest.mark.parametrize(("name", "ends"), [
    ("aten::embedding", True), ("indexSelectSmallIndex<float>", True), ("aten::argmax", True),
    ("reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>", True),
    ("_C::fused_gumbel_argmax", True), ("aten::multinomial", True), ("TopPSamplingFromProbKernel", True),
    ("npu_top_k_top_p", True), ("aten::nll_loss_forward", True), ("multi_tensor_apply_kernel<AdamFunctor>", True),
    ("_C::rotary_embedding", False), ("RotaryEmbedding", False), ("aten::topk", False), ("aten::softmax", False),
    ("aten::sort", False), ("moe_topk_softmax", False), ("aten::upsample_nearest1d", False), ("aten::item", False),
])
def test_what_a_pass_runs_at_its_ends_and_no_layer_runs(name: str, ends: bool) -> None:
    assert any(pattern.search(name) for pattern in patterns.ONCE_A_STEP) is ends

"""What the frames of a stack tell: each pattern with what it means.

Names are matched without their class or enclosing function (`GPUModelRunner.execute_model` → `execute_model`), so that
stacks of tools that print qualified names and of those that do not are read alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..samples import Frame
from ..steps.patterns import COMPILE, EVENT_LOOP, is_library, is_wait

_PYTHON_FILE = re.compile(r"\.(?:py[xw]?|ipynb)$|^<(?!built-in)|(?:^|/)ipykernel_")
_NATIVE_NAME = re.compile(r"::|^0x[0-9a-f]+$|^operator\b")


def is_python(frame: Frame) -> bool:
    """Whether it is a frame of Python (or Cython) code, not one of a library's symbols."""
    return bool(_PYTHON_FILE.search(frame.file)) and not _NATIVE_NAME.search(frame.function)


def own_name(function: str) -> str:
    """The function alone: `A.b.<locals>.c` → `c`. Symbols of C++ stay as they are."""
    return function if "::" in function else function.rpartition(".")[2] or function


def profiler_name(frame: Frame) -> str:
    """As a profiler's trace writes it: `threading.py(327): wait`."""
    return f"{frame.file}({frame.line or 0}): {own_name(frame.function)}"


WRAPPER = re.compile(
    r"^(_call_impl|_wrapped_call_impl|decorate_\w+|__torch_(function|dispatch)__|\w*wrapp(er|ed)\w*|_?inner|_fn"
    r"|<(lambda|listcomp|genexpr|dictcomp|setcomp)>|_call_with_frames_removed|__(enter|exit|getattr)__)$")
"""Functions that call another one for somebody: a sample in them belongs to who called."""

WRAPPER_FILE = re.compile(
    r"^(contextlib|functools)\.py$|(^|/)torch/(_ops|overrides|utils/_contextlib|nn/modules/module)\.py$|^<frozen "
    r"|^<built-in>")

SPIN = re.compile(r"^(sched_yield|sleep|pause|spin\w*)$")
"""What a waiting loop does between two looks."""

MODEL_STEP = re.compile(
    r"^(execute_model|sample_tokens|_model_forward|model_forward|forward_batch_\w+|forward_thread_func_?|run_batch"
    r"|_?forward_step|generate_token|_executor_loop\w*|forward_async|event_loop_\w+|worker_busy_loop|_call_impl"
    r"|compile_or_warm_up_model)$")
"""Functions of a thread that runs the model: vLLM's worker, SGLang's scheduler, TGI, TensorRT-LLM, LMDeploy, or a
module's forward."""

LAB_STEP = re.compile(r"(^|/)xpu_triage/lab/(?:serving|batch_steps|decoder)\.py\(\d+\): "
                      r"(?:_turn|_iterate|decode|prefill|step)$")
"""The same of the lab's engine: names so plain that the file has to go with them."""

FRAMEWORK_FILE = re.compile(r"(^|/)(torch|torch_\w+|paddle\w*|mindspore|jax\w*|tensorflow|habana_frameworks)/")
"""Code that computes with tensors."""

ENGINE_STEP = re.compile(
    r"^(execute_model|sample_tokens|forward_batch_\w+|event_loop_(?:normal|overlap|pp)\w*|run_batch|worker_busy_loop"
    r"|_executor_loop\w*|compile_or_warm_up_model|generate_token)$")
"""Functions that only an engine's step has. A module's forward is not among them: training calls it too."""

ENGINE_FILE = re.compile(
    r"(^|/)(vllm(?:_\w+)?|sglang|sgl_kernel|text_generation_server|tensorrt_llm|lmdeploy|mindie\w*|fastdeploy|xllm"
    r"|aphrodite|llama_cpp|mlc_llm|exllamav\d\w*|ktransformers|uvicorn|starlette|fastapi|hypercorn|gunicorn|granian"
    r"|transformers/generation|xpu_triage/lab)/")
"""Code of inference engines, and of the servers before them."""

CLIENT_FILE = re.compile(
    r"(^|/)(?:vllm|sglang|tensorrt_llm|lmdeploy)/(?:benchmarks?/|entrypoints/cli/benchmark/|bench_\w+|profile_\w+\.py)"
    r"|(^|/)(?:benchmark|bench)_\w+\.py$|(^|/)(guidellm|aiperf|genai_perf|evalscope|llmeter|locust|lm_eval)/")
"""Code of load generators, some of which ship inside an engine's package."""

START_UP = re.compile(
    r"^(compile_or_warm_up_model|\w*warm_?up\w*|capture_(model|graphs?)|init_(device|cuda)_graphs|profile_run"
    r"|determine_(available_memory|num_available_blocks)|_initialize_kv_caches|load_model|load_weights)$")
"""Functions that run before the first request, or once for each shape."""

PREPARES = re.compile(
    r"^(_?prepare_\w+|_update_states\w*|collate\w*|schedule|get_next_batch_to_run|compute_slot_mapping"
    r"|post_?process\w*|process_batch_result\w*|process_input_requests|__next__|_bookkeeping\w*)$")
"""Inside these, operators on host tensors are meant to run on the host: inputs made, batches kept, results told."""

USUAL_WAIT = re.compile(
    r"^(_to_list|get_output|resolve_\w*batch_result|process_batch_result\w*|_bookkeeping_sync|_?update_requests"
    r"|synchronize_input_prep)$")
"""Where an engine waits for the tokens of a step, once a step and by design."""

TOKEN_WAIT = re.compile(r"^(_to_list|get_output|resolve_(?:last_)?batch_result|synchronize_input_prep)$")
"""Functions that do nothing but wait for a step's tokens and hand them on. Without native frames a stack ends in them
while they wait."""

SYNC_PYTHON = re.compile(
    r"(^|/)(torch|torch_\w+|paddle\w*|habana_frameworks|mindspore)/\S*: (current_stream_)?synchronize$")

SYNC_NATIVE = re.compile(
    r"^(?:(?:cuda|hip|mu|musa|cu|tops|cnrt|cn)(?:Stream|Event|Device|Ctx|Context|Queue)?Sync(?:hronize)?|cnrtWaitNotifier"
    r"|(?:cuda|hip|mu|musa)Memcpy(?:2D|ToSymbol|FromSymbol)?|cuMemcpy(?:DtoH|HtoD)\w*|aclrtMemcpy"
    r"|aclrtSynchronize\w+|zeEventHostSynchronize|zeCommandQueueSynchronize|zeFenceHostSynchronize|urEventWait"
    r"|synStreamSynchronize|synEventSynchronize|xpu_wait)(?:_v\d+|_ptsz)?$"
    r"|\b_local_scalar_dense\w*\b|^torch::autograd::(?:THPVariable_item|THPVariable_tolist)$"
    r"|c10_npu::acl::AclrtSynchronize\w+|c10::(?:cuda|hip|xpu)::\w*Stream::synchronize")
"""Calls that hold the host until the device is done. An asynchronous copy is none."""

LAUNCH = re.compile(r"^(?:cuda|hip|mu|musa|cu|cnrt|aclrt|aclmdl|aclnn|ze|ur|rt)\w*(?:Launch|Execute|Enqueue)\w*$")
"""Calls that hand work to the device."""

FALLBACK = re.compile(r"\b\w*(?:cpu|npu|xpu|mps|hpu|mlu|lazy)_?fallback\w*|fallback_to_cpu|\b_to_cpu\b", re.I)
"""Functions that carry an operator from a device to the CPU and back. A CPU build has no use for them."""

CPU_KERNEL = re.compile(
    r"\bwrapper_CPU_|\bat::native::(?:AVX2|AVX512\w*|DEFAULT|SVE\w*|NEON|ASIMD|ZVECTOR|VSX|cpublas)\b"
    r"|\btemplates::cpu::|\bcpu_(?:serial_|vec_)?kernel\w*|\bTensorIteratorBase::(?:serial_)?for_each\b|\bat::cpu::")
"""PyTorch's own kernels for the CPU, and what runs them over a tensor."""

CPU_KERNEL_BY_LIBRARY = re.compile(r"^at::native::\(anonymous(?: namespace)?\)::\w+_kernel\w*")
CPU_LIBRARY = re.compile(r"^libtorch_cpu\b")

DEVICE_LIBRARY = re.compile(
    r"^lib(torch_(cuda|hip|npu|xpu|mlu|musa|gcu|hpu)|cuda(rt)?|c10_(cuda|hip|xpu|npu)|amdhip64|hsa-runtime64|ascendcl"
    r"|opapi|xpurt|xpucuda|ze_loader|ze_intel_gpu|sycl|ur_loader|cnrt|cndrv|musart|topsrt|nccl|rccl|hccl|bkcl|Synapse)"
    r"\b(?!_linalg)")
DEVICE_PYTHON = re.compile(
    r"(^|/)(torch_(npu|xmlir|mlu|musa|gcu)|habana_frameworks|vllm_(ascend|kunlun|mlu|gaudi|musa)|flashinfer|flash_attn\w*"
    r"|sgl_kernel)/|(^|/)torch/(cuda|xpu|npu|hpu|mtia)/(streams|graphs|__init__)\.py$|pynccl|cuda_?graph"
    r"|(cuda|xpu|npu|hpu)_communicator|(npu|xpu|hpu|mlu|rocm|tpu|kunlun)_(worker|model_runner|attn)\.py")
"""Libraries and files at work that only a run on a device has."""

CPU_BUILD = re.compile(r"\bcpu_(attn|worker|model_runner|communicator)\.py|cpu_unquantized_gemm|\bforward_cpu\b"
                       r"|\bCPU(Attention|ModelRunner|Worker)\w*")
"""Code of a run that was meant for the CPU."""


@dataclass(frozen=True, slots=True)
class Known:
    """What one frame tells by itself."""

    python: bool
    native: bool
    """A symbol of a library. What a profiler calls `<built-in>` is neither."""
    own: str
    wrapper: bool
    waits: bool
    spins: bool
    library: bool
    syncs: bool
    """Python's side of a call that waits for the device."""
    compiles: bool
    device: bool
    cpu_build: bool
    model: bool
    """A function of a thread that runs the model."""
    framework: bool
    engine: bool
    """Code of an inference engine or of a server."""
    client: bool
    """Code of a load generator."""


@lru_cache(maxsize=16_384)
def known(frame: Frame) -> Known:
    """Of a frame, whatever stack it is in. Recordings repeat few frames many times."""
    python, own, as_traced = is_python(frame), own_name(frame.function), profiler_name(frame)
    client = python and bool(CLIENT_FILE.search(frame.file))
    return Known(
        python=python,
        native=not python and bool(frame.file) and not frame.file.startswith("<"),
        own=own,
        wrapper=bool(WRAPPER.match(own) or WRAPPER_FILE.search(frame.file)),
        waits=python and (is_wait(as_traced) or bool(EVENT_LOOP.search(as_traced))),
        spins=bool(SPIN.match(own)),
        library=is_library(as_traced),
        syncs=python and bool(SYNC_PYTHON.search(as_traced)),
        compiles=python and bool(COMPILE.search(as_traced)),
        device=bool(DEVICE_PYTHON.search(frame.file) if python else DEVICE_LIBRARY.match(frame.file)),
        cpu_build=python and bool(CPU_BUILD.search(f"{own} {frame.function} {frame.file}")),
        model=python and bool(MODEL_STEP.match(own) or LAB_STEP.search(as_traced)),
        framework=python and bool(FRAMEWORK_FILE.search(frame.file)),
        engine=python and not client and bool(ENGINE_FILE.search(frame.file) or ENGINE_STEP.match(own)),
        client=client,
    )


_METHOD = re.compile(r"\bTHPVariable_(\w+)$")
_DISPATCHED = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)$")
_CPU_WRAPPER = re.compile(r"\bwrapper_CPU_(\w+?)(?:\(|$)")
_OVERLOAD = re.compile(r"(?<=\w)_(?:[A-Z]\w*|out|dim|int|dtype\w*|device|other|default|self\w*)$")


def operator_of(native: Sequence[Frame]) -> str:
    """The operator that these frames (innermost first, outward from where it runs) are part of, as `aten::softmax`;
    empty where none is named.

    The dispatcher's entries carry the overload (`add_Tensor`); the CPU's wrapper carries it in front (`Tensor_add`),
    so that the two together tell the name; the method that Python calls has none.
    """
    entry = next((match[1] for part in native if (match := _DISPATCHED.search(part.function))), "")
    wrapper = next((match[1] for part in native if (match := _CPU_WRAPPER.search(part.function))), "")
    method = next((match[1] for part in native if (match := _METHOD.search(part.function))), "")
    if entry and wrapper:
        for at in [len(entry), *(match.start() for match in re.finditer("_", entry))]:
            if at and wrapper == f"{entry[at + 1:]}_{entry[:at]}":
                return f"aten::{entry[:at]}"
    if entry:
        bare = _OVERLOAD.sub("", entry)
        return f"aten::{method if method and entry.startswith(method) else bare}"
    return f"aten::{method}" if method else ""

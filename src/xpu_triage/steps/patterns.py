"""What the names of host and device rows tell: each pattern with what it means."""

from __future__ import annotations

import re
import sys

GRAPH_LAUNCH = re.compile(r"graph_?launch|aclmdl(RI)?Execute|CommandBufferEnqueue|CommandListAppend", re.I)
"""One call that replays many recorded kernels (CUDA, HIP, XPU, Ascend)."""

DEVICE_LAUNCH = re.compile(
    r"graph_?launch|aclmdl(RI)?Execute|LaunchKernel|LaunchCooperativeKernel|EnqueueKernelLaunch", re.I)
"""Runtime calls that hand over a kernel or a graph and nothing else: each of them always means device work."""

LAUNCH_CALL = re.compile(r"launch|Enqueue.*Kernel|aclnn|aclmdl(RI)?Execute", re.I)
"""A call that hands a kernel or a whole graph to the device, whether or not that device work was recorded."""

COPY_CALL = re.compile(r"memcpy|MemcpyAsync|EnqueueMem|\bcopy\b", re.I)
"""A call that moves data. Such a call may hold the host for its own sake: staging through pageable memory."""

STATUS_CALL = re.compile(r"(event|stream|queue|notifier)_?query|query_?(event|stream|queue|notifier)", re.I)
"""A call that asks whether work is done and returns at once: `cudaEventQuery`, `hipStreamQuery`,
`aclrtQueryEventStatus`. In a row they are a wait that no call shows."""

FIRST_USE = re.compile(
    r"LaunchKernel|ModuleLoad|LibraryLoad|Malloc|MemAlloc|HostAlloc|HostRegister|^(cuda|hip|mu|aclrt)Free"
    r"|StreamCreate|FuncGetAttr|FuncSetAttr|PriorityRange|GetDeviceProp|Init|SetDevice|CtxCreate|GraphInstantiate"
    r"|ProgramBuild|ProgramCreate|KernelCreate|KernelLoad|CompileProgram|LinkProgram|BinaryLoad|GetWorkspaceSize",
    re.I)
"""Runtime calls that are quick, except the first time: they load a module, map memory, or build a program."""

COMPILE = re.compile(
    r"_inductor/(compile_fx|codecache|graph|scheduler|codegen|async_compile)"
    r"|_dynamo/(convert_frame|symbolic|output_graph)"
    r"|triton/compiler/compiler\.py\(\d+\): compile|triton/runtime/autotuner\.py\(\d+\): (_bench|benchmark)"
    r"|torch/utils/cpp_ext|_compile\.compile_inner|compile_fx|GraphLowering\.run|nvrtcCompile|hiprtcCompile"
    r"|CompileProgram|ProgramBuild|jit/(compiler|core)\.py\(\d+\): (build|compile)|aclopCompile(?!AndExecute)"
    r"|aclGenGraphAndCompile", re.I)
"""Frames, annotations and calls inside which something is being compiled or tuned. A path that merely holds
`_inductor/` does not count: compiled code runs there too, and the autotuner's own `run` is on the way of
every launch."""

HOST_EXCHANGE = re.compile(
    r"gloo|mpi:|\bbarrier|wait_tensor|TCPStore|(gather|broadcast|scatter|send|recv|reduce)_object(_list)?\b"
    r"|(gather|broadcast|scatter|reduce|point_to_point)_pyobj\b"
    r"|_distributed_c10d\.Work|distributed_c10d\.py\(\d+\): \w*wait", re.I)
"""Ranks that talk to each other through the host. `recv_pyobj` and `send_pyobj` are ZeroMQ's, the front end's queue."""

COLLECTIVE = re.compile(r"^c10d::\w+")
"""A collective's operator. It is an exchange through the host where nothing below it launches device work."""

FRAME = re.compile(r"\.py\b|<built-in |^nn\.Module:|<module>")
"""A frame of Python, and not a system call that a profiler files beside them."""

QUEUED = re.compile(r"^Enqueue\b|@Enqueue$")
"""Work that is handed to the thread which launches it (Ascend's task queue)."""

_WAIT_FRAME = re.compile(
    r": wait\w*$|\bwait of |: sleep$|<built-in (function|method) (select|sleep|poll)>|select\.(e?poll|kqueue)"
    r"|selectors\.py\(\d+\): select|acquire'? of '?(_thread|_multiprocessing)|threading\.py\(\d+\): (acquire|join)"
    r"|: acquire_read$|shm_broadcast\.py\(\d+\): dequeue|queue\.py\(\d+\): get|\bget'? of '?_queue"
    r"|(zmq|connection)\S*: (poll|recv\w*)$|zmq\..*\b(poll|recv\w*)'? of|: _recv(_bytes)?$"
    r"|\b(recv|recv_into|accept)'? of '?_?socket|socket\.py\(\d+\): (accept|recv\w*)$|futures/_base\.py\(\d+\): result")
_STREAM_WAIT = re.compile(r"streams?\.py\(\d+\): wait|wait\w* of (Event|Stream)\b")


def is_wait(frame: str) -> bool:
    """Whether in this Python frame a thread waits for someone else to hand it work.

    Narrow on purpose: `select`, `acquire` or `recv` are names that programs use too (`select of Tensor`,
    `recv_requests`), and there they are work. To let a stream wait for an event takes the host no time.
    """
    return bool(_WAIT_FRAME.search(frame)) and not _STREAM_WAIT.search(frame)


ASKS_FOR_WORK = re.compile(
    r": _*(try_)?(recv|receive|fetch|poll|pull|read|drain)\w*_(requests?|reqs?)$"
    r"|: get_next_\w*batch_to_run$|: _?prepare_and_schedule_batch$|: _?process_input_queue$")
"""Functions that an engine's loop calls once in each pass, to see whether there is something to run: SGLang's
`recv_requests` and `get_next_batch_to_run`, TensorRT-LLM's `_fetch_new_requests`, LightLLM's `_try_read_new_reqs`,
vLLM's `_process_input_queue`."""

EVENT_LOOP = re.compile(
    r"run_until_complete|run_forever|(uvloop|asyncio).*: (run|_run_once)$|asyncio/(runners|base_events)\.py",
    re.I)
"""Frames of an event loop. Their own time, callbacks left out, is waiting for the next event."""

TO_HOST = re.compile(r"DtoH|D2H|Device ?(->|To|2) ?(Host|Pageable|Pinned)", re.I)
TO_DEVICE = re.compile(r"HtoD|H2D|(Host|Pageable|Pinned) ?(->|To|2) ?Device", re.I)
COPY_DIRECTION = re.compile(
    f"{TO_HOST.pattern}|{TO_DEVICE.pattern}|DtoD|D2D|PtoP|Device ?(->|To|2) ?Device|HtoH", re.I)
"""Direction of a copy, as the profilers spell it; and whether a name tells any."""

DEVICE_WAIT = re.compile(r"^(event|stream|notify)[_ ]?wait\b|^wait[_ ]?event|\bsemaphore[_ ]?wait", re.I)
"""Rows of a device's queue in which it waits for another queue. Some captures draw them as device work."""

CONTROL_CPU = re.compile(r"(?<![a-z])AI_?CPU(?![a-z])", re.I)
"""Device work that ran on the device's own control CPU: a fallback that keeps the device busy."""

OPERATOR = re.compile(r"^(?:cpu_fallback )?[A-Za-z_][\w.]*::[\w.]+$")
"""A dispatcher's operator (`aten::mm`, `_C::rotary_embedding`), as against a user's annotation or an engine's
span."""

OWN_OPERATOR = re.compile(r"^(?:cpu_fallback )?(aten|torchvision|torchaudio|prims|quantized)::")
"""An operator of the framework's own. It has a device version, or falls back; another library's operator may be
written for the host."""

NOT_COMPUTE = re.compile(
    r"::(_?to(_copy)?|copy_?|_copy_from(_and_resize)?|clone|contiguous|empty\w*|resize_?|pin_memory|_pin_memory"
    r"|is_pinned|item|_local_scalar_dense|is_nonzero|set_|detach\w*|lift_fresh\w*|view\w*|as_strided\w*|alias"
    r"|record_stream)$"
    r"|^(c10d|symm_mem|nccl|gloo|autograd|profiler|torch::autograd|inductor|triton)\b|record_param_comms")
"""Operators that move, make or read back tensors, and those of exchanges and of the machinery: none of them
computes."""

MODULE_CALL = re.compile(r"^nn\.Module:|nn/modules/module\.py\(\d+\): _(wrapped_)?call_impl$")
"""Frames of one call of a model, or of a part of one."""

ONCE_A_STEP = (
    re.compile(r"(?<!rotary)(?<!rotary_)embed|indexSelect", re.I),
    re.compile(r"arg_?max|multinomial|gumbel|(?<!up)(?<!down)sampl(er|ing)|top_?k_?top_?p|top_?p_?(sampl|renorm|filter)",
               re.I),
    re.compile(r"log_?softmax|nll_loss|cross_?entropy|^Optimizer\.|adam(w|_|functor)|zero_grad", re.I))
"""Operators and kernels that a forward pass runs at its ends and no layer runs: the embedding of tokens, the choice of
the next ones, the loss and the optimizer. A router's softmax, top-k and sort are of a layer. A rotary embedding too."""

REGION = re.compile(r"CompiledFxGraph|Torch-Compiled Region|^CompiledFunction")
"""Rows in which a compiled part of a model runs once."""

PLUMBING = re.compile(r"::(_local_scalar_dense|_to_copy)$|^record_param_comms$")
"""Operators that nobody calls by name: what they do is known by the operator around them (`aten::item`,
`aten::to`)."""

_LIBRARY_PATH = re.compile(
    r"(^|/)(torch|torch_\w+|functorch|triton|numpy|uvloop|nvtx)/|torchinductor|^<|nn\.Module"
    r"|_call_impl\b|_wrapped_call_impl\b|site-packages/torch/")
_MODULE = re.compile(r"^([^/()]+?)(?:\.py)?(?:/|\(\d+\):)")


def is_library(name: str) -> bool:
    """Whether a Python frame belongs to Python or to the framework rather than to the program that runs on
    them.

    Frames read `package/module.py(line): function`; those of the standard library have no folder of their own
    before them, built-in functions have none at all.
    """
    if _LIBRARY_PATH.search(name):
        return True
    module = _MODULE.match(name)
    return bool(module) and module[1] in sys.stdlib_module_names  # type: ignore[index]

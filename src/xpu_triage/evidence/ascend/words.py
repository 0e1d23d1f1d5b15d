"""What the words of the Ascend profiler mean: its layers, its task types, the names of its calls.

The types of device tasks are those of msprof's `ascend_task` (`AI_CORE`, `EVENT_WAIT_SQE`, `Notify Wait` …) and, in
databases, those of the runtime (`KERNEL_AIVEC`, `MEMCPY_ASYNC`, `STARS_COMMON` …).
"""

from __future__ import annotations

import re
from enum import IntEnum

from ...steps.exchange_names import exchanges
from ...steps.step_names import is_profiler_step, speaks_of_steps
from ...trace import Kind
from ..categories import REPEATED as REPEATED
from ..categories import UNPLACED as UNPLACED

HARDWARE, CALLS, PROGRAM, OVERLAP = "Ascend Hardware", "CANN", "Python", "Overlap Analysis"
COLLECTIVES = ("HCCL", "Communication")
"""The layer of collectives: the second name in newer versions."""

LAYERS = frozenset({HARDWARE, CALLS, OVERLAP, *COLLECTIVES})


class Place(IntEnum):
    """What a host row is. `Kind`s are made of it once it is known who launched what."""

    OPERATOR = 0
    PYTHON = 1
    ANNOTATION = 2
    ENQUEUE = 3
    """An operator hands its work to the queue's thread."""
    DEQUEUE = 4
    """The queue's thread takes it and calls the device."""
    CALL = 5
    """A call of CANN: AscendCL, Runtime, Node, Hccl."""


_PROGRAM = {"cpu_op": Place.OPERATOR, "python_function": Place.PYTHON, "enqueue": Place.ENQUEUE,
            "dequeue": Place.DEQUEUE, "user_annotation": Place.ANNOTATION, "mstx": Place.ANNOTATION, "gc": Place.PYTHON}
_OPERATOR = re.compile(r"\w+$|.*::")
"""What an operator is called: `aten::mm`, `AddmmBackward0`, `aclnnMm`. torch_npu files the ranges that a program marks
(`execute_context_0(0)_generation_8(8)`, `Optimizer.step#Adam.step`) under operators too."""
_MARKS = (
    "EVENT_", "STREAM_", "NOTIFY_", "REMOTE_EVENT", "PLACE_HOLDER", "PROFILING_", "LABEL_", "MODEL_", "WRITE_VALUE",
    "MEM_WRITE_VALUE", "MEM_WAIT_VALUE", "CAPTURE_", "FLIP", "CALLBACK", "HOSTFUNC", "END_GRAPH", "BARRIER", "CMO",
    "NOP", "TASK_TIMEOUT", "DEBUG_", "OVERFLOW", "GET_FLOAT_STATUS", "IPC_RECORD", "IPC_WAIT", "SET_SQ_",
    "UPDATE_ADDRESS", "AICPU_INFO_LOAD", "TSFW_", "CDQM")
"""Tasks with which streams wait for each other, or mark a place: no work."""

_COPIES = ("MEMCPY", "PCIE_DMA", "SDMA", "UB_ASYNC_DMA", "UBDMA", "UB_DMA", "UB_DB_SEND", "UB_DIRECT_SEND",
           "DIRECT_SEND", "ROCCE", "RDMA")
_COLLECTIVE_UNIT = "CCU"
"""The unit of newer chips that runs collectives."""

_CHIP = re.compile(r"^(DAVID|STARS_?V2|V\d+)_")
"""A chip's name before the type of a task (`DAVID_EVENT_WAIT`)."""

_COLLECTIVE = re.compile(r"^(hcom|hccl)", re.I)
_CORE = re.compile(r"AI_?C(ORE|PU)|^AI[CV]|AI_?VEC|MIX_?AI|^DSA|^VPC|^JPEG|^VQ6|^TOF|DVPP|^FFTS|^STARS|^MULTIPLE"
                   r"|^HOST_CPU|^FUSION|^KERNEL")
_NOTHING = frozenset({"", "N/A", "OTHER", "UNKNOWN"})

AI_CPU = "AI_CPU"
_SAME_CORE = {"AICPU": AI_CPU, "KERNEL_AICPU": AI_CPU, "AI_CPU": AI_CPU, "HCCL_AI_CPU": "HCCL_AI_CPU",
              "AIV": "AI_VECTOR_CORE", "AIC": "AI_CORE"}

DIRECTION = re.compile(r"\b(host|device)[ _]to[ _](host|device)\b|(host|device)_to_(host|device)", re.I)
"""Where a copy goes, in the words of the profiler and in those of torch_npu's own operators."""

READ_BACK = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal|_to_cpu)$")
"""Operators whose copy brings data down to the host, by what they are."""

BLOCKING_COPY = re.compile(r"@(aclrtMemcpy(2d)?|Mem(cpy|CopySync)\w*Sync|MemCopySync\w*|Memcpy)$")
"""Copies that return when they are done. They do not run on a stream, so they leave no device row."""

GRAPH = re.compile(r"@aclmdl(RI)?Execute")

_CALL_LEVEL = {"acl": "AscendCL", "node": "Node", "runtime": "Runtime", "hccl": "Hccl", "communication": "Hccl",
               "model": "Model"}


def program_place(category: str, name: str) -> int:
    """The `Place` of a row of the Python layer, or UNPLACED."""
    place = _PROGRAM.get(category.lower(), UNPLACED)
    if is_profiler_step(name):
        return Place.ANNOTATION
    if place == Place.OPERATOR and (not _OPERATOR.match(name) or ("::" not in name and speaks_of_steps(name))):
        return Place.ANNOTATION
    return place


def call_name(level: str, name: str) -> str:
    """A call as `trace_view.json` writes it (`AscendCL@aclrtMemcpy`), from a database's level and name."""
    return f"{_CALL_LEVEL.get(level.lower(), level)}@{name}"


def is_runtime_level(name: str) -> bool:
    return name.startswith("Runtime@")


def task_kind(task_type: str, name: str, op_type: str = "") -> tuple[int, bool]:
    """The `Kind` of a device task, or REPEATED for what is no work; and whether its type is a known one. A graph may
    name an operation as it likes: `op_type` is what it is, where the capture tells.

    Operators that exchange run on the cores (`MoeDistributeDispatchV2` on vector cores) or on AI_CPU (the half of a
    fused operator that carries out its exchange), as others do: their names tell."""
    kind, known = _CHIP.sub("", _plain(task_type)), True
    if kind in _NOTHING and _CHIP.sub("", _plain(name)).startswith((*_MARKS, *_COPIES)):
        kind = _CHIP.sub("", _plain(name))                     # older versions say of most tasks only `Other`
    if kind.startswith(_MARKS) or kind.endswith("_CONTEXT"):
        return REPEATED, known
    exchange = bool(_COLLECTIVE.match(name)) or exchanges(name) or exchanges(op_type)
    if exchange or kind in ("HCCL", "COMMUNICATION") or kind.startswith(_COLLECTIVE_UNIT):
        return Kind.COMM, known
    if kind.startswith(_COPIES):
        return Kind.COPY, known
    return Kind.KERNEL, kind in _NOTHING or bool(_CORE.search(kind))


def _plain(word: str) -> str:
    return word.strip().upper().replace(" ", "_")


def core_of(task_type: str) -> str:
    """The kind of core as `kernel_details.csv` writes it, `` where `task_type` tells none.

    The hardware's own log says `AI_CORE` for what ran on vector cores too: of its words only AI_CPU tells."""
    kind = task_type.strip().upper()
    return "" if kind in _NOTHING or kind == "HCCL_AI_CPU" else _SAME_CORE.get(kind, kind)


def core_in_hardware_log(task_type: str) -> str:
    """As `core_of`, for the task types of the device's own log."""
    return AI_CPU if core_of(task_type) == AI_CPU else ""


def kernel_name(name: str, op_type: str, core: str) -> str:
    """`MaskedScatter (AI_CPU)`: the kind of operation where the capture tells it, else its name; and its core."""
    known = op_type.strip()
    shown = known if known and known.upper() not in _NOTHING else name
    return f"{shown} ({core})" if core else shown


def copy_name(name: str, direction: str) -> str:
    return f"{name} {direction}" if direction else name


def direction_in(text: str) -> str:
    """`host to device`, `device to host`, …; empty where `text` tells none."""
    found = DIRECTION.search(text)
    if not found:
        return ""
    a, b = (word.lower() for word in found.groups() if word)
    return f"{a} to {b}"


def collective_name(name: str, op_type: str = "") -> str:
    """`hcom_allReduce` of `hcom_allReduce__868_0_1`: calls of one collective bear one name. Where only the kind of
    operation tells that it exchanges, that."""
    if exchanges(op_type) and not exchanges(name):
        name = op_type
    return re.sub(r"_+\d+(_\d+)*$", "", name).rstrip("_") or name

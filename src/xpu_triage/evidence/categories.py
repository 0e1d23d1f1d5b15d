"""What a row of a PyTorch-profiler trace is, told from its category and its name.

The categories are those of Kineto's ActivityType.h, the capitalised ones of torch 1.9, and by their ending
those that other backends derive from them (`gcu_runtime`, `npu_kernel`). Never by pid: on some files Python
rows carry the pid of a device."""

from __future__ import annotations

import re

from ..steps.exchange_names import exchanges
from ..trace import Kind

REPEATED = -1
"""The row draws others again: a step on the device's lane, a sync next to its call, the profiler's own
span."""

UNPLACED = -2
"""No rule knows the category."""

_HOST = {
    "cpu_op": Kind.HOST_OP, "operator": Kind.HOST_OP, "hpu_op": Kind.HOST_OP,
    "python_function": Kind.PYTHON, "user_annotation": Kind.ANNOTATION, "overhead": Kind.OVERHEAD,
}
_REPEATED = re.compile(r"trace$|\w+_user_annotation$|\w+_(sync|event|profiler_range|scope_profiler|counters)$"
                       r"|external_correlation$|cpu_instant_event$")
_RUNTIME = re.compile(r"(\w+_)?(runtime|driver)$")
_DEVICE = re.compile(r"(\w+_)?(kernel|memcpy|memset)$|mtia_ccp_events$|collective_comm$")

_STEP = re.compile(r"ProfilerStep#\d+$")        # an operator in old files
_OPERATOR = re.compile(r"(cpu_fallback )?aten::")  # a user annotation where a backend records its fallback itself

_COPY = re.compile(r"memcpy|copy(host|device|buffer)|__amd_rocclr_copy|dma_", re.I)


def place(category: str, name: str) -> int:
    """The `Kind` of a row, or REPEATED, or UNPLACED."""
    lower = category.lower()
    if _DEVICE.match(lower):
        return device_kind(lower, name)
    if _RUNTIME.match(lower):
        return Kind.RUNTIME
    if lower in _HOST:
        if _STEP.match(name):
            return Kind.ANNOTATION
        return Kind.HOST_OP if _OPERATOR.match(name) else _HOST[lower]
    if _REPEATED.match(lower):
        return REPEATED
    return UNPLACED


def device_kind(category: str, name: str) -> Kind:
    """COMM is a collective, or a send or receive between ranks. A matrix product with a collective in the same kernel
    is a KERNEL: it computes all the while (`exchange_names.exchanges_and_computes`). A copy is a COPY whichever way it
    goes, between two devices of one process too: it is a transfer that nobody else has to join. Setting memory is a
    KERNEL: it runs on the compute units, and takes its time from the kernels."""
    if "memcpy" in category or _COPY.match(name):
        return Kind.COPY
    if category == "collective_comm" or exchanges(name):
        return Kind.COMM
    return Kind.KERNEL

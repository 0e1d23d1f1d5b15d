"""How long things take on a configured device. Every figure says where it comes from; most are assumed, and
say so.

A kernel takes max(bytes moved / bandwidth, operations / rate), and never less than a floor: the roofline
model of Williams, Waterman and Patterson (2009) with a fixed cost. The models are *like* a device, not
measurements of one: they give an incident its shape, and a ratio computed on them is a ratio of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

NS_PER_US = 1_000

MATMULS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::mv"})

SPARSE = frozenset(
    {
        "aten::index",
        "aten::_unsafe_index",
        "aten::index_put_",
        "aten::_index_put_impl_",
        "aten::index_put",
        "aten::gather",
        "aten::index_select",
        "aten::embedding",
        "aten::index_copy_",
        "aten::scatter_",
        "aten::scatter_add_",
    }
)
"""Operators that touch only what they take from their first argument or put there."""

PASSES: Mapping[str, float] = MappingProxyType(
    {
        "aten::sort": 12.0,
        "aten::topk": 4.0,
        "aten::multinomial": 4.0,
        "aten::_softmax": 1.5,
        "aten::_log_softmax": 1.5,
        "aten::cumsum": 1.5,
        "xpulab::top_k_top_p": 3.0,
    }
)
"""How often an operation that is not one sweep goes over its data, relative to reading inputs and writing
outputs once. Assumed: a radix sort of 32-bit keys with indices, a selection by histogram, an online softmax,
a two-level scan."""


@dataclass(frozen=True)
class DeviceModel:
    """A configured device. `sources` has one entry a field: where its figure comes from."""

    name: str
    memory_gb: float
    memory_gbps: float
    """10⁹ bytes/s."""
    tflops: float
    """Dense 16-bit."""
    kernel_floor_us: float
    """Shortest kernel."""
    turnaround_us: float
    """Between two kernels that are both queued."""
    graph_turnaround_us: float
    """The same inside a replayed graph."""
    start_us: float
    """From the end of a launch call to the kernel's start on a dry device."""
    sync_return_us: float
    """From the end of the device's work to the return of the call that waits for it."""
    launch_us: float
    """One launch call."""
    operator_us: float
    """One operator in eager mode before and after its launch: dispatch, checks, allocation of the result."""
    view_us: float
    """One operator that only makes a view."""
    link_gbps: float
    """Host link, one direction, 10⁹ bytes/s."""
    link_us: float
    """Fixed cost of one copy over it."""
    module_load_ms: float
    """First launch of a kernel: its module is loaded."""
    graph_build_ms: float
    """Instantiation of a captured graph."""
    cpu_ns_per_element: float
    """An operator that falls back to the host's CPU, for each element (virtual clock; on the real clock it
    runs)."""
    cpu_ns_by_op: Mapping[str, float] = field(default_factory=dict)
    """The same for single operators."""
    unsupported: frozenset[str] = frozenset()
    """Operators without a kernel: they fall back to the host's CPU."""
    sources: Mapping[str, str] = field(default_factory=dict)

    def kernel_ns(self, op: str, moved_bytes: float, operations: float) -> int:
        """Duration of one kernel that reads and writes `moved_bytes` in all and computes `operations`."""
        seconds = max(
            moved_bytes * PASSES.get(op, 1.0) / (self.memory_gbps * 1e9), operations / (self.tflops * 1e12)
        )
        return int(self.kernel_floor_us * NS_PER_US + seconds * 1e9)

    def copy_ns(self, nbytes: int) -> int:
        """Duration of one copy over the host link."""
        return int(self.link_us * NS_PER_US + nbytes / self.link_gbps)

    def cpu_ns(self, op: str, elements: int) -> int:
        """Duration of one operator on the host's CPU."""
        return int(5 * NS_PER_US + elements * self.cpu_ns_by_op.get(op, self.cpu_ns_per_element))

    def slowed(self, factor: float) -> DeviceModel:
        """The same device in slow motion, for a host that is itself slower than the one that the model
        assumes."""
        if factor == 1:
            return self
        words = f"{factor:g} times slower" if factor > 1 else f"{1 / factor:g} times faster"
        longer = {
            f: getattr(self, f) * factor
            for f in (
                "kernel_floor_us",
                "turnaround_us",
                "graph_turnaround_us",
                "start_us",
                "sync_return_us",
                "link_us",
            )
        }
        less = {f: getattr(self, f) / factor for f in ("memory_gbps", "tflops", "link_gbps")}
        return replace(self, name=f"{self.name}, {words}", **longer, **less)

    def described(self) -> list[str]:
        """One line a figure, with its source."""
        lines = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("name", "sources"):
                continue
            if isinstance(value, frozenset):
                value = ", ".join(sorted(value)) or "none"
            elif isinstance(value, Mapping):
                value = ", ".join(f"{op} {ns:g}" for op, ns in sorted(value.items())) or "none"
            lines.append(f"{f.name} = {value}  ({self.sources.get(f.name, 'assumed')})")
        return lines


_TRACE = "median in public PyTorch-profiler traces of an H100 and a B200"
_PRICE = "fitted: 4.89 s a step over 256 × 152,000 draws, as the incident reports"
_CONFLICT = "assumed: published figures conflict or are missing"
_NO_EXPONENTIAL = "the incident: `exponential_` has no device kernel there"

H100_LIKE = DeviceModel(
    name="H100-like",
    memory_gb=80,
    memory_gbps=3350,
    tflops=989,
    kernel_floor_us=2.0,
    turnaround_us=1.5,
    graph_turnaround_us=0.8,
    start_us=5.0,
    sync_return_us=6.0,
    launch_us=5.0,
    operator_us=6.0,
    view_us=1.5,
    link_gbps=50,
    link_us=3.0,
    module_load_ms=20.0,
    graph_build_ms=400.0,
    cpu_ns_per_element=1.0,
    cpu_ns_by_op=MappingProxyType({"aten::exponential_": 23.0}),
    sources=MappingProxyType(
        {
            "memory_gb": "vendor's data sheet",
            "memory_gbps": "torchtitan's table and torch's device properties",
            "tflops": "torchtitan's table",
            "kernel_floor_us": "1.6–2.6 µs, first percentile in public traces of an H100 and a B200",
            "turnaround_us": _TRACE,
            "start_us": "shortest in a public trace of an H100",
            "launch_us": _TRACE,
            "sync_return_us": "median in a public trace of an H100",
            "link_gbps": "assumed: PCIe 5 x16 at 80 % of its rate",
            "cpu_ns_by_op": "measured with torch 2.13 on 2 CPU cores, 256 × 152,000 float32",
            "unsupported": "every operator that the lab runs has a CUDA kernel",
        }
    ),
)

ASCEND_910B_LIKE = DeviceModel(
    name="910B-like",
    memory_gb=64,
    memory_gbps=1600,
    tflops=315,
    kernel_floor_us=3.0,
    turnaround_us=2.0,
    graph_turnaround_us=1.0,
    start_us=10.0,
    sync_return_us=40.0,
    launch_us=6.0,
    operator_us=7.0,
    view_us=2.5,
    link_gbps=25,
    link_us=8.0,
    module_load_ms=40.0,
    graph_build_ms=800.0,
    cpu_ns_per_element=1.0,
    cpu_ns_by_op=MappingProxyType({"aten::exponential_": 23.0}),
    sources=MappingProxyType(
        {
            "memory_gb": "users' reports of the 64 GB version",
            "memory_gbps": _CONFLICT,
            "tflops": "a user's 4,096³ bfloat16 matrix product on a 910B2: 315 TFLOP/s",
            "cpu_ns_by_op": "measured with torch 2.13 on 2 CPU cores, 256 × 152,000 float32",
            "unsupported": "assumed: none of the operators that the lab runs",
        }
    ),
)

P800_LIKE = DeviceModel(
    name="P800-like",
    memory_gb=64,
    memory_gbps=1200,
    tflops=300,
    kernel_floor_us=4.0,
    turnaround_us=2.0,
    graph_turnaround_us=1.0,
    start_us=10.0,
    sync_return_us=15.0,
    launch_us=8.0,
    operator_us=12.0,
    view_us=2.5,
    link_gbps=12,
    link_us=10.0,
    module_load_ms=40.0,
    graph_build_ms=800.0,
    cpu_ns_per_element=1.0,
    cpu_ns_by_op=MappingProxyType({"aten::exponential_": 123.0}),
    unsupported=frozenset({"aten::exponential_"}),
    sources=MappingProxyType(
        {
            "memory_gb": _CONFLICT,
            "memory_gbps": _CONFLICT,
            "tflops": _CONFLICT,
            "cpu_ns_by_op": _PRICE,
            "unsupported": _NO_EXPONENTIAL,
        }
    ),
)

MODELS: Mapping[str, DeviceModel] = MappingProxyType(
    {"p800": P800_LIKE, "910b": ASCEND_910B_LIKE, "h100": H100_LIKE}
)
"""By the name that `lab run --device` takes."""

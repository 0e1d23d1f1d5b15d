"""Faults by name. Each is the healthy engine with one part done the wrong way, as it was done somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from ..sampling import Request
from ..sampling.incidents import filter_by_sorting, sample_by_device_predicate, sample_exponential
from .decoder import DecodeLoop, Workload
from .engine import host_work
from .fused import top_k_top_p
from .storage import NAME


@dataclass(frozen=True)
class Fault:
    """A fault, and what a diagnosis of it has to say."""

    name: str
    line: str
    fingerprints: tuple[str, ...]
    """Right answers; empty where nothing is at fault."""
    loop: type[DecodeLoop]
    device: str
    """The device model that it is shown on."""
    work: Workload
    operator: str = ""
    """The operator, call or function that the bisection has to name; empty where there is no one."""
    repair: type[DecodeLoop] = DecodeLoop
    """The engine that does the same without the fault."""
    cold: bool = False
    """Recording starts with the first step."""
    slow_motion: float = 1.0
    """On the real clock the device's own times are so many times longer. Above 1 because the lab's dispatch
    takes several times as long as the framework that a model assumes, and a sync shows only on a device that
    the host can keep busy. Below 1 where the host's work is real: one thread of a CPU of today draws the
    noise in 24 to 46 ns a token, where the incident's host took 123, and the device is to keep its
    proportion."""


class ExponentialFallback(DecodeLoop):
    """The P800 incident: the noise of the sampler has no device kernel."""

    def sample(self, logits: Tensor) -> Tensor:
        return sample_exponential(logits)


class DevicePredicate(DecodeLoop):
    """The Ascend incident: whether a fused kernel may be used is asked of device tensors, each token; here
    for each of several groups of requests with equal parameters."""

    GROUPS = 8

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.asked = [min(50, work.vocab)] * work.batch
        self.top_k = torch.tensor(self.asked).to(NAME)
        self.top_p = torch.full((work.batch,), 0.9).to(NAME)

    def sample(self, logits: Tensor) -> Tensor:
        groups = (t.chunk(self.GROUPS) for t in (logits, self.top_k, self.top_p))
        return torch.cat([self.sample_group(*group) for group in zip(*groups, strict=True)])

    def sample_group(self, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
        return sample_by_device_predicate(logits, top_k, top_p, fused=self.fused)

    def fused(self, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
        host_work(150)  # collects the group's parameters
        return top_k_top_p(logits, top_k, top_p)


class HostPredicate(DevicePredicate):
    """The same, asked of the requests' own numbers when the batch is built."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.fits = all(1 <= k <= 1024 for k in self.asked)

    def sample_group(self, logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
        keep = self.fused if self.fits else filter_by_sorting
        weights = keep(logits, top_k, top_p).softmax(-1)
        return weights.div_(torch.empty_like(weights).uniform_().log_().neg_()).argmax(-1)


class PerRowGenerators(DecodeLoop):
    """Each request has a seed, and its noise is drawn with its own generator: one launch a request, or one
    fallback where the device has no kernel for it."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.generators = {i: torch.Generator(device=NAME).manual_seed(i) for i in range(work.batch)}

    def sample(self, logits: Tensor) -> Tensor:
        return sample_exponential(logits, generators=self.generators)


class SeededRows(DecodeLoop):
    """The same, with noise that follows from (seed, position) for all rows at once."""

    def request(self, row: int) -> Request:
        return Request(f"r{row}", seed=row)


class ItemPerStep(DecodeLoop):
    """Each request is asked in turn whether it is done."""

    EOS = -1

    def post_process(self, tokens: Tensor) -> None:
        self.finished = [row for row in range(self.work.batch) if self.is_finished(tokens[row])]

    def is_finished(self, token: Tensor) -> bool:
        return token.item() == self.EOS


class BooleanMask(DecodeLoop):
    """Each logits processor picks its rows with a boolean mask, whose count only the device knows."""

    PROCESSORS = 16

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        row = torch.arange(work.batch)
        self.rows = [self.selection(row % self.PROCESSORS == i) for i in range(self.PROCESSORS)]

    def selection(self, mask: Tensor) -> Tensor:
        return mask.to(NAME)

    def sample(self, logits: Tensor) -> Tensor:
        for rows in self.rows:
            self.penalize(logits, rows)
        return super().sample(logits)

    def penalize(self, logits: Tensor, rows: Tensor) -> None:
        logits[rows] *= 0.9


class RowNumbers(BooleanMask):
    """The same, with the numbers of the rows, which the host knows."""

    def selection(self, mask: Tensor) -> Tensor:
        return mask.nonzero().flatten().to(NAME)


class BlockingCopies(DecodeLoop):
    """The inputs go up in many small copies from pageable memory; each waits for all work before it."""

    COPIES = 21

    def prepare_inputs(self) -> None:
        super().prepare_inputs()
        self.metadata = [self.upload(i) for i in range(self.COPIES)]

    def upload(self, column: int) -> Tensor:
        host_work(5)  # makes the list
        return torch.tensor([column] * self.work.batch, device=NAME)


class SlowHostPreparation(DecodeLoop):
    """Block tables are built in Python, request by request."""

    def prepare_inputs(self) -> None:
        self.build_block_tables()
        super().prepare_inputs()

    def build_block_tables(self) -> None:
        for _ in range(self.work.batch):
            host_work(120)


class KvCopy(DecodeLoop):
    """The KV cache lives in host memory, and comes over the link for every step."""

    BLOCKS = 8
    BLOCK_BYTES = 512 << 10
    """Of one request."""

    def __init__(self, work: Workload) -> None:
        super().__init__(work)
        self.on_host = torch.empty(work.batch, self.BLOCK_BYTES, dtype=torch.uint8)
        self.on_device = torch.empty_like(self.on_host, device=NAME)

    def forward(self) -> Tensor:
        self.fetch_kv_blocks()
        return super().forward()

    def fetch_kv_blocks(self) -> None:
        for _ in range(self.BLOCKS):
            self.on_device.copy_(self.on_host, non_blocking=True)


def repaired(fault: Fault) -> Fault:
    """The same workload on the healthy engine: what the fault is to be measured against."""
    return replace(
        fault,
        name=f"{fault.name}, repaired",
        line=f"without this: {fault.line}",
        fingerprints=(),
        operator="",
        loop=fault.repair,
        work=replace(fault.work, graphs=True),
        cold=False,
    )


_LARGE = Workload()
_MEDIUM = Workload(weights_gb=8.0)
_SMALL = Workload(weights_gb=2.0)

_ALL = (
    Fault(
        name="none",
        line="the healthy engine: graph replay, sampling on the device, one wait a step",
        fingerprints=(),
        loop=DecodeLoop,
        device="p800",
        work=_LARGE,
        slow_motion=0.6,
    ),
    Fault(
        name="exponential-fallback",
        line="the sampler's noise has no device kernel and falls back to the host's CPU",
        fingerprints=("cpu-fallback",),
        operator="aten::exponential_",
        loop=ExponentialFallback,
        device="p800",
        work=_LARGE,
        slow_motion=0.6,
    ),
    Fault(
        name="device-predicate",
        line="a condition on request parameters is asked of a device tensor",
        fingerprints=("implicit-sync",),
        operator="aten::item",
        loop=DevicePredicate,
        repair=HostPredicate,
        device="910b",
        work=_SMALL,
        slow_motion=6,
    ),
    Fault(
        name="per-row-generators",
        line="noise is drawn with one generator a request: a launch for each row",
        fingerprints=("launch-bound", "cpu-fallback"),
        operator="aten::exponential_",
        loop=PerRowGenerators,
        repair=SeededRows,
        device="h100",
        work=_SMALL,
    ),
    Fault(
        name="item-per-step",
        line="every request is asked by `.item()` whether it is done",
        fingerprints=("implicit-sync",),
        operator="aten::item",
        loop=ItemPerStep,
        device="h100",
        work=_MEDIUM,
        slow_motion=6,
    ),
    Fault(
        name="boolean-mask",
        line="logits processors pick their rows with boolean masks",
        fingerprints=("implicit-sync",),
        operator="aten::nonzero",
        loop=BooleanMask,
        repair=RowNumbers,
        device="910b",
        work=_SMALL,
        slow_motion=6,
    ),
    Fault(
        name="eager-launches",
        line="the forward pass is launched kernel by kernel, many of them small",
        fingerprints=("launch-bound",),
        loop=DecodeLoop,
        device="h100",
        work=replace(_SMALL, layers=12, weights_gb=1.0, graphs=False),
    ),
    Fault(
        name="blocking-h2d",
        line="inputs are uploaded in small pieces from pageable memory",
        fingerprints=("implicit-sync",),
        operator="aten::copy_",
        loop=BlockingCopies,
        device="h100",
        work=_SMALL,
        slow_motion=6,
    ),
    Fault(
        name="slow-host-prep",
        line="block tables are built in Python, request by request",
        fingerprints=("host-bound",),
        operator="build_block_tables",
        loop=SlowHostPreparation,
        device="h100",
        work=_MEDIUM,
    ),
    Fault(
        name="cold-start",
        line="the first step loads modules and builds the graph",
        fingerprints=("warmup-compile",),
        loop=DecodeLoop,
        device="h100",
        work=_MEDIUM,
        cold=True,
    ),
    Fault(
        name="kv-copy",
        line="the KV cache comes from host memory at every step",
        fingerprints=("bandwidth-bound",),
        operator="Memcpy HtoD",
        loop=KvCopy,
        device="h100",
        work=_MEDIUM,
    ),
)

FAULTS: Mapping[str, Fault] = MappingProxyType({fault.name: fault for fault in _ALL})
"""By name, the healthy engine first."""

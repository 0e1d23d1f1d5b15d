"""No path of the sampler reads the device, waits for it, or lets a shape depend on a value.

Proved twice, without hardware: by what is dispatched on real tensors, and on a fake CUDA device, whose tensors
have no values, so that whatever needs one raises. Each detector is first shown the faults it must see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from xpu_triage.sampling import Request, SamplingBatch, sample
from xpu_triage.sampling.incidents import sample_by_device_predicate

VOCAB = 6000
READS_A_VALUE = {
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "equal",
    "masked_select",
    "unique_dim",
    "_unique2",
    "unique_consecutive",
    "repeat_interleave",
    "multinomial",
    "bincount",
}
OVER_A_MASK = {"index", "index_put", "index_put_", "_unsafe_index"}


class Recorder(TorchDispatchMode):
    """Names of the operators that ran, and those among them that would stop a device's queue."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []
        """Views are not among them: they launch nothing."""
        self.syncs: list[str] = []
        self.sorted_lengths: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if func.namespace == "aten" and not func.is_view:
            self.ran.append(name)
        masks = args[1] if name in OVER_A_MASK else ()
        if name in READS_A_VALUE or any(m is not None and m.dtype in (torch.bool, torch.uint8) for m in masks):
            self.syncs.append(name)
        if name in ("sort", "topk", "argsort", "kthvalue"):
            self.sorted_lengths.append(args[0].shape[-1])
        out = func(*args, **(kwargs or {}))
        if name == "_to_copy" and args[0].device.type != "cpu" and out.device.type == "cpu":
            self.syncs.append("copy to the host")
        return out


@contextmanager
def fake_cuda() -> Iterator[tuple[torch.device, Recorder]]:
    with FakeTensorMode(), Recorder() as recorder:
        yield torch.device("cuda", 0), recorder


# ----------------------------------------------------------------------------------------- what the detectors see
FAULTS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: 1 if (x > 0).all() else 0,
    "int": lambda x: int(x.sum()),
    "mask": lambda x: x[x > 0],
    "mask assignment by tensor": lambda x: x.index_put_((x > 9,), x.new_zeros(())),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x + 0),
    "multinomial": lambda x: x.abs().multinomial(1),
    "repeat_interleave": lambda x: x.flatten().repeat_interleave(x.flatten().long().abs()),
    "the incident": lambda x: sample_by_device_predicate(x, torch.full((4,), 5), torch.full((4,), 0.9)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_recorder_sees(fault):
    with Recorder() as recorder:
        FAULTS[fault](torch.randn(4, 50))
    assert recorder.syncs


@pytest.mark.parametrize("fault", ["item", "if", "masked_select", "unique", "equal", "repeat_interleave"])
def test_the_fake_device_refuses(fault):
    with fake_cuda() as (device, _), pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        FAULTS[fault](torch.empty(4, 50, device=device))


def test_a_copy_to_the_host_is_seen_on_the_fake_device():
    with fake_cuda() as (device, recorder):
        torch.empty(4, device=device).cpu()
    assert recorder.syncs == ["copy to the host"]


# ----------------------------------------------------------------------------------------------------- every path
KINDS = {
    "no filter": [{}],
    "temperature": [{"temperature": 0.7}],
    "min-p": [{"min_p": 0.1}],
    "greedy": [{"temperature": 0}],
    "top-k": [{"top_k": 50}],
    "top-k 1024": [{"top_k": 1024}],
    "top-k above 1024": [{"top_k": 2000}],
    "top-p": [{"top_p": 0.9}],
    "top-k, top-p": [{"top_k": 50, "top_p": 0.9}],
    "large k, top-p, min-p": [{"top_k": 2000, "top_p": 0.9, "min_p": 0.01, "temperature": 2}],
    "seeded": [{"seed": 1}, {"seed": 2}],
    "some seeded": [{"seed": 1}, {}],
    "mixed": [
        {"top_p": 0.9},
        {"temperature": 0},
        {"top_k": 50, "seed": 1},
        {},
        {"top_k": 3000, "min_p": 0.1},
        {"temperature": 0.5, "seed": 4},
    ],
}
WIDE = pytest.mark.parametrize("wide", [True, False], ids=["float64", "float32"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])


def batch_of(kind: str, device: torch.device | str, wide: bool) -> SamplingBatch:
    requests = [Request(f"r{i}", **p) for i, p in enumerate(KINDS[kind])]
    return SamplingBatch.from_requests(requests, VOCAB, device, wide=wide)


@WIDE
@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_fake_device_every_path_runs_without_a_value(kind, dtype, wide):
    with fake_cuda() as (device, recorder):
        batch = batch_of(kind, device, wide)
        logits = torch.empty(len(batch), VOCAB, dtype=dtype, device=device)
        tokens = [sample(logits, batch) for _ in range(2)]
    assert recorder.syncs == []
    assert [(t.shape, t.dtype, t.device) for t in tokens] == [((len(batch),), torch.int64, device)] * 2


@WIDE
@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_on_real_tensors_every_path_dispatches_nothing_that_would_wait(kind, dtype, wide):
    batch = batch_of(kind, "cpu", wide)
    logits = torch.randn(len(batch), VOCAB).to(dtype)
    with Recorder() as recorder:
        sample(logits, batch)
    assert recorder.syncs == []
    assert "exponential_" not in recorder.ran
    assert all(length < VOCAB for length in recorder.sorted_lengths), "the vocabulary is never sorted"


@WIDE
def test_rows_known_to_the_device_alone_are_not_looked_at_either(wide):
    with fake_cuda() as (device, recorder):
        unknown = SamplingBatch.from_device(["u", "v"], torch.empty(2, 4, device=device), VOCAB, wide=wide)
        known = batch_of("mixed", device, wide)
        for batch in (unknown, known.merge(unknown), known.merge(unknown).filter([0, 6, 2])):
            sample(torch.empty(len(batch), VOCAB, device=device), batch)
    assert recorder.syncs == []


def test_rows_with_generators_of_their_own_cost_a_launch_each_and_no_wait():
    requests = [Request(str(i), generator=torch.Generator().manual_seed(i)) for i in range(5)]
    batch = SamplingBatch.from_requests([*requests, Request("x"), Request("y", seed=3)], VOCAB)
    with Recorder() as recorder:
        sample(torch.randn(7, VOCAB), batch)
    assert recorder.syncs == []
    assert recorder.ran.count("uniform_") == 5


def test_seeds_cost_the_same_launches_for_1_row_and_for_100():
    launches = []
    for rows in (1, 100):
        batch = SamplingBatch.from_requests([Request(str(i), seed=i) for i in range(rows)], 300)
        _ = batch.on_device
        with Recorder() as recorder:
            sample(torch.randn(rows, 300), batch)
        launches.append(len(recorder.ran))
    assert launches[0] == launches[1]


@pytest.mark.parametrize(("kind", "most"), [("no filter", 50), ("top-k", 65), ("greedy", 65), ("top-p", 170)])
def test_a_step_is_a_bounded_number_of_launches(kind, most):
    with fake_cuda() as (device, recorder):
        batch = SamplingBatch.from_requests([Request(str(i), **KINDS[kind][0]) for i in range(32)], 152_000, device)
        logits = torch.empty(32, 152_000, device=device)
        sample(logits, batch)
        before = len(recorder.ran)
        sample(logits, batch)
    assert len(recorder.ran) - before <= most

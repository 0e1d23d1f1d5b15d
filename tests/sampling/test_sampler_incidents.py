"""The two samplers before their fixes: right tokens, at a price; and what each does that the fixed one does not."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xpu_triage.sampling import Request, SamplingBatch, kept, sample
from xpu_triage.sampling.incidents import filter_by_sorting, sample_by_device_predicate, sample_exponential


class Calls(TorchDispatchMode):
    """How often each operator ran, and over how many elements."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        size = args[0].numel() if args and isinstance(args[0], torch.Tensor) else 0
        self.elements[name] = self.elements.get(name, 0) + size
        return func(*args, **(kwargs or {}))


def test_the_incident_draws_one_exponential_for_every_token_of_every_row_and_the_fix_none():
    logits = torch.randn(8, 5000)
    with Calls() as faulty:
        sample_exponential(logits)
    batch = SamplingBatch.from_requests([Request(str(i)) for i in range(8)], 5000)
    with Calls() as fixed:
        sample(logits, batch)
    assert faulty.elements["exponential_"] == 8 * 5000
    assert "exponential_" not in fixed.elements
    assert fixed.elements.get("uniform_", 0) <= 8


def test_seeds_in_the_incident_cost_one_draw_for_each_row_and_not_one_more():
    generators = {row: torch.Generator().manual_seed(row) for row in range(4)}
    logits = torch.randn(4, 300)
    with Calls() as calls:
        first = sample_exponential(logits, generators=generators)
    assert calls.elements["exponential_"] == 4 * 300
    again = {row: torch.Generator().manual_seed(row) for row in range(4)}
    assert torch.equal(first, sample_exponential(logits, generators=again))


def test_the_predicate_on_the_device_is_read_by_the_host_once_a_token():
    top_k, top_p = torch.full((4,), 20), torch.full((4,), 0.9)
    with Calls() as calls:
        sample_by_device_predicate(torch.randn(4, 300), top_k, top_p)
    assert "_local_scalar_dense" in calls.elements


def test_the_predicate_takes_the_fused_kernel_exactly_where_the_hosts_flag_does():
    for ks in ([1, 1024], [5, 1025], [5, 3000]):
        taken = []

        def fused(logits, top_k, top_p, taken=taken):
            taken.append("fused")
            return filter_by_sorting(logits, top_k, top_p)

        top_k = torch.tensor(ks)
        sample_by_device_predicate(torch.randn(2, 3000), top_k, torch.ones(2), fused=fused)
        batch = SamplingBatch.from_requests([Request("r", top_k=k) for k in ks], 3000)
        assert bool(taken) is batch.fused_npu, ks


def test_without_ties_sorting_keeps_the_same_tokens_as_the_fixed_sampler():
    logits = torch.randn(6, 2000, generator=torch.Generator().manual_seed(1)) * 3
    top_k, top_p = torch.tensor([50, 3, 2000, 1999, 700, 1]), torch.tensor([0.9, 1.0, 0.6, 0.3, 0.99, 0.5])
    requests = [Request("r", top_k=int(k), top_p=float(p)) for k, p in zip(top_k, top_p, strict=True)]
    mask = kept(logits, SamplingBatch.from_requests(requests, 2000))
    assert torch.equal(mask, filter_by_sorting(logits, top_k, top_p) > -torch.inf)


def test_with_ties_sorting_keeps_more_than_k():
    logits = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert (filter_by_sorting(logits, torch.tensor([2])) > -torch.inf).sum() == 3
    assert kept(logits, SamplingBatch.from_requests([Request("r", top_k=2)], 4)).sum() == 2

"""What the counter is for: the fixed sampler waits for nothing on any path, handing over its token costs one wait, and
each fault of the lab shows as what it is. Two detectors count, and agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from xpu_triage import lab
from xpu_triage.lab.engine import ENGINE
from xpu_triage.sampling import Request, SamplingBatch, sample
from xpu_triage.syncs import count_syncs, prove_no_sync

VOCAB, STEPS = 2000, 3
PATHS = {
    "no filter": [{}],
    "temperature": [{"temperature": 0.7}],
    "greedy": [{"temperature": 0}],
    "min-p": [{"min_p": 0.1}],
    "top-k": [{"top_k": 50}],
    "large k": [{"top_k": 1500}],
    "top-p": [{"top_p": 0.9}],
    "top-k, top-p": [{"top_k": 50, "top_p": 0.9}],
    "seeded": [{"seed": 1}, {"seed": 2}],
    "all": [{"top_p": 0.9}, {"temperature": 0}, {"top_k": 50, "seed": 1}, {}, {"top_k": 1500, "min_p": 0.1}],
}


def batch_of(path: str, device: str) -> SamplingBatch:
    batch = SamplingBatch.from_requests([Request(f"r{i}", **p) for i, p in enumerate(PATHS[path])], VOCAB, device)
    _ = batch.on_device  # uploaded when the batch changes, and not in a step
    return batch


@pytest.mark.parametrize("path", PATHS)
def test_the_sampler_waits_for_nothing_and_the_token_costs_one(path, lab_device):
    batch = batch_of(path, "xpulab")
    logits = torch.randn(len(batch), VOCAB).to("xpulab")
    with count_syncs("lab") as by_waits, count_syncs("dispatch", device="xpulab") as by_dispatch:
        tokens = sample(logits, batch)
        by_waits.step()
        by_dispatch.step()
        tokens.tolist()
    assert (by_waits.by_step, by_waits.rest) == ((0,), 1)
    assert (by_dispatch.by_step, by_dispatch.rest) == ((0,), 1)


@pytest.mark.parametrize("path", PATHS)
def test_and_it_is_proved_without_values(path):
    def arguments(device: str) -> tuple[torch.Tensor, SamplingBatch]:
        batch = batch_of(path, device)
        return torch.empty(len(batch), VOCAB, device=device), batch

    proof = prove_no_sync(sample, arguments)
    assert proof.outcome == "proved", proof


WAITS = {
    "none": 1,
    "device-predicate": 1 + 8,
    "item-per-step": 1 + 16,
    "boolean-mask": 1 + 2 * 16,
    "blocking-h2d": 1 + 21,
}
"""A step of 16 requests: the token's one, and what the fault adds."""


@pytest.mark.parametrize("name", WAITS)
def test_the_faults_of_the_lab_cost_what_they_say(name, lab_device):
    fault = next(f for f in lab.faults() if f.name == name)
    ENGINE.configure(compute=False)
    loop = fault.loop(replace(fault.work, batch=16, vocab=VOCAB))
    with torch.inference_mode():
        loop.step()
        with count_syncs("lab") as by_waits, count_syncs("dispatch", device="xpulab") as by_dispatch:
            for _ in by_dispatch.steps(by_waits.steps(range(STEPS))):
                loop.step()
    assert by_waits.by_step == by_dispatch.by_step == (WAITS[name],) * STEPS
    assert by_waits.by_site == by_dispatch.by_site
    first = by_waits.rows[0]
    if name != "none":
        assert first.site.path.startswith(("xpu_triage/lab/faults.py", "xpu_triage/sampling/incidents.py"))


def test_a_fallback_is_seen_as_the_copies_that_it_makes(lab_device):
    model = replace(lab.MODELS["h100"], unsupported=frozenset({"aten::exponential_"}))
    ENGINE.configure(model=model)
    x = torch.empty(4, VOCAB, device="xpulab")
    with count_syncs("lab") as by_waits, count_syncs("dispatch", device="xpulab") as by_dispatch:
        x.exponential_()
    assert by_waits.total == by_dispatch.total == 2
    assert {r.site.text for r in (*by_waits.rows, *by_dispatch.rows)} == {"x.exponential_()"}

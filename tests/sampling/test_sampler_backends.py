"""Which backend is taken, and that each is called as its documentation wants."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import types
from pathlib import Path

import pytest
import torch

from xpu_triage.sampling import Request, SamplingBatch, backends, sample
from xpu_triage.sampling.incidents import filter_by_sorting

VOCAB = 2000


def batch_of(*parameters: dict, vocab: int = VOCAB, wide: bool = True) -> SamplingBatch:
    requests = [Request(f"r{i}", **p) for i, p in enumerate(parameters)]
    return SamplingBatch.from_requests(requests, vocab, wide=wide)


def chosen(device_type: str, *parameters: dict, has: bool = True) -> backends.Choice:
    return backends.choose(batch_of(*parameters), device_type, lambda package: has or not package)


# ------------------------------------------------------------------------------------------------------ the table
@pytest.mark.parametrize(
    ("device_type", "parameters", "name"),
    [
        ("cpu", [{"top_k": 50}], "torch"),
        ("xpulab", [{"top_k": 50}], "torch"),
        ("cuda", [{"top_k": 50}, {"top_p": 0.9}, {"temperature": 0}], "flashinfer"),
        ("cuda", [{}], "torch"),
        ("cuda", [{"top_k": 50}, {"seed": 1}], "torch"),
        ("cuda", [{"top_k": 50, "generator": torch.Generator()}], "torch"),
        ("cuda", [{"top_k": 50}, {"min_p": 0.1}], "torch"),
        ("npu", [{"top_k": 1024}, {"top_k": 1}], "npu_top_k_top_p"),
        ("npu", [{"top_k": 50, "min_p": 0.1}, {"temperature": 0}], "npu_top_k_top_p"),
        ("npu", [{"top_k": 1024}, {"top_k": 1025}], "torch"),
        ("npu", [{"top_k": 1024}, {}], "torch"),
        ("npu", [{"top_k": 50, "seed": 1}], "torch"),
    ],
    ids=lambda value: re.sub(r" at 0x[0-9a-f]+", "", str(value)),
)
def test_the_first_backend_that_takes_the_batch_is_chosen(device_type, parameters, name):
    assert chosen(device_type, *parameters).name == name


def test_the_reasons_against_the_ones_passed_over_are_told():
    assert chosen("npu", {"top_k": 50}, {}).passed_over == ("npu_top_k_top_p: a row's k is outside [1, 1024]",)
    assert chosen("cuda", {"top_k": 5}, has=False).passed_over == ("flashinfer: not installed",)
    assert chosen("cuda", {"top_k": 5}, {"seed": 1}).passed_over == ("flashinfer: seeded rows",)
    assert chosen("cpu", {"top_k": 5}).passed_over == ()
    unknown = SamplingBatch.from_device(["u"], torch.ones(1, 4), VOCAB)
    for device_type in ("cuda", "npu"):
        (reason,) = backends.choose(unknown, device_type, lambda package: True).passed_over
        assert "known to the device alone" in reason


def test_float64_is_used_where_it_is_known_to_run_on_the_device():
    wide = {name for name in ("cpu", "cuda", "mps", "xpu", "hpu") if backends.is_wide(torch.device(name))}
    assert wide == {"cpu", "cuda"}


# ------------------------------------------------------------------------------------------------- fused kernels
class Fused:
    """Stands for a package of fused kernels: checks what it is given, computes by sorting."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def npu_top_k_top_p(self, logits: torch.Tensor, p: torch.Tensor | None, k: torch.Tensor | None) -> torch.Tensor:
        self.calls.append("npu_top_k_top_p")
        assert logits.dim() == 2
        assert p is not None or k is not None
        assert p is None or (p.dtype is logits.dtype and p.shape == (len(logits),) and 0 <= p.min() <= p.max() <= 1)
        assert k is None or (k.dtype is torch.int32 and k.min() >= 1 and k.max() <= min(1024, logits.shape[1]))
        return filter_by_sorting(logits, None if k is None else k.long(), p)

    def top_k_top_p_sampling_from_logits(self, logits, top_k, top_p, *, generator=None) -> torch.Tensor:
        self.calls.append("top_k_top_p_sampling_from_logits")
        assert logits.dtype is torch.float32
        assert top_k.dtype is torch.int32
        assert top_p.dtype is torch.float32
        assert 1 <= top_k.min() <= top_k.max() <= logits.shape[1]
        kept = filter_by_sorting(logits, top_k.long(), top_p).softmax(-1)
        return kept.multinomial(1, generator=generator).squeeze(1).int()

    def top_k_sampling_from_probs(self, probs, top_k, *, generator=None) -> torch.Tensor:
        self.calls.append("top_k_sampling_from_probs")
        return self._of_probs(probs, top_k=top_k, generator=generator)

    def top_p_sampling_from_probs(self, probs, top_p, *, generator=None) -> torch.Tensor:
        self.calls.append("top_p_sampling_from_probs")
        return self._of_probs(probs, top_p=top_p, generator=generator)

    def _of_probs(self, probs, top_k=None, top_p=None, generator=None) -> torch.Tensor:
        assert torch.allclose(probs.sum(1), torch.ones(len(probs)))
        full_k = torch.full((len(probs),), probs.shape[1], dtype=torch.int32)
        p = torch.ones(len(probs)) if top_p is None else top_p
        k = full_k if top_k is None else top_k
        kept = filter_by_sorting(probs.log(), k.long(), p).softmax(-1)
        return kept.multinomial(1, generator=generator).squeeze(1).int()


@pytest.fixture
def fused(monkeypatch) -> Fused:
    stand_in = Fused()
    monkeypatch.setitem(sys.modules, "torch_npu", stand_in)
    package = types.ModuleType("flashinfer")
    package.sampling = stand_in
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    return stand_in


def pretend(monkeypatch, name: str) -> None:
    monkeypatch.setattr(backends, "choose", lambda batch: backends.Choice(name, ()))


MIXED = [{"top_k": 20, "temperature": 0.5}, {"temperature": 0}, {"top_k": 1000}, {"top_k": 7}]


@pytest.mark.parametrize(
    ("backend", "parameters", "call"),
    [
        ("npu_top_k_top_p", MIXED, "npu_top_k_top_p"),
        ("npu_top_k_top_p", [*MIXED, {"top_k": 3, "top_p": 0.4}], "npu_top_k_top_p"),
        ("npu_top_k_top_p", [*MIXED, {"top_k": 3, "min_p": 0.4}], "npu_top_k_top_p"),
        ("flashinfer", MIXED, "top_k_sampling_from_probs"),
        ("flashinfer", [{"top_p": 0.5}, {}], "top_p_sampling_from_probs"),
        ("flashinfer", [*MIXED, {"top_p": 0.5}, {}], "top_k_top_p_sampling_from_logits"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fused_backend_is_called_as_documented_and_draws_what_the_filters_keep(
    monkeypatch, fused, backend, parameters, call, dtype
):
    from xpu_triage.sampling import kept

    pretend(monkeypatch, backend)
    logits = (torch.randn(len(parameters), VOCAB, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    batch = batch_of(*parameters, wide=backend == "flashinfer")
    allowed = kept(logits.float() + torch.linspace(0, 1e-6, VOCAB), batch) | kept(logits, batch)
    for row, parameters_of_row in enumerate(parameters):
        if k := parameters_of_row.get("top_k"):  # fused kernels keep all that tie with the k-th
            allowed[row] |= logits[row] == logits[row].sort(descending=True).values[k - 1]
    for seed in range(20):
        tokens = sample(logits, batch, generator=torch.Generator().manual_seed(seed))
        assert tokens.dtype is torch.int64
        assert allowed.gather(1, tokens.unsqueeze(1)).all()
    assert set(fused.calls) == {call}


@pytest.mark.parametrize("backend", ["npu_top_k_top_p", "flashinfer"])
def test_a_greedy_row_takes_the_first_of_equals_where_the_kernel_keeps_them_all(monkeypatch, fused, backend):
    pretend(monkeypatch, backend)
    logits = torch.zeros(2, VOCAB)
    logits[:, 5:9] = 3.0
    batch = batch_of({"temperature": 0}, {"top_k": 1}, wide=backend == "flashinfer")
    assert {tuple(sample(logits, batch).tolist()) for _ in range(20)} == {(5, 5)}


def test_a_k_of_the_whole_of_a_small_vocabulary_reaches_the_npu_as_the_vocabulary(monkeypatch, fused):
    pretend(monkeypatch, "npu_top_k_top_p")
    batch = batch_of({}, {"top_k": 3}, vocab=16)
    assert batch.fused_npu
    sample(torch.randn(2, 16), batch)
    assert fused.calls == ["npu_top_k_top_p"]


# --------------------------------------------------------------------------------------------- the real packages
def test_the_signature_of_the_npu_operator_is_the_one_relied_upon():
    """Read from the installed package's own files, without importing it: it cannot load without CANN."""
    try:
        files = importlib.metadata.files("torch_npu") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torch_npu is not installed (extra: npu)")
    (table,) = [f for f in files if f.name == "npu_native_functions_by_codegen.yaml"]
    text = Path(str(table.locate())).read_text()
    (signature,) = re.findall(r"func: (npu_top_k_top_p\(.*)", text)
    assert signature == "npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor"

"""Guards against read-backs: what each of them notices, and the proof without hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from ...lab.storage import NAME
from ...sampling import Request, SamplingBatch, sample
from ...sampling.incidents import sample_by_device_predicate
from ...syncs import Proof, SyncsFound, assert_no_sync, prove_no_sync
from ..shown import Shown, counted, lines, said, stacked, table
from .syncs import lab_device

VOCAB = 6_000


@dataclass(frozen=True)
class Guarded:
    """One way to ask, and which guard notices."""

    code: str
    waits: bool
    """It makes the host wait."""
    by_patch: bool
    """The original guard objects: `torch.all` is patched to raise."""
    by_count: bool
    """`assert_no_sync` objects."""


ASKED: Sequence[tuple[str, bool, Callable[[Tensor], object]]] = (
    ("if torch.all((k <= 1024) & (k >= 1))", True, lambda k: bool(torch.all((k <= 1024) & (k >= 1)))),
    ("if ((k <= 1024) & (k >= 1)).all()", True, lambda k: bool(((k <= 1024) & (k >= 1)).all())),
    ("if torch.any(k > 1024)", True, lambda k: bool(torch.any(k > 1024))),
    ("if k.max() <= 1024", True, lambda k: bool(k.max() <= 1024)),
    ("if k.min() >= 1", True, lambda k: bool(k.min() >= 1)),
    ("k.max().item()", True, lambda k: k.max().item()),
    ("int(k.max())", True, lambda k: int(k.max())),
    ("k.tolist()", True, lambda k: k.tolist()),
    ("k.cpu()", True, lambda k: k.cpu()),
    ("k.to('cpu').numpy()", True, lambda k: k.to("cpu").numpy()),
    ("1025 in k", True, lambda k: 1025 in k),
    ("torch.equal(k, k.clamp(1, 1024))", True, lambda k: torch.equal(k, k.clamp(1, 1024))),
    ("(k > 1024).nonzero()", True, lambda k: (k > 1024).nonzero()),
    ("k[k > 1024]", True, lambda k: k[k > 1024]),
    ("k.unique()", True, lambda k: k.unique()),  # type: ignore[no-untyped-call]
    ("f'{k}'", True, lambda k: f"{k}"),
    ("torch.tensor([50, 20], device=k.device)", True, lambda k: torch.tensor([50, 20], device=k.device)),
    ("k.where(torch.all(k <= 1024), 1024)", False, lambda k: k.where(torch.all(k <= 1024), 1024)),
    ("k.masked_fill(k > 1024, 1024)", False, lambda k: k.masked_fill(k > 1024, 1024)),
    ("k.to('cpu', non_blocking=True)", False, lambda k: k.to("cpu", non_blocking=True)),
)
"""What can be written in the place of the condition, whether it makes the host wait, and the code itself."""


def guards() -> list[Guarded]:
    """Each way to ask, on the lab device, under both guards."""
    with lab_device():
        k = torch.tensor([50, 20, 1024]).to(NAME)
        return [Guarded(code, waits, patched(ask, k), objects(ask, k)) for code, waits, ask in ASKED]


def patched(function: Callable[[Tensor], object], k: Tensor) -> bool:
    """Whether the original guard objects: it replaces one function and waits for a call of it."""
    with mock.patch.object(torch, "all", side_effect=AssertionError("torch.all was called")):
        try:
            function(k)
        except AssertionError:
            return True
    return False


def objects(function: Callable[[Tensor], object], k: Tensor) -> bool:
    """Whether `assert_no_sync` objects."""
    try:
        assert_no_sync(function, k)
    except SyncsFound:
        return True
    return False


def guard_table(found: Sequence[Guarded]) -> Shown:
    """Which guard notices what, and how often each is wrong."""
    rows = [(g.code, *("yes" if b else "no" for b in (g.waits, g.by_patch, g.by_count))) for g in found]
    columns = ("the code in the step", "host waits", "torch.all patched: objects", "assert_no_sync: objects")
    waits = sum(g.waits for g in found)
    told = [
        f"{name}: {sum(g.waits and not getattr(g, how) for g in found)} of {waits} waits unnoticed, "
        f"{counted(sum(getattr(g, how) and not g.waits for g in found), 'false alarm')}."
        for name, how in (("torch.all patched", "by_patch"), ("assert_no_sync", "by_count"))
    ]
    return stacked(table(columns, rows), said(*told))


# ------------------------------------------------------------------------- the fixed sampler under the guard
KINDS: Sequence[tuple[str, dict[str, Any]]] = (
    ("no filter", {}),
    ("top-k 50, top-p 0.9", {"top_k": 50, "top_p": 0.9}),
    ("top-k 5,000", {"top_k": 5_000}),
    ("top-p 0.9, min-p 0.05", {"top_p": 0.9, "min_p": 0.05}),
    ("greedy", {"temperature": 0.0}),
    ("seeded", {"seed": 7}),
)
"""Every path of the sampler."""


def proofs() -> list[tuple[str, Proof]]:
    """The sampler on each kind of request and on all in one batch, and the sampler of the incident, run on
    tensors that hold no values."""
    every = [(words, [parameters]) for words, parameters in KINDS]
    every.append(("all of them in one batch", [parameters for _, parameters in KINDS]))
    found = [(f"fixed: {words}", _proved(kinds)) for words, kinds in every]
    found.append(("before the fix", prove_no_sync(sample_by_device_predicate, _asked_of_the_device)))
    return found


def _proved(kinds: Sequence[dict[str, Any]]) -> Proof:
    def arguments(device: str) -> tuple[Tensor, SamplingBatch]:
        requests = [Request(f"r{i}", **parameters) for i, parameters in enumerate(kinds)]
        batch = SamplingBatch.from_requests(requests, VOCAB, device)
        _ = batch.on_device  # the upload belongs to the change of the batch, and not to the step
        return torch.randn(len(batch), VOCAB, device=device), batch

    return prove_no_sync(sample, arguments)


def _asked_of_the_device(device: str) -> tuple[Tensor, Tensor, Tensor]:
    top_k, top_p = torch.full((2,), 50, device=device), torch.full((2,), 0.9, device=device)
    return torch.randn(2, VOCAB, device=device), top_k, top_p


def proof_table(found: Sequence[tuple[str, Proof]]) -> Shown:
    """What was proved, what was refuted and where."""
    rows = [(words, proof.outcome, proof.reason, str(proof.site or "")) for words, proof in found]
    unseen = found[0][1].cannot_see
    return stacked(table(("sampler", "no sync", "because", "line"), rows), lines("Not covered", unseen))

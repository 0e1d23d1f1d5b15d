"""The requests of a batch: kept on the host, sent to the device once for each change.

Every decision about *how* to sample (does any row need top-k? is every row greedy?) is a question about the
requests, not about the device. `SamplingBatch` answers them from the host's copy, so that no step ever reads
a device value to decide: the hidden sync of `if torch.all(top_ks <= 1024)` cannot be written here. The flags
are computed from the rows that are in the batch, so they are exact after a filter and the AND or OR of both
sides after a merge, with nothing to update. A row whose parameters exist on the device alone is *unknown*: it
takes the general path, which is right for any parameters, and costs speed alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..errors import TriageError
from .backends import is_wide
from .noise import Sources
from .request import SHORTLIST_MAX, BadRequest, OnDevice, Path, Request, Row, resolved_on_device

CAN_PIN = ("cuda", "npu", "xpu")
"""Device types whose runtime pins host memory, so that the upload need not wait either."""


@dataclass(frozen=True)
class Group:
    """The rows of one path, next to each other in the order of the draw, and what any of them needs."""

    path: Path
    start: int
    stop: int
    largest_k: int
    scaled: bool
    """Some temperature is not 1."""
    top_k: bool
    top_p: bool
    min_p: bool


@dataclass(frozen=True)
class DeviceParameters:
    """The batch on the device, [B] each, rows in the order of the draw. Views of one uploaded buffer."""

    inverse_temperature: Tensor
    log_min_p: Tensor
    """Natural logarithm; −inf where there is none."""
    top_p: Tensor
    """inf for rows that keep all: no sum reaches it, whatever its rounding."""
    top_k: Tensor
    """A float; inf for rows that keep all."""
    order: Tensor
    """int64: the batch row of each drawn row."""
    sources: Sources

    def rows(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Inverse temperature, log min-p, top-p and top-k of some rows, [n, 1] each."""
        length = stop - start
        return (
            self.inverse_temperature.narrow(0, start, length).unsqueeze(1),
            self.log_min_p.narrow(0, start, length).unsqueeze(1),
            self.top_p.narrow(0, start, length).unsqueeze(1),
            self.top_k.narrow(0, start, length).unsqueeze(1),
        )


@dataclass(frozen=True, eq=False)
class SamplingBatch:
    """The rows of a batch and everything that follows from them. Immutable but for `steps`."""

    rows: tuple[Request | OnDevice, ...]
    vocab: int
    device: torch.device
    wide: bool
    """Whether to compute in float64 where that decides something (`backends.is_wide`)."""
    steps: int = 0
    """Draws made since the batch was built. `sample` counts it up; it adds to every row's position."""

    # ------------------------------------------------------------------------------ building and changing
    @classmethod
    def from_requests(
        cls,
        requests: Iterable[Request],
        vocab: int,
        device: torch.device | str = "cpu",
        *,
        wide: bool | None = None,
    ) -> SamplingBatch:
        """A batch of `requests` over `vocab` tokens. Nothing is uploaded yet. Raises `BadRequest`."""
        device = torch.device(device)
        return cls(tuple(requests), vocab, device, is_wide(device) if wide is None else wide)

    @classmethod
    def from_device(
        cls, request_ids: Sequence[str], parameters: Tensor, vocab: int, *, wide: bool | None = None
    ) -> SamplingBatch:
        """A batch whose parameters the device alone knows.

        `parameters`: float [B, 4] of temperature, top_k (0 for none), top_p and min_p.
        """
        if parameters.shape != (len(request_ids), 4):
            what = f"shape {tuple(parameters.shape)} is not ({len(request_ids)}, 4)"
            raise BadRequest(request_ids[0] if request_ids else "", "parameters", what)
        rows = tuple(map(OnDevice, request_ids, parameters.unbind()))
        return cls(rows, vocab, parameters.device, is_wide(parameters.device) if wide is None else wide)

    def __post_init__(self) -> None:
        if not self.rows:
            raise TriageError("a sampling batch needs at least one request")
        if self.vocab < 1:
            raise TriageError(f"a vocabulary of {self.vocab} tokens cannot be sampled")
        for row in self.rows:
            own = row.generator.device if isinstance(row, Request) and row.generator else None
            if own is not None and not same_device(own, self.device):
                raise BadRequest(row.request_id, "generator", f"{own} is not the batch's {self.device}")

    def merge(self, other: SamplingBatch) -> SamplingBatch:
        """The rows of both, this batch's first. Each keeps its place in its own sequence."""
        joins = other.rows[0].request_id
        if not same_device(self.device, other.device):
            raise BadRequest(joins, "device", f"{other.device} is not the batch's, {self.device}")
        if self.vocab != other.vocab:
            raise BadRequest(joins, "vocab", f"{other.vocab} tokens cannot join a batch over {self.vocab}")
        return replace(self, rows=(*self._rows_now(), *other._rows_now()), steps=0)

    def filter(self, keep: Sequence[int]) -> SamplingBatch:
        """The rows at the host indices `keep`, in that order."""
        if isinstance(keep, Tensor):
            raise TriageError("filter: the rows to keep are a tensor", todo="Give a list of int")
        rows = self._rows_now()
        for i in keep:
            if isinstance(i, bool) or not 0 <= i < len(rows):
                raise TriageError(f"filter: {i!r} is not a row of a batch of {len(rows)}")
        return replace(self, rows=tuple(rows[i] for i in keep), steps=0)

    def advance(self) -> None:
        """Count one draw. On the host alone: the device is told by a kernel's argument."""
        object.__setattr__(self, "steps", self.steps + 1)

    def _rows_now(self) -> tuple[Request | OnDevice, ...]:
        return tuple(
            replace(row, position=row.position + self.steps) if isinstance(row, Request) else row
            for row in self.rows
        )

    def __len__(self) -> int:
        return len(self.rows)

    # --------------------------------------------------------------------------- what follows from the rows
    @cached_property
    def resolved(self) -> tuple[Row | None, ...]:
        """The rows in canonical form, None for one that the host does not know."""
        return tuple(Row.of(row, self.vocab) for row in self.rows)

    @cached_property
    def known(self) -> bool:
        """The host knows every row. Where it does not, the flags below take the side that is right."""
        return None not in self.resolved

    @cached_property
    def all_greedy(self) -> bool:
        return all(row is not None and row.k == 1 for row in self.resolved)

    @cached_property
    def needs_temperature(self) -> bool:
        return any(row is None or row.temperature != 1.0 for row in self.resolved)

    @cached_property
    def needs_top_k(self) -> bool:
        return any(row is None or row.k < self.vocab for row in self.resolved)

    @cached_property
    def needs_top_p(self) -> bool:
        return any(row is None or row.p < 1.0 for row in self.resolved)

    @cached_property
    def needs_min_p(self) -> bool:
        return any(row is None or row.min_p > 0.0 for row in self.resolved)

    @cached_property
    def largest_k(self) -> int:
        """The largest k of any row; the vocabulary where a row keeps all, or is unknown."""
        return max(self.vocab if row is None else row.k for row in self.resolved)

    @cached_property
    def fused_npu(self) -> bool:
        """Every row has a k in [1, 1024], as `npu_top_k_top_p` wants it: what the device predicate asked."""
        return all(row is not None and row.k <= SHORTLIST_MAX for row in self.resolved)

    @cached_property
    def any_seeded(self) -> bool:
        """Some row must draw the same in any batch: by seed, or by a generator of its own."""
        requests = [row for row in self.rows if isinstance(row, Request)]
        return any(request.seed is not None or request.generator is not None for request in requests)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        return tuple(Path.GENERAL if row is None else row.path for row in self.resolved)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The rows by path: the order in which they are drawn."""
        return tuple(sorted(range(len(self.rows)), key=self.paths.__getitem__))

    @cached_property
    def in_order(self) -> bool:
        """The order of the draw is the order of the rows: no gather, no scatter."""
        return self.order == tuple(range(len(self.rows)))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """One for each path that occurs, in the order of the draw."""
        groups: list[Group] = []
        for path in sorted(set(self.paths)):
            rows = (row for row, taken in zip(self.rows, self.paths, strict=True) if taken is path)
            members, start = replace(self, rows=tuple(rows)), groups[-1].stop if groups else 0
            groups.append(
                Group(
                    path,
                    start,
                    start + len(members),
                    largest_k=members.largest_k,
                    scaled=members.needs_temperature,
                    top_k=members.needs_top_k,
                    top_p=members.needs_top_p,
                    min_p=members.needs_min_p,
                )
            )
        return tuple(groups)

    # ----------------------------------------------------------------------------------------- the one upload
    @cached_property
    def on_device(self) -> DeviceParameters:
        """The parameters on the device, sent when first asked for: one copy for each batch.

        The buffer is int64 [9, B]. Floats travel in it by their bits and are views on the device, not
        conversions. From pinned memory the copy does not block the host.
        """
        rows, resolved = [self.rows[i] for i in self.order], [self.resolved[i] for i in self.order]
        requests = [row if isinstance(row, Request) else None for row in rows]
        unknown = [row.parameters for row in rows if isinstance(row, OnDevice)]
        number_of = {id(row): i for i, row in enumerate(r for r in rows if isinstance(r, OnDevice))}
        floats = [
            [1.0 if row is None else 1.0 / row.temperature for row in resolved],
            [-math.inf if row is None or row.min_p == 0.0 else math.log(row.min_p) for row in resolved],
            [math.inf if row is None or row.p >= 1.0 else row.p for row in resolved],
            [math.inf if row is None or row.k >= self.vocab else row.k for row in resolved],
        ]
        seeded = [request is not None and request.seed is not None for request in requests]
        whole = [
            [_as_int64(request.seed or 0) if request else 0 for request in requests],
            [request.position if request else 0 for request in requests],
            [int(yes) for yes in seeded],
            list(self.order),
            [number_of.get(id(row), -1) for row in rows],
        ]
        *bits, seed, position, is_seeded, order, number = self._sent(floats, whole).unbind()
        columns = [row.view(torch.float64) if self.wide else row.int().view(torch.float32) for row in bits]
        if unknown:
            theirs = torch.stack(unknown).to(columns[0].dtype).index_select(0, number.clamp(min=0))
            selected = zip(columns, resolved_on_device(theirs), strict=True)
            columns = [torch.where(number < 0, ours, value) for ours, value in selected]
        inverse_temperature, log_min_p, top_p, top_k = columns
        generators = {i: r.generator for i, r in enumerate(requests) if r and r.generator}
        sources = Sources(
            self.device, seed, position, is_seeded != 0, any(seeded), all(seeded), generators
        )
        return DeviceParameters(inverse_temperature, log_min_p, top_p, top_k, order, sources)

    def _sent(self, floats: list[list[float]], whole: list[list[int]]) -> Tensor:
        bits = np.array(floats, np.float64).view(np.int64)
        if not self.wide:
            bits = np.array(floats, np.float32).view(np.int32).astype(np.int64)
        host = torch.tensor(np.concatenate([bits, np.array(whole, np.int64)]))
        here = torch.accelerator.current_accelerator()
        if self.device.type in CAN_PIN and here is not None and here.type == self.device.type:
            return host.pin_memory().to(self.device, non_blocking=True)
        return host.to(self.device)

    def sources(self) -> Sources:
        """Where each row's random numbers come from at the present step."""
        base: Sources = self.on_device.sources
        return replace(base, position=base.position + self.steps)


def same_device(a: torch.device, b: torch.device) -> bool:
    """Whether both mean one device; without an index any of its type will do."""
    return a.type == b.type and (a.index == b.index or a.index is None or b.index is None)


def _as_int64(seed: int) -> int:
    return (seed + 2**63) % 2**64 - 2**63



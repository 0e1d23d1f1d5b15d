"""The condition decided on the host: exact after every merge and filter, with no wait for the device."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...lab.storage import NAME
from ...plots.words import percent
from ...sampling import Request, SamplingBatch, sample
from ...syncs import count_syncs
from ..shown import Shown, said, table
from .guards import KINDS
from .syncs import lab_device

VOCAB = 6_000
LARGEST = 1_024
"""The largest k that the fused kernel takes."""
FITTING, NOT_FITTING, UNUSUAL = (1, 20, 50, 200, LARGEST), (LARGEST + 1, 5_000, None), 0.05
"""Values of k that requests ask for, and the share of requests whose k does not fit."""
MOST_ROWS = 12


@dataclass(frozen=True)
class Flagged:
    """A batch that derives its flag from its rows, beside the flag that the original rule carries along."""

    words: str
    batch: SamplingBatch
    carried: bool
    """AND on merge; after a filter as before, never true again."""

    @property
    def derived(self) -> bool:
        return self.batch.fused_npu

    @property
    def fits(self) -> bool:
        """What the device would answer: every row has a k in [1, 1024]. Counted from the requests."""
        return all(isinstance(row, Request) and 1 <= (row.top_k or 0) <= LARGEST for row in self.batch.rows)

    def merge(self, words: str, other: Flagged) -> Flagged:
        return Flagged(words, self.batch.merge(other.batch), self.carried and other.carried)

    def filter(self, words: str, rows: Sequence[int]) -> Flagged:
        return Flagged(words, self.batch.filter(rows), self.carried)


def flagged(words: str, *top_ks: int | None) -> Flagged:
    """A new batch on the lab device with a request for each k."""
    batch = SamplingBatch.from_requests([Request(f"k {k}", top_k=k) for k in top_ks], VOCAB, NAME)
    return Flagged(words, batch, all(k is not None and 1 <= k <= LARGEST for k in top_ks))


def changes() -> list[Flagged]:
    """A batch that fits, one that does not, one that only the device knows, and what merging and filtering
    make of them."""
    with lab_device():
        a, b = flagged("a: k = 50, 20, 1,024", 50, 20, LARGEST), flagged("b: k = 5,000", 5_000)
        unknown = SamplingBatch.from_device(["u"], torch.zeros(1, 4, device=NAME), VOCAB)
        c = Flagged("c: a row that only the device knows", unknown, False)
        a_and_b, a_and_c = a.merge("a merged with b", b), a.merge("a merged with c", c)
        return [
            a,
            b,
            a_and_b,
            a_and_b.filter("… filtered to the rows of a", [0, 1, 2]),
            a_and_b.filter("… filtered to the row of b", [3]),
            c,
            a_and_c,
            a_and_c.filter("… filtered to the rows of a", [0, 1, 2]),
            flagged("k = 50, and a row without top-k", 50, None),
        ]


def change_table(found: Sequence[Flagged]) -> Shown:
    """The flags of each."""
    rows = [
        (f.words, f"{len(f.batch)}", f"{f.batch.largest_k:,}", yes(f.fits), yes(f.derived), yes(f.carried))
        for f in found
    ]
    columns = ("batch", "rows", "largest k", "every row fits", "derived flag", "carried flag")
    return table(columns, rows, numbers=(1, 2))


def yes(value: bool) -> str:
    return "yes" if value else "no"


@dataclass(frozen=True)
class Walked:
    """Many merges and filters in a row, with both flags held against the rows."""

    changes: int
    fitting: int
    """Moments at which every row fitted."""
    derived_wrong: int
    """The derived flag was not what the rows say."""
    carried_unsafe: int
    """The carried flag said yes where a row did not fit."""
    carried_missed: int
    """It said no where every row fitted."""
    waits: int
    """For the device, in all of it."""

    @property
    def told(self) -> Shown:
        """The same in words."""
        return said(
            f"{self.changes:,} merges and filters, with {self.waits} waits for the device. "
            f"The derived flag was wrong {self.derived_wrong} times.",
            f"The carried flag said yes {self.carried_unsafe} times where the kernel does not fit: it is safe. "
            f"It said no at {self.carried_missed:,} of the {self.fitting:,} moments at which every row fitted "
            f"({percent(self.carried_missed / self.fitting)}): one request with a large k, and the batch stays "
            "on the slow path until it is empty.",
        )


def walked(number: int = 2_000, seed: int = 0) -> Walked:
    """Let requests come and go, one in twenty with a k that does not fit. An empty batch starts anew."""
    source = random.Random(seed)
    fitting = wrong = unsafe = missed = 0
    with lab_device(), count_syncs("lab") as waited:
        batch: Flagged | None = None
        for _ in range(number):
            batch = _next(batch, source)
            fitting += batch.fits
            wrong += batch.derived is not batch.fits
            unsafe += batch.carried and not batch.fits
            missed += batch.fits and not batch.carried
    return Walked(number, fitting, wrong, unsafe, missed, waited.total)


def _next(batch: Flagged | None, source: random.Random) -> Flagged:
    arrives = flagged("", source.choice(NOT_FITTING if source.random() < UNUSUAL else FITTING))
    if batch is None:
        return arrives
    if len(batch.batch) < MOST_ROWS and source.random() < 0.5:
        return batch.merge("", arrives)
    stay = [row for row in range(len(batch.batch)) if source.random() < 0.8]
    return batch.filter("", stay) if stay else arrives


def counted_changes() -> list[tuple[str, int]]:
    """How often the host waits for the lab device in each thing that happens to a batch in a server."""
    requests = [Request(f"r{i}", **parameters) for i, (_, parameters) in enumerate(KINDS)]
    counts: list[tuple[str, int]] = []

    def does(words: str, function: Callable[[], Any]) -> Any:
        with count_syncs("lab") as waited:
            result = function()
        counts.append((words, waited.total))
        return result

    with lab_device():
        logits = torch.randn(len(requests), VOCAB, generator=torch.Generator().manual_seed(0)).to(NAME)
        batch = SamplingBatch.from_requests(requests, VOCAB, NAME)
        one_more = SamplingBatch.from_requests([Request("one more")], VOCAB, NAME)
        does("first step of a batch: its parameters go up", lambda: sample(logits, batch))
        does("every later step", lambda: sample(logits, batch))
        larger = does("merge", lambda: batch.merge(one_more))
        smaller = does("filter", lambda: larger.filter(range(1, len(larger))))
        does("first step after these", lambda: sample(logits, smaller))
        tokens = does("every later step", lambda: sample(logits, smaller))
        does("the tokens handed to the host", lambda: tokens.tolist())
    return counts


def counted_change_table(counts: Sequence[tuple[str, int]]) -> Shown:
    """What each of them costs in waits."""
    return table(("what happens", "waits"), [(words, f"{n}") for words, n in counts], numbers=(1,))

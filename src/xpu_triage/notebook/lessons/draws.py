"""Whether a sampler draws right: held against the exact distribution, and over a flat, wide vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...sampling import Request, SamplingBatch, sample
from ...sampling.incidents import sample_exponential
from ...sampling.noise import exponential_from_one_draw
from ..shown import Shown, table

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

VOCAB, ROWS = 64, 10_000
"""A vocabulary small enough that every token is drawn often, and the rows of one call."""
FLAT_VOCAB, FLAT_ROWS, FLAT_PARTS = 152_000, 64, 16
LEAST_EXPECTED = 5.0
"""Cells of a chi-square with fewer expected draws are put together."""
FALSE_ALARM = 1e-6
"""A right sampler has a smaller p-value than this once in a million seeds."""


# ------------------------------------------------------------------------- against the exact distribution
Draw = Callable[[Tensor, torch.Generator], Tensor]
"""Logits [B, V] and a source of random numbers → tokens int64 [B]."""


@dataclass(frozen=True)
class Fit:
    """Draws held against the exact distribution."""

    what: str
    request: Request
    draws: int
    outside: int
    """Draws of tokens that the request's filters drop."""
    statistic: float
    freedom: int
    p: float
    """The chance that a sampler with exactly this distribution is at least so far off."""

    @property
    def right(self) -> bool:
        return self.outside == 0 and self.p > FALSE_ALARM


def exact(logits: Floats, request: Request) -> Floats:
    """The probabilities that `request` asks for, [V], from its definition: a full sort in float64, and
    nothing of the sampler."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    if request.temperature == 0:
        return np.asarray(np.arange(len(logits)) == order[0], np.float64)
    weights = np.exp((logits[order] - logits[order[0]]) / request.temperature)
    weights[weights < request.min_p] = 0.0
    if request.top_k:
        weights[request.top_k :] = 0.0
    if request.top_p is not None and request.top_p < 1:
        running = np.cumsum(weights)
        weights[1 + int(np.searchsorted(running, request.top_p * running[-1])) :] = 0.0
    probabilities = np.empty_like(weights)
    probabilities[order] = weights / weights.sum()
    return probabilities


def chi_square(observed: Counts, probabilities: Floats) -> tuple[float, int, float]:
    """Pearson's statistic, its degrees of freedom, and the p-value. Rare tokens are put together until
    `LEAST_EXPECTED` draws are expected of them."""
    possible = probabilities > 0
    counts, expected = observed[possible].astype(np.float64), probabilities[possible] * observed.sum()
    order = np.argsort(expected, kind="stable")
    counts, expected = counts[order], expected[order]
    together = 1 + int((np.cumsum(expected) < LEAST_EXPECTED).sum())
    counts = np.r_[counts[:together].sum(), counts[together:]]
    expected = np.r_[expected[:together].sum(), expected[together:]]
    freedom = len(expected) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    if freedom == 0:
        return statistic, 0, 1.0
    upper = torch.special.gammaincc(torch.tensor(freedom / 2).double(), torch.tensor(statistic / 2).double())
    return statistic, freedom, float(upper)


def fitted(what: str, request: Request, draw: Draw, draws: int) -> Fit:
    """Draw `draws` tokens from seeded streams and hold them against the exact distribution."""
    source = torch.Generator().manual_seed(1)
    logits = torch.randn(VOCAB, generator=source) * 2
    rows, counts = logits.expand(ROWS, -1), np.zeros(VOCAB, np.int64)
    with one_thread():
        for _ in range(math.ceil(draws / ROWS)):
            counts += np.bincount(draw(rows, source).numpy(), minlength=VOCAB)
    probabilities = exact(logits.double().numpy(), request)
    outside = int(counts[probabilities == 0].sum())
    return Fit(what, request, int(counts.sum()), outside, *chi_square(counts, probabilities))


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small operators: on a busy machine threads that wait for each other cost ten times the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fixed(request: Request, *, wide: bool = True, seeded: bool = False) -> Draw:
    """The fixed sampler over rows that all ask for `request`; `seeded`: each with a seed of its own."""
    requests = [replace(request, request_id=f"r{i}", seed=i if seeded else None) for i in range(ROWS)]
    batch = SamplingBatch.from_requests(requests, VOCAB, wide=wide)
    return lambda logits, source: sample(logits, batch, generator=source)


def raced(noise: Callable[[Tensor, torch.Generator], Tensor]) -> Draw:
    """An exponential race over the whole row: argmax of probability ÷ noise."""
    return lambda logits, source: (logits.softmax(-1) / noise(torch.empty_like(logits), source)).argmax(-1)


def _exponential(empty: Tensor, source: torch.Generator) -> Tensor:
    return empty.exponential_(generator=source)


def _one_draw(empty: Tensor, source: torch.Generator) -> Tensor:
    return exponential_from_one_draw(empty.uniform_(generator=source))


def _twice(empty: Tensor, source: torch.Generator) -> Tensor:
    return _one_draw(empty, source).log().neg_()


def _clamped(empty: Tensor, source: torch.Generator) -> Tensor:
    return _one_draw(empty, source).clamp_(min=1e-4)


def _half(empty: Tensor, source: torch.Generator) -> Tensor:
    return _one_draw(empty.half(), source).float()


def _shared(empty: Tensor, source: torch.Generator) -> Tensor:
    return _one_draw(empty[:1].clone(), source).expand_as(empty)


PLAIN = Request("plain")
ASKED: Sequence[tuple[str, Request]] = (
    ("no filter", PLAIN),
    ("temperature 0.6", Request("r", temperature=0.6)),
    ("top-k 8", Request("r", top_k=8)),
    ("top-p 0.8", Request("r", top_p=0.8)),
    ("min-p 0.1", Request("r", min_p=0.1)),
    ("all of them", Request("r", temperature=1.5, top_k=20, top_p=0.9, min_p=0.02)),
    ("greedy", Request("r", temperature=0)),
)


def fits(draws: int = 100_000) -> list[Fit]:
    """The fixed sampler on every kind of request, seeded, and in the form for devices without float64."""
    found = [fitted(words, request, fixed(request), draws) for words, request in ASKED]
    found.append(fitted("no filter, each row with a seed", PLAIN, fixed(PLAIN, seeded=True), draws))
    found.append(fitted("no filter, float32 (exponential race)", PLAIN, fixed(PLAIN, wide=False), draws))
    return found


def other_fits(draws: int = 100_000) -> list[Fit]:
    """The incident's sampler before and after its own fix, and one that is bent: the test must see it."""
    return [
        fitted("before the fix: exponential_", PLAIN, before_the_fix, draws),
        fitted("the incident's fix: uniform_, log_, neg_", PLAIN, raced(_one_draw), draws),
        fitted("bent: the logarithm taken twice", PLAIN, raced(_twice), draws),
    ]


def before_the_fix(logits: Tensor, source: torch.Generator) -> Tensor:
    """The incident's sampler, which uses PyTorch's own generator, from the stream of `source`."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(1 << 31, (1,), generator=source)))
        return sample_exponential(logits)


def fit_table(found: Sequence[Fit]) -> Shown:
    """Chi-squares with their p-values."""
    rows = [
        (
            f.what,
            f"{f.draws:,}",
            f"{f.outside:,}",
            f"{f.statistic:,.1f}",
            f"{f.freedom}",
            _p(f.p),
            _right(f.right),
        )
        for f in found
    ]
    columns = ("sampler", "draws", "of dropped tokens", "chi-square", "freedom", "p-value", "")
    note = (
        f"Vocabulary {VOCAB}, against the exact probabilities in float64. A right sampler has p below "
        f"{FALSE_ALARM:g} once in a million seeds."
    )
    return table(columns, rows, numbers=range(1, 6), note=note)


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 1e-3 else f"{p:.0e}" if p > 1e-300 else "0"


def _right(right: bool) -> str:
    return "as asked" if right else "bent"


# ------------------------------------------------------------------------------- over a flat, wide vocabulary
@dataclass(frozen=True)
class Spread:
    """Draws from a flat distribution over the whole vocabulary."""

    what: str
    draws: int
    distinct: int
    first_part: float
    """Share of the draws in the first sixteenth of the vocabulary."""

    @property
    def right(self) -> bool:
        """Within five standard deviations of a sixteenth, and hardly a token twice."""
        deviation = math.sqrt(15 / 256 / self.draws)
        return abs(self.first_part - 1 / FLAT_PARTS) < 5 * deviation and self.distinct > 0.95 * self.draws


def spreads(rounds: int = 2) -> list[Spread]:
    """Flat draws over 152,000 tokens: the fixed sampler, and fixes that pass a chi-square on a few tokens."""
    batch = SamplingBatch.from_requests([PLAIN] * FLAT_ROWS, FLAT_VOCAB)
    narrow = SamplingBatch.from_requests([PLAIN] * FLAT_ROWS, FLAT_VOCAB, wide=False)
    samplers: Sequence[tuple[str, Draw]] = (
        ("fixed", lambda logits, source: sample(logits, batch, generator=source)),
        (
            "fixed, float32 (exponential race)",
            lambda logits, source: sample(logits, narrow, generator=source),
        ),
        ("the incident's fix: uniform_, log_, neg_", raced(_one_draw)),
        ("noise clamped at 1e-4", raced(_clamped)),
        ("noise in half precision", raced(_half)),
        ("one row of noise for all requests", raced(_shared)),
    )
    return [_spread(words, draw, rounds) for words, draw in samplers]


def _spread(what: str, draw: Draw, rounds: int) -> Spread:
    source = torch.Generator().manual_seed(2)
    logits = torch.zeros(FLAT_ROWS, FLAT_VOCAB)
    tokens = torch.cat([draw(logits, source) for _ in range(rounds)]).numpy()
    first = float((tokens < FLAT_VOCAB / FLAT_PARTS).mean())
    return Spread(what, len(tokens), len(np.unique(tokens)), first)


def spread_table(found: Sequence[Spread]) -> Shown:
    """How evenly each draws."""
    rows = [
        (s.what, f"{s.draws:,}", f"{s.distinct:,}", f"{100 * s.first_part:.1f} %", _right(s.right))
        for s in found
    ]
    columns = ("noise", "draws", "distinct tokens", "in the first sixteenth", "")
    note = f"Flat over {FLAT_VOCAB:,} tokens: a sixteenth is {100 / FLAT_PARTS:.1f} %."
    return table(columns, rows, numbers=(1, 2, 3), note=note)

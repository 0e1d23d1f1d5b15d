"""What the sampler must keep and with which probabilities, the slow way: Python, one row, a full sort.

Written from the definitions, with nothing of the sampler: no blocks, no keys, no histogram, no torch beyond
reading the row.
"""

from __future__ import annotations

import math
from itertools import accumulate

from torch import Tensor

from xpu_triage.sampling import Request


def exact_distribution(logits: Tensor, request: Request) -> dict[int, float]:
    """The tokens that `request` keeps of one row of logits [V], with their probabilities."""
    row = [float(value) for value in logits.float().tolist()]
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if request.temperature < 1e-5 or request.top_p == 0:
        return {order[0]: 1.0}
    largest = row[order[0]]
    scaled = {i: (row[i] - largest) * (1 / request.temperature) for i in order if row[i] > -math.inf}
    keep = [i for i in order if i in scaled]
    if request.min_p > 0:
        keep = [i for i in keep if scaled[i] >= math.log(request.min_p)]
    if request.top_k:
        keep = keep[: request.top_k]
    weights = {i: math.exp(scaled[i]) for i in keep}
    if request.top_p is not None and request.top_p < 1:
        target = request.top_p * math.fsum(weights.values())
        sums = list(accumulate(weights[i] for i in keep))
        keep = keep[: 1 + next((n for n, so_far in enumerate(sums) if so_far >= target), len(keep))]
    total = math.fsum(weights[i] for i in keep)
    return {i: weights[i] / total for i in keep}


def kept_tokens(logits: Tensor, request: Request) -> set[int]:
    """The tokens that `request` keeps, as far as they can be told from dropped ones: see `drawable`."""
    return set(exact_distribution(logits, request)) & drawable(logits, request)


def drawable(logits: Tensor, request: Request) -> set[int]:
    """Tokens more than e⁻⁸⁰ times as likely as the likeliest. Less is 0 in float32: kept or not is the same."""
    row = logits.double()
    temperature = 1.0 if request.temperature < 1e-5 else request.temperature
    return set(((row - row.max()) / temperature > -80).nonzero().flatten().tolist())

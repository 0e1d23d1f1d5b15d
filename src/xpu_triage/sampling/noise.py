"""Where the randomness of a draw comes from, and the two ways to spend it.

Both ways draw token i with probability w_i / Σw from unnormalised weights w:

*Inverse CDF*: one uniform u per row, and the first token at which the running sum of w exceeds u·Σw
(Devroye, *Non-Uniform Random Variate Generation*, 1986, ch. III). No noise matrix, one number per row, 53
bits of it. It needs float64 kernels for the running sums.

*Exponential race*: one exponential e_i per token, and the token with the largest w_i / e_i. The first of
independent exponential clocks with rates w_i rings with probability w_i / Σw; the logarithm of the same
argmax is the Gumbel-max trick (Maddison, Tarlow and Minka, *A\\* Sampling*, NeurIPS 2014). It needs
`uniform_`, `log1p` and a division in float32, and nothing else.

Measured (`benchmarks/bench_sampler.py`, two CPU cores, 256 × 152,000 weights): a race over the vocabulary takes
470 ms with one uniform a token, 1,380 with two, 1,020 with `exponential_`; a race of the block sums and then
inside one block 20; the inverse CDF, in the same two levels, 15. So a device with float64 draws by inverse CDF,
and one without runs the race in two levels; neither fills a matrix with noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

BITS_IN_ONE_DRAW = 24
"""What `uniform_` gives in float32: a multiple of 2⁻²⁴, with 0 among them, once in 16.8 million."""

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


# ------------------------------------------------------------------------------------------ uniform numbers
def hashed(seed: Tensor, position: Tensor, lane: Tensor | None = None) -> Tensor:
    """64 random bits for each (seed, position, lane): stateless, so a row draws the same wherever it stands.

    SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014), chained
    once for each of the three; counter-based as in Salmon et al., *Parallel Random Numbers: As Easy as 1, 2,
    3*, SC 2011. One expression over all rows. All int64, broadcast against each other; no lane is lane 0.
    """
    bits = _mix(seed + _GAMMA)
    bits = _mix(bits + position * _GAMMA)
    return _mix(bits + _GAMMA if lane is None else bits + (lane + 1) * _GAMMA)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift_right(z, 30)) * _MIX_1  # int64 products wrap around, as uint64 products would
    z = (z ^ _shift_right(z, 27)) * _MIX_2
    return z ^ _shift_right(z, 31)


def _shift_right(z: Tensor, by: int) -> Tensor:
    return (z >> by) & ((1 << (64 - by)) - 1)  # `>>` copies the sign bit down; the mask takes it away


def uniform_float64(bits: Tensor) -> Tensor:
    """The upper 53 of 64 random bits as a float64 in [0, 1)."""
    return _shift_right(bits, 11).to(torch.float64) * 2.0**-53


def uniform_pair_float32(bits: Tensor) -> tuple[Tensor, Tensor]:
    """Two float32 in [0, 1) of 24 bits each, from disjoint parts of 64 random bits."""
    high, low = _shift_right(bits, 40), _shift_right(bits, 16) & 0xFFFFFF
    return high.to(torch.float32) * 2.0**-24, low.to(torch.float32) * 2.0**-24


# ---------------------------------------------------------------------------------------- exponential noise
def exponential_from_one_draw(u: Tensor) -> Tensor:
    """−log U: the exponential in the form that replaced `exponential_` (`uniform_`, `log_`, `neg_`).

    `u` in [0, 1), left as it is. Good for a mass of 1e-5 and more. The smallest exponential it can give is
    about 6e-8, so rarer tokens come too seldom: p = 1e-7 at 0.73 of its rate, 1e-8 at 0.015. U = 0 gives inf,
    2.3 times in a 256 × 152,000 step: such a token cannot win, even where it is the only one.
    """
    return u.log().neg_()


def exponential_from_two_draws(u_high: Tensor, u_low: Tensor) -> Tensor:
    """−log(1 − U) with U = U₁ + 2⁻²⁴·U₂, kept inside (0, 1): right in the tails, never 0 and never inf.

    What decides a race between a common and a rare token is the *smallest* exponentials. Writing them near
    U = 0, where floating point is finest, and filling the 2⁻²⁴ between two values of the first draw from a
    second one, gives them a relative resolution of 2⁻²⁴ all the way down to 2⁻⁴⁸.
    """
    u = u_high + u_low * 2.0**-BITS_IN_ONE_DRAW
    u.clamp_(2.0**-48, 1 - 2.0**-BITS_IN_ONE_DRAW)
    return u.neg_().log1p_().neg_()


# --------------------------------------------------------------------------------------------- spending them
class InverseCdf:
    """One uniform a row, spent from the top: what picking a block leaves of it picks inside the block."""

    dtype = torch.float64

    def __init__(self, u: Tensor) -> None:
        """`u`: float64 [B] in [0, 1)."""
        self.u = u.unsqueeze(1)

    def rows(self, start: int, stop: int) -> InverseCdf:
        return InverseCdf(self.u.narrow(0, start, stop - start).squeeze(1))

    def pick(self, weights: Tensor) -> Tensor:
        """int64 [B]: an index into each row of `weights` [B, n], drawn in proportion to it.

        Never an index of weight 0; index 0 for a row whose weights add up to nothing, or to NaN.
        """
        weights = weights.to(self.dtype)
        running = weights.cumsum(1)
        total = running.narrow(1, running.shape[1] - 1, 1)
        target = self.u * total  # less than the total even when rounded, as u is at most 1 − 2⁻⁵³
        index = torch.searchsorted(running, target, right=True).clamp_(max=weights.shape[1] - 1)
        index = torch.where(total > 0, index, 0)
        weight = weights.gather(1, index)
        below = running.gather(1, index) - weight
        self.u = ((target - below) / weight).clamp_(0.0, 1 - 2.0**-53)
        return index.squeeze(1)


class Race:
    """One exponential for each of a row's candidates; every pick takes the next ones of the row."""

    dtype = torch.float32

    def __init__(self, exponentials: Tensor, used: int = 0) -> None:
        """`exponentials`: float32 [B, lanes], positive and finite."""
        self.exponentials, self.used = exponentials, used

    def rows(self, start: int, stop: int) -> Race:
        return Race(self.exponentials.narrow(0, start, stop - start), self.used)

    def pick(self, weights: Tensor) -> Tensor:
        """As `InverseCdf.pick`; the lanes must suffice."""
        n = weights.shape[1]
        noise = self.exponentials.narrow(1, self.used, n)
        self.used += n
        return race(weights.to(self.dtype), noise)


Noise = InverseCdf | Race


def race(weights: Tensor, exponentials: Tensor) -> Tensor:
    """int64 [B]: the winner of each row's race, argmax of `weights` / `exponentials`, both [B, n].

    A weight of 0 scores 0 and loses to any other (the noise is never 0, so there is no 0/0).
    """
    return (weights / exponentials).nan_to_num_(0.0, 0.0, 0.0).argmax(1)


# -------------------------------------------------------------------------------------------- getting them
@dataclass(frozen=True)
class Sources:
    """Where the rows of a batch, in the order of the draw, get their numbers from."""

    device: torch.device
    seed: Tensor
    """int64 [B] on the device; rows without a seed hold anything."""
    position: Tensor
    """int64 [B] on the device: tokens already drawn for the request."""
    seeded: Tensor
    """bool [B] on the device."""
    any_seeded: bool
    all_seeded: bool
    generators: Mapping[int, torch.Generator]
    """The rows that bring a generator of their own."""


def inverse_cdf_noise(sources: Sources, generator: torch.Generator | None = None) -> InverseCdf:
    """One float64 a row: hashed for seeded rows, from their own generator, or from `generator`."""
    rows = sources.seed.shape[0]
    hashed_u = uniform_float64(hashed(sources.seed, sources.position)) if sources.any_seeded else None
    if sources.all_seeded and hashed_u is not None:
        return InverseCdf(hashed_u)
    u = torch.rand(rows, dtype=torch.float64, device=sources.device, generator=generator)
    for row, own in sources.generators.items():
        u.narrow(0, row, 1).uniform_(generator=own)  # a launch a row: what seeds cost engines
    return InverseCdf(u if hashed_u is None else torch.where(sources.seeded, hashed_u, u))


def race_noise(sources: Sources, lanes: int, generator: torch.Generator | None = None) -> Race:
    """`lanes` exponentials a row, in float32. `lanes` must follow from the vocabulary, not from the batch."""
    rows = sources.seed.shape[0]
    pair = torch.rand(rows, 2, lanes, dtype=torch.float32, device=sources.device, generator=generator)
    for row, own in sources.generators.items():
        pair.select(0, row).uniform_(generator=own)
    if sources.any_seeded:
        lane = torch.arange(lanes, device=sources.device)
        bits = hashed(sources.seed.unsqueeze(1), sources.position.unsqueeze(1), lane)
        pair = torch.where(sources.seeded.view(-1, 1, 1), torch.stack(uniform_pair_float32(bits), 1), pair)
    return Race(exponential_from_two_draws(*pair.unbind(1)))

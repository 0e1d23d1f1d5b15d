"""One quantity of the runs of one load, in the same way on both sides of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np
from numpy.typing import NDArray

from .doubted import paused
from .records import BenchRecord, Floats, Requests, positive
from .resampling import MIN_BLOCKS, MIN_REQUESTS, Estimate, block_length, middle_half, rate, resampled, typical
from .signals import MIN_FOR_P99, gaps_a_token

THROUGHPUT = "throughput"

METRICS = ("ttft", "itl", "e2e", THROUGHPUT)
"""Time to first token; time per output token after the first (TPOT where both have it, else the gaps); request
duration; generated tokens per second: of what is kept in flight where requests are known, else of the run."""

TAILS = {"ttft_tail": "ttft", "itl_tail": "itl", "e2e_tail": "e2e"}
"""The slowest tenth of the requests, and the metric that it is the tail of. Of the gaps between tokens it is each
request's longest that counts: that is where one is held up."""

_OF_GAPS = ("typical gap", "p50 itl", "mean itl")
"""What a side is made of, where that is the time between two chunks."""

TYPICAL = "typical request"
"""Mean of the middle half of the requests, on logarithms."""


@dataclass(frozen=True)
class Side:
    value: float
    basis: str
    n: int | None
    """Requests behind it, where that is known."""
    estimate: Estimate | None = None


TAIL_SHARE = 0.1

MIN_TAIL_REQUESTS = 50
"""With fewer the slowest tenth is one or two requests, and they may be anything."""

ONE_A_GAP = 1.1
"""Gaps for each token, larger ÷ smaller of two recordings: where chunks hold more tokens, gaps are longer for that."""

_Way = Callable[[Sequence[BenchRecord]], Side | None]


def common_side(metric: str, old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> tuple[Side, Side] | None:
    """The metric of both, obtained alike: the first of the ways that both allow. None where there is none. A gap
    between chunks stands for a token only where both recordings have as many tokens in a chunk."""
    if metric == "itl_tail" and not _chunks_alike(old, new):
        return None
    for way in _WAYS[metric]:
        a, b = way(old), way(new)
        if a is not None and b is not None and (a.basis not in _OF_GAPS or _gaps_compare(a, b, old, new)):
            return a, b
    return None


def _gaps_compare(a: Side, b: Side, old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> bool:
    """Where chunks are not known in both there is a ratio, as long as nothing is claimed of it."""
    claims = a.estimate is not None and b.estimate is not None
    return _chunks_alike(old, new) or not (claims or _chunks_known(old, new))


def client_lag_ms(records: Sequence[BenchRecord], tail: bool = False) -> float | None:
    """Mean lag of the client's own event loop (its 99th percentile for the slowest requests), the largest over the
    runs; None where it was not recorded."""
    name = "client_lag_p99_ms" if tail else "client_lag_mean_ms"
    return max((record.extra[name] for record in records if name in record.extra), default=None)


def _from_requests(column: Callable[[Requests], Floats], basis: str = TYPICAL) -> _Way:
    def way(records: Sequence[BenchRecord]) -> Side | None:
        sides = []
        for record in records:
            if record.requests is None:
                continue
            values = positive(column(record.requests)[_order(record.requests)])
            if len(values):
                sides.append(_typical(values, record.concurrency, basis))
        return _together(sides)

    return way


def _typical(values: Floats, concurrency: float | None, basis: str) -> Side:
    estimate = typical(values, block_length(len(values), concurrency)) if len(values) >= MIN_REQUESTS else None
    return Side(math.exp(float(middle_half(np.log(values)))), basis, len(values), estimate)


def _tail_of(column: Callable[[Requests], Floats]) -> _Way:
    """The mean of the slowest tenth, on logarithms."""
    def way(records: Sequence[BenchRecord]) -> Side | None:
        sides = []
        for record in records:
            if record.requests is None:
                continue
            values = positive(column(record.requests)[_order(record.requests)])
            if len(values) < MIN_TAIL_REQUESTS:
                return None
            logs = np.log(values)
            # Slow requests come together, more so than others: longer blocks, as far as there are six of them.
            block = min(2 * block_length(len(logs), record.concurrency), len(logs) // MIN_BLOCKS)
            estimate = resampled(len(logs), block,
                                 lambda draws, logs=logs: _slowest(logs[draws]))  # type: ignore[misc]
            sides.append(Side(math.exp(float(_slowest(logs))), "slowest tenth", len(values), estimate))
        return _together(sides)

    return way


def _slowest(logs: Floats) -> Floats:
    """Mean of the largest tenth along the last axis."""
    cut = logs.shape[-1] - max(1, round(TAIL_SHARE * logs.shape[-1]))
    mean: Floats = np.partition(logs, cut, axis=-1)[..., cut:].mean(-1)
    return mean


def _p99(latency: str) -> _Way:
    """As a summary gives it; of a few requests it is their largest."""
    of = _from_stat(latency, "p99")

    def way(records: Sequence[BenchRecord]) -> Side | None:
        if any(record.requests is not None or (record.completed or 0) < MIN_FOR_P99 for record in records):
            return None
        return of(records)

    return way


def slowest_values(tail: str, old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> tuple[Floats, Floats] | None:
    """One figure a request, in ms: what `tail` is the slowest tenth of, for all runs of either side. None where a side
    has none, or where a gap is not the same thing in both."""
    if tail == "itl_tail" and not _chunks_alike(old, new):
        return None
    found = []
    for records in (old, new):
        columns = [_SLOWEST[tail](record.requests) for record in records if record.requests is not None]
        values = np.concatenate(columns) if columns else np.empty(0)
        found.append(positive(values))
    return (found[0], found[1]) if len(found[0]) and len(found[1]) else None


def _longest_gap(requests: Requests) -> Floats:
    if len(requests.itl_ms) != len(requests):
        return np.full(len(requests), np.nan)
    return np.array([gaps.max() if len(gaps) else np.nan for gaps in requests.itl_ms], dtype=float)


def _chunks_known(old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> bool:
    return all(gaps_a_token(record) for record in (*old, *new))


def _chunks_alike(old: Sequence[BenchRecord], new: Sequence[BenchRecord]) -> bool:
    ratios = [ratio for record in (*old, *new) if (ratio := gaps_a_token(record)) is not None and ratio > 0]
    return len(ratios) == len(old) + len(new) and max(ratios) <= ONE_A_GAP * min(ratios)


def _together(sides: Sequence[Side]) -> Side | None:
    """Repeats of one load: the mean of their logarithms. Where they lie further apart than each one's requests say, it
    is their distance that counts."""
    if len(sides) < 2:
        return sides[0] if sides else None
    estimates = [side.estimate for side in sides if side.estimate is not None]
    n = sum(side.n or 0 for side in sides)
    logs = np.log([side.value for side in sides])
    value = math.exp(float(logs.mean()))
    if len(estimates) < len(sides):
        return Side(value, sides[0].basis, n)
    within = math.sqrt(sum(e.se ** 2 for e in estimates)) / len(estimates)
    between = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return Side(value, sides[0].basis, n, Estimate(math.log(value), max(within, between), sum(e.df for e in estimates)))


def _order(requests: Requests) -> NDArray[np.intp]:
    """Rows in the order of their start; as they are where that is unknown."""
    start = requests.start_s
    return np.arange(len(requests)) if np.isnan(start).any() else np.argsort(start, kind="stable")


def _mean_gap(requests: Requests) -> Floats:
    if len(requests.itl_ms) != len(requests):
        return np.full(len(requests), np.nan)
    return np.array([gaps.mean() if len(gaps) else np.nan for gaps in requests.itl_ms], dtype=float)


def _from_stat(latency: str, part: str) -> _Way:
    def way(records: Sequence[BenchRecord]) -> Side | None:
        stats = [record.stat(latency) for record in records]
        values = [value for stat in stats if (value := getattr(stat, part)) and math.isfinite(value) and value > 0]
        known = [stat.n for stat in stats if stat.n is not None]
        if not values:
            return None
        value = values[0] if len(values) == 1 else geometric_mean(values)
        return Side(value, f"{part} {latency}", sum(known) if known else None)

    return way


def _steady(records: Sequence[BenchRecord]) -> Side | None:
    """Σ tokens ÷ Σ durations × requests in flight, where their number is kept. The run's own rate has its end in it as
    well, which one late request holds open, and by an amount that no request of the run tells."""
    sides = []
    for record in records:
        if record.requests is None or record.concurrency is None or record.request_rate is not None:
            continue
        order = _order(record.requests)
        tokens, times = record.requests.output_tokens[order], record.requests.e2e_ms[order]
        known = np.isfinite(tokens) & np.isfinite(times) & (times > 0) & (tokens > 0)
        count = int(known.sum())
        if not count:
            continue
        tokens, times = tokens[known], times[known]
        value = float(tokens.sum() / times.sum()) * 1000 * min(record.concurrency, count)
        sides.append(Side(value, "tokens/s while all run", count,
                          rate(tokens, times, block_length(count, record.concurrency))))
    return _together(sides)


def _throughput(records: Sequence[BenchRecord]) -> Side | None:
    """As the tool has it, over the whole run, without an interval. At a rate that is set from outside it says nothing
    of the server until that falls behind; nor does it of a run that waited most of its time."""
    sides = []
    for record in records:
        value = record.output_tokens_per_s
        if not value or not math.isfinite(value) or value < 0 or paused(record):
            continue
        sides.append(Side(value, "tokens/s of the run", record.completed))
    return _together(sides)


_SLOWEST: dict[str, Callable[[Requests], Floats]] = {
    "ttft_tail": lambda r: r.ttft_ms, "itl_tail": _longest_gap, "e2e_tail": lambda r: r.e2e_ms}

_WAYS: dict[str, tuple[_Way, ...]] = {
    "ttft": (_from_requests(lambda r: r.ttft_ms), _from_stat("ttft", "p50"), _from_stat("ttft", "mean")),
    "itl": (_from_requests(lambda r: r.tpot_ms), _from_requests(_mean_gap, "typical gap"), _from_stat("tpot", "p50"),
            _from_stat("itl", "p50"), _from_stat("tpot", "mean"), _from_stat("itl", "mean")),
    "e2e": (_from_requests(lambda r: r.e2e_ms), _from_stat("e2e", "p50"), _from_stat("e2e", "mean")),
    THROUGHPUT: (_steady, _throughput),
    **{tail: (_tail_of(_SLOWEST[tail]), _p99(latency)) for tail, latency in TAILS.items()},
}

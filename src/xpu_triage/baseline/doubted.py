"""Times of a run held against each other: what no mixture of requests, no failure and no pause explains is a wrong unit
and is refused; what one of them may explain is said.

Units differ by 1,000, so that a factor counts from `UNIT` on. Only like is held against like: a mean against a mean, a
request against itself. A median length times a mean time is the duration of no request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..text import counted
from ..units import figure
from .records import BenchRecord, Floats, Requests, Stat

UNIT = 1000 / 30
"""Larger ÷ smaller of two figures of one quantity from which on they are of two units: 1,000, less what a lag of the
client, a window and a rounded figure move."""

TOKEN_OFF = 3.0
"""Time for each token ÷ time of a whole request from which on the two cannot be of one unit, where several statistics
say so. One token takes no longer than its request; requests of a single token have no time for each, hence the rest."""

LONGER_THAN_RUN = 10.0
"""Mean duration ÷ the run's, from which on they cannot be of one unit. No request takes longer than its run; the rest
is for tools that cut a window out of it."""

FASTEST_MS = 0.1
"""For each token of one request: 10,000 tokens/s. The fastest services give some 2,000 to one request. Judgement."""

STATISTICS = ("mean", "p50", "p90", "p99", "max")


def units_doubted(record: BenchRecord) -> str:
    """Why the times of a run cannot all be of the units that they are given in; empty where they can, or where there is
    nothing to hold them against. A request is its first token and all others, and by Little's law durations add up to
    requests in flight × the run."""
    said = _parts_of_requests(record.requests) or _parts_of_summary(record) or _flying(record)
    return f"units contradict each other: {said}" if said else ""


def paused(record: BenchRecord) -> str:
    """That for most of a run far fewer requests were in flight than were kept, and what that may be; empty otherwise.
    Rates of such a run are not those of its load."""
    each, kept = _longest_each_ms(record), _kept(record)
    if each is None or kept is None or record.request_rate is not None or not record.concurrency:
        return ""
    flying = _in_flight(record, each)
    if flying is None or flying >= kept / UNIT:
        return ""
    failed = f"{counted(record.failed, 'request')} failed" if record.failed else "one that hung"
    end = _ended_s(record.requests)
    ended = f", the last of them ended after {figure(end)} s" if end is not None else ""
    return (f"{_were(record, each, flying)}{ended}: {failed}, pauses of the client or a wrong unit; rates of this run "
            "are not those of its load")


def _like(one: Stat, other: Stat) -> list[tuple[float, float]]:
    """Of two distributions the statistics that both have."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in STATISTICS)
    return [(a, b) for a, b in pairs if _positive(a) and _positive(b)]


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _parts_of_requests(requests: Requests | None) -> str:
    """Each request against itself, the middle of all: a wrong unit is wrong in every one."""
    if requests is None:
        return ""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        others = requests.tpot_ms * (requests.output_tokens - 1)
        parts = requests.ttft_ms + np.where(requests.output_tokens == 1, 0.0, others)
        known = np.isfinite(parts) & (parts > 0) & np.isfinite(requests.e2e_ms) & (requests.e2e_ms > 0)
        only, all_ = requests.ttft_ms / requests.e2e_ms, parts / requests.e2e_ms
    if known.any() and not 1 / UNIT <= _middle(all_[known]) <= UNIT:
        return (f"the tokens of a request take {figure(_middle(parts[known]))} ms, and a request takes "
                f"{figure(_middle(requests.e2e_ms[known]))} ms")
    only = only[np.isfinite(only)]
    if len(only) and _middle(only) > UNIT:
        return (f"{figure(_middle(requests.ttft_ms))} ms to the first token, and a request takes "
                f"{figure(_middle(requests.e2e_ms))} ms")
    return ""


def _middle(values: Floats) -> float:
    return float(np.nanmedian(values))


def _parts_of_summary(record: BenchRecord) -> str:
    first, token, whole = (record.stat(name) for name in ("ttft", "tpot", "e2e"))
    if (pairs := _like(first, whole)) and all(part > UNIT * all_ for part, all_ in pairs):
        return f"{figure(pairs[0][0])} ms to the first token, and a request takes {figure(pairs[0][1])} ms"
    pairs = _like(token, whole)
    if pairs and all(part > (TOKEN_OFF if len(pairs) > 2 else UNIT) * all_ for part, all_ in pairs):
        return f"{figure(pairs[0][0])} ms for each token, and a request takes {figure(pairs[0][1])} ms"
    tokens = _mean_tokens(record)
    if tokens is None or tokens < 1 or not (first.mean and whole.mean) or (tokens > 1 and not token.mean):
        return ""
    others = (token.mean or 0.0) * (tokens - 1)
    # Long answers may have slower tokens than short ones, and then means fall short: not below what any model takes.
    if (first.mean + others) * UNIT < whole.mean and first.mean + others < _fastest_ms(record):
        return (f"{figure(first.mean)} ms to the first token and {figure(others)} ms for the others, and a request "
                f"takes {figure(whole.mean)} ms")
    return ""


def _flying(record: BenchRecord) -> str:
    least, most, kept = _shortest_each_ms(record), _longest_each_ms(record), _kept(record)
    if least is not None and record.duration_s and record.completed:
        flying = _in_flight(record, least)
        bound = min(UNIT * kept if kept else math.inf, LONGER_THAN_RUN * record.completed)
        if flying is not None and flying > bound:
            return _were(record, least, flying)
    # Too few in flight may be a failure or a pause. It is a unit where a request is faster than any can be as well.
    if most is not None and most < _fastest_ms(record) and paused(record):
        flying = _in_flight(record, most)
        return "" if flying is None else _were(record, most, flying)
    return ""


def _fastest_ms(record: BenchRecord) -> float:
    """What no request of such a length takes less than; the shorter where two ways give the length, and of a request
    and its answer over a network in any case 1 ms."""
    lengths = [tokens for tokens in (_mean_tokens(record), record.output_tokens) if tokens]
    return max(FASTEST_MS * min(lengths, default=1.0), 1.0)


def _were(record: BenchRecord, each_ms: float, flying: float) -> str:
    were = f"{figure(record.concurrency)} were kept" if record.concurrency else "there were no more than those"
    seconds = figure(record.duration_s or 0.0)
    return (f"{counted(record.completed or 0, 'request')} of {figure(each_ms)} ms in {seconds} s are {figure(flying)} "
            f"in flight, and {were}")


def _in_flight(record: BenchRecord, each_ms: float) -> float | None:
    """In the mean over the run; None for unknown."""
    if not _positive(record.duration_s) or not record.duration_s or not record.completed:
        return None
    flying = record.completed * each_ms / 1000 / record.duration_s
    return flying if math.isfinite(flying) else None


def _kept(record: BenchRecord) -> float | None:
    """Requests that can have been in flight at once."""
    if not record.completed or not _positive(record.concurrency) or record.concurrency is None:
        return None
    return min(record.concurrency, record.completed + (record.failed or 0))


def _shortest_each_ms(record: BenchRecord) -> float | None:
    """What a request takes in the mean at least. Half of a median: the other half may take no time."""
    whole = record.stat("e2e")
    known = [whole.mean, whole.p50 / 2 if whole.p50 else None]
    parts = [record.stat("ttft").mean, _all_gaps_ms(record)]
    for ways in (known, parts):
        if found := [ms for ms in ways if ms is not None and _positive(ms)]:
            return max(found)
    return None


def _longest_each_ms(record: BenchRecord) -> float | None:
    """What a request takes in the mean as far as it is known; of ways that differ the longest."""
    whole = record.stat("e2e")
    if _positive(whole.mean):
        return whole.mean
    return max(_ways_ms(record), default=None)


def _ways_ms(record: BenchRecord) -> Iterator[float]:
    first, tokens = record.stat("ttft"), _mean_tokens(record) or record.output_tokens
    if whole := record.stat("e2e").p50:
        yield whole
    start = first.mean or first.p50
    if not start:
        return
    if gaps := _all_gaps_ms(record):
        yield start + gaps
    for token in (record.stat("tpot").mean, record.stat("tpot").p50):
        if token and tokens and tokens > 1:
            yield start + token * (tokens - 1)


def _all_gaps_ms(record: BenchRecord) -> float | None:
    """Gaps of a request in the mean, all together."""
    gaps = record.stat("itl")
    return gaps.mean * gaps.n / record.completed if gaps.mean and gaps.n and record.completed else None


def _mean_tokens(record: BenchRecord) -> float | None:
    """Mean length of an answer; None for unknown, for a median is none."""
    if record.requests is not None and np.isfinite(record.requests.output_tokens).any():
        return float(np.nanmean(record.requests.output_tokens))
    if any(line.startswith("lengths: means") for line in record.definitions):
        return record.output_tokens
    if record.output_tokens_per_s and record.duration_s and record.completed:
        return record.output_tokens_per_s * record.duration_s / record.completed
    return None


def _ended_s(requests: Requests | None) -> float | None:
    """When the last completed request ended, from the start of the first."""
    if requests is None:
        return None
    ends = requests.start_s + requests.e2e_ms / 1000
    return None if np.isnan(ends).any() or not len(ends) else float(ends.max())

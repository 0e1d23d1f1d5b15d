"""Latencies and prompt lengths between two scrapes, from the difference of their histograms."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..text import counted
from ..units import figure
from .histograms import Spread
from .serving_basis import TAKE_TWO, Findings, rounded, total

MIN_FOR_P99 = 100
"""Observations from which a 99th percentile is more than the largest of them."""


def latencies(out: Findings) -> None:
    """`latency.*` as the engine measures them, and `serving.prompt_tokens`."""
    latency(out, "latency.ttft_ms", "ttft", mean=None)
    latency(out, "latency.engine_itl_ms", "gap")
    latency(out, "latency.engine_itl_ms", "per_token")
    latency(out, "latency.e2e_ms", "e2e")
    latency(out, "latency.queue_ms", "queue")
    _queue_share(out)
    _p99(out)
    parts = out.run.spread("prefill_in_parts")
    if parts is not None and parts[0].count > 0:
        out.miss("latency.prefill_ms", "prompts are computed in pieces, and the engine times each piece alone")
    else:
        latency(out, "latency.prefill_ms", "prefill", mean=lambda spread: True)
    _prompts(out)


def _queue_share(out: Findings) -> None:
    """Of sums: a ratio of two medians, each read off a coarse bucket, may be anything up to the whole."""
    queue, first = out.run.spread("queue"), out.run.spread("ttft")
    if len(out.run.views) == 1 or queue is None or first is None:
        return
    waited, took = queue[0].mean, first[0].mean
    if waited is None or not took or queue[0].count <= 0 or first[0].count <= 0:
        return
    if 0 <= waited <= took:
        out.give("serving.queued_fraction", rounded(waited / took), f"means of {queue[0].count:,.0f} and "
                 f"{first[0].count:,.0f} requests, {figure(waited * 1000)} of {figure(took * 1000)} ms")
    else:
        out.miss("serving.queued_fraction", f"the mean time in the queue, {figure(waited * 1000)} ms, is longer than "
                 f"that to the first token, {figure(took * 1000)} ms: they are of different requests")


def _fits(spread: Spread) -> bool:
    """Whether a mean can stand for the median: it lies in the median's bucket."""
    found = spread.bucket(0.5)
    return found is None or (spread.mean is not None and found[0] < spread.mean <= found[1] < math.inf)


def latency(out: Findings, signal: str, quantity: str, *, mean: Callable[[Spread], bool] | None = _fits) -> None:
    """The median between two scrapes, else the mean where `mean` allows it, in ms."""
    run = out.run
    if len(run.views) == 1:
        _lifetime(out, signal, quantity)
        return
    if (found := run.spread(quantity)) is None:
        return
    spread, source = found
    if spread.count <= 0:
        out.miss(signal, "none was observed between the scrapes")
        return
    remark = f"; {source.remark}" if source.remark else ""
    if (middle := spread.quantile(0.5)) is not None:
        out.give(signal, rounded(middle * 1000), f"median of {spread.count:,.0f}, {_between(spread, 0.5)}{remark}")
        return
    average = spread.mean
    if average is not None and average <= 0:
        out.miss(signal, "the engine says exactly 0, which no request takes")
    elif average is not None and mean is not None and mean(spread):
        out.give(signal, rounded(average * 1000), f"mean of {spread.count:,.0f}, the buckets are too coarse for a "
                 f"median{remark}")
    else:
        out.miss(signal, _too_coarse(spread))


def _between(spread: Spread, share: float) -> str:
    lower, upper = spread.bucket(share) or (0.0, 0.0)
    return f"in the bucket of {figure(lower * 1000)} to {figure(upper * 1000)} ms"


def _too_coarse(spread: Spread) -> str:
    found = spread.bucket(0.5)
    where = "no buckets"
    if found is not None:
        lower, upper = found
        where = f"the median lies over {figure(lower * 1000)} ms" if math.isinf(upper) else \
            f"the median lies between {figure(lower * 1000)} and {figure(upper * 1000)} ms"
    average = f", the mean is {figure(spread.mean * 1000)} ms" if spread.mean is not None else ""
    return f"the buckets are too coarse: {where}{average} (of {spread.count:,.0f})"


def _lifetime(out: Findings, signal: str, quantity: str) -> None:
    """Why one scrape is not enough, with what it says."""
    view = out.run.views[0]
    for source in out.run.engine.histograms.get(quantity, ()):
        count, sum_s = total(view.cells(source, "_count")), total(view.cells(source, "_sum"))
        if not count:
            continue
        mean = f"mean {figure(sum_s / count * 1000)} ms of " if sum_s else ""
        out.miss(signal, f"one scrape counts since the server started ({mean}{count:,.0f}): {TAKE_TWO}")
        return
    if any(view.has(source, "_count") for source in out.run.engine.histograms.get(quantity, ())):
        out.miss(signal, TAKE_TWO)


def _p99(out: Findings) -> None:
    found = out.run.spread("gap") if len(out.run.views) > 1 else None
    if found is None or found[0].count < MIN_FOR_P99:
        return
    if (high := found[0].quantile(0.99)) is not None:
        out.give("latency.itl_p99_ms", rounded(high * 1000),
                 f"of {found[0].count:,.0f} gaps as the engine measures them, {_between(found[0], 0.99)}")


def _prompts(out: Findings) -> None:
    run, signal = out.run, "serving.prompt_tokens"
    found = run.spread("prompt_length") if len(run.views) > 1 else None
    if found is not None and found[0].count > 0:
        spread = found[0]
        if (middle := spread.quantile(0.5)) is not None:
            out.give(signal, rounded(middle), f"median of {counted(round(spread.count), 'request')}, by bucket")
        elif spread.mean and _fits(spread):
            out.give(signal, rounded(spread.mean), f"mean of {counted(round(spread.count), 'request')}")
        return
    prompt, finished = run.change("prompt"), run.change("finished")
    if prompt is not None and finished is not None and prompt.source.at_finish and finished.value > 0 < prompt.value:
        out.give(signal, rounded(prompt.value / finished.value), f"mean of {counted(round(finished.value), 'request')}")

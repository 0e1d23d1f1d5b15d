"""Which dimension got worse, in words: where in the grid of loads, and in which of the two stages.

Looked at in this order, because a stage that is slow makes the other wait as soon as several requests run:
1. At the lowest concurrency nothing waits for anything else: what is slower there is the stage at fault.
2. What is slower only with more requests in flight is the queue, the batch, or the cache.
3. Within a stage, how the ratio moves with prompt and output length tells the part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from .compare import FALSE_ALARMS, SEEN, Comparison, Entry, State
from .figures import THROUGHPUT
from .grid import MAX_ASKED, Grid
from .loads import words
from .store import Cell

_NAMES = {"concurrency": "concurrency", "prompt_tokens": "prompt length", "output_tokens": "output length"}


class Kind(StrEnum):
    NONE = "no regression"
    UNKNOWN = "no claim"
    """Nothing that was measured allows one."""
    DEVICE_OR_BUILD = "device or build"
    PREFILL = "prefill"
    QUEUE = "queue"
    QUEUE_OR_PREFILL = "queue or prefill"
    DECODE = "decode"
    KV_GROWTH = "KV growth"
    CONCURRENCY = "scheduling, KV or sampler"
    ERRORS = "errors"
    ONE_LOAD = "one load alone"
    """Its neighbours are as before: more likely a disturbed recording than a fault of the server."""
    UNPLACED = "slower, place unknown"


@dataclass(frozen=True)
class Dimension:
    kind: Kind
    text: str
    """One or two sentences."""
    where: tuple[str, ...]
    """What it rests on, a line each."""
    record_next: tuple[Cell, ...]
    """Loads to record in both, where those that there are do not tell the dimension, or not alone."""

    @property
    def regression(self) -> bool:
        return self.kind not in (Kind.NONE, Kind.UNKNOWN, Kind.ONE_LOAD)

    @property
    def exit_code(self) -> int:
        """0 no regression, 1 a regression, 3 not enough to tell."""
        return 1 if self.regression else 0 if self.kind is Kind.NONE else 3


def dimension(comparison: Comparison) -> Dimension:
    """The verdict on a comparison."""
    worse = [*comparison.with_state(State.WORSE), *(p for p in comparison.pooled if p.state is State.WORSE)]
    if not worse:
        return _nothing_worse(comparison)
    grid = Grid(comparison)
    if (alone := grid.alone()) is not None:
        return Dimension(Kind.ONE_LOAD, f"Slower under one load alone ({words(alone)}), and those around it and beyond "
                         "it are as before: a disturbed recording, sooner than a fault. Record it again before "
                         "believing it.", tuple(_where(comparison, grid)), (alone,))
    kind, text = _placed(grid)
    missing = grid.untold()
    if missing:
        text += f" What {' and '.join(_NAMES[one] for one in missing)} does cannot be told: one value was measured."
    if failed := sum(one.new for one in comparison.failures if one.more):
        text += f" {failed} requests failed, more than before: the latencies are of those that came through."
    return Dimension(kind, text, tuple(_where(comparison, grid)), tuple(grid.asked(missing)))


def _placed(grid: Grid) -> tuple[Kind, str]:
    """The kind, and why."""
    first, token = grid.alone_at_lowest("ttft"), grid.alone_at_lowest("itl")
    if not grid.has("ttft") and not grid.has("itl"):
        return _end_to_end(grid)
    if first and token:
        return _both_stages(grid)
    if first:
        return _first_token(grid)
    if token:
        return _tokens(grid)
    if grid.worse("ttft") or grid.worse("itl"):
        return _under_load(grid)
    return Kind.UNPLACED, ("Requests take longer or throughput is lower, and neither the time to first token nor the "
                           "time per token is surely up in any one load: record more requests a load.")


def _both_stages(grid: Grid) -> tuple[Kind, str]:
    if grid.grows("itl", "output_tokens"):
        return Kind.KV_GROWTH, "Both stages are slower, and tokens the more the longer the output: KV growth."
    if grid.grows("itl", "concurrency"):
        return Kind.CONCURRENCY, ("Both stages are slower, and tokens the more the more requests run: scheduling, KV "
                                  "or the sampler.")
    if grid.only_long("ttft", "prompt_tokens") and grid.only_long("itl", "prompt_tokens"):
        return Kind.PREFILL, "Only long prompts are slower, in both stages: prefill, which decodes wait for."
    return Kind.DEVICE_OR_BUILD, f"Prefill and decode are both slower{grid.everywhere()}: the device or the build."


def _first_token(grid: Grid) -> tuple[Kind, str]:
    held_up = " Tokens are slower only where requests run together: they wait for it." if grid.worse("itl") else (
        " The time per token is as before.")
    if grid.grows("ttft", "prompt_tokens"):
        only = "only with long prompts" if grid.only_long("ttft", "prompt_tokens") else (
            "the more the longer the prompt")
        return Kind.PREFILL, f"The first token comes later {only}: prefill.{held_up}"
    if grid.grows("ttft", "concurrency"):
        return Kind.QUEUE, ("The first token comes later, the more so the more requests are in flight, and not with "
                            f"the prompt's length: requests wait before they are computed.{held_up}")
    if grid.told("ttft", "prompt_tokens"):
        return Kind.QUEUE, ("The first token comes later whatever the prompt's length: time before prefill, in the "
                            f"queue, the front end or the network.{held_up}")
    return Kind.QUEUE_OR_PREFILL, f"The first token comes later: the queue or prefill.{held_up}"


def _tokens(grid: Grid) -> tuple[Kind, str]:
    waits = " The first token is later only where requests run together: they wait for their turn." if (
        grid.worse("ttft")) else " The first token comes as before."
    if grid.grows("itl", "output_tokens") or grid.grows("itl", "prompt_tokens"):
        what = "output" if grid.grows("itl", "output_tokens") else "context"
        return Kind.KV_GROWTH, f"Tokens are slower the longer the {what}: reading a growing KV cache.{waits}"
    if grid.grows("itl", "concurrency"):
        return Kind.CONCURRENCY, ("Tokens are slower the more requests run: the batch's share of a step (sampler, KV, "
                                  f"scheduling).{waits}")
    fixed = " It weighs less with more requests in flight: a fixed cost of each step." if (
        grid.shrinks("itl", "concurrency")) else ""
    return Kind.DECODE, f"Tokens are slower{grid.everywhere()}: decode.{fixed}{waits}"


def _under_load(grid: Grid) -> tuple[Kind, str]:
    first, token = grid.worse("ttft"), grid.worse("itl")
    if grid.lowest_is_only_one():
        return Kind.UNPLACED, ("Slower in the mean over all loads, and in none of them for sure: record more requests "
                               "a load.")
    if first and not token:
        if grid.grows("ttft", "prompt_tokens") and not grid.grows("ttft", "concurrency"):
            return Kind.PREFILL, "The first token comes later only with long prompts: prefill."
        return Kind.QUEUE, ("Only with more requests in flight the first token comes later, and tokens then come as "
                            "before: requests wait to be scheduled.")
    if token and grid.only_long("itl", "output_tokens"):
        return Kind.KV_GROWTH, "Only with more requests in flight and long outputs tokens are slower: KV growth."
    what = "both stages are" if first else "decode is"
    return Kind.CONCURRENCY, f"Only with more requests in flight {what} slower: scheduling, KV or the sampler."


def _end_to_end(grid: Grid) -> tuple[Kind, str]:
    """Without a streamed token the stages cannot be told apart but by the lengths."""
    of = "e2e" if grid.has("e2e") else THROUGHPUT
    stages = " Times to first token and per token would tell the stage."
    if grid.only_long(of, "concurrency"):
        return Kind.CONCURRENCY, f"Only with more requests in flight: scheduling, KV or the sampler.{stages}"
    if grid.only_long(of, "prompt_tokens"):
        return Kind.PREFILL, f"Only with long prompts: prefill.{stages}"
    if grid.only_long(of, "output_tokens"):
        return Kind.KV_GROWTH, f"Only with long outputs: decode with a grown KV cache.{stages}"
    return Kind.UNPLACED, f"Requests are slower{grid.everywhere()}.{stages}"


def _nothing_worse(comparison: Comparison) -> Dimension:
    if failed := [one for one in comparison.failures if one.more]:
        where = tuple(f"{words(one.cell)}: {one.new} of {one.of_new} requests failed, before {one.old} of {one.of_old}"
                      for one in failed)
        return Dimension(Kind.ERRORS, "More requests fail than before; those that come through are no slower for sure.",
                         where, ())
    if late := comparison.with_state(State.CLIENT):
        cells = tuple(dict.fromkeys(entry.cell for entry in late))
        return Dimension(Kind.UNKNOWN, "Slower, and the client itself was late by as much: no claim about the server. "
                         "Give the client a core of its own.", tuple(map(_line, late)), cells[:MAX_ASKED])
    if all(entry.difference is None for entry in comparison.entries):
        furthest = max(comparison.entries, key=lambda entry: abs(entry.effect))
        return Dimension(Kind.UNKNOWN, "No claim: no load has times of 12 single requests or more in both, so that "
                         "noise and change cannot be told apart.", (f"furthest from before: {_line(furthest)}",),
                         comparison.cells[:MAX_ASKED])
    better = comparison.with_state(State.BETTER)
    everything = not any(entry.state in (State.SAME, State.BETTER) for entry in comparison.entries)
    text = "Nothing can be ruled out." if everything else "No regression found" + (
        f"; {len(better)} figures are better." if better else ".")
    unclear = [entry for entry in comparison.entries if entry.state is State.UNCLEAR and entry.metric != THROUGHPUT]
    if unclear:
        noisiest = max(unclear, key=lambda entry: entry.se or 0.0)
        text += (f" {len(unclear)} of {len(comparison.entries)} figures are too noisy to rule out a slow-down of "
                 f"{100 * (SEEN - 1):.0f} %, most of all {noisiest.metric} at {words(noisiest.cell)}.")
    cells = tuple(dict.fromkeys(entry.cell for entry in unclear))[:MAX_ASKED]
    return Dimension(Kind.UNKNOWN if everything else Kind.NONE, text, tuple(map(_line, better[:MAX_ASKED])), cells)


def _line(entry: Entry) -> str:
    between = "no interval" if entry.low is None or entry.high is None else (
        f"{100 * (1 - FALSE_ALARMS):.0f} % within {entry.low:.2f} to {entry.high:.2f}")
    unit = "tokens/s" if entry.metric == THROUGHPUT else "ms"
    return (f"{words(entry.cell)}: {entry.metric} {entry.old:,.4g} to {entry.new:,.4g} {unit}, "
            f"× {entry.ratio:.2f} ({between})")


def _where(comparison: Comparison, grid: Grid) -> Iterator[str]:
    slow = sorted((entry for entry in comparison.entries if grid.slower(entry)), key=lambda entry: -entry.effect)
    yield from map(_line, slow[:MAX_ASKED])
    for metric, name in (("ttft", "time to first token"), ("itl", "time per token")):
        entries = [entry for entry in comparison.entries if entry.metric == metric]
        if entries:
            ratios = [entry.ratio for entry in entries]
            yield (f"{name}: slower in {sum(map(grid.slower, entries))} of {len(entries)} loads, "
                   f"ratios {min(ratios):.2f} to {max(ratios):.2f}")

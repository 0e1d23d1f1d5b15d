"""Which dimension got worse, in words: where in the grid of loads, and in which of the two stages.

Looked at in this order, because a stage that is slow makes the other wait as soon as several requests run:
1. At the lowest concurrency nothing waits for anything else: what is slower there is the stage at fault.
2. What is slower only with more requests in flight is the queue, the batch, or the cache.
3. Within a stage, how the ratio moves with prompt and output length tells the part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..text import counted
from .compare import FALSE_ALARMS, POINTWISE, SEEN, TAIL_SEEN, Comparison, Entry, State
from .figures import METRICS, TAILS, THROUGHPUT
from .grid import MAX_ASKED, Grid
from .loads import words
from .stalls import together
from .store import Cell

LIKELY = 0.3
"""Of Fisher's test on requests that stall: two against none, of as many, give 0.25, and one against none 0.5."""

_NAMES = {"concurrency": "concurrency", "prompt_tokens": "prompt length", "output_tokens": "output length"}


class Kind(StrEnum):
    NONE = "no regression"
    OPEN = "no regression seen, and not ruled out"
    """A figure is too noisy."""
    UNKNOWN = "no claim"
    """Nothing that was measured allows one."""
    DEVICE_OR_BUILD = "device or build"
    PREFILL = "prefill"
    QUEUE = "queue"
    QUEUE_OR_PREFILL = "queue or prefill"
    ONE_OR_BOTH = "one stage or both"
    """One is surely slower; the other is so by about as much, and not surely."""
    DECODE = "decode"
    KV_GROWTH = "KV growth"
    CONCURRENCY = "scheduling, KV or sampler"
    HELD_BACK = "held-back stream"
    """The first token is later and the last is not."""
    TAIL = "the tail"
    """The slowest requests alone."""
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
        return self.kind not in (Kind.NONE, Kind.OPEN, Kind.UNKNOWN, Kind.ONE_LOAD)

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
    tails = [entry for entry in comparison.with_state(State.WORSE) if entry.metric in TAILS]
    if (tails or _slowest_alone(comparison)) and not _typical_is_slower(comparison):
        return Dimension(Kind.TAIL, _tail_text(comparison, tails), tuple(_where(comparison, grid)), ())
    if (alone := grid.alone()) is not None:
        return Dimension(Kind.ONE_LOAD, f"Slower under one load alone ({words(alone)}), and those around it and beyond "
                         "it are as before: a disturbed recording, sooner than a fault. Record it again before "
                         "believing it.", tuple(_where(comparison, grid)), (alone,))
    kind, text = (Kind.HELD_BACK, _HELD_BACK) if _held_back(comparison, grid) else _placed(grid)
    text += "".join(f" Mind: {said}." for said in comparison.course[:1])
    missing = grid.untold()
    if missing:
        text += f" What {' and '.join(_NAMES[one] for one in missing)} does cannot be told: one value was measured."
    if failed := sum(one.new for one in comparison.failures if one.more):
        text += f" {counted(failed, 'request')} failed, more than before: the latencies are of those that came through."
    stalled = (one.text for one in comparison.stalls[:MAX_ASKED])
    return Dimension(kind, text, (*_where(comparison, grid), *stalled), tuple(grid.asked(missing)))


_HELD_BACK = ("The first token comes later, and requests end when they did: the answer is as fast and its stream is "
              "held back (chunks of many tokens, a proxy or a front end that buffers), sooner than a slower prefill.")


def _held_back(comparison: Comparison, grid: Grid) -> bool:
    """Wherever the first token is later, requests surely did not grow by half of that."""
    late = grid.worse("ttft")
    return bool(late) and not grid.worse("itl") and not grid.worse("e2e") and all(
        _cannot_hold(comparison.entry(cell, "ttft"), comparison.entry(cell, "e2e")) for cell in late)


def _cannot_hold(first: Entry | None, whole: Entry | None) -> bool:
    if first is None or whole is None or whole.difference is None:
        return False
    most = whole.old * math.expm1(min(whole.difference.log + whole.difference.half(POINTWISE), 1.0))
    return most < (first.new - first.old) / 2


def _typical_is_slower(comparison: Comparison) -> bool:
    """Whether any latency of the typical request is worse; a throughput falls with the tail as well."""
    found = [*(entry.metric for entry in comparison.with_state(State.WORSE)),
             *(pooled.metric for pooled in comparison.pooled if pooled.state is State.WORSE)]
    return any(metric in METRICS and metric != THROUGHPUT for metric in found)


def _slowest_alone(comparison: Comparison) -> bool:
    """Whether a throughput alone is worse, every typical request is as before for sure, and more requests stall."""
    return bool(comparison.stalls) and all(
        entry.state in (State.SAME, State.BETTER) for entry in comparison.entries
        if entry.metric in METRICS and entry.metric != THROUGHPUT)


def _tail_text(comparison: Comparison, tails: list[Entry]) -> str:
    metrics = {entry.metric for entry in tails} or {one.tail for one in comparison.stalls}
    first, gap = "ttft_tail" in metrics, "itl_tail" in metrics
    if gap and not first:
        why = ("They are held up between two tokens: prefills of other prompts in between, preemption where the KV "
               "cache is short, or a host that stalls.")
    elif first and not gap:
        why = ("They wait for their first token: bursts and long prompts ahead of them, preemption where the KV cache "
               "is short, or a host that stalls.")
    elif first:
        why = ("They wait for the first token and between tokens: preemption where the KV cache is short, or a host or "
               "device that stalls.")
    else:
        why = "Where they wait is not known: times to first token and gaps between tokens would tell."
    fell = any(entry.metric == THROUGHPUT for entry in comparison.with_state(State.WORSE))
    lower = " Throughput is lower by it." if fell else ""
    course = "".join(f" Mind: {said}." for said in comparison.course[:1])
    if tails:
        worst = max(tails, key=lambda entry: entry.effect)
        head = f"The typical request is not surely slower, and the slowest are, up to × {worst.ratio:,.3g}: the tail."
    else:
        head = "The typical request is as before, and the time goes to the slowest: the tail."
    return f"{head} {why}{lower}{_stalled(comparison)}{course}"


def _stalled(comparison: Comparison) -> str:
    """What was seen of requests that stall: a sentence each of the worst."""
    worst = sorted(comparison.stalls, key=lambda one: -one.ratio)
    more = f" So in {counted(len(worst) - MAX_ASKED, 'more figure')}." if len(worst) > MAX_ASKED else ""
    return "".join(f" {one.text}." for one in worst[:MAX_ASKED]) + more


def _not_worse(grid: Grid, metric: str, otherwise: str) -> str:
    """What is said of a stage that is not slower: no more than was measured."""
    states = grid.states(metric)
    if not states:
        return f" The {_SAID[metric]} was not measured in both: the other stage may be slower as well."
    if states <= {State.SAME, State.BETTER} or grid.ruled_out(metric):
        return f" {otherwise}"
    return f" The {_SAID[metric]} is not surely up, nor surely as before."


_SAID = {"ttft": "time to first token", "itl": "time per token"}


def _placed(grid: Grid) -> tuple[Kind, str]:
    """The kind, and why."""
    first, token = grid.alone_at_lowest("ttft"), grid.alone_at_lowest("itl")
    if not grid.has("ttft") and not grid.has("itl"):
        return _end_to_end(grid)
    if first and token:
        return _both_stages(grid)
    if first and grid.as_much("itl", "ttft"):
        return Kind.ONE_OR_BOTH, ("The first token comes later, and tokens are slower by about as much, though not "
                                  "surely: the queue or prefill, or the device or the build. More requests a load "
                                  "would tell.")
    if token and grid.as_much("ttft", "itl"):
        return Kind.ONE_OR_BOTH, ("Tokens are slower, and the first token comes later by about as much, though not "
                                  "surely: decode, or the device or the build. More requests a load would tell.")
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
        _not_worse(grid, "itl", "The time per token is as before."))
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
        grid.worse("ttft")) else _not_worse(grid, "ttft", "The first token comes as before.")
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
        then = _not_worse(grid, "itl", "Tokens then come as before.")
        return Kind.QUEUE, ("Only with more requests in flight the first token comes later: requests wait to be "
                            f"scheduled.{then}")
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
        where = tuple(f"{words(one.cell)}: {one.new} of {counted(one.of_new, 'request')} failed, before {one.old} of "
                      f"{one.of_old}" for one in failed)
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
    figures = [entry for entry in comparison.entries if entry.metric in METRICS]
    everything = not any(entry.state in (State.SAME, State.BETTER) for entry in figures)
    stall = _may_stall(comparison)
    text = "Nothing can be ruled out." if everything else ("Nothing is slower for sure" if stall else
                                                          "No regression found") + (
        f"; {counted(len(better), 'figure is', 'figures are')} better." if better else ".")
    text += _stalled(comparison)
    # A throughput has the noise of the slowest requests: what the typical one cannot rule out is asked of latencies.
    unclear = [entry for entry in figures if entry.state is State.UNCLEAR and entry.metric != THROUGHPUT]
    bare = [entry for entry in figures if entry.state is State.UNKNOWN and entry.metric != THROUGHPUT]
    if unclear:
        noisiest = max(unclear, key=lambda entry: entry.se or 0.0)
        text += (f" {_of(unclear, figures, 'is', 'are')} too noisy to rule out a slow-down of {100 * (SEEN - 1):.0f} % "
                 f"({_metrics(unclear)}), most of all {noisiest.metric} at {words(noisiest.cell)}.")
    if bare:
        text += f" {_of(bare, figures, 'has', 'have')} no interval: open ({_metrics(bare)})."
    if wide := [e for e in comparison.entries if e.metric in TAILS and e.state is State.UNCLEAR]:
        widest = max(wide, key=lambda entry: entry.high or 0.0)
        text += (f" Of the slowest tenth {TAIL_SEEN:.0f} times as slow is not ruled out ({_metrics(wide)}), least of "
                 f"all {_line(widest)}.")
    text += "".join(f" Mind: {said}." for said in comparison.course[:1])
    seen = {pooled.metric for pooled in comparison.pooled if pooled.state in (State.SAME, State.BETTER)}
    if noisy := [entry for entry in unclear if entry.metric in seen]:
        text += f" Over all loads together it is ruled out ({_metrics(noisy)})."
    opened = [entry for entry in (*unclear, *bare) if entry.metric not in seen]
    again = [one.cell for one in comparison.stalls] if stall else []
    cells = tuple(dict.fromkeys((*again, *(entry.cell for entry in (opened or unclear)))))[:MAX_ASKED]
    kind = Kind.UNKNOWN if everything else Kind.OPEN if opened or stall else Kind.NONE
    return Dimension(kind, text, tuple(map(_line, (*unclear, *better)[:MAX_ASKED])), cells)


def _may_stall(comparison: Comparison) -> bool:
    """Whether more requests stall than before, in a load or in all that have some together, and that is not as likely
    chance as not: one of hundreds against none is no sign."""
    parts = [[one] for one in comparison.stalls]
    parts += [[one for one in comparison.stalls if one.tail == tail] for tail in TAILS]
    return any(together(part) <= LIKELY for part in parts if part)


def _of(some: list[Entry], of: list[Entry], one: str, many: str) -> str:
    return f"{len(some)} of {counted(len(of), 'figure')} {one if len(some) == 1 else many}"


def _metrics(entries: list[Entry]) -> str:
    return ", ".join(dict.fromkeys(entry.metric for entry in entries))


def _line(entry: Entry) -> str:
    between = "no interval" if entry.low is None or entry.high is None else (
        f"{100 * (1 - FALSE_ALARMS):.0f} % within {entry.low:.2f} to {entry.high:.2f}")
    unit = "tokens/s" if entry.metric == THROUGHPUT else "ms"
    return (f"{words(entry.cell)}: {entry.metric} {entry.old:,.4g} to {entry.new:,.4g} {unit}, "
            f"× {entry.ratio:.2f} ({between})")


def _where(comparison: Comparison, grid: Grid) -> Iterator[str]:
    slow = sorted((entry for entry in comparison.entries if grid.slower(entry)),
                  key=lambda entry: (entry.metric in TAILS, -entry.effect))
    yield from map(_line, slow[:MAX_ASKED])
    for metric, name in (("ttft", "time to first token"), ("itl", "time per token")):
        entries = [entry for entry in comparison.entries if entry.metric == metric]
        if entries:
            ratios = [entry.ratio for entry in entries]
            yield (f"{name}: slower in {sum(map(grid.slower, entries))} of {counted(len(entries), 'load')}, "
                   f"ratios {min(ratios):.2f} to {max(ratios):.2f}")

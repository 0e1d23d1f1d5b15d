"""Signals of benchmark results: what clients measured under one load.

Figures of one sheet belong to the same load. Of several runs the one with most requests in flight is taken, the
longest prompts among those, for it is where a service hurts; where a baseline knows better, the one that is surely
slower than it was. The reader is told which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..signals import Signal, Value
from ..telemetry.measured import Measured
from ..units import figure
from .doubted import paused
from .records import LATENCIES, BenchRecord

MIN_FOR_P99 = 100
"""Gaps from which a 99th percentile is more than the largest of them."""

ONE_A_TOKEN = (0.9, 1.2)
"""Gaps for each token after the first, if every token comes in a chunk of its own (a chunk for the role or the end is
one more). Judgement: between those and chunks of two tokens or chunks without text lies nothing."""

TOGETHER_MS = 2.0
TOGETHER = 0.1
"""A usual gap below both, in ms and as a share of the time per token: most tokens come together with the one before,
which no step of a model does. Judgement: a buffer's chunks lie microseconds apart, and steps with long stalls between
keep their own length."""

SAME_LENGTH = 1.05
"""Larger ÷ smaller of two lengths, a mean and a median of one workload: they are one load."""


MOST_NAMED = 4
"""Of the loads that are not used."""


def measure(records: Sequence[BenchRecord], speaks: BenchRecord | None = None) -> Measured:
    """`latency.*`, `serving.*` and `client.*` of one load: that of `speaks`, the one of `records` that is surely slower
    than in a baseline; else of the one with most requests in flight."""
    usable = [record for record in records if record.completed != 0]
    if not usable:
        return Measured(notes=("no benchmark run with completed requests",) if records else ())
    lead = speaks if speaks is not None else heaviest(usable)
    run = [record for record in usable if _same_run(record, lead)]
    run.sort(key=lambda record: (record.requests is None, record is not lead))
    out = _Findings(tuple(run), _words(run))
    _latencies(out)
    _gaps(out)
    _per_token(out)
    _load(out)
    _others(out, usable, "surely slower than in the baseline, by most of all" if speaks is not None else
            "the heaviest load")
    return out.measured()


def heaviest(records: Sequence[BenchRecord]) -> BenchRecord:
    """Of one run or more the one with most requests in flight, of those that mostly worked."""
    return max(records, key=_rank)


def in_flight(record: BenchRecord) -> float | None:
    """Requests in flight: as the clients keep them, else as measured, the sum of durations ÷ the run's."""
    if record.concurrency is not None:
        return record.concurrency
    if (told := record.extra.get("mean_in_flight")) is not None:
        return told
    if record.requests is not None and record.duration_s and not np.isnan(record.requests.e2e_ms).any():
        return float(record.requests.e2e_ms.sum()) / 1000 / record.duration_s
    return None


def gaps_a_token(record: BenchRecord) -> float | None:
    """Gaps between chunks for each token after a request's first; None where it cannot be told."""
    if record.requests is not None and record.requests.itl_ms:
        tokens = float(np.nansum(record.requests.output_tokens - 1))
        return sum(map(len, record.requests.itl_ms)) / tokens if tokens > 0 else None
    gaps, each = record.stat("itl"), record.stat("tpot")
    if gaps.n and record.completed and record.output_tokens and record.output_tokens > 1:
        return gaps.n / (record.completed * (record.output_tokens - 1))
    return each.mean / gaps.mean if each.mean and gaps.mean else None


@dataclass
class _Findings:
    run: tuple[BenchRecord, ...]
    """Records of one run, the one with its requests first."""
    words: str
    notes: list[str] = field(default_factory=list)
    _signals: dict[str, Signal] = field(default_factory=dict)
    _unknown: dict[str, str] = field(default_factory=dict)

    def give(self, name: str, value: Value | None, remark: str = "", *, record: BenchRecord | None = None) -> None:
        if value is None:
            return
        if isinstance(value, float):
            value = float(f"{value:.6g}")
        window = f"{self.words}: {remark}" if remark else self.words
        self._signals.setdefault(name, Signal(name, value, "bench", window, (record or self.run[0]).source))

    def miss(self, name: str, why: str) -> None:
        self._unknown.setdefault(name, why)

    def first(self, get: Callable[[BenchRecord], float | None]) -> tuple[float | None, BenchRecord]:
        """What the first record that knows it says."""
        for record in self.run:
            if (value := get(record)) is not None:
                return value, record
        return None, self.run[0]

    def stat(self, latency: str, statistic: str) -> tuple[float | None, BenchRecord]:
        return self.first(lambda record: getattr(record.stat(latency), statistic))

    def measured(self) -> Measured:
        unknown = {name: why for name, why in self._unknown.items() if name not in self._signals}
        return Measured(tuple(self._signals.values()), unknown, tuple(dict.fromkeys(self.notes)))


def _latencies(out: _Findings) -> None:
    ttft, record = out.stat("ttft", "p50")
    invalid = max(one.invalid_ttft for one in out.run)
    out.give("latency.ttft_ms", ttft, f"median of the {record.stat('ttft').n:,} that are valid, {invalid:,} are 0"
             if invalid and record.stat("ttft").n is not None else "median", record=record)
    out.miss("latency.ttft_ms", "no request has a valid TTFT" if invalid else _no_median(out, "ttft"))
    if invalid:
        out.give("client.first_chunk_empty", True, f"TTFT is 0 or less in {invalid:,} requests")
    e2e, record = out.stat("e2e", "p50")
    out.give("latency.e2e_ms", e2e, "median", record=record)
    out.miss("latency.e2e_ms", _no_median(out, "e2e"))
def _per_token(out: _Findings) -> None:
    """The time per token of a request: the median of what `_gaps` cannot give by the gaps themselves."""
    each, record = out.stat("tpot", "p50")
    if each is not None:
        out.give("latency.itl_ms", each, "median over requests of (e2e − ttft) ÷ (tokens − 1)", record=record)
        out.give("serving.request_decode_tokens_per_s", 1000 / each, "1 ÷ the median time per token", record=record)
    out.miss("latency.itl_ms", _no_median(out, "tpot"))
    out.miss("serving.request_decode_tokens_per_s", _no_median(out, "tpot"))


def _gaps(out: _Findings) -> None:
    """What is known of the gaps between tokens, where a gap between chunks is one. The engine's own time per token is
    of the same kind, a median over tokens: requests held up between two tokens do not move it."""
    ratio, _ = out.first(gaps_a_token)
    if ratio is not None and not ONE_A_TOKEN[0] <= ratio <= ONE_A_TOKEN[1]:
        why = (f"{figure(ratio)} gaps between chunks for a token: chunks of several tokens, or some without text, and "
               "their gaps are not those between tokens")
        for name in ("latency.itl_p99_ms", "latency.itl_max_ms", "client.frame_interval_ms"):
            out.miss(name, why)
        return
    middle, record = out.stat("itl", "p50")
    each, _ = out.stat("tpot", "p50")
    if middle is not None and each is not None and middle <= min(TOGETHER_MS, TOGETHER * each):
        out.notes.append(f"most tokens come together with the one before: the usual gap is {figure(middle)} ms, a "
                         f"token takes {figure(each)} ms. The stream is buffered on the way (a proxy, compression), or "
                         "a step makes several tokens; the gaps say nothing of single steps. The engine's own token "
                         "gaps, or a client beside the server, tell which")
        for name in ("latency.itl_p99_ms", "latency.itl_max_ms", "client.frame_interval_ms"):
            out.miss(name, f"tokens come in bursts: the usual gap is {figure(middle)} ms, a token takes {figure(each)} "
                     "ms, so that a long gap is the time between two bursts")
        return
    out.give("latency.itl_ms", middle, "median of the gaps between tokens", record=record)
    if ratio is not None:
        out.give("client.frame_interval_ms", middle, "median of the gaps between chunks", record=record)
    high, record = out.stat("itl", "p99")
    n = record.stat("itl").n
    if n is not None and n < MIN_FOR_P99:
        out.miss("latency.itl_p99_ms", f"{n:,} gaps are too few for a 99th percentile")
    else:
        out.give("latency.itl_p99_ms", high, f"of {n:,} gaps" if n else "of the gaps", record=record)
    longest, record = out.stat("itl", "max")
    out.give("latency.itl_max_ms", longest, "longest of the gaps", record=record)
    for name in ("latency.itl_p99_ms", "latency.itl_max_ms"):
        out.miss(name, "the file has no such figure of the gaps between tokens; save the run with its requests")


def _no_median(out: _Findings, latency: str) -> str:
    said = next((line for record in out.run for line in record.definitions if line.startswith(f"{latency}:")), "")
    if said:
        return said
    mean, _ = out.stat(latency, "mean")
    return f"only the mean is known, {figure(mean)} ms" if mean is not None else "the file does not have it"


def _load(out: _Findings) -> None:
    for name, part in (("serving.decode_tokens_per_s", "output_tokens_per_s"),
                       ("serving.prompt_tokens", "prompt_tokens")):
        value, record = out.first(lambda one, part=part: getattr(one, part))  # type: ignore[misc]
        if name == "serving.decode_tokens_per_s" and (why := paused(record)):
            out.miss(name, why)
            continue
        mean = name == "serving.prompt_tokens" and any(line.startswith("lengths:") for line in record.definitions)
        out.give(name, value, "mean" if mean else "", record=record)
        out.miss(name, "the file does not have it")
    running, record = out.first(in_flight)
    out.give("serving.concurrency", running, "" if record.concurrency is not None else "measured", record=record)
    out.miss("serving.concurrency", "the file does not say how many requests were in flight")
    rate, record = out.first(lambda one: one.request_rate)
    out.give("serving.offered_requests_per_s", rate, record=record)
    out.miss("serving.prefill_tokens_per_s", "a client does not see which prompt tokens came from a cache")
    failed = next((record for record in out.run if record.failed), None)
    if failed is not None and failed.failed:
        total = failed.failed + (failed.completed or 0)
        out.notes.append(f"{failed.failed:,} of {total:,} requests failed: all figures are of the others")


def _others(out: _Findings, records: Sequence[BenchRecord], why: str) -> None:
    for record in out.run:
        out.notes += record.definitions
    left = [record for record in records if not any(record is one for one in out.run)]
    if left:
        named = list(dict.fromkeys(_load_words(record) for record in left))
        more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        loads = "; ".join((*named[:MOST_NAMED], *more))
        others = f"{len(left):,} other {'run' if len(left) == 1 else 'runs'} not used"
        out.notes.append(f"the figures are of {_load_words(out.run[0])}: {why}; {others}, figures of one sheet belong "
                         f"to the same load: {loads}")
    if {_load_of(record) for record in left} - {_load_of(record) for record in out.run}:
        out.miss("step.fixed_ms", "the time per token at batch size 0 still holds the reading of the weights, which "
                                  "shrinks with the model: it takes runs of two models")


def _rank(record: BenchRecord) -> tuple[float, ...]:
    """Which run speaks: one that mostly worked, with most in flight, the highest rate, the longest prompts, and of
    those the one that knows most."""
    medians = sum(record.stat(latency).p50 is not None for latency in LATENCIES)
    return ((record.failed or 0) <= (record.completed or 1), in_flight(record) or 0.0, record.request_rate or 0.0,
            record.prompt_tokens or 0.0, medians, record.requests is not None, record.completed or 0)


def _same_run(record: BenchRecord, lead: BenchRecord) -> bool:
    """Whether this is another file of the same run: no load is told otherwise, and files that do not tell theirs lie
    in one folder."""
    if record is lead:
        return True
    if record.tool != lead.tool or Path(record.source).parent != Path(lead.source).parent:
        return False
    pairs = ((record.environment.model, lead.environment.model), (record.completed, lead.completed),
             (record.concurrency, lead.concurrency), (record.request_rate, lead.request_rate))
    if any(one and other and one != other for one, other in pairs):
        return False
    if None not in (record.completed, record.concurrency or record.request_rate) and record.source == lead.source:
        return False                # two runs of one file
    lengths = ((record.prompt_tokens, lead.prompt_tokens), (record.output_tokens, lead.output_tokens))
    return all(max(one, other) <= SAME_LENGTH * min(one, other) for one, other in lengths if one and other)


def _load_of(record: BenchRecord) -> tuple[float | None, ...]:
    return record.concurrency, record.request_rate, record.prompt_tokens, record.output_tokens


def _words(run: Sequence[BenchRecord]) -> str:
    counted = next((record for record in run if record.completed is not None), run[0])
    told = next((record for record in run if record.concurrency or record.request_rate), counted)
    parts = [f"{counted.completed:,} requests" if counted.completed is not None else "", _load_words(told)]
    seconds = next((record.duration_s for record in run if record.duration_s is not None), None)
    parts += [f"{figure(seconds)} s" if seconds is not None else "", run[0].tool]
    return ", ".join(part for part in parts if part)


def _load_words(record: BenchRecord) -> str:
    parts = []
    if record.request_rate is not None:
        parts.append(f"{figure(record.request_rate)} requests/s,")
    elif (running := in_flight(record)) is not None:
        parts.append(f"{figure(running)} in flight,")
    if record.prompt_tokens is not None and record.output_tokens is not None:
        parts.append(f"{figure(record.prompt_tokens)} → {figure(record.output_tokens)} tokens")
    return " ".join(parts).removesuffix(",") or "load unknown"

"""The stage split from logs and benchmark results: prefill against decode, what prefill does to running requests, and
how the time to first token grows with the prompt. Tables and words for people; signals come from the readers of each
kind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..baseline.records import BenchRecord
from ..samples import EngineLog, Floats
from ..steps.stages import Iteration, StageSplit, split
from ..units import figure
from .measured import Measured
from .ttft_fit import CannotFitError, Fit, fit_ttft

__all__ = ["CannotFitError", "Fit", "Interference", "fit_ttft", "interference", "measure", "of_log", "ttft_points"]


@dataclass(frozen=True)
class Interference:
    """What the token gaps of one benchmark run say; ms, None for unknown."""

    source: str
    concurrency: float | None
    prompt_tokens: float | None
    ttft_ms: float | None
    usual_gap_ms: float | None
    p99_gap_ms: float | None
    worst_gap_ms: float | None

    @property
    def worst_ratio(self) -> float | None:
        """Worst ÷ usual gap."""
        return self.worst_gap_ms / self.usual_gap_ms if self.worst_gap_ms and self.usual_gap_ms else None


def of_log(log: EngineLog) -> dict[str, StageSplit]:
    """By engine, the split of its iteration lines; steps under the profiler are left out as holes."""
    rows = log.iterations
    if not rows or not len(rows.get("elapsed_ms", ())):
        return {}
    size = len(rows["elapsed_ms"])

    def column(name: str) -> Floats:
        return rows.get(name, np.full(size, np.nan))

    engines = np.nan_to_num(column("engine"), nan=0)
    return {f"{engine:g}": split(_iterations({name: column(name)[engines == engine] for name in (
        "index", "elapsed_ms", "context_requests", "context_tokens", "generation_requests", "profiled")}))
        for engine in np.unique(engines).tolist()}


def _iterations(rows: dict[str, Floats]) -> list[Iteration]:
    found: list[Iteration] = []
    before = np.nan
    for index, ms, prefills, tokens, decodes, profiled in zip(*rows.values(), strict=True):
        follows = bool(np.isnan(index) or index == before + 1)
        before = index
        if profiled > 0 or not ms > 0:
            before = np.nan if not np.isnan(index) else index
            continue
        phase = "" if np.isnan(prefills) or np.isnan(decodes) else (
            ("mixed" if decodes > 0 else "prefill") if prefills > 0 else "decode" if decodes > 0 else "")
        found.append(Iteration(phase, float(ms), _whole(prefills), _whole(tokens), follows))
    return found


def _whole(value: float) -> int | None:
    return int(value) if np.isfinite(value) and abs(value) < 1e15 else None


def interference(records: Sequence[BenchRecord]) -> tuple[Interference, ...]:
    """One row a record, in order."""
    rows = []
    for record in records:
        gaps, ttft = record.stat("itl"), record.stat("ttft")
        usual = gaps.p50 if gaps.p50 is not None else record.stat("tpot").p50
        worst = gaps.max
        if worst is None and record.requests is not None:
            worst = max((float(np.nanmax(each)) for each in record.requests.itl_ms
                         if len(each) and not np.isnan(each).all()), default=None)
        rows.append(Interference(record.source, record.concurrency, record.prompt_tokens, ttft.p50, usual, gaps.p99,
                                 worst))
    return tuple(rows)


def ttft_points(records: Sequence[BenchRecord]) -> tuple[Floats, Floats, str]:
    """(prompt tokens, TTFT in ms) of the requests of the records with the lowest concurrency, and a word of caution
    where that is not one; of records without single requests their medians. Empty where none tells both."""
    known = [record for record in records if record.requests is not None or record.stat("ttft").p50]
    if not known:
        return np.zeros(0), np.zeros(0), ""
    lowest = min(record.concurrency if record.concurrency is not None else np.inf for record in known)
    tokens: list[Floats] = []
    times: list[Floats] = []
    for record in known:
        if (record.concurrency if record.concurrency is not None else np.inf) != lowest:
            continue
        if record.requests is not None and not np.isnan(record.requests.prompt_tokens).all():
            tokens.append(record.requests.prompt_tokens)
            times.append(record.requests.ttft_ms)
        elif record.prompt_tokens and record.stat("ttft").p50:
            tokens.append(np.array([record.prompt_tokens]))
            times.append(np.array([record.stat("ttft").p50], dtype=float))
    if not tokens:
        return np.zeros(0), np.zeros(0), ""
    caution = "" if lowest <= 1 else (
        "measured with requests beside it, so a queue may be in the time" if np.isfinite(lowest) else
        "how many requests ran beside it is not known, so a queue may be in the time")
    return np.concatenate(tokens), np.concatenate(times), caution


def measure(logs: Sequence[EngineLog] = (), records: Sequence[BenchRecord] = ()) -> Measured:
    """Notes only: the split of each log, the worst gap of each run, the growth of TTFT with the prompt."""
    notes: list[str] = []
    for log in logs:
        splits = of_log(log)
        for engine, found in splits.items():
            where = f"engine {engine}: " if len(splits) > 1 else ""
            notes += [f"{where}{note}" for note in found.notes]
    for row in interference(records):
        ratio = row.worst_ratio
        if ratio is not None and ratio >= WORTH_SAYING and row.worst_gap_ms is not None:
            notes.append(f"{_load(row)}the longest token gap is {figure(row.worst_gap_ms)} ms, {figure(ratio)} usual "
                         "ones")
    tokens, times, caution = ttft_points(records)
    if len(tokens):
        with suppress(CannotFitError):  # one length a run is the usual benchmark, and nothing to speak of
            notes.append(fit_ttft(tokens, times).words + (f"; {caution}" if caution else ""))
    return Measured(notes=tuple(dict.fromkeys(notes)))


WORTH_SAYING = 10.0
"""Worst ÷ usual token gap that is spoken of (the page prefill-starves-decode)."""


def _load(row: Interference) -> str:
    return f"at concurrency {figure(row.concurrency)} " if row.concurrency is not None else ""

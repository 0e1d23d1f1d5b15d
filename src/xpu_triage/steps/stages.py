"""The stage split: how much of the steps' time is prefill and how much decode, and what prefill does to the requests
that are decoding meanwhile. Tables for people; the signals among them are `latency.prefill_ms` and, from
`steps.measures`, `serving.prefill_run_steps`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..signals import Signal
from ..telemetry.measured import Measured
from ..text import counted
from ..units import figure
from .results import Steps, Walk

DECODING = ("decode", "mixed")
"""Phases in which running requests get a token."""

PHASES = ("prefill", "mixed", "decode")

FEWEST_ALONE = 3
"""Prefills from which on a median of them is given."""

FEWEST_CHUNKS = 6
CHUNK_SPREAD = 2.0
"""Steps with prompts, and largest ÷ smallest of their tokens, from which on time against tokens is fitted."""

STALL = 3.0
"""A token gap of so many usual ones is spoken of. Judgement: even decode steps stay within 1.5."""


@dataclass(frozen=True)
class Iteration:
    """One engine step, from a trace or a log."""

    phase: str
    """`prefill`, `decode`, `mixed`, or empty for unknown."""
    wall_ms: float
    prefill_requests: int | None = None
    prefill_tokens: int | None = None
    follows: bool = True
    """Comes right after the one before it; false after a hole in the record."""


@dataclass(frozen=True)
class PhaseTime:
    phase: str
    steps: int
    total_ms: float
    median_ms: float
    share: float
    """Of the time of all steps whose phase is known."""


@dataclass(frozen=True)
class ChunkEffect:
    """Time of a step with prompts against the prompt tokens in it: fixed_ms + ms_per_1k × tokens ÷ 1,000, by least
    squares; tokens of decoding requests in mixed steps are not counted."""

    fixed_ms: float
    ms_per_1k: float
    steps: int
    smallest: int
    largest: int

    def chunk_for(self, gap_ms: float) -> float | None:
        """Prompt tokens in a step of `gap_ms`; None where no chunk is that fast or the step does not grow."""
        if self.ms_per_1k <= 0 or gap_ms <= self.fixed_ms:
            return None
        return (gap_ms - self.fixed_ms) / self.ms_per_1k * 1000


@dataclass(frozen=True)
class StageSplit:
    phases: tuple[PhaseTime, ...]
    """Those that occur, in the order of PHASES."""
    unknown_steps: int
    """Steps whose phase is not told."""
    usual_gap_ms: float | None
    """Median time from the end of one step that decodes to the end of the next."""
    worst_gap_ms: float | None
    """Longest."""
    worst_gap_prompt_ms: float
    """Of it, in steps that compute prompts."""
    worst_gap_steps: int
    """So many of them."""
    prefills_ms: tuple[float, ...]
    """Of requests that were prefilled alone, all chunks added up."""
    chunks: ChunkEffect | None

    def phase(self, name: str) -> PhaseTime | None:
        return next((each for each in self.phases if each.phase == name), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """For the reader: the split, the worst gap, the chunk."""
        return tuple(_words(self))


def of_trace(steps: Steps) -> StageSplit:
    """The split of a trace's steps. Steps found by an anchor or a window have no phase, and count as unknown."""
    return split([Iteration(step.phase, step.wall / 1e6, step.prefill_requests, step.prefill_tokens)
                  for step in steps.steps] if steps.method == "annotation" else [])


def measure(walk: Walk) -> Measured:
    """`latency.prefill_ms` of requests that were prefilled alone in this trace, and the split in words."""
    found = of_trace(walk.steps)
    signals: tuple[Signal, ...] = ()
    if len(found.prefills_ms) >= FEWEST_ALONE:
        signals = (Signal("latency.prefill_ms", float(np.median(found.prefills_ms)), "trace",
                          f"median of {len(found.prefills_ms)} requests that were prefilled alone",
                          walk.trace.source),)
    return Measured(signals, {}, found.notes)


def split(iterations: Sequence[Iteration]) -> StageSplit:
    """The split of consecutive iterations of one engine."""
    known = [each for each in iterations if each.phase in PHASES and each.wall_ms > 0]
    total = sum(each.wall_ms for each in known)
    phases = []
    for name in PHASES:
        walls = [each.wall_ms for each in known if each.phase == name]
        if walls:
            phases.append(PhaseTime(name, len(walls), sum(walls), float(np.median(walls)), sum(walls) / total))
    gaps = _gaps(iterations)
    worst = max(gaps, default=None)
    return StageSplit(
        phases=tuple(phases), unknown_steps=len(iterations) - len(known),
        usual_gap_ms=float(np.median([gap.ms for gap in gaps])) if gaps else None,
        worst_gap_ms=None if worst is None else worst.ms, worst_gap_prompt_ms=0.0 if worst is None else worst.prompt_ms,
        worst_gap_steps=0 if worst is None else worst.steps,
        prefills_ms=tuple(_alone(iterations)), chunks=_chunk_effect(known))


class _Gap(NamedTuple):
    ms: float
    prompt_ms: float
    steps: int


def _gaps(iterations: Sequence[Iteration]) -> list[_Gap]:
    """From one decoding step's end to the next one's, and what of it computes prompts. A step of unknown phase, or a
    hole, ends the count: who waited in it is not known."""
    gaps: list[_Gap] = []
    waited: _Gap | None = None
    for each in iterations:
        if each.phase not in PHASES or not each.follows:
            waited = None
        if waited is not None:
            prompts = each.phase != "decode"
            waited = _Gap(waited.ms + each.wall_ms, waited.prompt_ms + prompts * each.wall_ms, waited.steps + prompts)
        if each.phase in DECODING:
            if waited is not None:
                gaps.append(waited)
            waited = _Gap(0.0, 0.0, 0)
    return gaps


def _alone(iterations: Sequence[Iteration]) -> list[float]:
    """Times of requests that were prefilled by themselves, in consecutive steps: a step that fills the largest chunk
    seen is followed by the rest of its prompt, any other ends one. A prompt is left out where its beginning was not
    seen (at the start, after a hole, after a step that several requests shared) or decodes came between."""
    tokens = [each.prefill_tokens for each in iterations if each.phase == "prefill" and each.prefill_tokens]
    largest = max(tokens, default=0)
    in_chunks = tokens.count(largest) >= 2
    times: list[float] = []
    between = not in_chunks  # no prompt is half done
    run: float | None = 0.0 if between else None  # of the prompt that is being computed; None: not to be counted
    for each in iterations:
        if each.phase == "prefill" and each.prefill_requests == 1 and each.prefill_tokens and each.follows:
            run = 0.0 if between else run
            run = None if run is None else run + each.wall_ms
            between = not (in_chunks and each.prefill_tokens == largest)
            if between and run is not None:
                times.append(run)
        elif each.phase == "decode" and each.follows:
            run = None
        else:
            between, run = not in_chunks, None
    return times


def _chunk_effect(known: Sequence[Iteration]) -> ChunkEffect | None:
    of_prompts = [(each.prefill_tokens, each.wall_ms) for each in known if each.phase != "decode"
                  and each.prefill_tokens]
    if len(of_prompts) < FEWEST_CHUNKS:
        return None
    tokens, walls = np.array(of_prompts, dtype=float).T
    if tokens.max() < CHUNK_SPREAD * tokens.min():
        return None
    slope, fixed = np.polyfit(tokens, walls, 1)
    return ChunkEffect(float(fixed), float(slope) * 1000, len(tokens), int(tokens.min()), int(tokens.max()))


def _words(found: StageSplit) -> list[str]:
    words = []
    if len(found.phases) > 1:
        words.append("of the steps' time " + ", ".join(
            f"{each.share:.0%} is {each.phase} ({counted(each.steps, 'step')}, median {figure(each.median_ms)} ms)"
            for each in found.phases))
    usual, worst = found.usual_gap_ms, found.worst_gap_ms
    if usual and worst and worst > STALL * usual and found.worst_gap_prompt_ms >= worst / 2:
        words.append(f"running requests once waited {figure(worst)} ms for a token, {figure(worst / usual)} usual "
                     f"gaps, behind {counted(found.worst_gap_steps, 'step')} with prompts")
    if found.chunks is not None and found.chunks.ms_per_1k > 0:
        words.append(f"a step with prompts takes {figure(max(found.chunks.fixed_ms, 0.0))} ms and "
                     f"{figure(found.chunks.ms_per_1k)} ms for each 1,000 prompt tokens in it "
                     f"({found.chunks.steps:,} steps of {found.chunks.smallest:,} to {found.chunks.largest:,})")
    return words

"""Prefill steps in a row while running requests wait for their next token."""

from __future__ import annotations

from collections.abc import Sequence

from .results import Step

SEVERAL = 2
"""One prefill between two decodes is how prompts come in; from this many in a row on, the decodes are passed over."""


def prefill_runs(steps: Sequence[Step]) -> list[list[Step]]:
    """Runs of prefill steps with steps that decode on both sides, and more requests decoding after it than it can have
    brought in: only then were decodes surely pending. Where the names do not count requests, all are taken to have
    been."""
    found: list[list[Step]] = []
    decoding = False
    run: list[Step] = []
    for step in steps:
        if step.phase == "prefill":
            run += [step] if decoding else []
            continue
        if step.phase in ("decode", "mixed"):
            found += [run] if run and _kept_waiting(run, step.decode_requests) else []
            decoding = True
        run = []
    return found


def _kept_waiting(run: Sequence[Step], after: int | None) -> bool:
    """Whether requests that decode after a run of prefills, `after` many, were running before it. Prompts of one length
    look like chunks of one prompt: where as many decode as all steps computed prompts for, they are these."""
    return after is None or (after > _brought_in(run) and after != sum(step.prefill_requests or 0 for step in run))


def _brought_in(run: Sequence[Step]) -> int:
    """The most requests whose prompts a run of prefill steps can have finished; 0 where the names do not tell. A step
    of one request that fills the largest chunk, where that came twice, goes on with the same prompt in the next."""
    tokens = [step.prefill_tokens or 0 for step in run]
    largest = max(tokens, default=0)
    chunk = largest if tokens.count(largest) >= 2 else 0
    going_on = [step.prefill_requests == 1 and 0 < chunk == many for step, many in zip(run, tokens, strict=True)]
    going_on = [*going_on[:-1], False] if run else []
    return sum(0 if more else step.prefill_requests or 0 for step, more in zip(run, going_on, strict=True))

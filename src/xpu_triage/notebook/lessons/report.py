"""The incident as it was reported, beside the lab's figures."""

from __future__ import annotations

from dataclasses import dataclass

from ..shown import Shown, table
from .case import Case


@dataclass(frozen=True)
class Reported:
    """The incident's own figures."""

    batch: int = 256
    vocab: int = 152_000
    step_s: float = 4.89
    faulty_tokens_per_s: float = 32.0
    fixed_tokens_per_s: float = 3201.71
    peak_tokens_per_s: float = 4851.0
    utilization_fraction: float = 0.0


REPORTED = Reported()


def beside_the_report(case: Case) -> Shown:
    """The incident's figures, and the lab's, with what each of them is worth."""
    r, work = REPORTED, case.faulty.work
    fixed_ms = 1e3 * r.batch / r.fixed_tokens_per_s
    rows = [
        (
            "one step",
            f"{r.step_s:g} s",
            f"{case.faulty.step_ms / 1e3:,.2f} s",
            "the model's price of a draw on the CPU is fitted to this figure",
        ),
        (
            "tokens/s with the fault",
            f"{r.faulty_tokens_per_s:g}",
            f"{case.faulty.tokens_per_s:,.1f}",
            f"{r.batch} ÷ {r.step_s:g} s = {r.batch / r.step_s:.1f}: the report's two figures contradict "
            "each other",
        ),
        (
            "utilization, vendor's tool",
            f"{r.utilization_fraction:.0%}",
            f"{case.faulty.utilization_fraction:.0%}",
            f"{case.faulty.stats.kernel_ns / case.faulty.steps / 1e6:,.0f} ms of kernels in a step: the device "
            "is not slow, it is not asked",
        ),
        (
            "tokens/s without it",
            f"{r.fixed_tokens_per_s:,.2f}, peak {r.peak_tokens_per_s:,.0f}",
            f"{case.fixed.tokens_per_s:,.0f}",
            "reported over whole requests; the lab decodes only, which is the peak's case",
        ),
        (
            "ratio",
            f"{r.fixed_tokens_per_s / r.faulty_tokens_per_s:.0f} by tokens/s, "
            f"{1e3 * r.step_s / fixed_ms:.0f} by step",
            f"{case.ratio:,.1f}",
            "fault → normal each time, and no gain",
        ),
    ]
    note = f"Reported at {r.batch} × {r.vocab:,}; the lab's are at {work.batch} × {work.vocab:,}."
    return table(("figure", "reported", "lab", "what it is worth"), rows, numbers=(1, 2), note=note)

"""What `xpu-triage lab` prints."""

from __future__ import annotations

from collections.abc import Iterable

from ..text import counted
from .faults import Fault
from .run import Run


def fault_lines(faults: Iterable[Fault]) -> list[str]:
    """Two lines a fault: what it is, and what a diagnosis of it has to say."""
    lines = []
    for fault in faults:
        expected = " or ".join(fault.fingerprints) or "no fault: kernel-bound or bandwidth-bound"
        lines += [
            f"{fault.name}: {fault.line}",
            f"    diagnosis: {expected}{f', naming {fault.operator}' if fault.operator else ''}",
        ]
    return lines


def run_lines(run: Run) -> list[str]:
    """The run in a few lines, with what its times are worth."""
    lines = [
        f"{run.fault.name}: {counted(run.steps, 'step')} of {run.work.batch} × {run.work.vocab:,} on {run.model.name}, "
        f"{run.clock} clock",
        f"step {run.step_ms:,.2f} ms ({run.tokens_per_s:,.0f} tokens/s), first step "
        f"{run.first_step_ms:,.2f} ms; utilization {run.utilization_fraction:.0%}, device busy "
        f"{run.busy_fraction:.0%}",
        f"a step has {run.launches_per_step:,.0f} launches, {run.syncs_per_step:,.1f} waits for the device, "
        f"{run.fallbacks_per_step:,.1f} operators on the host's CPU",
    ]
    if run.disturbed:
        lines.append(
            f"this machine was too busy for these times to say much: other programs had it for "
            f"{run.held_up_fraction:.0%} of the run, and waits ended late by {run.late_fraction:.0%} of it"
        )
    return [*lines, f"evidence in {run.out}: trace.json.gz, utilization.csv, steps.log, lab.txt"]


def ratio_lines(faulty: Run, repaired: Run) -> list[str]:
    """Step time with the fault ÷ without it, and what kind of ratio that is.

    Raises ValueError where the two runs differ in more than the fault.
    """
    same = [(r.work.batch, r.work.vocab, r.work.weights_gb, r.model, r.clock) for r in (faulty, repaired)]
    if same[0] != same[1]:
        raise ValueError("the runs differ in load, device or clock: their ratio says nothing about the fault")
    ratio = faulty.step_ms / repaired.step_ms
    worth = (
        f"computed on the {faulty.model.name} model, whose figures are in lab.txt with their sources"
        if faulty.clock == "virtual"
        else "measured in real time: the host's work ran here, the device's is modelled"
    )
    if faulty.disturbed or repaired.disturbed:
        worth += "; this machine was busy with other work, so it is worth little: run both again"
    return [
        f"{faulty.step_ms:,.2f} ÷ {repaired.step_ms:,.2f} ms = {ratio:,.1f} times, {worth}",
        "this is a recovery, faulty state → normal state, and no optimization of the normal state",
    ]

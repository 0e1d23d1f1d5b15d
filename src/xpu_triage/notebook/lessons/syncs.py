"""A condition that asks the device, once a token: its syncs counted, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from ...diagnosis import Diagnosis
from ...lab import ENGINE, MODELS, install
from ...lab.clock import VirtualClock
from ...lab.decoder import matmuls
from ...lab.faults import FAULTS, repaired
from ...lab.run import COMPUTED_LOGITS
from ...plots.words import percent
from ...syncs import Syncs, count_syncs
from ..shown import Shown, lines, said, stacked, table
from .case import Case, step_ms

FAULT = "device-predicate"
SHEET = "after.yaml"


@contextmanager
def lab_device(*, compute: bool = True, matmul_bytes: int = 0) -> Iterator[None]:
    """The lab device of the case, afresh, on the virtual clock."""
    install()
    model = MODELS[FAULTS[FAULT].device]
    ENGINE.configure(model, VirtualClock(), compute=compute, matmul_bytes=matmul_bytes)
    try:
        yield
    finally:
        ENGINE.close()


@dataclass(frozen=True)
class Counted:
    """The syncs of some steps, found by two detectors that know nothing of each other, in the same run."""

    waited: Syncs
    """Waits that happened, as the device's queue reports them, with their time on the lab's clock."""
    asked: Syncs
    """Read-backs and waits that the code asks for, found at PyTorch's dispatcher."""
    step_ms: float

    @property
    def agreed(self) -> bool:
        """Whether both found the same number in every step."""
        return self.waited.by_step == self.asked.by_step

    @property
    def wait_ms(self) -> float:
        """Time of a step in which the host waits."""
        total = self.waited.wait_ms
        assert total is not None
        return total / len(self.waited.by_step)


def counted(*, batch: int, vocab: int, steps: int, repair: bool) -> Counted:
    """Run the fault, or its repair, on the lab device and count the syncs of each step."""
    fault = repaired(FAULTS[FAULT]) if repair else FAULTS[FAULT]
    work = replace(fault.work, batch=batch, vocab=vocab)
    compute, weights = batch * vocab <= COMPUTED_LOGITS, int(work.weights_gb * 1e9 / matmuls(work))
    with lab_device(compute=compute, matmul_bytes=weights), torch.inference_mode():
        loop = fault.loop(work)
        loop.step()  # captures the graph
        ENGINE.drain("warm-up")
        started = ENGINE.clock.now()
        with count_syncs("lab") as waited, count_syncs("dispatch") as asked:
            for _ in asked.steps(waited.steps(range(steps))):
                loop.step()
        return Counted(waited, asked, (ENGINE.clock.now() - started) / steps / 1e6)


def count_table(before: Counted, after: Counted) -> Shown:
    """Every line of code that waits, and how often a step, before and after."""
    rows: list[tuple[str, ...]] = []
    for name, pair in (
        ("the queue", (before.waited, after.waited)),
        ("the dispatcher", (before.asked, after.asked)),
    ):
        found = [by_line(syncs) for syncs in pair]
        sites = sorted({*found[0], *found[1]}, key=lambda s: (-max(f.get(s, 0.0) for f in found), s))
        rows += [(name, site, *(f"{f.get(site, 0):g}" for f in found)) for site in sites]
        rows.append((name, "together", *(f"{sum(f.values()):g}" for f in found)))
    unseen = [
        f"{s.backend.name}: {gap}" for s in (before.waited, before.asked) for gap in s.backend.cannot_see
    ]
    columns = ("syncs a step, counted by", "line", "before", "after")
    return stacked(table(columns, rows, numbers=(2, 3)), lines("What the two cannot see", unseen))


def by_line(syncs: Syncs) -> dict[str, float]:
    """Syncs a step of every line of code."""
    found = Counter[str]()
    for row in syncs.rows:
        found[str(row.site)] += sum(row.steps)
    return {site: count / len(syncs.by_step) for site, count in found.items()}


def before_and_after(case: Case, before: Counted, after: Counted) -> Shown:
    """The count with the latency beside it: fewer syncs at the same step time would be no fix."""
    signals = [found.signals for found in (case.before, case.after)]
    rows = [
        ("syncs", *(f"{c.waited.per_step:g}" for c in (before, after))),
        ("launches", *(f"{run.launches_per_step:g}" for run in (case.faulty, case.fixed))),
        ("host waits in syncs", *(f"{c.wait_ms:,.2f} ms" for c in (before, after))),
        (
            "device idle after syncs",
            *(percent(_number(s.value("idle.after_sync_fraction"))) for s in signals),
        ),
        ("device busy", *(percent(_number(s.value("device.busy_fraction"))) for s in signals)),
        ("step time", *(f"{step_ms(found):,.2f} ms" for found in (case.before, case.after))),
        ("tokens/s", *(f"{run.tokens_per_s:,.0f}" for run in (case.faulty, case.fixed))),
    ]
    return table(("one step", "before", "after"), rows, numbers=(1, 2))


@dataclass(frozen=True)
class Gain:
    """What removing the syncs won, beside what the trace had said. ms of a step."""

    waited_ms: float
    """The host was blocked in syncs, mostly while the device was at work."""
    bound_ms: float
    """No more could be won: `sync.gain_bound_fraction`."""
    idle_ms: float
    """The device was idle after syncs."""
    won_ms: float
    """The step is so much shorter."""

    @property
    def told(self) -> Shown:
        """The same in words."""
        return said(
            f"The host waits {self.waited_ms:.2f} ms of a step in syncs. That is not their cost: in most of it "
            "the device is at work.",
            f"What the trace of the faulty run says: the device idles {self.idle_ms:.2f} ms of a step after "
            f"syncs, and no more than {self.bound_ms:.2f} ms can be won.",
            f"Measured after the fix: the step is {self.won_ms:.2f} ms shorter.",
        )


def gain(case: Case) -> Gain:
    """What the trace promised, and what came of it."""
    wall, signals = step_ms(case.before), case.before.signals
    waited, bound, idle = (
        wall * _number(signals.value(name))
        for name in ("sync.wait_fraction", "sync.gain_bound_fraction", "idle.after_sync_fraction")
    )
    return Gain(waited, bound, idle, wall - step_ms(case.after))


def settled(case: Case) -> Diagnosis:
    """The faulty trace with the measurement that its verdict asks for: the step without the sync over the
    step with it, typed in a sheet."""
    text = (
        "schema: 1\ntitle: The same load, the condition decided on the host\n"
        f"signals:\n  ab.fewer_syncs_ratio: {1 / case.ratio:.3f}\n"
    )
    return case.beside(SHEET, text)


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)

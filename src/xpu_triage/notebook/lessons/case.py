"""A fault of the lab and its repair, run one after the other, recorded and diagnosed: what the lab notebooks
walk through."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ... import lab
from ...diagnosis import Diagnosis, diagnose
from ...lab import Run
from ...plots import Picture
from ...plots.sweep import SweepPoint, batch_sweep
from ...plots.words import percent
from ...steps.results import Cause
from ..cards import verdict
from ..shown import Shown, lines, said, stacked, table

TRACE = "trace.json.gz"
INCIDENT = lab.Workload()
"""The load of the incident: batch and vocabulary."""
SWEEP_STEPS = 2
REAL_STEPS = {False: 2, True: 10}
"""On the real clock, by whether the run is the repaired one: a faulty step takes seconds."""


@dataclass(frozen=True, eq=False)
class Case:
    """The same load with the fault and without it: both runs, and the diagnosis of what each left."""

    faulty: Run
    fixed: Run
    before: Diagnosis
    after: Diagnosis
    trace: bytes
    """The file that the faulty run left."""
    out: str = ""
    """The folder that the reader named; empty where the files are gone."""

    @property
    def at_size(self) -> bool:
        """Whether the load is at least the incident's: only then the fault must show in full."""
        work = self.faulty.work
        return work.batch >= INCIDENT.batch and work.vocab >= INCIDENT.vocab

    @property
    def ratio(self) -> float:
        """Step time with the fault ÷ without it, medians as the walk found them."""
        return step_ms(self.before) / step_ms(self.after)

    def beside(self, name: str, text: str) -> Diagnosis:
        """The diagnosis of the faulty trace with one more file beside it, `name` with `text` in it."""
        with _folder(self.out) as folder:
            (folder / "faulty").mkdir(exist_ok=True)
            (folder / "faulty" / TRACE).write_bytes(self.trace)
            (folder / name).write_text(text, encoding="utf-8")
            return _diagnosed(folder, f"faulty/{TRACE}", name, named=bool(self.out))


def reproduce(fault: str, *, batch: int, vocab: int, steps: int, out: str = "") -> Case:
    """Run `fault` and its repair on the virtual clock and diagnose what they leave.

    `out`: a folder for the evidence, with one folder a run in it; left empty the files are deleted once they
    are read. Raises `UnusableInput` for sizes that cannot run or a folder that cannot be made.
    """
    with _folder(out) as folder:
        faulty, fixed = (
            lab.run(fault, batch=batch, vocab=vocab, steps=steps, out=folder / name, repair=name == "fixed")
            for name in ("faulty", "fixed")
        )
        before, after = (
            _diagnosed(folder, f"{name}/{TRACE}", named=bool(out)) for name in ("faulty", "fixed")
        )
        return Case(faulty, fixed, before, after, (folder / "faulty" / TRACE).read_bytes(), out)


@contextmanager
def _folder(out: str) -> Iterator[Path]:
    """The folder that the reader named, or one that is deleted afterwards."""
    if out:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="xpu-triage-") as folder:
        yield Path(folder)


def _diagnosed(folder: Path, *files: str, named: bool) -> Diagnosis:
    found = diagnose(*(folder / name for name in files))
    if named:
        return found
    # A temporary folder has another name each time; what a reader can use is the file's place in it.
    records = (replace(record, path=str(Path(record.path).relative_to(folder))) for record in found.evidence)
    return replace(found, evidence=tuple(records))


def step_ms(diagnosis: Diagnosis) -> float:
    """Median wall time of a step."""
    value = diagnosis.signals.value("step.wall_ms")
    assert isinstance(value, int | float)
    return float(value)


def answer(case: Case) -> Shown:
    """The verdict on the faulty run, and what the repair is worth."""
    return stacked(verdict(case.before), said(*lab.ratio_lines(case.faulty, case.fixed)))


def inside(case: Case) -> Shown:
    """What one step holds, with the fault and without it, as the device's own queue counted it."""
    rows = [
        ("launches", *(f"{run.launches_per_step:,.0f}" for run in _runs(case))),
        ("waits of the host for the device", *(f"{run.syncs_per_step:,.0f}" for run in _runs(case))),
        ("operators on the host's CPU", *(f"{run.fallbacks_per_step:,.0f}" for run in _runs(case))),
        ("time of those", *(f"{run.stats.fallback_ns / run.steps / 1e6:,.1f} ms" for run in _runs(case))),
        (
            "moved to the host",
            *(f"{run.stats.to_host_bytes / run.steps / 1e6:,.1f} MB" for run in _runs(case)),
        ),
        (
            "moved to the device",
            *(f"{run.stats.to_device_bytes / run.steps / 1e6:,.1f} MB" for run in _runs(case)),
        ),
        ("device busy", *(percent(run.busy_fraction) for run in _runs(case))),
        (
            "utilization, as a vendor's tool shows it",
            *(f"{run.utilization_fraction:.0%}" for run in _runs(case)),
        ),
        ("one step", *(f"{run.step_ms:,.2f} ms" for run in _runs(case))),
        ("tokens/s", *(f"{run.tokens_per_s:,.0f}" for run in _runs(case))),
    ]
    return table(("one step", "faulty", "fixed"), rows, numbers=(1, 2))


def _runs(case: Case) -> tuple[Run, Run]:
    return case.faulty, case.fixed


def sweep(fault: str, *, batch: int, vocab: int) -> tuple[SweepPoint, ...]:
    """The fault and its repair at batch 1, 2, 4 … and at `batch`, a few steps each, on the virtual clock."""
    points = []
    with tempfile.TemporaryDirectory(prefix="xpu-triage-") as folder:
        for size in doublings(batch):
            faulty, fixed = (
                lab.run(fault, batch=size, vocab=vocab, steps=SWEEP_STEPS, out=folder, repair=repair)
                for repair in (False, True)
            )
            points.append(
                SweepPoint(
                    batch=size,
                    faulty_ms=faulty.step_ms,
                    fixed_ms=fixed.step_ms,
                    faulty_utilization=faulty.utilization_fraction,
                    fixed_utilization=fixed.utilization_fraction,
                )
            )
    return tuple(points)


def doublings(largest: int) -> list[int]:
    """1, 2, 4 … and `largest`.

    >>> doublings(6)
    [1, 2, 4, 6]
    """
    sizes = [1]
    while sizes[-1] * 2 < largest:
        sizes.append(sizes[-1] * 2)
    return sizes if largest == 1 else [*sizes, largest]


def sweep_picture(points: tuple[SweepPoint, ...], case: Case) -> Picture:
    """The sweep, drawn in the colour of what the device waits for most in the case."""
    use = case.before.lead.busiest if case.before.lead else None
    causes = use.gaps.by_cause() if use else {Cause.UNRECORDED: 0}
    of = f"{case.faulty.model.name} model, virtual clock, {case.faulty.work.vocab:,} tokens"
    return batch_sweep(points, cause=max(causes, key=lambda c: causes[c]), of=of)


def sweep_table(points: tuple[SweepPoint, ...]) -> Shown:
    """The figures of a sweep."""
    rows = [
        (
            f"{p.batch:,}",
            f"{p.faulty_ms:,.2f} ms",
            f"{p.fixed_ms:,.2f} ms",
            f"{p.faulty_ms - p.fixed_ms:,.2f} ms",
            f"{p.ratio:,.2f}",
            f"{p.faulty_utilization:.0%}",
            f"{p.fixed_utilization:.0%}",
        )
        for p in points
    ]
    columns = ("batch", "faulty step", "fixed step", "lost", "ratio", "utilization, faulty", "fixed")
    return table(columns, rows, numbers=range(7))


def assumptions(case: Case) -> Shown:
    """Every figure of the device model, with its source; and the load."""
    work = case.faulty.work
    return lines(
        f"{case.faulty.model.name}, {case.faulty.clock} clock, batch {work.batch:,}, {work.vocab:,} tokens, "
        f"{work.weights_gb:g} GB of weights read a step",
        case.faulty.model.described(),
    )


def in_real_time(live: bool, fault: str, *, batch: int, vocab: int) -> Shown:
    """The same on the real clock: what the host does takes the time that it takes on this machine, the
    device's share is modelled. Differs from run to run, so it runs on request alone."""
    if not live:
        return said(
            "Not run here, because its times differ from machine to machine: set live = True above for it."
        )
    with tempfile.TemporaryDirectory(prefix="xpu-triage-") as folder:
        faulty, fixed = (
            lab.run(
                fault,
                batch=batch,
                vocab=vocab,
                steps=REAL_STEPS[repair],
                clock="real",
                out=folder,
                repair=repair,
            )
            for repair in (False, True)
        )
    told = [line for run in (faulty, fixed) for line in lab.run_lines(run)[:-1]]  # the last names the folder
    return lines("In real time, on this machine", [*told, *lab.ratio_lines(faulty, fixed)[:1]])

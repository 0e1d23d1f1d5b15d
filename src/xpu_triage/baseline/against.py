"""The runs in evidence held against a baseline: whether it is of the same thing, and what the two show side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UnusableInput
from ..roofline import devices
from .compare import Comparison, compare
from .dimension import dimension
from .loads import paired
from .records import BenchRecord, Environment
from .signals import heaviest
from .slowdown import Slowdown, slowdown
from .store import Baseline, baseline

NO_RUN = ("the evidence has no result of a load generator to hold against the baseline: latencies of a server's "
          "metrics have no interval")


@dataclass(frozen=True)
class Against:
    """What a baseline says of the runs in evidence."""

    other: str = ""
    """Why the baseline is of something else, and is not used."""
    comparison: Comparison | None = None
    slowdown: Slowdown | None = None
    """Of the comparison."""
    why: str = ""
    """Why there is no comparison."""
    speaks: BenchRecord | None = None
    """Of several loads the one that is surely slower by most; None where none is."""
    notes: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """One sentence where something is surely slower, or where requests stall that did not; empty otherwise."""
        if self.comparison is None or self.slowdown is None:
            return ""
        if not self.slowdown.sure:
            return f"Nothing is surely slower than in the baseline, but {stalled[0].text}." if (
                stalled := self.comparison.stalls) else ""
        least = self.slowdown.least
        return (f"Surely slower than in the baseline, at least × {least.ratio:,.3g} ({least.where}): "
                f"{dimension(self.comparison).kind}.")


def against(kept: Baseline, records: Sequence[BenchRecord], *, device: str = "") -> Against:
    """Hold `records` against `kept`. `device` is the product name that the evidence gives, empty for unknown."""
    if other := _another(kept.environment, records, device):
        return Against(other=other)
    notes = _cannot_tell(kept.environment, records, device)
    usable = [record for record in records if record.completed != 0]
    if not usable:
        return Against(why=NO_RUN, notes=tuple(notes))
    try:
        found = compare(kept, baseline(usable, source=usable[0].source), anyway=True)  # what both are was looked at
    except UnusableInput as error:
        return Against(why=f"not compared with the baseline: {error}",
                       notes=(*notes, f"not compared with the baseline: {error}"))
    slow = slowdown(found)
    return Against(comparison=found, slowdown=slow, speaks=_speaks(kept, usable, found, slow), notes=tuple(notes))


def _speaks(kept: Baseline, records: Sequence[BenchRecord], found: Comparison, slow: Slowdown) -> BenchRecord | None:
    """A load that is slower alone, its neighbours as before, is a disturbed recording sooner than the fault."""
    if not slow.sure or slow.least.cell is None or not dimension(found).regression:
        return None
    runs = next((pair.new for pair in paired(kept.records, records).pairs if pair.cell == slow.least.cell), ())
    return heaviest(runs) if runs else None


def _another(was: Environment, records: Sequence[BenchRecord], device: str) -> str:
    """Why the baseline is of something else; empty where it is not known to be."""
    for record in records:
        now = record.environment
        if was.model and now.model and not _one_model(was.model, now.model):
            return f"it is of model {was.model}, and {now.model} runs"
    for named in (device, *(record.environment.device for record in records)):
        if was.device and named and _one_device(was.device, named) is False:
            return f"it was recorded on {was.device}, and this is {named}"
    return ""


def _cannot_tell(was: Environment, records: Sequence[BenchRecord], device: str) -> list[str]:
    """What is taken as the same without being known to be."""
    models = [record.environment.model for record in records if record.environment.model]
    names = [name for name in (device, *(record.environment.device for record in records)) if name]
    missing = [part for part, known in (
        ("model", was.model and models),
        ("device", was.device and any(_one_device(was.device, name) for name in names))) if not known]
    return [f"whether the baseline is of the same {' and '.join(missing)} is not known: it is taken so, as it was "
            "given"] if missing else []


def _one_model(a: str, b: str) -> bool:
    """A model is served under its path or under its name alone; two paths are two models, as in `compare`."""
    a, b = a.casefold().rstrip("/"), b.casefold().rstrip("/")
    return a == b or (("/" in a) != ("/" in b) and a.rpartition("/")[2] == b.rpartition("/")[2])


def _one_device(a: str, b: str) -> bool | None:
    """By name, or by what both are in the table of peaks; None where it cannot be told."""
    if a.casefold().split() == b.casefold().split():
        return True
    one, other = devices.by_name(a), devices.by_name(b)
    return None if one is None or other is None else one == other

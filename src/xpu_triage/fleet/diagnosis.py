"""From the evidence of many ranks to one diagnosis of their job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import fingerprints
from ..verdict import Level
from .cluster import Progress, diagnose_all
from .compare import Comparison, compared
from .inputs import find_ranks
from .judgement import JobVerdict, judged
from .one_job import shown
from .result import RankResult
from .settle import refuse_all, settled


@dataclass(frozen=True, eq=False)
class FleetDiagnosis:
    """Everything that the terminal, the plot and the JSON show of a job."""

    verdict: JobVerdict
    comparison: Comparison
    given: int
    """Pieces of evidence."""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 for a verdict, 3 for not enough evidence."""
        return 3 if self.verdict.level is Level.NOT_ENOUGH else 0


def diagnose_fleet(*evidence: str, scheduler: str | None = None, workers: int | None = None,
                   progress: Progress | None = None) -> FleetDiagnosis:
    """Find the ranks in `evidence` (paths, folders, globs, URLs), diagnose each on Dask, compare and judge.

    Raises UnusableInput where nothing can be compared; see `find_ranks` and `diagnose_all` for the rest. One rank whose
    evidence cannot be read is told beside the others.
    """
    found = find_ranks(evidence)
    results = diagnose_all(found.pieces, scheduler=scheduler, workers=workers, progress=progress)
    return judge_ranks(results, found.notes)


def judge_ranks(results: Sequence[RankResult], notes: Sequence[str] = ()) -> FleetDiagnosis:
    """Compare and judge ranks that are diagnosed. Pure, but for the pages of the playbook."""
    given = shown(settled(results))
    if not given.ranks:
        raise refuse_all(given, len(results))
    pages = fingerprints.load()
    comparison = compared(given, pages)
    return FleetDiagnosis(judged(comparison, pages), comparison, len(results), tuple(notes))

"""What the lab notebooks call: an incident reproduced and diagnosed, and the proofs that its fix holds.

Needs torch; `xpu_triage.notebook` itself does not import it.
"""

from .case import (
    Case,
    answer,
    assumptions,
    in_real_time,
    inside,
    reproduce,
    sweep,
    sweep_picture,
    sweep_table,
)
from .draws import fit_table, fits, other_fits, spread_table, spreads
from .flags import change_table, changes, counted_change_table, counted_changes, walked
from .guards import guard_table, guards, proof_table, proofs
from .report import beside_the_report
from .syncs import before_and_after, count_table, counted, gain, settled

__all__ = [
    "Case",
    "answer",
    "assumptions",
    "before_and_after",
    "beside_the_report",
    "change_table",
    "changes",
    "count_table",
    "counted",
    "counted_change_table",
    "counted_changes",
    "fit_table",
    "fits",
    "gain",
    "guard_table",
    "guards",
    "in_real_time",
    "inside",
    "other_fits",
    "proof_table",
    "proofs",
    "reproduce",
    "settled",
    "spread_table",
    "spreads",
    "sweep",
    "sweep_picture",
    "sweep_table",
    "walked",
]

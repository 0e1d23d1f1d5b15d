"""What the notebooks call, one line each: parameters, the walk, the verdict, tables and pictures.

Every function takes a `Diagnosis` and returns something that Jupyter shows as a page and a terminal as text.
"""

from ..plots import lanes, step_times, utilization, waterfall
from .cards import contradictions, evidence, next_steps, reasons, verdict
from .cross import cross_check
from .parameters import check_parameters, diagnose, incident
from .shown import Shown, said, stacked
from .tables import busy, finding, idle, recovery, second, signals, smi, steps, warm

__all__ = [
    "Shown",
    "busy",
    "check_parameters",
    "contradictions",
    "cross_check",
    "diagnose",
    "evidence",
    "finding",
    "idle",
    "incident",
    "lanes",
    "next_steps",
    "reasons",
    "recovery",
    "said",
    "second",
    "signals",
    "smi",
    "stacked",
    "step_times",
    "steps",
    "utilization",
    "verdict",
    "warm",
    "waterfall",
]

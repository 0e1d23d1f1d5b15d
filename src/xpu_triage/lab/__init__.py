"""The lab: a device in pure Python on which the incidents happen, on any machine with torch.

lab.run("exponential-fallback", out="incident")     # leaves evidence files
for fault in lab.faults(): print(fault.name, fault.line)
"""

from __future__ import annotations

from ..torch_ready import torch_or_one_line

with torch_or_one_line():
    import torch as _torch  # noqa: F401

from .cost_model import MODELS, DeviceModel
from .decoder import DecodeLoop, Workload
from .device import install
from .engine import ENGINE
from .faults import FAULTS, Fault
from .run import Run, run
from .words import fault_lines, ratio_lines, run_lines

__all__ = [
    "ENGINE",
    "MODELS",
    "DecodeLoop",
    "DeviceModel",
    "Fault",
    "Run",
    "Workload",
    "fault_lines",
    "faults",
    "install",
    "ratio_lines",
    "run",
    "run_lines",
]


def faults() -> tuple[Fault, ...]:
    """All faults, the healthy engine first."""
    return tuple(FAULTS.values())

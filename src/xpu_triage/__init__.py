"""xpu-triage: from a slow LLM inference service to a verdict.

Utilization, step time, operator bisection; then the failures known to look like that, held against
what was measured. ``xpu_triage.diagnose(path, ...)`` is the whole walk; the ``xpu-triage`` command, the
notebooks and the report all call it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the walk only when it is asked for: ``import xpu_triage`` alone costs nothing."""
    if name in __all__:
        from . import diagnosis as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

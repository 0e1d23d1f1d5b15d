from __future__ import annotations
from .signals import Signals
from .verdict import Contradiction
def contradictions(signals: Signals) -> tuple[Contradiction, ...]:
    return ()

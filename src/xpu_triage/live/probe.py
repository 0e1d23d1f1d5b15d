"""What every probe is: something that takes one sample at a time and writes it down."""

from __future__ import annotations

from typing import Protocol


class Trouble(Exception):
    """A sample that could not be taken, in one line for the reader. `final`: the next one cannot succeed either."""

    def __init__(self, line: str, *, final: bool = False) -> None:
        super().__init__(line)
        self.final = final


class Probe(Protocol):
    name: str
    interval_s: float
    """Seconds from one sample to the next; a probe may lengthen it while it runs."""
    delay_s: float
    """Seconds from the start to the first sample."""
    notes: list[str]
    """Lines for the record: what was sampled, and what limits it."""

    def sample(self) -> None:
        """Take one sample and write it. Raises `Trouble`."""

    def close(self) -> None:
        """Let go of what was opened. Called once, from the thread that sampled."""

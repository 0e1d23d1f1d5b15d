"""What things are called when people read them: the same words in terminal, notebook, plots and report."""

from __future__ import annotations

from .steps.results import Cause

CAUSE_WORDS = {
    Cause.HIDDEN: "work that the capture lacks (busy is a lower bound)",
    Cause.TURNAROUND: "the device's own turnaround",
    Cause.PROFILER: "the profiler's overhead",
    Cause.FIRST_USE: "first use: module load, allocation, compilation",
    Cause.PEER_WAIT: "waiting for another rank or device",
    Cause.NO_WORK: "nothing to do",
    Cause.UNRECORDED: "host not recorded",
    Cause.HOST_OP: "host busy with work that launches nothing",
    Cause.AFTER_SYNC: "refilling after a host sync",
    Cause.LAUNCHING: "launching as fast as the host can",
}
"""What the device waits for, by cause of idle."""

ABOUT_WORDS = {**{str(cause): f"idle: {words}" for cause, words in CAUSE_WORDS.items()},
               "compute": "device time in kernels", "copy": "device time in copies",
               "comm": "device time in collectives", "host": "host time"}
"""The part of the window that a `Finding` is about."""

_READ = {
    "sheet": ("figure", "figures"),
    "smi": ("reading", "readings"),
    "processes": ("reading", "readings"),
    "metrics": ("sample", "samples"),
    "stacks": ("stack", "stacks"),
    "log": ("line with figures", "lines with figures"),
    "bench": ("request", "requests"),
    "model": ("layer", "layers"),
    "watch": ("sample", "samples"),
}


def read_words(kind: str, count: int) -> str:
    """What a piece of evidence of this kind holds, counted: `1 figure`, `2,376 events`. `smi:nvidia` is an `smi`."""
    one, many = _READ.get(kind.partition(":")[0], ("event", "events"))
    return f"{count:,} {one if count == 1 else many}"

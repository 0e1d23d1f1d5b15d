"""What things are called when people read them: the same words in terminal, notebook, plots and report."""

from __future__ import annotations

from .steps.results import Cause

CAUSE_WORDS = {
    Cause.HIDDEN: "work that the capture lacks (busy is a lower bound)",
    Cause.TURNAROUND: "the device's own turnaround",
    Cause.PROFILER: "the profiler's overhead",
    Cause.FIRST_USE: "first use: module load, allocation, compilation",
    Cause.PEER_WAIT: "waiting for another rank",
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

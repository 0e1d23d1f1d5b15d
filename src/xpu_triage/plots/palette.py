"""One colour and one wording for each kind of device work and each cause of idle, the same in every picture.

Busy is drawn in greys, idle in colours: what is lost is what catches the eye. The colours were chosen by
search so that every two of them stay apart for full colour vision and for the three kinds of colour
blindness (Machado, Oliveira and Fernandes 2009, severity 1); `tests/plots/test_palette.py` measures it.
"""

from __future__ import annotations

from ..steps.results import CAUSES, Cause
from ..words import CAUSE_WORDS

BUSY_KINDS: tuple[str, ...] = ("compute", "comm", "copy")
"""In the order of precedence: where kinds overlap the first one counts."""

BUSY_COLOURS = {"compute": "#20252d", "comm": "#535f6f", "copy": "#a6a8ab"}
BUSY_WORDS = {"compute": "busy: kernels", "comm": "busy: collectives alone", "copy": "busy: copies alone"}

CAUSE_COLOURS = {
    Cause.HOST_OP: "#c03b02",
    Cause.LAUNCHING: "#e88c02",
    Cause.AFTER_SYNC: "#dd3cc2",
    Cause.FIRST_USE: "#eed869",
    Cause.PEER_WAIT: "#0053fb",
    Cause.NO_WORK: "#a2d7fd",
    Cause.TURNAROUND: "#00b562",
    Cause.HIDDEN: "#58159b",
    Cause.UNRECORDED: "#f2f3f2",
    Cause.PROFILER: "#69472c",
}

PARTS: tuple[str, ...] = (*BUSY_KINDS, *CAUSES)
"""Everything that a moment of a device can be: the columns of `occupancy`."""

PART_COLOURS: dict[str, str] = {**BUSY_COLOURS, **{str(cause): CAUSE_COLOURS[cause] for cause in CAUSES}}
PART_WORDS: dict[str, str] = {**BUSY_WORDS, **{str(cause): f"idle: {CAUSE_WORDS[cause]}" for cause in CAUSES}}

HOST_COLOURS = {"blocked": "#e7d9ef", "calls": "#7d93ab", "operators": "#c3d0de", "other": "#e9e6dc"}
HOST_WORDS = {
    "blocked": "host: blocked until the device is done",
    "calls": "host: in a launch or another call",
    "operators": "host: in an operator",
    "other": "host: in Python or a named range",
}

PHASE_COLOURS = {"decode": "#b9cbe0", "prefill": "#8fae8b", "mixed": "#cdb4d6", "": "#ccd1d8"}

INK, FAINT, ALERT, HOST_TIME = "#1b1f24", "#6b7380", "#c03b02", "#3f6b8f"


def part_colour(about: str) -> str:
    """The colour of what a finding is about: a cause, a kind of device work, or `host`."""
    return PART_COLOURS.get(about, HOST_TIME)

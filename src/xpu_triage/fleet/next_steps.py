"""What to do next about a job. Nothing that is given is asked for."""

from __future__ import annotations

import re

from .compare import Comparison, RankRow
from .kernels import Longer, Why
from .waits import TakenUp, is_whole, who_is_missing

SAME_TIME = ("Record the same steps on all ranks at the same time, in one session, and compare again: ranks that "
             "exchange wait for a slow one, and here they did not")
SAME_STEPS = ("Record the same steps on all ranks at the same time, several of them, in one session, and "
              "compare again: collectives that are the same end at the same moments")
NOTHING_SHOWN = ("Where these ranks exchange nothing (replicas) or only hand on (stages of a pipeline), compare what "
                 "each is given: batch, sequence lengths, layers; and diagnose each alone (xpu-triage diagnose). Where "
                 "they do exchange, record their collectives too, over the same steps of one session")
PAST_WARM_UP = ("Record several steps past the warm-up (the profiler's wait and warmup steps) on all ranks, and "
                "compare again: first steps compile, allocate and load")
SAME_OPTIONS = ("Record all ranks with the same options, without Python stacks, shapes and memory, and compare again: "
                "a profiler that records more slows its host down")
TRUE_COST = ("All ranks are compared: this is what the exchange itself takes. Then, timing only: the step with the "
             "collectives left out (ab.no_comm_ratio), or calls per step × one collective of that size alone "
             "(comm.calls_per_step, comm.isolated_us); and the links between the devices, the algorithm and the size")
IN_TURN = ("No one rank is to blame: they are late in turn. Compare what each is given, layer by layer: tokens per "
           "expert, sequence lengths of the batch; where that is even, look at the hosts (CPU binding, other "
           "processes), which hesitate now here, now there")
GIVEN = re.compile(r"traces\s+of\s+all\s+ranks\s+over\s+the\s+same\s+steps\s+(?:\(|and\s+compare\s+them)|"
                   r"look\s+at\s+the\s+rank\s+that\s+comes\s+last", re.I)
"""Words of a rank's own diagnosis, where it cannot tell waiting from cost, that ask for what was done here."""


def given_to(row: RankRow) -> str:
    """What to compare where a rank has more to do."""
    return (f"Compare what {row.result.name} is given with another's: requests and sequence lengths of its batch, "
            "tokens per expert, layers, kernels chosen. Balance them, and compare again")


def of_straggler(row: RankRow, kernels: bool, longer: Longer, more: str) -> str:
    """What to do about a late rank.

    kernels  whether its kernels are what is longer
    more     what its steps carry more than the others', in words
    """
    rank = row.result
    device = (f"Record clocks, power and limits of {rank.name} beside another's under load; then swap the two devices: "
              "a slowness that moves along is the device's, one that stays is of the rank's share of the work")
    if more or (kernels and longer.why is Why.WORK):
        return given_to(row)
    if kernels and longer.why is Why.DEVICE:
        return f"The other ranks run the same kernels faster. {device}"
    if kernels:
        return f"{given_to(row)}. Where it is the same: {device[0].lower()}{device[1:]}"
    if rank.conclusive and rank.next and not GIVEN.search(rank.next):
        return rank.next
    alone = f"xpu-triage diagnose {rank.label}"
    return alone if rank.conclusive else (
        f"{alone}, and compare its host (CPU binding, other processes) with another's")


def of_unshown(taken: TakenUp) -> str:
    """What would show whether anybody waits."""
    return SAME_TIME if taken.matched else SAME_STEPS if taken.apart else NOTHING_SHOWN


def of_missing(found: Comparison) -> str:
    return (f"Give the evidence of {who_is_missing(found)} too, of the same steps: only with all ranks is the shortest "
            "time in a collective its true cost")


def advised(found: Comparison, text: str, row: RankRow) -> str:
    """A diagnosis' own advice, but where it asks for the comparison that was made."""
    if not GIVEN.search(text) or len(found.rows) < 2:
        return text
    if is_whole(found):
        return TRUE_COST
    if not found.groups:
        return NOTHING_SHOWN
    return of_missing(found) if who_is_missing(found) else f"xpu-triage diagnose {row.result.label}"

"""The faults of the lab server by name: those of the engine's step, and those around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from ..errors import UnusableInput
from .faults import FAULTS
from .scheduler import HEALTHY, Policy


@dataclass(frozen=True)
class Front:
    """What the front end does to a request."""

    tokenizer_ms_per_token: float = 0.0
    """CPU time of the tokenizer's own process for each token of a prompt; 0: it costs nothing worth a process."""
    hold_ms: float = 0.0
    """Each frame of a stream leaves so long after the one before it."""


@dataclass(frozen=True)
class ServingFault:
    """A fault of the server, and what a diagnosis of it has to say."""

    name: str
    line: str
    fingerprints: tuple[str, ...]
    """Right answers; empty where nothing is at fault."""
    step: str = "none"
    """The engine's step, a name of `FAULTS`."""
    policy: Policy = HEALTHY
    front: Front = Front()


_AROUND_THE_STEP = (
    ServingFault(
        "queueing-idle-device", "admission stalls: one request at a time, then a pause, though there is room",
        ("queueing-idle-device",), policy=Policy(admission_pause_s=0.5)),
    ServingFault(
        "kv-pressure", "the KV pool holds one request of the greatest length; running ones are evicted",
        ("kv-pressure",), policy=Policy(smallest_pool=True)),
    ServingFault(
        "prefill-starves-decode", "prompts always go first, and running requests wait for them",
        ("prefill-starves-decode",), policy=Policy(prefill_first=True)),
    ServingFault(
        "tokenizer-cpu", "a slow tokenizer in a process of its own, one prompt after another",
        ("tokenizer-cpu",), front=Front(tokenizer_ms_per_token=2.0)),
    ServingFault(
        "slow-front", "frames are held back between the engine and the reader",
        ("network-frontend",), front=Front(hold_ms=100.0)),
)

SERVING_FAULTS: Mapping[str, ServingFault] = MappingProxyType({
    fault.name: fault for fault in (
        *(ServingFault(f.name, f.line, f.fingerprints, step=f.name) for f in FAULTS.values() if not f.cold),
        *_AROUND_THE_STEP,
    )
})
"""By name, the healthy server first. `cold-start` is missing: it cannot be switched on in a server that has started."""


def serving_fault(name: str) -> ServingFault:
    """The fault of this name. Raises `UnusableInput`."""
    if name in SERVING_FAULTS:
        return SERVING_FAULTS[name]
    near = get_close_matches(name, SERVING_FAULTS, n=1)
    raise UnusableInput(f"the lab server knows no {name!r}", todo=(
        f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(SERVING_FAULTS)}"))

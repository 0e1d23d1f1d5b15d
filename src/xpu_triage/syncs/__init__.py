"""Host–device syncs: counted by step and by line of user code, forbidden in tests, disproved without
hardware.

    with count_syncs() as syncs:
        for _ in range(8):
            engine.step()
            syncs.step()
    print(syncs)                         # per step, per file:line, and what this backend cannot see

    assert_no_sync(sample, logits, batch)            # any read-back fails, not one named function
    prove_no_sync(sample, arguments_on)              # no tensor holds a value: none can have been read

Importing this package does not import torch; the first use of a name does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends import Backend, describe_backends
    from .counter import Row, Syncs, SyncsFound, assert_no_sync, count_syncs, forbid_syncs
    from .proof import Proof, prove_no_sync
    from .sites import Site

__all__ = [
    "Backend",
    "Proof",
    "Row",
    "Site",
    "Syncs",
    "SyncsFound",
    "assert_no_sync",
    "count_syncs",
    "describe_backends",
    "forbid_syncs",
    "prove_no_sync",
]

_HOME = {
    "Backend": "backends",
    "Proof": "proof",
    "Row": "counter",
    "Site": "sites",
    "Syncs": "counter",
    "SyncsFound": "counter",
    "assert_no_sync": "counter",
    "describe_backends": "backends",
    "count_syncs": "counter",
    "forbid_syncs": "counter",
    "prove_no_sync": "proof",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from ..torch_ready import torch_or_one_line

    with torch_or_one_line():
        module = import_module(f".{_HOME[name]}", __name__)
    return getattr(module, name)

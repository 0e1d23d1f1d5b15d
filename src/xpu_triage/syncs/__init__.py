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

    from ..errors import MissingExtra, TriageError

    try:
        module = import_module(f".{_HOME[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "lab") from error
    except (ImportError, RuntimeError) as error:  # torch_npu registers itself with torch, and needs CANN to load
        if "torch_npu" not in f"{error} {error.__cause__}":
            raise
        raise TriageError(
            "torch_npu is installed but cannot load, and torch with it: CANN is not set up in this environment",
            todo="Source CANN's set_env.sh, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to use torch without the NPU",
        ) from error
    return getattr(module, name)

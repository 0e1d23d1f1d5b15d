"""Operators without a kernel: what a backend's fallback to the host's CPU does."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .calls import Signature, each
from .copies import to_device
from .engine import ENGINE
from .storage import NAME, is_lab

aten: Any = torch.ops.aten

warned: set[str] = set()
"""Operators that have been warned of: once each, as backends do."""


def fall_back(op: Any, args: Any, kwargs: Any) -> Any:
    """Run it on the host: wait, copy every tensor to the host, run there, copy back."""
    signature = Signature.of(op)
    name = signature.name
    ENGINE.stats.fallbacks[name] += 1
    if name not in warned:
        warned.add(name)
        warnings.warn(
            f"{op}: the operator '{name}' is not currently supported on the {NAME.upper()} backend and will "
            "fall back to run on the CPU. This may have performance implications.",
            stacklevel=4,
        )

    def down(value: Any) -> Any:
        if is_lab(value):
            return aten._to_copy.default(value, device=torch.device("cpu"))
        if isinstance(value, (list, tuple)):
            return [down(v) for v in value]
        return torch.device("cpu") if type(value) is torch.device and value.type == NAME else value

    here, here_kw = [down(a) for a in args], {k: down(v) for k, v in kwargs.items()}
    result = _run_on_cpu(op, signature, here, here_kw)
    targets = signature.targets(args, kwargs)
    for target, values in zip(targets, signature.targets(here, here_kw), strict=True):
        aten.copy_.default(target, values)
    if signature.in_place:
        return targets[0] if len(targets) == 1 else tuple(targets)
    return each(to_device, result)


def _run_on_cpu(op: Any, signature: Signature, args: list[Any], kwargs: dict[str, Any]) -> Any:
    place, started = ENGINE.recorder.open(), ENGINE.clock.now()
    elements = max((a.numel() for a in args if isinstance(a, torch.Tensor)), default=0)
    ENGINE.clock.charge(ENGINE.model.cpu_ns(signature.name, elements))
    needed = ENGINE.compute or ENGINE.clock.name == "real" or not signature.in_place
    result = op(*args, **kwargs) if needed else None
    ended = ENGINE.clock.now()
    ENGINE.stats.fallback_ns += ended - started
    ENGINE.recorder.close(place, "cpu_op", signature.name, started, ended)
    return result

"""`xpulab`, a device in pure Python: PyTorch's PrivateUse1 with an asynchronous queue, real syncs and real
fallbacks.

    lab.install()
    x = torch.ones(3, device="xpulab")
    x.sum().item()                       # waits for the device, as on any other

PyTorch has one PrivateUse1 in a process, so there is one device, and `install` cannot be undone. It also
teaches `torch.Generator`, `torch.Event` and `torch.accelerator.synchronize` about the device, which PyTorch
offers no hook for.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from . import copies
from .dispatch import dispatch
from .engine import ENGINE
from .host_op import HostOp
from .storage import NAME, Memory

_C: Any = torch._C
_libraries: list[Any] = []

_BY_NAME = {
    "empty.memory_format": copies.empty,
    "empty_strided": copies.empty_strided,
    "copy_": copies.copy_,
    "_to_copy": copies.to_copy,
    "scalar_tensor": copies.scalar_tensor,
}
_ONE_KERNEL = ("masked_fill.Scalar", "masked_fill.Tensor", "zero_", "fill_.Scalar")
"""Operators that PyTorch would take apart and that devices run as one kernel."""


def install() -> None:
    """Make the device known to PyTorch. Later calls do nothing."""
    if _libraries:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library: Any = torch.library.Library
    lib, everything = library("aten", "IMPL"), library("_", "IMPL")
    _libraries.extend((lib, everything))
    for name, kernel in _BY_NAME.items():
        lib.impl(name, kernel, "PrivateUse1")
    for name in (*_functional_only(), *_ONE_KERNEL):
        lib.impl(name, functools.partial(dispatch, _overload(name)), "PrivateUse1")
    everything.fallback(dispatch, "PrivateUse1")
    lib.impl("_pin_memory", _pin, "CPU")
    torch.serialization.register_package(0, _refuse_to_save, lambda storage, location: None)
    taught: Any = torch
    taught.Generator, taught.Event = Generator, Event
    taught.accelerator.synchronize = _Module.synchronize


def _refuse_to_save(storage: Any) -> None:
    """`torch.save` would write the empty storage and lose the values without a word."""
    if storage.device.type == NAME:
        raise RuntimeError(f"{NAME}: tensors of the lab cannot be saved; move them to the CPU first")


def _functional_only() -> list[str]:
    """Operators that PyTorch computes by way of their functional form unless a device has its own kernel."""
    return [
        name[6:]
        for name in _C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and _C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutogradNonFunctional")
        and not name[6:].partition(".")[0].endswith("backward")
    ]


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _pin(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    """There is no pinned allocator: a copy that is `non_blocking` counts as one from pinned memory."""
    return tensor.clone()


class _Timestamp:
    """An event of the device: a point of its timeline."""

    def __init__(
        self,
        device: Any = None,
        enable_timing: bool = True,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self._at: int | None = None

    def record(self, stream: Any = None) -> None:
        ENGINE.clock.charge(ENGINE.model.launch_us * 500)
        self._at = max(ENGINE.free_at, ENGINE.clock.now())

    def query(self) -> bool:
        return self._at is None or ENGINE.clock.now() >= self._at

    def synchronize(self) -> None:
        """Wait until the device has come to the event; work after it goes on."""
        if self._at is not None:
            ENGINE.wait(self._at, "event", "xpulabEventSynchronize")

    def elapsed_time(self, other: _Timestamp) -> float:
        """Milliseconds to `other`."""
        if self._at is None or other._at is None:
            raise RuntimeError("both events must be recorded before their distance is known")
        return (other._at - self._at) / 1e6


class _Module:
    """`torch.xpulab`."""

    Event = _Timestamp

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def set_device(device: Any) -> None:
        pass

    @staticmethod
    def synchronize(device: Any = None) -> None:
        with HostOp("xpulab::synchronize", view=True):
            ENGINE.drain("synchronize", "xpulabDeviceSynchronize")

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        ENGINE.drain("manual_seed")
        ENGINE.generator.manual_seed(seed)

    manual_seed = manual_seed_all

    @staticmethod
    def get_rng_state(device: Any = None) -> torch.Tensor:
        ENGINE.drain("rng_state")
        return ENGINE.generator.get_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
        ENGINE.drain("rng_state")
        ENGINE.generator.set_state(state)

    @staticmethod
    def memory_allocated(device: Any = None) -> int:
        return Memory.held_bytes

    @staticmethod
    def max_memory_allocated(device: Any = None) -> int:
        return Memory.peak_bytes

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_Generator: Any = torch.Generator
_Event: Any = torch.Event


class Generator(_Generator):  # type: ignore[misc]
    """`torch.Generator(device="xpulab")`: its state lives on the host, and seeding it waits for queued
    draws."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        wanted = torch.device(device)
        self: Generator = super().__new__(cls, device="cpu" if wanted.type == NAME else wanted)
        self._on_lab = wanted.type == NAME
        return self

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, 0) if self._on_lab else super().device

    def manual_seed(self, seed: int) -> Generator:
        if self._on_lab:
            ENGINE.drain("generator.manual_seed")
        super().manual_seed(seed)
        return self


class Event(_Event):  # type: ignore[misc]
    """`torch.Event`, still a class; for the lab's device it makes the lab's event."""

    def __new__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        wanted = torch.device(device) if device is not None else torch.accelerator.current_accelerator()
        if cls is Event and wanted is not None and wanted.type == NAME:
            return _Timestamp(wanted, **kwargs)
        return super().__new__(cls, device, *args, **kwargs)

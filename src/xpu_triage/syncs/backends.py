"""The backends behind one interface, and what each of them sees and cannot see."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import torch

from ..errors import TriageError
from . import operators
from .accelerators import CUDA, NPU, XPU, Accelerator

LAB_DEVICE = "xpulab"


class Listener(Protocol):
    """A count under way."""

    attempts: bool

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None:
        """A sync, or `count` of them in one call, on a thread that is counted."""

    def heard_elsewhere(self) -> None:
        """A sync on a thread that is not counted."""


class Backend(Protocol):
    """One way to find syncs."""

    @property
    def name(self) -> str: ...

    @property
    def sees(self) -> str: ...

    @property
    def cannot_see(self) -> tuple[str, ...]: ...

    def start(self, listener: Listener) -> None:
        """Count on this thread. Raises TriageError where the backend cannot work."""

    def stop(self, listener: Listener) -> None:
        """Count no more on this thread."""

    def settle(self) -> None:
        """A step ends."""


@dataclass
class Dispatch:
    """Read-backs on any device, CPU tensors taken for device tensors: found at PyTorch's dispatcher,
    before they run.

    Counts what the code asks for, one call of a reading operator at a time. On CPU tensors no time is
    known, because nothing is waited for; on a device the time is that of the call by this machine's clock,
    the waiting included.
    """

    name: str = "dispatch"
    sees: str = (
        "read-backs (item, bool, tolist, numpy, cpu, print, nonzero, boolean masks and the like), blocking "
        "copies to and from a device, explicit waits; one a call, on any device, CPU tensors included"
    )
    cannot_see: tuple[str, ...] = (
        "other threads than those that count",
        "values read through raw memory (data_ptr, dlpack, storages) and, of CPU tensors, torch.save",
        "syncs inside kernels and libraries, of allocators and of graph capture",
        "what an operator does inside while a TorchDispatchMode is on, boolean masks among it",
        "a non-blocking copy that waits all the same, because its host memory is not pinned",
        "assignments of one number through a boolean mask, where a backend lowers them to nonzero",
        "torch.Event and torch.Stream waits, which are not Python functions",
        "which CPU tensors hold host data, where the CPU stands in for the device: their .to('cpu') counts",
    )

    def start(self, listener: Listener) -> None:
        operators.listen(listener)

    def stop(self, listener: Listener) -> None:
        operators.hush(listener)

    def settle(self) -> None:
        pass


@dataclass
class _ProcessWide:
    """A hook that reports the waits of all threads, sorted here into those that are counted and others."""

    _threads: dict[int, list[Listener]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def start(self, listener: Listener) -> None:
        with self._lock:
            if not self._threads:
                self._hook()
            self._threads.setdefault(threading.get_ident(), []).append(listener)

    def stop(self, listener: Listener) -> None:
        with self._lock:
            here = self._threads[threading.get_ident()]
            here.remove(listener)
            if not here:
                del self._threads[threading.get_ident()]
            if not self._threads:
                self._unhook()

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None:
        here = self._threads.get(threading.get_ident(), ())
        for listener in tuple(here):
            listener.heard(call, device, count, wait_ns)
        told = {id(listener) for listener in here}
        others = {id(one): one for many in tuple(self._threads.values()) for one in many if id(one) not in told}
        for listener in others.values():
            listener.heard_elsewhere()

    def settle(self) -> None:
        pass

    def _hook(self) -> None:
        raise NotImplementedError

    def _unhook(self) -> None:
        raise NotImplementedError


_ACCELERATORS_MISS = (
    "non-blocking copies that wait because their host memory is not pinned",
    "waits of libraries that call the runtime themselves (collectives, sparse, extensions), and implicit "
    "ones of allocation and module loading",
    "how long the host waited: record a trace for that",
    "syncs while the debug mode is set to raise",
)


@dataclass
class Hooks(_ProcessWide):
    """Waits of an accelerator as its PyTorch backend reports them: debug mode and trace callbacks, each
    wait once."""

    accelerator: Accelerator
    sees: str
    cannot_see: tuple[str, ...] = _ACCELERATORS_MISS

    @property
    def name(self) -> str:
        return self.accelerator.name

    def _hook(self) -> None:
        self.accelerator.start(self)

    def _unhook(self) -> None:
        self.accelerator.stop(self)

    def settle(self) -> None:
        self.accelerator.settle()


@dataclass
class Lab(_ProcessWide):
    """Waits of the lab's device, as its queue reports them, with the time on the lab's clock."""

    name: str = "lab"
    sees: str = "every wait for the lab's device, with its time on the lab's clock"
    cannot_see: tuple[str, ...] = (
        "read-backs of CPU tensors",
        "what another device would do: the lab's operators wait where CUDA's do",
    )

    def _hook(self) -> None:
        if not lab_is_installed():
            raise TriageError("the lab's device is not installed in this process", todo="Call lab.install() first")
        from ..lab.engine import ENGINE

        ENGINE.on_sync.append(self._waited)

    def _unhook(self) -> None:
        from ..lab.engine import ENGINE

        ENGINE.on_sync.remove(self._waited)

    def _waited(self, why: str, wait_ns: int) -> None:
        self.heard(why, LAB_DEVICE, 1, wait_ns)


BACKENDS: Mapping[str, Any] = MappingProxyType(
    {
        backend.name: backend
        for backend in (
            Dispatch(),
            Lab(),
            Hooks(CUDA, "stream, event and device synchronizations and blocking copies, whatever causes them"),
            Hooks(NPU, "stream, event and device synchronizations and blocking copies, whatever causes them"),
            Hooks(
                XPU,
                "stream, event and device synchronizations",
                (
                    "blocking copies that do not go through a stream synchronization: there is no debug mode",
                    *_ACCELERATORS_MISS[:3],
                ),
            ),
        )
    }
)


def lab_is_installed() -> bool:
    """Whether `lab.install()` was called, without importing the lab."""
    private: Any = torch._C
    return bool(private._get_privateuse1_backend_name() == LAB_DEVICE)


def choose(name: str | None) -> Backend:
    """The backend of that name; for None that of the accelerator in this process, `dispatch` where
    there is none."""
    if name is None:
        present = [a.name for a in (NPU, CUDA, XPU) if a.present()]
        name = present[0] if present else "lab" if lab_is_installed() else "dispatch"
    if name not in BACKENDS:
        raise TriageError(f"no backend is called {name!r}", todo=f"There are {', '.join(BACKENDS)}")
    found: Backend = BACKENDS[name]
    return found


def describe_backends() -> str:
    """One paragraph a backend: what it sees, and what not."""
    lines = []
    for backend in BACKENDS.values():
        lines.append(f"{backend.name}: {backend.sees}")
        lines += [f"    not: {gap}" for gap in backend.cannot_see]
    return "\n".join(lines)

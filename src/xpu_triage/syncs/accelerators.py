"""CUDA, NPU and XPU: what PyTorch itself reports of waits, through two hooks where there are two.

The trace callbacks (`torch.cuda._gpu_trace`, `torch_npu.utils._npu_trace`) are called before each
stream, event or device synchronization. The debug mode (`set_sync_debug_mode("warn")`) warns of stream
synchronizations and blocking copies. A wait that both report is counted once. Neither hook says how
long the host waited.

Names and calls are those of torch 2.13.0 and torch_npu 2.13.0. These backends run on fakes in this
project's tests.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import TriageError

HOOKS = ("Stream", "Event", "Device")


class Listener(Protocol):
    """Who hears of every wait in the process."""

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None: ...


@dataclass
class Accelerator:
    """The hooks of one kind of device, shared by all who count on it."""

    name: str
    runtime: str
    """Module with `is_available`, and `set_sync_debug_mode` where there is one."""
    trace: str
    """Module with the callback registries."""
    prefix: str
    """Of the registries' names."""
    warning: str
    """How a warning of the debug mode starts; empty where there is no debug mode."""
    listeners: list[Listener] = field(default_factory=list)
    _ahead: Counter[int] = field(default_factory=Counter)
    """By thread: waits that the callbacks reported and the debug mode did not yet (below 0: the reverse)."""
    _mode_before: int = 0
    _filters: _HeldOpen | None = None
    _show: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _registered: bool = False

    def start(self, listener: Listener) -> None:
        """Raises TriageError where there is no such device."""
        with self._lock:
            if not self.listeners:
                self._open()
            self.listeners.append(listener)

    def stop(self, listener: Listener) -> None:
        with self._lock:
            self.listeners.remove(listener)
            if not self.listeners:
                self._close()

    def present(self) -> bool:
        """Whether there is a device, without importing what is not imported yet."""
        runtime = sys.modules.get(self.runtime)
        return runtime is not None and bool(runtime.is_available())

    def settle(self) -> None:
        """Between the steps of a thread no pair of its reports is half done."""
        self._ahead.pop(threading.get_ident(), None)

    def _open(self) -> None:
        if not self.present():
            raise TriageError(f"no {self.name} device in this process", todo="backend='dispatch' counts on any device")
        self._register()
        runtime: Any = sys.modules[self.runtime]
        if not self.warning:
            return
        self._mode_before = runtime.get_sync_debug_mode()
        if self._mode_before == 0:
            runtime.set_sync_debug_mode("warn")
        self._filters = _HeldOpen.install(self.warning)
        self._show = warnings._showwarnmsg  # type: ignore[attr-defined]
        warnings._showwarnmsg = self._warned  # type: ignore[attr-defined]

    def _close(self) -> None:
        self._ahead.clear()
        if not self.warning:
            return
        warnings._showwarnmsg = self._show  # type: ignore[attr-defined]
        if self._filters is not None:
            self._filters.remove_held()
        runtime: Any = sys.modules[self.runtime]
        runtime.set_sync_debug_mode(self._mode_before)

    def _register(self) -> None:
        """Callbacks cannot be taken back by a public call, so they stay, and are silent while nobody
        counts."""
        if self._registered:
            return
        trace: Any = importlib.import_module(self.trace)
        registries: dict[str, Any] = {
            hook: getattr(trace, f"{self.prefix}{hook}SynchronizationCallbacks", None) for hook in HOOKS
        }
        if None in registries.values():
            raise TriageError(
                f"{self.trace} has no callbacks for synchronizations",
                todo="torch and torch_npu 2.13 have them; backend='dispatch' counts without",
            )
        self._registered = True
        named = ("xpu_triage",) if self.prefix else ()
        for hook, registry in registries.items():
            registry.add_callback(_Callback(self, hook), *named)
        if self.prefix:
            sys.modules["torch_npu"]._C._activate_npu_trace(0)
        else:
            sys.modules["torch"]._C._activate_gpu_trace()

    def traced(self, hook: str) -> None:
        """A callback: the host is about to wait."""
        if not self.listeners:
            return
        if hook == "Stream" and self.warning:
            thread = threading.get_ident()
            self._ahead[thread] += 1
            if self._ahead[thread] <= 0:  # the debug mode was first, and is counted
                return
        self._tell(f"{hook.lower()} synchronize")

    def _warned(self, message: warnings.WarningMessage) -> None:
        """In place of `warnings._showwarnmsg`, which neither pytest nor `catch_warnings` replaces."""
        if not str(message.message).startswith(self.warning):
            self._show(message)
            return
        thread = threading.get_ident()
        self._ahead[thread] -= 1
        if self._ahead[thread] < 0:
            self._tell("synchronizing operation")

    def _tell(self, call: str) -> None:
        for listener in tuple(self.listeners):
            listener.heard(call, self.name, 1, None)


@dataclass(frozen=True)
class _Callback:
    accelerator: Accelerator
    hook: str

    def __call__(self, *handles: int) -> None:
        self.accelerator.traced(self.hook)


class _HeldOpen(list[Any]):
    """`warnings.filters` with one filter that stays in front, whatever is filtered behind it.

    Filters are reset all the time, by pytest for every test, and a filter in front of ours would hide
    the warnings or, with "error", turn a count into an exception in the code that is counted.
    """

    held: tuple[Any, ...]

    @classmethod
    def install(cls, start: str) -> _HeldOpen:
        before = warnings.filters
        warnings.filterwarnings("always", message=start)
        filters = cls(warnings.filters)
        filters.held = filters[0]
        before[:] = [f for f in before if f is not filters.held]  # type: ignore[index]
        _set_filters(filters)
        return filters

    def remove_held(self) -> None:
        _set_filters([f for f in warnings.filters if f is not self.held])

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return self._like(found) if isinstance(index, slice) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            kept = [*self]
            kept[index] = value
            super().__setitem__(slice(None), [self.held, *(f for f in kept if f is not self.held)])
        else:
            super().__setitem__(index, value)

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index + 1 if index == 0 else index, value)

    def _like(self, filters: list[Any]) -> _HeldOpen:
        copy = _HeldOpen(filters)
        copy.held = self.held
        return copy


def _set_filters(filters: list[Any]) -> None:
    warnings.filters = filters
    changed = getattr(warnings, "_filters_mutated", None)
    if changed is not None:
        changed()


CUDA = Accelerator("cuda", "torch.cuda", "torch.cuda._gpu_trace", "", "called a synchronizing CUDA operation")
NPU = Accelerator("npu", "torch_npu.npu", "torch_npu.utils._npu_trace", "NPU", "called a synchronizing NPU operation")
XPU = Accelerator("xpu", "torch.xpu", "torch.xpu._gpu_trace", "", "")

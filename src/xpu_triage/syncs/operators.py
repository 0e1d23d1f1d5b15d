"""The detector for any device: kernels on a dispatch key of their own, in front of every other.

PyTorch's dispatcher asks, for each operator, the dispatch keys that the thread has switched on. Here
the operators that read back have a Python kernel on a key that is otherwise free, and all others fall
through it. The fall-through is part of the dispatch tables, so an operator that reads nothing costs
nothing more than before (a `TorchDispatchMode` adds 4 µs to every one). What never comes to the
dispatcher, because on a CPU tensor it is a plain memory access (`tolist`, `numpy`, `.cpu()`, printing)
is found by wrapping the methods of `torch.Tensor` while somebody counts.

Written against torch 2.13. The key is `TESTING_ONLY_GenericMode`, which PyTorch itself uses in its own
C++ tests alone.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from .rules import COPIES, QUIET, RULES, Rule, assignment, blocking_copy, once, overload, tagged

_C: Any = torch._C
_Library: Any = torch.library.Library
_KEY_NAME = "TESTING_ONLY_GenericMode"
_KEY: Any = _C._parse_dispatch_key(_KEY_NAME)
_KEYS: Any = _C.DispatchKeySet(_KEY)


class Listener(Protocol):
    """Who hears of read-backs on this thread."""

    attempts: bool
    """Hears of those, too, that raised: on a tensor without data they all do."""

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None: ...


class _Here(threading.local):
    """What concerns this thread."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []


_here = _Here()
_lock = threading.Lock()
_libraries: dict[str, Any] = {}
"""Registrations, which last as long as these objects."""
_wrapped = 0


def listen(listener: Listener) -> None:
    """Tell `listener` of this thread's read-backs from now on."""
    with _lock:
        _install()
        _wrap()
    _here.listeners.append(listener)
    _C._dispatch_tls_set_dispatch_key_included(_KEY, True)


def hush(listener: Listener) -> None:
    """Stop telling `listener` on this thread."""
    _here.listeners.remove(listener)
    if not _here.listeners:
        _C._dispatch_tls_set_dispatch_key_included(_KEY, False)
    with _lock:
        _unwrap()


def _install() -> None:
    """Register the kernels, once in a process. Copies are heard at the accelerator's own key: between CPU tensors
    there are too many, and none is of interest."""
    if "reads" not in _libraries:
        _libraries["others"] = _Library("_", "IMPL")
        _libraries["others"].fallback(torch.library.fallthrough_kernel, _KEY_NAME)
        aten = _libraries["reads"] = _Library("aten", "IMPL")
        for name in sorted({*tagged(), *RULES}):
            aten.impl(name, _kernel(overload(name), RULES.get(name, once)), _KEY_NAME, with_keyset=True)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None and "copies" not in _libraries:
        aten = _libraries["copies"] = _Library("aten", "IMPL")
        key = _C._dispatch_key_for_device(accelerator.type)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of kernels that are put in front of others
            for name in COPIES:
                aten.impl(name, _copy_kernel(overload(name), key), key, with_keyset=True, allow_override=True)


# ---- the kernels


def _kernel(op: Any, rule: Rule) -> Callable[..., Any]:
    name, tensors = op._schema.name, _tensor_arguments(op)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        args = _as_tensors(args, tensors)
        device = next(a for a in args if isinstance(a, torch.Tensor)).device.type
        count = rule(args, kwargs)
        if not count and device != "cpu":
            return op.redispatch(keys - _KEYS, *args, **kwargs)
        return _told(name, device, count, op, args, kwargs)

    return kernel


def _copy_kernel(op: Any, key: str) -> Callable[..., Any]:
    original: Any = torch.library.get_kernel(op, key)
    tensors = _tensor_arguments(op)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        args = _as_tensors(args, tensors)
        copy = None if _unheard() else blocking_copy(op, args, kwargs)
        if copy is None:
            return original.call_boxed(keys, *args, **kwargs)
        return _told(*copy, 1, functools.partial(original.call_boxed, keys), args, kwargs)

    return kernel


def _tensor_arguments(op: Any) -> list[int]:
    return [i for i, argument in enumerate(op._schema.arguments) if isinstance(argument.type, _C.TensorType)]


def _as_tensors(args: tuple[Any, ...], tensors: list[int]) -> tuple[Any, ...]:
    """PyTorch hands a number to a Python kernel where C++ had wrapped it in a tensor, and does not take
    it back."""
    for i in tensors:
        if i < len(args) and type(args[i]) in (int, float, bool, complex):
            return tuple(
                torch.tensor(a) if j in tensors and type(a) in (int, float, bool, complex) else a
                for j, a in enumerate(args)
            )
    return args


def _told(call: str, device: str, count: int, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run with all that happens inside unheard, and tell the listeners."""
    started = time.perf_counter_ns()
    try:
        with _C._ExcludeDispatchKeyGuard(_KEYS):
            result = run(*args, **kwargs)
    except BaseException:
        if count:
            _tell(call, device, count, None, attempts=True)
        raise
    if count:
        _tell(call, device, count, None if device == "cpu" else time.perf_counter_ns() - started, attempts=False)
    return result


def _tell(call: str, device: str, count: int, wait_ns: int | None, *, attempts: bool) -> None:
    for listener in tuple(_here.listeners):
        if listener.attempts or not attempts:
            listener.heard(call, device, count, wait_ns)


def _unheard() -> bool:
    """Nobody counts on this thread, or the call is part of a read-back that is counted."""
    return not _here.listeners or _C._dispatch_tls_is_dispatch_key_excluded(_KEY)


# ---- what does not come to the dispatcher


def _reads(self: Any, args: Any, kwargs: Any) -> bool:
    return True


def _reads_on_cpu(self: Any, args: Any, kwargs: Any) -> bool:
    """On a device it is a copy, and heard of as one."""
    return bool(self.device.type == "cpu")


def _to_cpu(self: Any, args: Any, kwargs: Any) -> bool:
    first = args[0] if args else None
    target = kwargs.get("device", first) if kwargs else first
    if type(target) is torch.dtype:  # the usual case first: this is on the path of every `to`
        return False
    if isinstance(target, str):
        target = torch.device(target)
    if not isinstance(target, torch.device) or target.type != "cpu" or self.device.type != "cpu":
        return False
    return not (kwargs.get("non_blocking") or args[2:3] == (True,))


_METHODS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "tolist": _reads,
    "numpy": _reads,
    "__array__": _reads,
    "__repr__": _reads,
    "__format__": _reads,
    "cpu": _reads_on_cpu,
    "to": _to_cpu,
}

_before: list[tuple[Any, str, Any]] = []
_ABSENT = object()


def _wrap() -> None:
    global _wrapped
    _wrapped += 1
    if _wrapped > 1:
        return
    for name, reads in _METHODS.items():
        _replace(torch.Tensor, name, _method(getattr(torch.Tensor, name), f"Tensor.{name}", reads))
    for owner in (torch, torch.Tensor):
        for name in QUIET:
            _replace(owner, name, _quiet(getattr(owner, name)))
    _replace(torch.Tensor, "__setitem__", _assignment(torch.Tensor.__setitem__))
    for storage in (torch.TypedStorage, torch.UntypedStorage):
        _replace(storage, "__reduce__", _method(storage.__reduce__, "pickle", _reads))
    for owner, call, device in _waits():
        _replace(owner, "synchronize", _wait(owner.synchronize, call, device))


def _unwrap() -> None:
    global _wrapped
    _wrapped -= 1
    if _wrapped:
        return
    while _before:
        owner, name, value = _before.pop()
        if value is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)


def _replace(owner: Any, name: str, value: Any) -> None:
    _before.append((owner, name, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, value)


def _method(original: Any, call: str, reads: Callable[[Any, Any, Any], bool]) -> Any:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _here.listeners or not reads(self, args, kwargs) or _unheard():
            return original(self, *args, **kwargs)
        holder = getattr(self, "_untyped_storage", self)  # a TypedStorage warns when asked itself
        return _told(call, holder.device.type, 1, original, (self, *args), kwargs)

    return method


def _quiet(original: Any) -> Any:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not _here.listeners or not args or args[0].device.type != "cpu":
            return original(*args, **kwargs)
        _C._dispatch_tls_set_dispatch_key_included(_KEY, False)  # as the guard does, at a third of its cost
        try:
            return original(*args, **kwargs)
        finally:
            _C._dispatch_tls_set_dispatch_key_included(_KEY, True)

    return function


def _assignment(original: Any) -> Any:
    @functools.wraps(original)
    def assign(self: Any, index: Any, value: Any) -> None:
        if not _here.listeners or isinstance(value, torch.Tensor):
            original(self, index, value)
            return
        before, assignment.index = assignment.index, index
        try:
            original(self, index, value)
        finally:
            assignment.index = before

    return assign


def _waits() -> Iterator[tuple[Any, str, str]]:
    """Explicit waits that are Python functions: who has them, what to call them, and the device."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        yield torch.accelerator, "synchronize", accelerator.type
    for device in ("cpu",) if accelerator is None else ("cpu", accelerator.type):
        module = getattr(torch, device, None)
        for name in ("", "Event", "Stream"):
            owner = getattr(module, name, None) if name else module
            if hasattr(owner, "synchronize"):
                yield owner, f"{name}.synchronize".lstrip("."), device


def _wait(original: Any, call: str, device: str) -> Any:
    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> Any:
        if _unheard():
            return original(*args, **kwargs)
        return _told(call, device, 1, original, args, kwargs)

    return wait


@contextmanager
def watching_waits_of(device: str) -> Iterator[None]:
    """Hear of `torch.<device>.synchronize`, too, where there is no such device: a proof needs none."""
    module: Any = getattr(torch, device, None)
    if not hasattr(module, "synchronize") or any(owner is module for owner, _, _ in _before):
        yield
        return
    original: Any = module.synchronize
    module.synchronize = _wait(original, "synchronize", device)
    try:
        yield
    finally:
        module.synchronize = original

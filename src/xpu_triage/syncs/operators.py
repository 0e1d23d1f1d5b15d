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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

_C: Any = torch._C
_Library: Any = torch.library.Library
_KEY_NAME = "TESTING_ONLY_GenericMode"
_KEY: Any = _C._parse_dispatch_key(_KEY_NAME)
_KEYS: Any = _C.DispatchKeySet(_KEY)

Rule = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""How many times a call reads back, from its arguments."""


class Listener(Protocol):
    """Who hears of read-backs on this thread."""

    attempts: bool
    """Hears of those, too, that raised: on a tensor without data they all do."""

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None: ...


_here = threading.local()
_lock = threading.Lock()
_kernels: list[Any] = []
_wrapped = 0


def listen(listener: Listener) -> None:
    """Tell `listener` of this thread's read-backs from now on."""
    with _lock:
        _install()
        _wrap()
    listeners = _listeners()
    listeners.append(listener)
    _C._dispatch_tls_set_dispatch_key_included(_KEY, True)


def hush(listener: Listener) -> None:
    """Stop telling `listener` on this thread."""
    listeners = _listeners()
    listeners.remove(listener)
    if not listeners:
        _C._dispatch_tls_set_dispatch_key_included(_KEY, False)
    with _lock:
        _unwrap()


def _listeners() -> list[Listener]:
    found: list[Listener] | None = getattr(_here, "listeners", None)
    if found is None:
        found = _here.listeners = []
    return found


# ---- what a read-back is


def _one(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return 1


def _masks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Reading by boolean masks takes one `nonzero` a mask."""
    indices = args[1] if len(args) > 1 else kwargs["indices"]
    return sum(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _masks_unless_filled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """So does writing, except that one number from the host through one mask is a `masked_fill`."""
    masks = _masks(args, kwargs)
    value = args[2] if len(args) > 2 else kwargs["values"]
    if masks != 1 or (isinstance(value, torch.Tensor) and value.numel() != 1):
        return masks
    if sum(i is not None for i in args[1]) > 1 or (kwargs.get("accumulate") or args[3:4] == (True,)):
        return masks
    from_host = (
        not isinstance(value, torch.Tensor)
        or getattr(_here, "assigns_a_number", False)
        or (value.device.type == "cpu" and args[0].device.type != "cpu")
    )
    return 0 if from_host else masks


def _without(name: str, absent: Any, position: int) -> Rule:
    """Reads unless the caller says beforehand how large the result will be."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = args[position] if len(args) > position else kwargs.get(name, absent)
        return int(given == absent)

    return count


def _none(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return 0


def _numbers_in_tensors(*positions: int) -> Rule:
    """Takes a number for the kernel out of a tensor there, if the tensor is where all others are."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = [args[i] for i in positions if i < len(args) and isinstance(args[i], torch.Tensor)]
        home = args[0].device.type if isinstance(args[0], torch.Tensor) else "cpu"
        return sum(number.device.type != "cpu" or home == "cpu" for number in given)

    return count


_RULES: dict[str, Rule] = {
    "index.Tensor": _masks,
    "index_put_": _masks_unless_filled,
    "index_put": _masks_unless_filled,
    "_index_put_impl_": _masks_unless_filled,
    "repeat_interleave.Tensor": _without("output_size", None, 1),
    "one_hot": _without("num_classes", -1, 1),
    "masked_fill.Tensor": _numbers_in_tensors(2),
    "masked_fill_.Tensor": _numbers_in_tensors(2),
    "index_fill.int_Tensor": _numbers_in_tensors(3),
    "index_fill_.int_Tensor": _numbers_in_tensors(3),
    "linspace.Tensor_Tensor": _numbers_in_tensors(0, 1),
    "linspace.Tensor_Scalar": _numbers_in_tensors(0),
    "linspace.Scalar_Tensor": _numbers_in_tensors(1),
    "logspace.Tensor_Tensor": _numbers_in_tensors(0, 1),
    "logspace.Tensor_Scalar": _numbers_in_tensors(0),
    "logspace.Scalar_Tensor": _numbers_in_tensors(1),
    # These look at values to refuse wrong ones.
    "_linalg_check_errors": _one,
    "normal.Tensor_Tensor": _one,
    "normal.float_Tensor": _one,
    # The CPU's implementation of these looks at values, those of accelerators do not.
    "std.correction": _none,
    "var.correction": _none,
    "multinomial": _none,
    "quantile": _none,
    "quantile.scalar": _none,
    "nanquantile": _none,
    "nanquantile.scalar": _none,
}
"""Operator → how many read-backs a call is. For the rest PyTorch's own tags say it (`_tagged`): one a
call."""

_COPIES = ("_to_copy", "copy_")


def _tagged() -> Iterator[str]:
    """Operators whose result is a number for the host, or has a shape that depends on values."""
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    for name in _C._dispatch_get_all_op_names():
        if name.startswith("aten::") and tags & set(_overload(name[6:]).tags):
            yield name[6:]


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _install() -> None:
    """Register the kernels, once in a process; those for copies as soon as there are two places to copy
    between."""
    if not _kernels:
        everything = _Library("_", "IMPL")
        everything.fallback(torch.library.fallthrough_kernel, _KEY_NAME)
        aten = _Library("aten", "IMPL")
        for name in sorted({*_tagged(), *_RULES}):
            aten.impl(name, _kernel(_overload(name), _RULES.get(name, _one)), _KEY_NAME, with_keyset=True)
        _kernels.extend((everything, aten))
    if len(_kernels) == 2 and _has_accelerator():
        watch_copies()


def watch_copies() -> None:
    """Look at copies, too. They cost 5 µs more from now on, on threads that count."""
    if len(_kernels) == 2:
        aten = _Library("aten", "IMPL")
        for name in _COPIES:
            aten.impl(name, _copy_kernel(_overload(name)), _KEY_NAME, with_keyset=True)
        _kernels.append(aten)


def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


# ---- the kernels


def _kernel(op: Any, rule: Rule) -> Callable[..., Any]:
    schema = op._schema
    name = schema.name
    tensors = [i for i, a in enumerate(schema.arguments) if isinstance(a.type, _C.TensorType)]

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        args = _as_tensors(args, tensors)
        device = _device(args)
        count = rule(args, kwargs)
        if not count and device != "cpu":
            return op.redispatch(keys - _KEYS, *args, **kwargs)
        return _told(name, device, count, op, args, kwargs)

    return kernel


def _copy_kernel(op: Any) -> Callable[..., Any]:
    tensors = [i for i, a in enumerate(op._schema.arguments) if isinstance(a.type, _C.TensorType)]
    into = len(tensors) == 2

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        args = _as_tensors(args, tensors)
        source = args[1 if into else 0].device
        target = args[0].device if into else (kwargs.get("device") or source)
        waits = not (args[2] if into and len(args) > 2 else kwargs.get("non_blocking", False))
        if waits and source.type != target.type and "meta" not in (source.type, target.type):
            device = source.type if target.type == "cpu" else target.type
            return _told(f"copy from {source.type} to {target.type}", device, 1, op, args, kwargs)
        return op.redispatch(keys - _KEYS, *args, **kwargs)

    return kernel


def _device(args: tuple[Any, ...]) -> str:
    return next((str(a.device.type) for a in args if isinstance(a, torch.Tensor)), "cpu")


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
        _tell(
            call, device, count, None if device == "cpu" else time.perf_counter_ns() - started, attempts=False
        )
    return result


def _tell(call: str, device: str, count: int, wait_ns: int | None, *, attempts: bool) -> None:
    for listener in tuple(_listeners()):
        if listener.attempts or not attempts:
            listener.heard(call, device, count, wait_ns)


def _unheard() -> bool:
    """Nobody counts on this thread, or the call is part of a read-back that is counted."""
    return not getattr(_here, "listeners", None) or _C._dispatch_tls_is_dispatch_key_excluded(_KEY)


# ---- what does not come to the dispatcher


def _reads(self: Any, args: Any, kwargs: Any) -> bool:
    return True


def _reads_on_cpu(self: Any, args: Any, kwargs: Any) -> bool:
    """On a device it is a copy, and heard of as one."""
    return bool(self.device.type == "cpu")


def _to_cpu(self: Any, args: Any, kwargs: Any) -> bool:
    if self.device.type != "cpu" or kwargs.get("non_blocking") or args[2:3] == (True,):
        return False
    target = kwargs.get("device", args[0] if args else None)
    if isinstance(target, str):
        target = torch.device(target)
    return isinstance(target, torch.device) and target.type == "cpu"


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
    _replace(torch.Tensor, "__setitem__", _assignment(torch.Tensor.__setitem__))
    for storage in (torch.TypedStorage, torch.UntypedStorage):
        _replace(storage, "__reduce__", _method(storage.__reduce__, "pickle", _reads))
    for owner, name in _waits():
        _replace(owner, name, _wait(getattr(owner, name), f"{getattr(owner, '__name__', 'device')}.{name}"))


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
        if _unheard() or not reads(self, args, kwargs):
            return original(self, *args, **kwargs)
        return _told(call, self.device.type, 1, original, (self, *args), kwargs)

    return method


def _assignment(original: Any) -> Any:
    @functools.wraps(original)
    def assign(self: Any, index: Any, value: Any) -> None:
        if _unheard() or isinstance(value, torch.Tensor):
            original(self, index, value)
            return
        _here.assigns_a_number = True
        try:
            original(self, index, value)
        finally:
            _here.assigns_a_number = False

    return assign


def _waits() -> Iterator[tuple[Any, str]]:
    """Explicit waits that are Python functions: of the accelerator's module, of its events and streams."""
    if not _has_accelerator():
        return
    yield torch.accelerator, "synchronize"
    accelerator = torch.accelerator.current_accelerator()
    module = getattr(torch, accelerator.type, None) if accelerator is not None else None
    for owner in (module, getattr(module, "Event", None), getattr(module, "Stream", None)):
        if hasattr(owner, "synchronize"):
            yield owner, "synchronize"


def _wait(original: Any, call: str) -> Any:
    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> Any:
        if _unheard():
            return original(*args, **kwargs)
        return _told(call, "accelerator", 1, original, args, kwargs)

    return wait


@contextmanager
def watching_waits_of(device: str) -> Iterator[None]:
    """Hear of `torch.<device>.synchronize`, too, where there is no such device: a proof needs none."""
    module: Any = getattr(torch, device, None)
    if not hasattr(module, "synchronize") or (module, "synchronize") in [(o, n) for o, n, _ in _before]:
        yield
        return
    original: Any = module.synchronize
    module.synchronize = _wait(original, f"{device}.synchronize")
    try:
        yield
    finally:
        module.synchronize = original

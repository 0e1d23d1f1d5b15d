"""One call of an operator: its schema, its arguments as the queue needs them, its shapes and its cost."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from .copies import to_device
from .cost_model import MATMULS, SPARSE
from .engine import ENGINE, Spec
from .storage import NAME, Ref

_C: Any = torch._C
_autograd: Any = torch.autograd

INDEXING = frozenset(
    {"aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
)

COMPUTED_BYTES = 16 << 10
"""Kernels that move no more than this are computed even where others are only timed: conditions on a few
hundred request parameters are such, and the host acts on them."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operator's schema says, once for all calls."""

    name: str
    written: tuple[int, ...]
    """Positions of the arguments that it writes to."""
    arguments: tuple[str, ...]
    generator: int | None
    generator_is_keyword: bool
    in_place: bool
    has_out: bool
    returns: int
    number_for_tensor: frozenset[int]
    """Positions of tensor arguments to which PyTorch hands a plain number, and then does not take it back."""

    @classmethod
    @functools.cache
    def of(cls, op: Any) -> Signature:
        schema = op._schema
        written = tuple(
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        names = tuple(a.name for a in schema.arguments)
        at = names.index("generator") if "generator" in names else None
        return cls(
            schema.name,
            written,
            names,
            at,
            at is not None and schema.arguments[at].kwarg_only,
            bool(written) and all(r.alias_info is not None for r in schema.returns),
            any(schema.arguments[i].is_out for i in written),
            len(schema.returns),
            frozenset()
            if _C._should_allow_numbers_as_tensors(schema.name.partition("::")[2])
            else frozenset(i for i, a in enumerate(schema.arguments) if isinstance(a.type, _C.TensorType)),
        )

    def targets(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        return [args[i] if i < len(args) else kwargs[self.arguments[i]] for i in self.written]


@dataclass(slots=True)
class Call:
    """One pass over a call's arguments: lab tensors become references, everything adds to a key of the
    call."""

    op: Any
    signature: Signature
    refs: list[Ref] = field(default_factory=list)
    key: list[Any] = field(default_factory=list)
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Any, signature: Signature, args: Any, kwargs: Any) -> Call:
        call = cls(op, signature)
        call.args = [call._convert(a) for a in args]
        for i in signature.number_for_tensor:
            if i < len(args) and type(args[i]) in (int, float, bool):
                call.args[i] = torch.tensor(args[i])
        for name, value in kwargs.items():
            call.key.append(name)
            call.kwargs[name] = call._convert(value)
        call._choose_generator()
        return call

    def _convert(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value) is list or type(value) is tuple:
            self.key.append(len(value))
            return [self._convert(v) for v in value]
        if isinstance(value, _C.Generator):
            return value
        if type(value) is torch.device and value.type == NAME:
            self.key.append(NAME)
            return torch.device("cpu")
        self.key.append((type(value), value))
        return value

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.device.type != NAME:
            if tensor.dim() == 0:  # a number: it travels with the launch
                self.key.append(("number", tensor.dtype))
                return tensor.clone()
            if self.signature.name not in INDEXING:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, "
                    f"{NAME}:0 and {tensor.device}! (operator {self.signature.name})"
                )
            tensor = to_device(tensor, non_blocking=True)
        ref = Ref(tensor)
        self.refs.append(ref)
        self.key.append((ref.shape, ref.stride, ref.dtype))
        return ref

    def _choose_generator(self) -> None:
        at = self.signature.generator
        if at is None:
            return
        if not self.signature.generator_is_keyword and at < len(self.args):
            if self.args[at] is None:
                self.args[at] = ENGINE.generator
        elif self.kwargs.get("generator") is None:
            self.kwargs["generator"] = ENGINE.generator


@functools.cache
def kernel_name(op: str) -> str:
    """`aten::_softmax` → `softmax_kernel`."""
    return f"{op.partition('::')[2].strip('_')}_kernel"


def cost(call: Call, specs: tuple[Spec, ...]) -> tuple[int, bool]:
    """ns of one kernel, which reads its arguments once and writes its results once; and whether it is so
    small that its values are always computed."""
    name, refs = call.signature.name, call.refs
    touched = refs[1:] if name in SPARSE else refs
    moved = sum(ref.nbytes for ref in touched) + sum(nbytes for *_, nbytes in specs) * (
        2 if name in SPARSE else 1
    )
    operations = 0.0
    if name in MATMULS:
        left, right = refs[-2], refs[-1]
        columns = right.shape[-1] if len(right.shape) > 1 else 1
        operations = 2.0 * left.elements * columns
        if ENGINE.matmul_bytes and name in ("aten::mm", "aten::addmm"):
            moved += ENGINE.matmul_bytes - right.nbytes
            operations = 2.0 * left.shape[0] * ENGINE.matmul_bytes / 2  # weights of 16 bits
    return ENGINE.model.kernel_ns(name, moved, operations), moved <= COMPUTED_BYTES


def cached(call: Call) -> Any:
    """What is known of such a call from an earlier one, or None."""
    try:
        return ENGINE.costs.get((call.op, *call.key))
    except TypeError:  # an argument that has no hash
        return None


def cache(call: Call, entry: Any) -> Any:
    """Keep what is known, and return it."""
    with suppress(TypeError):
        ENGINE.costs[(call.op, *call.key)] = entry
    return entry


def infer(call: Call) -> Any:
    """The call on meta tensors; NotImplemented where the operator has no such kernel. Invisible to a
    profiler."""
    profiled = _autograd._profiler_enabled()
    if profiled:
        _C._autograd._enable_record_function(False)
    try:
        with _C._AutoDispatchBelowAutograd():
            return call.op(*[_meta(a) for a in call.args], **{k: _meta(v) for k, v in call.kwargs.items()})
    except NotImplementedError:
        return NotImplemented
    finally:
        if profiled:
            _C._autograd._enable_record_function(True)


def _meta(value: Any) -> Any:
    if type(value) is Ref:
        return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="meta")
    if type(value) is list:
        return [_meta(v) for v in value]
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if type(value) is torch.device:
        return torch.device("meta")
    return None if isinstance(value, _C.Generator) else value


def each(change: Any, value: Any) -> Any:
    """`change` applied to every tensor of a result."""
    if isinstance(value, (tuple, list)):
        return tuple(each(change, v) for v in value)
    return change(value) if isinstance(value, torch.Tensor) else value

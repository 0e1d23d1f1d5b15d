"""What the device does with an operator: view, kernel, kernel with a sync, or a fall back to the host's CPU.

Every `aten` operator that reaches the device comes to `dispatch`. Shapes of results are inferred on meta
tensors, once for each combination of shapes, dtypes and scalars; so wrong shapes raise at the call, as on a
real device.
"""

from __future__ import annotations

from typing import Any

import torch

from .calls import INDEXING, Call, Signature, cache, cached, cost, each, infer, kernel_name
from .engine import ENGINE, Spec, Task
from .fallback import fall_back
from .host_op import HostOp
from .storage import META, Box, Ref, box_of, is_lab, new_tensor, wrap

aten: Any = torch.ops.aten

VIEWS = frozenset(
    {
        "aten::as_strided",
        "aten::view",
        "aten::_reshape_alias",
        "aten::unfold",
        "aten::alias",
        "aten::detach",
        "aten::view_as_real",
        "aten::view_as_complex",
        "aten::set_",
    }
)
"""Operators that only change how the host looks at memory."""

READ_BACKS = frozenset(
    {
        "aten::nonzero",
        "aten::masked_select",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::equal",
        "aten::bincount",
    }
)
"""Operators whose result the host needs before it can go on: its shape or its value depends on the data."""

NUMBERS = {"aten::masked_fill": 2, "aten::masked_fill_": 2, "aten::index_fill_": 3}
"""Operator → position of a number that travels with the launch: one that lies on the device is read first."""

_READ_BACK_BYTES = 8


def dispatch(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run one operator on the device; the kernel that is registered for all of them."""
    name = op._schema.name
    if name in VIEWS:
        with HostOp(name, view=True):
            return op.redispatch(META, *args, **kwargs)  # host metadata alone, on the genuine TensorImpl
    if name == "aten::as_strided_":
        with HostOp(name, view=True):
            return _look_differently(*args)
    if name == "aten::_local_scalar_dense":
        with HostOp("aten::item"), HostOp(name):
            return _read_number(op, args[0])
    with HostOp(name):
        if name in ENGINE.model.unsupported:
            return fall_back(op, args, kwargs)
        if name in INDEXING:
            args = (args[0], _without_masks(args, kwargs), *args[2:])
        elif (at := NUMBERS.get(name)) is not None and is_lab(args[at]):
            args = (*args[:at], torch.tensor(args[at].item(), dtype=args[at].dtype))
        signature = Signature.of(op)
        call = Call.of(op, signature, args, kwargs)
        if name in READ_BACKS or (name == "aten::repeat_interleave" and kwargs.get("output_size") is None):
            return _read_back(call)
        if signature.in_place and name != "aten::resize_":
            return _launch_in_place(call, signature.targets(args, kwargs))
        return _launch(call)


# ---- kernels


def _launch(call: Call) -> Any:
    known = cached(call)
    if known is None:
        inferred = infer(call)
        if inferred is NotImplemented:  # no rule for its shape: the host must see the result
            return _read_back(call)
        several = isinstance(inferred, (tuple, list))
        specs = tuple(
            (tuple(x.shape), x.stride(), x.dtype, x.element_size() * x.numel())
            for x in (inferred if several else (inferred,))
        )
        known = cache(call, (several, specs, *cost(call, specs)))
    several, specs, duration, small = known
    boxes = [Box(None, nbytes) for _, _, _, nbytes in specs]
    results = [
        new_tensor(shape, stride, dtype, box)
        for (shape, stride, dtype, _), box in zip(specs, boxes, strict=True)
    ]
    _submit(call, duration, small, boxes, specs)
    return tuple(results) if several else results[0]


def _launch_in_place(call: Call, targets: list[torch.Tensor]) -> Any:
    if call.signature.has_out:
        _fit_outputs(call, targets)
    known = cached(call)
    if known is None:
        if not call.signature.has_out:
            infer(call)  # raises where shapes do not fit
        known = cache(call, (False, (), *cost(call, ())))
    _submit(call, *known[2:])
    if call.signature.returns == 0:
        return None
    return targets[0] if call.signature.returns == 1 else tuple(targets)


def _submit(
    call: Call, duration_ns: int, small: bool, boxes: list[Box] | None = None, specs: tuple[Spec, ...] = ()
) -> None:
    ENGINE.submit(
        Task(
            kernel_name(call.signature.name),
            call.op,
            call.args,
            call.kwargs,
            duration_ns,
            boxes,
            specs,
            timed_only=not (ENGINE.compute or small),
            small=small,
        )
    )


def _fit_outputs(call: Call, targets: list[torch.Tensor]) -> None:
    """Give `out=` tensors of the wrong shape the right one, with fresh memory, as `resize_` would."""
    inferred = infer(call)
    if inferred is NotImplemented:
        return
    for target, x in zip(
        targets, inferred if isinstance(inferred, (tuple, list)) else (inferred,), strict=False
    ):
        if target.shape == x.shape:
            continue
        storage = target.untyped_storage()
        aten.set_.source_Storage_storage_offset.redispatch(META, target, storage, 0, x.shape, x.stride())
        box = box_of(target)
        box.values = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
        for name, value in call.kwargs.items():
            if type(value) is Ref and value.box is box:
                call.kwargs[name] = Ref(target)


# ---- syncs


def _read_number(op: Any, tensor: torch.Tensor) -> Any:
    result: list[Any] = []
    ENGINE.submit(
        Task(
            "Memcpy DtoH (Device -> Pageable)",
            op,
            [Ref(tensor)],
            {},
            ENGINE.model.copy_ns(_READ_BACK_BYTES),
            copy_bytes=tensor.element_size(),
            small=True,
            result=result,
        )
    )
    ENGINE.stats.to_host_bytes += tensor.element_size()
    ENGINE.drain("aten::item")
    return result[0]


def _read_back(call: Call) -> Any:
    """A kernel whose result the host waits for: the kernel, a small copy to the host, a wait."""
    result: list[Any] = []
    name = call.signature.name
    duration, small = cost(call, ())
    ENGINE.submit(
        Task(kernel_name(name), call.op, call.args, call.kwargs, duration, small=small, result=result)
    )
    ENGINE.submit(
        Task(
            "Memcpy DtoH (Device -> Pageable)",
            _nothing,
            [],
            {},
            ENGINE.model.copy_ns(_READ_BACK_BYTES),
            copy_bytes=_READ_BACK_BYTES,
            small=True,
        )
    )
    ENGINE.stats.to_host_bytes += _READ_BACK_BYTES
    ENGINE.drain(name)
    return each(wrap, result[0])


def _nothing() -> None:
    pass


def _without_masks(args: Any, kwargs: Any) -> list[Any]:
    """The indices of an indexing call with boolean masks turned into positions: one `nonzero`, and so one
    sync, a mask. Assigning a number of the host through one mask needs no positions."""
    indices = list(args[1])
    masks = [i for i in indices if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)]
    alone = len(masks) == sum(i is not None for i in indices) == 1
    if not masks or (alone and _assigns_number(args, kwargs)):
        return indices
    out: list[Any] = []
    for index in indices:
        if any(index is mask for mask in masks):
            out += torch.ops.aten.nonzero.default(index).unbind(1)
        else:
            out.append(index)
    return out


def _assigns_number(args: Any, kwargs: Any) -> bool:
    """Whether an indexing call writes one number that the host knows, which CUDA does as a `masked_fill`
    (`canDispatchToMaskedFill` in PyTorch). A number on the device is not known."""
    if len(args) < 3 or args[2].numel() != 1 or args[3:4] == (True,) or kwargs.get("accumulate"):
        return False
    return not is_lab(args[2]) or box_of(args[2]).from_host


def _look_differently(tensor: torch.Tensor, size: Any, stride: Any, offset: int | None = None) -> torch.Tensor:
    """`as_strided_`, and with it `squeeze_`, `unsqueeze_`, `t_` and their like. PyTorch's own compares with the
    size of the storage, which is empty here."""
    at, storage = tensor.storage_offset() if offset is None else offset, tensor.untyped_storage()
    result: torch.Tensor = aten.set_.source_Storage_storage_offset.redispatch(META, tensor, storage, at, size, stride)
    return result

"""Which operators read back, and how often a call of them does: facts about PyTorch, in one table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_C: Any = torch._C

Rule = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""How many times a call reads back, from its arguments."""

COPIES = ("_to_copy", "copy_")

NO_ASSIGNMENT = object()


class _Assignment(threading.local):
    index: object = NO_ASSIGNMENT


assignment = _Assignment()
"""While `tensor[index] = number` runs on this thread, its `index`."""


def once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return 1


def _unless_assigned(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Once, except for the number of `tensor[index] = number`, which PyTorch put into a tensor by itself."""
    index = assignment.index
    if index is NO_ASSIGNMENT or args[0].device.type != "cpu":
        return 1
    return int(any(args[0] is part for part in (index if isinstance(index, tuple) else (index,))))


def _without(name: str, absent: Any, position: int) -> Rule:
    """Once, unless the caller says beforehand how large the result will be."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = args[position] if len(args) > position else kwargs.get(name, absent)
        return int(given == absent)

    return count


RULES: dict[str, Rule] = {
    "item": _unless_assigned,
    "_local_scalar_dense": _unless_assigned,
    "repeat_interleave.Tensor": _without("output_size", None, 1),
    "one_hot": _without("num_classes", -1, 1),
    "normal.Tensor_Tensor": once,
    "normal.float_Tensor": once,
}
"""Operator → how many read-backs a call is. For the rest PyTorch's own tags say it (`tagged`): one a call."""

QUIET = ("std", "var", "multinomial", "quantile", "nanquantile")
"""Functions and methods of which the CPU's implementation alone looks at values. Where they were imported by name
before (`from torch import std`), they count."""

_TELLS_ITSELF = "index.Tensor"
"""Reading and writing by boolean masks calls `nonzero` for each, and that is heard."""


def tagged() -> Iterator[str]:
    """Operators whose result is a number for the host, or has a shape that depends on values."""
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    for name in _C._dispatch_get_all_op_names():
        if name.startswith("aten::") and name[6:] != _TELLS_ITSELF and tags & set(overload(name[6:]).tags):
            yield name[6:]


def overload(name: str) -> Any:
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def blocking_copy(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str] | None:
    """A name for the copy and its device, if a call of one of COPIES copies from device to device and waits."""
    if op._schema.name == "aten::copy_":
        source, target = args[1].device.type, args[0].device.type
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    else:
        source, target = args[0].device.type, (kwargs.get("device") or args[0].device).type
        non_blocking = kwargs.get("non_blocking", False)
    if non_blocking or source == target or "meta" in (source, target):
        return None
    return f"copy from {source} to {target}", source if target == "cpu" else target


# ---- what the kernels of a device do, and a run without values does not show


def _masks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Writing by boolean masks takes one `nonzero` a mask, except that one number from the host through one mask is a
    `masked_fill`."""
    masks = sum(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    others = sum(i is not None for i in args[1]) - masks
    if masks != 1 or others or args[2].numel() != 1 or args[3:4] == (True,) or kwargs.get("accumulate"):
        return masks
    from_host = assignment.index is not NO_ASSIGNMENT or (args[2].device.type == "cpu" and args[0].device.type != "cpu")
    return 0 if from_host else masks


def _numbers_in_tensors(*positions: int) -> Rule:
    """Takes a number for the kernel out of a tensor there, if the tensor is where all others are."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = [args[i] for i in positions if i < len(args) and isinstance(args[i], torch.Tensor)]
        home = args[0].device.type if isinstance(args[0], torch.Tensor) else "cpu"
        return sum(number.device.type != "cpu" or home == "cpu" for number in given)

    return count


WITHOUT_VALUES: dict[str, Rule] = {
    "index_put_": _masks,
    "index_put": _masks,
    "_index_put_impl_": _masks,
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
    "_linalg_check_errors": once,
}
"""Operator → how many read-backs its kernel makes."""

MAY_READ = frozenset({
    "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors", "_linalg_eigh",
    "_linalg_eigvals", "_linalg_solve_ex", "_linalg_svd", "_to_sparse", "cholesky", "cholesky_inverse",
    "cholesky_solve", "histc", "histogram", "isin", "linalg_eig", "linalg_eigvals", "linalg_inv_ex",
    "linalg_ldl_solve", "linalg_lu_solve", "linalg_matrix_exp", "linalg_pinv", "multilabel_margin_loss_forward",
    "rrelu_with_noise", "segment_reduce",
})  # fmt: skip
"""Operators whose kernels may read: whether they do depends on more than their arguments' shapes. Found by running
PyTorch's own operator samples both ways, with values and without."""

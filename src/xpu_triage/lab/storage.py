"""Device memory of the lab: real values behind tensors whose own storage is empty.

A lab tensor is a plain `torch.Tensor` on `xpulab:0` with a genuine TensorImpl and a StorageImpl of its own.
The values live in a `Box` that hangs on the Python storage object; PyTorch keeps attributes of that object
for as long as the storage lives, so views, `detach`, `Parameter` and `.data` alias as they do on any device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

NAME = "xpulab"

_C: Any = torch._C
META = _C.DispatchKeySet(_C.DispatchKey.Meta)
_BOX = "_xpulab_box"


class Memory:
    """Bytes held by live tensors of the device, and the most that were."""

    held_bytes = 0
    peak_bytes = 0


class Box:
    """The memory of one device storage. `values` is filled by the queue; None means that nobody has looked
    yet."""

    __slots__ = ("from_host", "nbytes", "values")

    def __init__(self, values: torch.Tensor | None, nbytes: int) -> None:
        self.values, self.nbytes = values, nbytes
        self.from_host = False
        """One number that PyTorch has just put there for the host, as in `x[mask] = 0.5`."""
        Memory.held_bytes += nbytes
        Memory.peak_bytes = max(Memory.peak_bytes, Memory.held_bytes)

    def __del__(self) -> None:
        Memory.held_bytes -= self.nbytes


class Ref:
    """What a queued operation knows of a tensor: its box and how it looks at it. Later host-side changes of
    the tensor (`set_`, `resize_`) do not reach work that is already queued."""

    __slots__ = ("box", "dtype", "offset", "shape", "stride")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.box: Box = getattr(tensor.untyped_storage(), _BOX)
        self.shape, self.stride = tuple(tensor.shape), tensor.stride()
        self.offset, self.dtype = tensor.storage_offset(), tensor.dtype

    def real(self) -> torch.Tensor:
        """The CPU tensor with the values, as of now in the queue."""
        values = self.box.values
        if values is None:  # result of an operation that was only timed
            values = self.box.values = lazy_zeros(
                (max(self.box.nbytes // self.dtype.itemsize, 1),), self.dtype
            )
        if values.dtype is not self.dtype:
            return torch.empty(0, dtype=self.dtype).set_(
                values.untyped_storage(), self.offset, self.shape, self.stride
            )
        if (
            values.shape == self.shape
            and values.stride() == self.stride
            and values.storage_offset() == self.offset
        ):
            return values
        return values.as_strided(self.shape, self.stride, self.offset)

    @property
    def elements(self) -> int:
        """Distinct elements in memory: a dimension of stride 0 is read once."""
        n = 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            n *= size if stride else min(size, 1)
        return n

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize


def is_lab(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def box_of(tensor: torch.Tensor) -> Box:
    box: Box = getattr(tensor.untyped_storage(), _BOX)
    return box


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros in pages that cost nothing until they are touched (`torch.zeros` writes them all)."""
    n = dtype.itemsize
    for size in shape:
        n *= size
    return torch.from_numpy(np.zeros(max(n, 1), dtype=np.uint8))[:n].view(dtype).view(shape)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, n = [0] * len(shape), 1
    for i in range(len(shape) - 1, -1, -1):
        strides[i] = n
        n *= max(shape[i], 1)
    return tuple(strides)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without holes and without overlap, in whatever order."""
    n = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != n:
            return False
        n *= size
    return True


def new_tensor(
    shape: tuple[int, ...], stride: tuple[int, ...] | None, dtype: torch.dtype, box: Box
) -> torch.Tensor:
    """A lab tensor over `box`, contiguous where `stride` is None."""
    tensor: torch.Tensor = _C._acc.create_empty_tensor(shape, dtype)
    setattr(tensor.untyped_storage(), _BOX, box)
    if stride is not None and tensor.stride() != stride:
        tensor = torch.ops.aten.as_strided.default.redispatch(META, tensor, shape, stride, 0)
    return tensor


def wrap(values: torch.Tensor) -> torch.Tensor:
    """A lab tensor that owns finished values."""
    if values.storage_offset() != 0:
        values = values.clone()
    return new_tensor(
        tuple(values.shape),
        values.stride(),
        values.dtype,
        Box(values, values.numel() * values.element_size()),
    )

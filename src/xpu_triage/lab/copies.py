"""Memory of the device: allocation, and copies to it, from it and inside it."""

from __future__ import annotations

from typing import Any

import torch

from .engine import ENGINE, Task
from .host_op import HostOp
from .storage import (
    NAME,
    Box,
    Ref,
    box_of,
    contiguous_strides,
    is_dense,
    is_lab,
    lazy_zeros,
    new_tensor,
)

aten: Any = torch.ops.aten

TIMED_COPY_BYTES = 1 << 20
"""Where values are not computed, copies up to this size are made all the same: indices, masks, tokens."""


SMALL_COPY_BYTES = 64 << 10
"""A copy of this size takes a few µs."""


def _only_timed(nbytes: int) -> bool:
    return not ENGINE.compute and nbytes > TIMED_COPY_BYTES


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source)


def _transfer(name: str, target: Any, source: Any, nbytes: int) -> None:
    ENGINE.submit(
        Task(
            name,
            _copy,
            [target, source],
            {},
            ENGINE.model.copy_ns(nbytes),
            copy_bytes=nbytes,
            timed_only=_only_timed(nbytes),
            small=nbytes <= SMALL_COPY_BYTES,
        )
    )


def to_host(
    tensor: torch.Tensor, *, non_blocking: bool = False, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Copy to the host. A copy that is not `non_blocking` waits until it is done; into `out`, or into a new
    tensor."""
    ref = Ref(tensor)
    nbytes = tensor.numel() * tensor.element_size()
    if out is None:
        untouched = _only_timed(nbytes) and ref.box.values is None and tensor.is_contiguous()
        out = (
            lazy_zeros(tuple(tensor.shape), tensor.dtype)
            if untouched
            else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        )
    ENGINE.stats.to_host_bytes += nbytes
    _transfer(f"Memcpy DtoH (Device -> {_memory(non_blocking)})", out, ref, nbytes)
    if not non_blocking:
        ENGINE.drain("aten::copy_")
    return out


def to_device(
    tensor: torch.Tensor, *, non_blocking: bool = False, into: torch.Tensor | None = None
) -> torch.Tensor:
    """Copy to the device. `non_blocking` counts as a copy from pinned memory: the host goes on at once. Else
    the copy is staged through pageable memory, and the host waits for it and for all work before it."""
    nbytes = tensor.numel() * tensor.element_size()
    ENGINE.stats.to_device_bytes += nbytes
    if into is None:
        stride = tensor.stride() if tensor.is_contiguous() else contiguous_strides(tuple(tensor.shape))
        values = (
            None if _only_timed(nbytes) else torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
        )
        into = new_tensor(tuple(tensor.shape), stride, tensor.dtype, Box(values, nbytes))
    source = tensor.clone() if non_blocking and not _only_timed(nbytes) else tensor
    _transfer(f"Memcpy HtoD ({_memory(non_blocking)} -> Device)", Ref(into), source, nbytes)
    if not non_blocking:
        ENGINE.drain("aten::copy_")
    return into


def _memory(non_blocking: bool) -> str:
    return "Pinned" if non_blocking else "Pageable"


# ---- kernels registered by name


def empty(
    size: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    return empty_strided(size, contiguous_strides(tuple(size)), dtype=dtype)


def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    with HostOp("aten::empty_strided", view=True):
        dtype, size, stride = dtype or torch.get_default_dtype(), tuple(size), tuple(stride)
        if not ENGINE.compute and stride == contiguous_strides(size):
            nbytes = dtype.itemsize
            for n in size:
                nbytes *= n
            return new_tensor(size, stride, dtype, Box(None, nbytes))
        values = torch.empty_strided(size, stride, dtype=dtype)
        return new_tensor(size, stride, dtype, Box(values, values.untyped_storage().nbytes()))


def copy_(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    with HostOp("aten::copy_"):
        if is_lab(self) and is_lab(src):
            target, source = Ref(self), Ref(src)
            ENGINE.submit(
                Task(
                    "copy_kernel",
                    _copy,
                    [target, source],
                    {},
                    ENGINE.model.kernel_ns("aten::copy_", target.nbytes + source.nbytes, 0),
                    timed_only=not ENGINE.compute,
                )
            )
        elif is_lab(self):
            to_device(src.to(self.dtype).expand(self.shape), non_blocking=non_blocking, into=self)
        elif src.dtype != self.dtype or src.shape != self.shape:
            self.copy_(to_host(src))
        else:
            to_host(src, non_blocking=non_blocking, out=self)
        return self


def to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> torch.Tensor:
    """`aten::_to_copy` of a lab tensor: to the host, or to another dtype on the device."""
    with HostOp("aten::_to_copy"):
        target, dtype = device or self.device, dtype or self.dtype
        if target.type == NAME:
            stride = self.stride() if is_dense(self) else contiguous_strides(tuple(self.shape))
            return copy_(empty_strided(self.shape, stride, dtype=dtype), self)
        if dtype != self.dtype:
            self = copy_(empty_strided(self.shape, contiguous_strides(tuple(self.shape)), dtype=dtype), self)
        if not is_dense(self):
            self = self.contiguous()
        with HostOp("aten::copy_"):
            return to_host(self, non_blocking=non_blocking)


def scalar_tensor(
    number: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    """`aten::scalar_tensor`, in which PyTorch wraps the number of `x[index] = number`: allocated and filled, as
    on any device, and remembered as a number that the host knows."""
    tensor: torch.Tensor = aten.fill_.Scalar(empty((), dtype=dtype), number)
    box_of(tensor).from_host = True
    return tensor

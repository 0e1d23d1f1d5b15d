"""Lines of ordinary code that read from a device, and lines that do not. Each stands in one line, because its line
number is what a counter has to name. `d` holds the tensors; they may live on any device."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Data:
    """A few tensors on one device."""

    x: Tensor
    """Six floats."""
    y: Tensor
    """Three rows of four floats."""
    mask: Tensor
    """Six booleans, three of them true."""
    rows: Tensor
    """Three booleans, two of them true."""
    two: Tensor
    """The integer 2, without a dimension."""
    ids: Tensor
    """Integers 1, 0, 2."""

    @classmethod
    def on(cls, device: str) -> Data:
        x = torch.tensor([1.5, -0.5, 2.5, -1.0, 0.5, -2.0])
        y = torch.arange(12.0).view(3, 4)
        return cls(
            *(
                t.to(device)
                for t in (x, y, x > 0, torch.tensor([True, False, True]), torch.tensor(2), torch.tensor([1, 0, 2]))
            )
        )


Case = Callable[[Data], Any]


def asserts(d: Data) -> None:
    assert d.two > 1


def changes(d: Data) -> None:
    d.x[d.mask] *= 2


def line_of(case: Case) -> int:
    """The line that reads: a lambda's own, a function's last."""
    return max(line for _, _, line in case.__code__.co_lines() if line is not None)


ONE: dict[str, Case] = {
    "item": lambda d: d.two.item(),
    "bool": lambda d: bool(d.two),
    "int": lambda d: int(d.two),
    "float": lambda d: float(d.x[0]),
    "complex": lambda d: complex(d.x[0]),
    "index": lambda d: ["a", "b", "c"][d.two],
    "range": lambda d: list(range(d.two)),
    "floor": lambda d: math.floor(d.x[0]),
    "tolist": lambda d: d.x.tolist(),
    "tolist of one": lambda d: d.two.tolist(),
    "cpu": lambda d: d.x.cpu(),
    "to": lambda d: d.x.to("cpu"),
    "to a device": lambda d: d.x.to(torch.device("cpu")),
    "to by name": lambda d: d.x.to(device="cpu", dtype=torch.float64),
    "repr": lambda d: repr(d.x),
    "str": lambda d: str(d.y),
    "print of one": lambda d: str(d.two),
    "format": lambda d: f"{d.two}",
    "format with a width": lambda d: f"{d.two:>4}",
    "format of many": lambda d: f"{d.x}",
    "any in a condition": lambda d: 1 if d.mask.any() else 0,
    "torch.any in a condition": lambda d: 1 if torch.any(d.mask) else 0,
    "all in a condition": lambda d: 1 if torch.all((d.ids <= 1024) & (d.ids >= 0)) else 0,
    "max in a condition": lambda d: 1 if d.x.max() > 1 else 0,
    "min in a condition": lambda d: 1 if d.x.min() > 1 else 0,
    "not": lambda d: not d.mask.any(),
    "while": lambda d: [0 for _ in (0,) if d.two > 5],
    "and": lambda d: d.two > 1 and 3,
    "assert": asserts,
    "in": lambda d: 2.5 in d.x,
    "in a list": lambda d: d.two in [torch.ones((), dtype=torch.long, device=d.two.device)],
    "max of two": lambda d: max(d.x[0], d.x[1]),
    "nonzero": lambda d: d.mask.nonzero(),
    "torch.nonzero as a tuple": lambda d: torch.nonzero(d.mask, as_tuple=True),
    "where of one": lambda d: torch.where(d.mask),
    "argwhere": lambda d: torch.argwhere(d.mask),
    "reading by a mask": lambda d: d.x[d.mask],
    "reading by a comparison": lambda d: d.x[d.x > 0],
    "reading by rows": lambda d: d.y[d.rows],
    "reading by rows and a column": lambda d: d.y[d.rows, 1],
    "index_put": lambda d: d.x.index_put((d.mask,), d.x[:1]),
    "assigning tensors": lambda d: d.x.__setitem__(d.mask, torch.zeros_like(d.x[:3])),
    "masked_select": lambda d: d.x.masked_select(d.mask),
    "equal": lambda d: torch.equal(d.x, d.x),
    "allclose": lambda d: torch.allclose(d.x, d.x),
    "unique": lambda d: torch.unique(d.ids),
    "unique with counts": lambda d: torch.unique(d.ids, return_counts=True),
    "unique rows": lambda d: torch.unique(d.y, dim=0),
    "unique_consecutive": lambda d: torch.unique_consecutive(d.ids),
    "bincount": lambda d: torch.bincount(d.ids),
    "bincount with a length": lambda d: torch.bincount(d.ids, minlength=9),
    "repeat_interleave": lambda d: d.y.repeat_interleave(d.ids, 0),
    "one_hot": lambda d: F.one_hot(d.ids),
    "topk": lambda d: d.x.topk(d.two),
    "narrow": lambda d: d.x.narrow(0, d.two, 2),
    "select": lambda d: d.x[d.two],
    "slice": lambda d: d.x[: d.two],
    "split": lambda d: d.x.split(d.two),
    "roll": lambda d: d.x.roll(d.two),
    "a size": lambda d: torch.zeros(d.two),
    "a view": lambda d: d.y.view(-1, d.two),
    "arange": lambda d: torch.arange(d.two),
    "full": lambda d: torch.full((2,), d.two),
    "alpha": lambda d: d.x.add(d.x, alpha=d.two),
    "synchronize": lambda d: torch.get_device_module(d.x.device).synchronize(),
    "is_nonzero": lambda d: d.two.is_nonzero(),
    "torch.tensor of a tensor's value": lambda d: torch.tensor([d.two]),
    "masked_fill by a tensor": lambda d: d.x.masked_fill(d.mask, d.x[0]),
    "index_fill by a tensor": lambda d: d.x.index_fill(0, d.ids, d.x[0]),
    "assigning a tensor's number": lambda d: d.x.__setitem__(d.mask, d.x.sum()),
}
"""One read-back each, on CPU tensors and on the lab's device."""

ONE_ON_CPU: dict[str, Case] = {
    "numpy": lambda d: d.x.numpy(),
    "asarray": lambda d: np.asarray(d.x),
    "array": lambda d: np.array(d.x),
    "pickle": lambda d: pickle.dumps(d.x),
    "normal by tensors": lambda d: torch.normal(d.x, d.x.abs()),
    "normal by a tensor": lambda d: torch.normal(0.0, d.x.abs()),
    "cholesky": lambda d: torch.linalg.cholesky(torch.eye(3)),
}
"""One read-back each; on the lab's device some are not possible, and some are kernels of their own."""

SEVERAL: dict[str, tuple[int, Case]] = {
    "two masks": (2, lambda d: d.y[d.rows, d.y[0] < 2]),
    "changing what a mask selects": (2, changes),
    "two numbers": (2, lambda d: (d.two.item(), d.x[0].item())),
    "sorting": (2, lambda d: sorted(d.y[0, :3].unbind())),
    "linspace": (2, lambda d: torch.linspace(d.x[0], d.x[1], 3)),
    "a range of two": (2, lambda d: range(d.two, d.two)),
}

NONE: dict[str, Case] = {
    "arithmetic": lambda d: (d.x * 2 + d.x).exp(),
    "comparing": lambda d: (d.x > 0) & (d.x < 1),
    "any": lambda d: d.mask.any(),
    "all": lambda d: torch.all(d.mask),
    "max": lambda d: (d.x.max(), d.x.max(0), d.x.amax(), d.x.argmax()),
    "dtypes": lambda d: (d.x.half(), d.x.to(torch.float64), d.x.to(d.y), d.x.long()),
    "masked_fill": lambda d: d.x.masked_fill(d.mask, 0.0),
    "masked_fill_": lambda d: d.x.masked_fill_(d.mask, -math.inf),
    "assigning a number": lambda d: d.x.__setitem__(d.mask, 0.0),
    "assigning a number to rows": lambda d: d.y.__setitem__(d.rows, 0.0),
    "where of three": lambda d: torch.where(d.mask, d.x, 0.0),
    "gather": lambda d: d.y.gather(1, d.ids[:, None]),
    "reading by positions": lambda d: d.x[d.ids],
    "writing by positions": lambda d: d.x.__setitem__(d.ids, torch.zeros_like(d.x[:3])),
    "scatter": lambda d: torch.zeros_like(d.x).scatter(0, d.ids, 1.0),
    "index_select": lambda d: d.x.index_select(0, d.ids),
    "slices": lambda d: (d.y[1:, ::2], d.y[..., 0], d.x[-1], d.y.t(), d.y.unbind()),
    "assigning to a slice": lambda d: d.x.__setitem__(slice(2), 1.0),
    "iterating": lambda d: list(d.y),
    "len": lambda d: (len(d.x), d.x.shape, d.x.numel(), d.x.dtype, d.x.device),
    "hash": lambda d: {d.x: 1, d.y: 2},
    "none": lambda d: d.x is None or d.x is not d.y,
    "sort": lambda d: (d.x.sort(), d.x.topk(2), d.x.cumsum(0), d.x.softmax(0)),
    "searchsorted": lambda d: torch.searchsorted(d.x.sort().values, d.x),
    "statistics": lambda d: (d.x.mean(), d.x.var(), d.x.std(), d.y.std(1), d.x.norm(), d.x.logsumexp(0)),
    "quantile": lambda d: (d.x.quantile(0.5), d.x.nanquantile(0.5)),
    "noise": lambda d: (torch.rand_like(d.x), d.x.clone().exponential_(), d.x.clone().uniform_()),
    "multinomial": lambda d: torch.multinomial(d.x.abs(), 2),
    "one_hot with its number": lambda d: F.one_hot(d.ids, 4),
    "repeat_interleave with its size": lambda d: d.y.repeat_interleave(d.ids, 0, output_size=3),
    "repeat_interleave by a number": lambda d: d.x.repeat_interleave(2),
    "copying": lambda d: (d.x.clone(), d.x.detach(), torch.empty_like(d.x).copy_(d.x), d.x.contiguous()),
    "joining": lambda d: (torch.cat([d.x, d.x]), torch.stack([d.x, d.x]), d.x.expand(2, 6).contiguous()),
    "filling": lambda d: (d.x.clone().fill_(d.x[0]), d.x.clone().zero_()),
    "matrix products": lambda d: (d.y @ d.y.t(), F.linear(d.y, d.y)),
    "to without waiting": lambda d: d.x.to("cpu", non_blocking=True),
    "sum of a list": lambda d: sum(d.x.unbind()),
    "clamp by a tensor": lambda d: d.x.clamp(min=d.x[0]),
    "times a tensor": lambda d: d.x * d.two,
}

"""Pieces of ordinary PyTorch code, each a function of the device, that must give on the lab what they give on
the CPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CASES: dict[str, Callable[[str], Any]] = {}


def case(function: Callable[[str], Any]) -> Callable[[str], Any]:
    CASES[function.__name__] = function
    return function


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@case
def arithmetic(d: str) -> Any:
    x, y = randn(4, 6).to(d), randn(6, seed=1).to(d)
    return (x * 2 + y - 1) / (y.abs() + 1), x**2, -x, x > 0, (x > 0) & (y < 0), x * torch.tensor(2.0)


@case
def dtypes(d: str) -> Any:
    x = randn(4, 6).to(d)
    return x.half().float(), x.to(torch.bfloat16), x.long(), x.to("cpu", torch.float64)


@case
def in_place(d: str) -> Any:
    x = randn(4, 6).to(d)
    x.mul_(3).add_(1).clamp_(min=0)
    x[1] = 7
    x[:, 2:4] -= 1
    return x


@case
def views(d: str) -> Any:
    x = randn(4, 6).to(d)
    return (
        x.t()[1:4].unsqueeze(0).expand(2, 3, 4),
        x.view(2, 2, 6).permute(2, 0, 1).reshape(6, 4),
        x[2][3],
        x[..., -1],
        x[::2],
        x.flatten(),
        x.chunk(2, 1)[1],
        x.split(2)[1],
    )


@case
def views_share_memory(d: str) -> Any:
    x = randn(4, 6).to(d)
    v, w = x[1:3].t(), x.view(-1)
    v[0], w[5] = 9, 1
    x.zero_()
    x[0, 0] = 5
    return x, v, w


@case
def reading_by_index(d: str) -> Any:
    x, i = randn(6, 5).to(d), torch.tensor([0, 3, 5]).to(d)
    return x[i], x[i, 1], x[i[:, None], (i * 0)[None, :2]], x[torch.tensor([1, 2])]


@case
def writing_by_index(d: str) -> Any:
    x, i = randn(6, 5).to(d), torch.tensor([0, 3, 5]).to(d)
    x[i] = 1.5
    x[i, 2] = randn(3, seed=3).to(d)
    x.index_put_((i,), randn(3, 5, seed=4).to(d), accumulate=True)
    return x


@case
def reading_by_mask(d: str) -> Any:
    x = randn(6, 5).to(d)
    return x[x > 0], x[x[:, 0] > 0], x[x[:, 0] > 0, 1], x[torch.tensor([True, False] * 3)]


@case
def writing_by_mask(d: str) -> Any:
    x, y = randn(6, 5).to(d), randn(6, 5, seed=1).to(d)
    x[x > 0] = 0.25
    x[x < -1] = randn(1, seed=9).to(d)[0]
    y[y[:, 0] > 0] = torch.zeros(5).to(d)
    y[y > 1] *= 2
    z = randn(6, 5, seed=2).to(d)
    z[z > 1] = z.sum()
    z[:, z[0] > 0] = 0.5
    z[z < -1] = z[0, :1].clone()
    z[z[:, 0] < 0, 1] = torch.tensor([0.75])
    z.index_put_((z > 0.5,), z.amax(), accumulate=True)
    return x, y, z, z.masked_fill(z > 0, z.amin()), z.index_fill(1, torch.tensor([0, 2]).to(d), z.amax())


@case
def looking_differently_in_place(d: str) -> Any:
    x = randn(2, 3, 4).to(d)
    a, b = x.clone().unsqueeze_(1), x[:, :1].clone().squeeze_()
    c = x[1].clone().t_()
    e = x.clone().transpose_(0, 2)
    f = x.clone().as_strided_((3, 2), (1, 4), 5)
    c.mul_(2)
    return a, b, c, e, f, x.detach().view(6, 4)[1:].squeeze_(0).add(1)


@case
def quantiles(d: str) -> Any:
    x, q = randn(6, 5).to(d), torch.tensor([0.1, 0.5, 0.95]).to(d)
    return (
        x.quantile(0.3),
        x.quantile(q, dim=1),
        x.quantile(q, 0, keepdim=True, interpolation="nearest"),
        x.nanquantile(0.5, dim=1),
        x.median(),
        x.median(1).values,
    )


@case
def results_of_unknown_shape(d: str) -> Any:
    x, i = randn(6, 5).to(d), torch.tensor([3, 1, 3, 2]).to(d)
    return (
        torch.nonzero(x > 0),
        torch.nonzero(x > 0, as_tuple=True),
        x.masked_select(x > 0),
        torch.unique(i),
        torch.unique(i, return_counts=True),
        torch.bincount(i),
        x.repeat_interleave(i[[1, 3, 1, 1, 3, 3]], 0),
    )


@case
def numbers_for_the_host(d: str) -> Any:
    x = randn(6, 5).to(d)
    one = [x.sum().item(), bool((x > 100).any()), 1 if x.max() > 0 else 0, int(x.argmax()), float(x[0, 0])]
    return torch.tensor(one + x[0].tolist()), torch.tensor(torch.equal(x, x))


@case
def sorting(d: str) -> Any:
    x = randn(4, 50).to(d)
    ordered, top = x.sort(dim=-1, descending=True), x.topk(5, dim=-1)
    return *ordered, *top, torch.argsort(x, dim=1), x.kthvalue(3, 1).values


@case
def reductions(d: str) -> Any:
    x = randn(4, 50).to(d)
    return (
        x.cumsum(-1),
        x.softmax(-1),
        x.log_softmax(-1),
        x.argmax(-1),
        x.max(-1).values,
        x.sum(1, keepdim=True),
        x.mean(),
        x.amax(1),
        x.logsumexp(-1),
        x.norm(dim=-1),
        x.var(-1),
        x.prod(1),
        x.any(),
        (x > 0).all(-1),
        x.min(),
    )


@case
def gathering_and_scattering(d: str) -> Any:
    x = randn(4, 8).to(d)
    i = x.argsort(-1)
    g = x.gather(-1, i)
    return (
        g,
        torch.empty_like(x).scatter_(-1, i, g),
        x.scatter(1, i[:, :2], 0.5),
        torch.zeros(4, 8, device=d).scatter_add_(1, i, x),
        x.index_select(0, i[0, :2] % 4),
        torch.searchsorted(x.sort(-1).values, x),
    )


@case
def choosing(d: str) -> Any:
    x = randn(4, 8).to(d)
    m = x > 0
    return (
        x.masked_fill(m, -math.inf),
        torch.where(m, x, torch.zeros_like(x)),
        torch.where(m, x, 0.0),
        x.clone().masked_fill_(m, 1),
    )


@case
def factories(d: str) -> Any:
    return (
        torch.empty(3, 4, device=d).fill_(2),
        torch.zeros(3, device=d),
        torch.ones(2, 3, device=d, dtype=torch.long),
        torch.full((2,), 7.0, device=d),
        torch.arange(5, device=d),
        torch.arange(1, 9, 2, device=d),
        torch.eye(3, device=d),
        torch.tensor([1, 2, 3], device=d),
        torch.zeros_like(torch.ones(2, device=d)),
        torch.ones(4, 4, device=d).tril(),
        torch.linspace(0, 1, 5, device=d),
        torch.ones(2, 2, device=d).new_zeros(3),
    )


@case
def matrix_products(d: str) -> Any:
    x, w, b = randn(4, 8).to(d), randn(5, 8, seed=1).to(d), randn(5, seed=2).to(d)
    return (
        F.linear(x, w),
        F.linear(x, w, b),
        x @ w.t(),
        torch.bmm(x[None], w.t()[None]),
        torch.einsum("ab,cb->ac", x, w),
        F.linear(x.view(2, 2, 8), w, b),
        torch.addmm(b, x, w.t()),
    )


@case
def given_outputs(d: str) -> Any:
    x, w = randn(4, 8).to(d), randn(8, 5, seed=1).to(d)
    fits, empty = torch.empty(4, 5, device=d), torch.empty(0, device=d)
    torch.mm(x, w, out=fits)
    torch.add(x, 1, out=empty)
    return fits, empty


@case
def attention(d: str) -> Any:
    q, k, v = (randn(2, 2, 5, 4, seed=s).to(d) for s in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril().to(d)
    return (
        F.scaled_dot_product_attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v, is_causal=True),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    )


@case
def embeddings_and_norms(d: str) -> Any:
    x, w, table = randn(4, 8).to(d), randn(8, seed=1).to(d), randn(10, 4).to(d)
    i = torch.tensor([[1, 2], [3, 9]]).to(d)
    return (
        F.embedding(i, table),
        F.rms_norm(x, (8,), w),
        F.layer_norm(x, (8,), w, w),
        F.silu(x),
        F.gelu(x),
        x.sigmoid(),
        x.rsqrt(),
        x.exp().log(),
        x.cos(),
    )


@case
def joining(d: str) -> Any:
    x = randn(4, 8).to(d)
    return (
        torch.cat([x, x * 2], 0),
        torch.stack([x, x]),
        x.repeat(2, 1),
        x.repeat_interleave(2, 0),
        torch.roll(x, 1, 0),
        x.flip(0),
        F.pad(x, (1, 1)),
        F.one_hot(x.argmax(-1), 8),
        x.unbind(0)[1],
    )


@case
def copies(d: str) -> Any:
    x = randn(4, 6)
    y = x.to(d)
    z = torch.empty(4, 6, device=d)
    z.copy_(y)
    z[1].copy_(torch.zeros(6))
    host = torch.empty(4, 6)
    host.copy_(z)
    cleared = y.clone()
    cleared.zero_()
    return z, host, x.to(d, non_blocking=True), y, cleared, y.t().contiguous(), y.detach(), y.data, z.to(d)


@case
def modules(d: str) -> Any:
    torch.manual_seed(0)
    m = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    ).to(d)
    twice = copy.deepcopy(m)
    twice.load_state_dict({k: v.cpu() * 2 for k, v in m.state_dict().items()})
    x = randn(3, 8).to(d)
    return m(x).detach(), twice(x).detach(), m.state_dict()["0.weight"]


@case
def seeded_draws_repeat(d: str) -> Any:
    def draws() -> list[Tensor]:
        g = torch.Generator(device=d)
        g.manual_seed(7)
        return [
            torch.empty(3, 4, device=d).exponential_(generator=g),
            torch.empty(3, 4, device=d).uniform_(generator=g),
            torch.randn(3, device=d, generator=g),
            torch.multinomial(torch.ones(3, 9, device=d), 1, generator=g),
        ]

    return torch.tensor([torch.equal(a, b) for a, b in zip(draws(), draws(), strict=True)])


@case
def gradients(d: str) -> Any:
    with torch.inference_mode(False), torch.enable_grad():
        w = randn(3, 3).to(d).requires_grad_()
        (w @ randn(3, 3, seed=1).to(d)).sum().backward()
        return w.grad

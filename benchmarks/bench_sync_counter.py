"""What counting syncs costs: a step with a counter around it against the same step without, in one run.

    python benchmarks/bench_sync_counter.py [--threads 2] [--rounds 40] [--device cuda]

A step is 200 operators. Its tensors go from a few numbers, where an operator is nothing but its dispatch and a counter
shows most, to a row of logits. The arms take turns; a ratio is the median over rounds. For comparison the same step
under an empty `TorchDispatchMode`, the usual way to watch operators. Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from xpu_triage.syncs import count_syncs

TARGET = 1.5
OPERATORS = 200


class EmptyMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def arithmetic(x: Tensor) -> None:
    """200 operators of which none reads."""
    for _ in range(OPERATORS // 4):
        y = (x + x).mul_(0.5)
        y = y.softmax(-1).clamp_(min=0.0)


def mixed(x: Tensor) -> None:
    """200 operators with the Python methods that are wrapped, dtype changes, indexing, and no read."""
    index = torch.zeros(2, dtype=torch.long, device=x.device)
    for _ in range(OPERATORS // 8):
        y = x.to(torch.float64).to(x.dtype)
        y[index] = 0.0
        y[:1] = 1.0
        z = torch.cat([y, y]).clone()
        z[index].std()


def reading(x: Tensor) -> None:
    """200 operators, two of which read."""
    arithmetic(x)
    if x[0] > 0:
        x[:2].tolist()


STEPS: dict[str, Callable[[Tensor], None]] = {"no read": arithmetic, "mixed, no read": mixed, "two reads": reading}


def measured(
    step: Callable[[Tensor], None], x: Tensor, arms: dict[str, Callable[[], AbstractContextManager[Any]]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of one step for each arm and round; the arms take turns."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, around in arms.items():
            with around():
                began = time.perf_counter()
                step(x)
                times[name].append(time.perf_counter() - began)
    return times


def overhead(step: Callable[[Tensor], None], x: Tensor, rounds: int, backend: str = "dispatch") -> float:
    """Time of a counted step ÷ time of one that is not, median of rounds."""
    arms = {"plain": nullcontext, "counted": lambda: count_syncs(backend)}
    times = measured(step, x, arms, rounds)
    return statistics.median(c / p for c, p in zip(times["counted"], times["plain"], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    arms: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": nullcontext,
        "dispatch": lambda: count_syncs("dispatch"),
        "an empty mode": EmptyMode,
    }
    if given.device != "cpu":
        arms["of the device"] = lambda: count_syncs(given.device)
    print(f"torch {torch.__version__}, {given.device}, {given.threads} threads, {given.rounds} rounds of one step")
    print(f"{'step':<16}{'numbers':>9}{'µs an operator':>16}" + "".join(f"{name:>16}" for name in list(arms)[1:]))
    worst = 0.0
    with torch.inference_mode():
        for name, step in STEPS.items():
            for size in (16, 1024, 16_384, 152_000):
                x = torch.rand(size, device=given.device)
                measured(step, x, arms, 3)
                times = measured(step, x, arms, given.rounds)
                plain = times.pop("plain")
                ratios = [statistics.median(t / p for t, p in zip(ts, plain, strict=True)) for ts in times.values()]
                worst = max(worst, ratios[0], *ratios[2:])
                each = statistics.median(plain) * 1e6 / OPERATORS
                print(f"{name:<16}{size:>9,}{each:>16.2f}" + "".join(f"{ratio:>15.2f}×" for ratio in ratios))
    print(f"worst of the counters {worst:.2f}× (target {TARGET}×){' MISSED' if worst > TARGET else ''}")
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())

"""The fixed sampler against the same work done natively: sort, softmax, `exponential_`, argmax; in one run.

    python benchmarks/bench_sampler.py [--device cuda] [--threads 2] [--only-targets]

The native arm is what the native paths of vLLM and SGLang do where no fused kernel serves, written for this
comparison. Both arms take turns on the same logits; a ratio is the median over pairs of turns. Exit code 1 if
a target was missed.

On a CPU shared with others an operator split over threads waits for the thread that lost its core, spinning,
and a run of many operators then shows the neighbours. So threads wait passively here, for both arms, unless
OMP_WAIT_POLICY says otherwise; `--threads 1` leaves no one to wait for.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is imported

import torch
from torch import Tensor

from xpu_triage.sampling import Request, SamplingBatch, draw, sample
from xpu_triage.sampling.incidents import sample_exponential
from xpu_triage.sampling.noise import (
    InverseCdf,
    Race,
    exponential_from_one_draw,
    exponential_from_two_draws,
    race,
)
from xpu_triage.sampling.sampler import block_size

FILTERS = {"no filter": (None, None), "top-k 50": (50, None), "top-p 0.9": (None, 0.9), "both": (50, 0.9)}
SEEDS = ("none", "seeds", "generators")
TARGETS = {"no filter": 6.0, "top-p 0.9": 3.0, "top-k 50": 5.0}
"""At batch 256 × 152,000 without seeds; everywhere else the fixed sampler must not be slower."""
LARGEST = (256, 152_000)


def native(logits: Tensor, top_k: int | None, top_p: float | None, seeded: bool) -> Callable[[], object]:
    rows, device = logits.shape[0], logits.device
    k = None if top_k is None else torch.full((rows,), top_k, device=device)
    p = None if top_p is None else torch.full((rows,), top_p, device=device)
    own = {i: torch.Generator(device).manual_seed(i) for i in range(rows)} if seeded else None
    return lambda: sample_exponential(logits, k, p, own)


def fixed(logits: Tensor, top_k: int | None, top_p: float | None, seeds: str) -> Callable[[], object]:
    def request(i: int) -> Request:
        own = torch.Generator(logits.device).manual_seed(i) if seeds == "generators" else None
        return Request(str(i), top_k=top_k, top_p=top_p, seed=i if seeds == "seeds" else None, generator=own)

    requests = [request(i) for i in range(logits.shape[0])]
    batch = SamplingBatch.from_requests(requests, logits.shape[1], logits.device)
    return lambda: sample(logits, batch)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    started = time.perf_counter()
    call()
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter() - started


def turns(
    first: Callable[[], object], second: Callable[[], object], device: torch.device, budget_s: float
) -> list[tuple[float, float]]:
    """Seconds of both, in turn: at least 3 pairs, more while they fit the budget."""
    once = seconds(first, device) + seconds(second, device)  # warm-up, and the measure of how many fit
    count = max(3, min(50, int(budget_s / once)))
    return [(seconds(first, device), seconds(second, device)) for _ in range(count)]


def logits_of(rows: int, vocab: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(rows, vocab, generator=generator) * 3).to(device)


def compare(arguments: argparse.Namespace, device: torch.device) -> list[str]:
    """Print a row for each cell; return the misses."""
    misses = []
    head = ("vocab", "batch", "filter", "seeds", "native ms", "fixed ms", "times")
    print("{:>7} {:>5}  {:<10} {:<11}{:>11}{:>10}{:>8}".format(*head))
    for vocab, rows in itertools.product(arguments.vocab, arguments.batch):
        logits = logits_of(rows, vocab, device)
        for (name, (top_k, top_p)), seeds in itertools.product(FILTERS.items(), SEEDS):
            if arguments.only_targets and (seeds != "none" or name not in TARGETS):
                continue
            slow = native(logits, top_k, top_p, seeds != "none")
            pairs = turns(slow, fixed(logits, top_k, top_p, seeds), device, arguments.budget_s)
            ratio = statistics.median(a / b for a, b in pairs)
            native_ms, fixed_ms = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
            target = TARGETS.get(name, 1.0) if (rows, vocab) == LARGEST and seeds == "none" else 1.0
            mark = "" if ratio >= target else f"  MISSED: {target:g}"
            line = f"{vocab:>7} {rows:>5}  {name:<10} {seeds:<11}"
            line += f"{native_ms:>11.2f}{fixed_ms:>10.2f}{ratio:>8.1f}{mark}"
            print(line, flush=True)
            misses += [line] if mark else []
    return misses


def draws(rows: int, vocab: int, device: torch.device) -> None:
    """The ways to draw alone, from ready weights: what decided which one is used."""
    weights = logits_of(rows, vocab, device).softmax(1)
    lanes = -(-vocab // block_size(vocab)) + block_size(vocab)

    def exponentials(lanes: int, two: bool) -> Tensor:
        u = torch.rand(rows, lanes, device=device)
        return exponential_from_two_draws(u, torch.rand_like(u)) if two else exponential_from_one_draw(u)

    ways: dict[str, Callable[[], object]] = {
        "race, exponential_": lambda: race(weights, torch.empty_like(weights).exponential_()),
        "race, one uniform": lambda: race(weights, exponentials(vocab, two=False)),
        "race, two uniforms": lambda: race(weights, exponentials(vocab, two=True)),
        "race in two levels": lambda: draw(weights, Race(exponentials(lanes, two=True))),
        "inverse CDF in two levels": lambda: draw(
            weights, InverseCdf(torch.rand(rows, dtype=torch.float64, device=device))
        ),
    }
    print(f"\nthe draw alone, {rows} × {vocab:,}, ms (best of 3)")
    for name, way in ways.items():
        way()
        print(f"  {name:<27}{min(seconds(way, device) for _ in range(3)) * 1e3:9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--vocab", type=int, nargs="+", default=[32_000, 152_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--budget-s", type=float, default=1.0, help="time for the turns of one cell")
    parser.add_argument("--only-targets", action="store_true", help="the cells with a target of their own")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    device = torch.device(given.device)
    waits = os.environ["OMP_WAIT_POLICY"].lower()
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads, waiting {waits}\n")
    misses = compare(given, device)
    if not given.only_targets:
        draws(max(given.batch), max(given.vocab), device)
    print(f"\n{len(misses)} missed" if misses else "\nevery target met")
    raise SystemExit(bool(misses))


if __name__ == "__main__":
    main()

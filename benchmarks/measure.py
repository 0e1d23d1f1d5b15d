"""What every benchmark here needs: run a command, know its wall time, CPU time and peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DISTRUST_SPREAD = 0.25
"""(Largest − smallest) ÷ median of one arm, above which a machine is too noisy for its ratio to be worth
much."""


@dataclass(frozen=True)
class Sample:
    """One run of one command: seconds, MB (10⁶ bytes) at the peak, exit status, what it printed."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    status: int
    output: str


@dataclass(frozen=True)
class Summary:
    """Medians over the repeats of one command; `spread` is (largest − smallest) ÷ median of the wall time."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    spread: float
    runs: int


def run(command: Sequence[str], log: Path) -> Sample:
    """Run a command to its end. The peak is the kernel's own (`wait4`), so none is missed between two looks.

    On Linux a child starts from its parent's resident size at the fork: the measuring process must stay
    small, which is why this module imports nothing beyond the standard library.
    """
    began = time.perf_counter()
    with log.open("w+b") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    unit = 1 if sys.platform == "darwin" else 1024
    return Sample(
        wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 1e6, child.returncode, output
    )


def interleaved(commands: Mapping[str, Sequence[str]], repeats: int, log: Path) -> dict[str, list[Sample]]:
    """Each command once unmeasured (to warm caches), then all in turn, `repeats` times.

    Raises SystemExit with the command's last lines when one fails: the time of a failure is no time. A
    diagnosis that ends in "not enough evidence" (3) went all the way and is none.
    """
    taken: dict[str, list[Sample]] = {name: [] for name in commands}
    for turn in range(repeats + 1):
        for name, command in commands.items():
            sample = run(command, log)
            if sample.status not in (0, 3):
                raise SystemExit(f"{name} ended with {sample.status}:\n{sample.output[-2000:]}")
            if turn:
                taken[name].append(sample)
    return taken


def summary(samples: Sequence[Sample]) -> Summary:
    walls = [s.wall_s for s in samples]
    wall_s = statistics.median(walls)
    return Summary(
        wall_s,
        statistics.median(s.cpu_s for s in samples),
        statistics.median(s.peak_mb for s in samples),
        (max(walls) - min(walls)) / wall_s,
        len(samples),
    )


def ratios(arm: Sequence[Sample], base: Sequence[Sample]) -> list[float]:
    """Wall-time ratio of each pair that ran side by side."""
    return [a.wall_s / b.wall_s for a, b in zip(arm, base, strict=True)]


def machine() -> str:
    """The machine in words, as far as it says nothing about whose it is."""
    model = "unknown CPU"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores, load {load:.1f} at the start, Python {sys.version.split()[0]}"


def verdict(name: str, value: float, target: float, *, at_most: bool = True) -> str:
    """One line that says whether a target was met."""
    met = value <= target if at_most else value >= target
    return (
        f"{'met ' if met else 'MISS'}  {name}: {value:,.3g} (target {'≤' if at_most else '≥'} {target:,.3g})"
    )


def warn_noise(arms: Mapping[str, Summary]) -> list[str]:
    return [
        f"note  {name} varied by {s.spread:.0%} over its {s.runs} runs: the machine was not quiet"
        for name, s in arms.items()
        if s.spread > DISTRUST_SPREAD
    ]

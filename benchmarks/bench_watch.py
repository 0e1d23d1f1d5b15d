"""What watching a server costs it: its step time with `xpu-triage watch` beside it against without, in one run.

    python benchmarks/bench_watch.py [--seconds 12] [--pairs 3]

The lab's server runs in a process of its own under a steady load from another; steps are read off its iteration log,
which costs both arms the same. Windows with and without the watcher take turns, and each pair swaps their order; a
window with it is the whole life of its process, from the interpreter's start to the verdict. What it costs by itself is
its CPU time, children (py-spy, an SMI) included: at the start and the end, from a recording as short as can be, and
for each second of recording, from the difference. Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from measure import Sample, machine, run, verdict

STEP_TARGET = 1.02
CPU_TARGET_CORES = 0.05
DEFAULT_SECONDS = 30.0
"""How long `watch` records by default."""
BATCH = 16
SHORT_S = 2.0

_DECODE = re.compile(r"\b0 context tokens, (\d+) generation requests, .* time: ([\d.]+) ms")


@dataclass(frozen=True)
class Window:
    """Full decode steps that ran in it."""

    steps: int
    mean_ms: float
    median_ms: float


@dataclass(frozen=True)
class Pair:
    off: Window
    on: Window
    watcher: Sample

    @property
    def ratio(self) -> float:
        return self.on.mean_ms / self.off.mean_ms


def xpu_triage(*words: str) -> list[str]:
    return [sys.executable, "-m", "xpu_triage", *words]


def watcher(url: str, pid: int, seconds: float, out: Path) -> list[str]:
    return xpu_triage("watch", "--server", url, "--pid", str(pid), "--seconds", str(seconds), "--out", str(out))


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, terminated at the end."""
    with process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


@contextmanager
def loaded_server(folder: Path, lifetime_s: float) -> Iterator[tuple[str, int, Path]]:
    """The lab's server with every seat taken all the time: its address, its process and its log."""
    log = folder / "iterations.log"
    serve = xpu_triage("lab", "serve", "--batch", str(BATCH), "--log", str(log), "--seconds", str(lifetime_s))
    with ended(subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)) as server:
        assert server.stdout is not None
        url = server.stdout.readline().partition(" ")[0]
        if not url:
            raise SystemExit("the server did not start")
        client = xpu_triage("lab", "load", url, "--requests", "100000", "--concurrency", str(BATCH),
                            "--prompt-tokens", "16", "--max-tokens", "900", "--seconds", str(lifetime_s))
        with ended(subprocess.Popen(client, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)):
            yield url, server.pid, log


def window(log: Path, start: int) -> Window:
    """The log from this offset to its end."""
    with log.open("rb") as file:
        file.seek(start)
        found = _DECODE.finditer(file.read().decode())
    elapsed_ms = [float(match[2]) for match in found if int(match[1]) == BATCH]
    if not elapsed_ms:
        raise SystemExit("no full decode step ran in a window: the server or its load is gone")
    return Window(len(elapsed_ms), statistics.fmean(elapsed_ms), statistics.median(elapsed_ms))


def watched(url: str, pid: int, seconds: float, log: Path, folder: Path, name: str) -> tuple[Window, Sample]:
    start = log.stat().st_size
    sample = run(watcher(url, pid, seconds, folder / name), folder / f"{name}.txt")
    if sample.status not in (0, 3):
        raise SystemExit(f"watch ended with {sample.status}:\n{sample.output[-2000:]}")
    return window(log, start), sample


def alone(wall_s: float, log: Path) -> Window:
    start = log.stat().st_size
    time.sleep(wall_s)
    return window(log, start)


def measured(seconds: float, pairs: int, folder: Path) -> tuple[list[Pair], Sample]:
    """All pairs, and the short recording before them, the second of two: the first warms the caches."""
    done: list[Pair] = []
    with loaded_server(folder, 60 + 2 * pairs * (seconds + 10)) as (url, pid, log):
        time.sleep(2.0)
        watched(url, pid, SHORT_S, log, folder, "first")
        _, short = watched(url, pid, SHORT_S, log, folder, "short")
        for turn in range(pairs):
            if turn % 2:
                on, sample = watched(url, pid, seconds, log, folder, f"watch{turn}")
                off = alone(sample.wall_s, log)
            else:
                off = alone(seconds + short.wall_s - SHORT_S, log)
                on, sample = watched(url, pid, seconds, log, folder, f"watch{turn}")
            done.append(Pair(off, on, sample))
            print(f"pair {turn + 1}: step {off.mean_ms:.2f} ms without, {on.mean_ms:.2f} with ({done[-1].ratio:.3f}); "
                  f"medians {off.median_ms:.2f} and {on.median_ms:.2f}; {off.steps} and {on.steps} steps", flush=True)
    return done, short


def report(pairs: Sequence[Pair], short: Sample, seconds: float) -> list[str]:
    """The lines with the targets, last."""
    ratio = statistics.median(pair.ratio for pair in pairs)
    medians = statistics.median(pair.on.median_ms / pair.off.median_ms for pair in pairs)
    cpu_s = statistics.median(pair.watcher.cpu_s for pair in pairs)
    cores = max(cpu_s - short.cpu_s, 0.0) / (seconds - SHORT_S)
    fixed_s = short.cpu_s - SHORT_S * cores
    wall_s = DEFAULT_SECONDS + short.wall_s - SHORT_S
    offs = [pair.off.mean_ms for pair in pairs]
    spread = (max(offs) - min(offs)) / statistics.median(offs)
    lines = [
        f"watch: {fixed_s:.2f} s of CPU to start and to judge, {cores:.3f} cores while it records; at its default of "
        f"{DEFAULT_SECONDS:g} s {(fixed_s + DEFAULT_SECONDS * cores) / wall_s:.3f} cores in all, "
        f"{short.peak_mb:.0f} MB",
        f"median step with ÷ without: {medians:.3f}",
    ]
    if spread > STEP_TARGET - 1:
        lines.append(f"note  without a watcher the step varied by {spread:.1%} between windows: "
                     "no ratio here is better than that")
    return [*lines, verdict("mean step with ÷ without", ratio, STEP_TARGET),
            verdict("cores while it records", cores, CPU_TARGET_CORES)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=12.0, help="of each recording (12)")
    parser.add_argument("--pairs", type=int, default=3, help="windows with and without (3)")
    args = parser.parse_args()
    if args.seconds < 2 * SHORT_S or args.pairs < 1:
        parser.error(f"at least {2 * SHORT_S:g} seconds and one pair")
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pairs, short = measured(args.seconds, args.pairs, Path(folder))
    lines = report(pairs, short, args.seconds)
    print(*lines, sep="\n")
    return int(any(line.startswith("MISS") for line in lines))


if __name__ == "__main__":
    sys.exit(main())

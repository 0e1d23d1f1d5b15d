"""`xpu-triage fleet`: what the client needs as ranks are added, and how fast ranks go as workers are.

    python benchmarks/bench_fleet.py                                   # 16, 64 and 256 ranks; 1 against 2 workers
    python benchmarks/bench_fleet.py --ranks 16,64 --events 2000 --repeats 1

Each rank is one synthetic trace under its own name and number. Memory is the client's own peak (its workers are other
processes), measured by the kernel, after a run of two ranks in the same process, so that what Dask and this package
take by themselves is in both; beside it the growth of Python's own allocations (tracemalloc, in runs apart, for it
costs time). Throughput is ranks a second over the last three quarters of the results: starting processes, and their
first imports, are not in it. Runs with one and two workers take turns. It needs two free cores to say anything. Needs
the `fleet` extra. Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine, verdict
from synthetic_trace import write

RANKS = "16,64,256"
EVENTS = 5_000
FLAT, FASTER = 1.1, 1.5
"""Targets: peak at most ranks ÷ peak at fewest; throughput with two workers ÷ with one (on two free cores 2)."""

CLIENT = """
import json, resource, sys, time, tracemalloc
from xpu_triage.fleet.cluster import diagnose_all
from xpu_triage.fleet.diagnosis import judge_ranks
from xpu_triage.fleet.inputs import find_ranks

def main():
    folder, ranks, workers, traced = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "traced"
    pieces = find_ranks([folder]).pieces
    diagnose_all(pieces[:2], workers=1)
    if traced:
        tracemalloc.start()
    moments = []
    results = diagnose_all(pieces[:ranks], workers=workers, progress=lambda *_: moments.append(time.perf_counter()))
    found = judge_ranks(results)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({
        "peak_mb": peak / 1e6, "python_mb": tracemalloc.get_traced_memory()[1] / 1e6 if traced else None,
        "ranks_per_s": (ranks - 1 - ranks // 4) / (moments[-1] - moments[ranks // 4]),
        "compared": len(found.comparison.rows)}))

if __name__ == "__main__":
    main()
"""


def job(folder: Path, ranks: int, events: int) -> Path:
    """A folder with that many ranks' traces: the events of one file, each with its own rank, so that they are compared.
    """
    one = folder / f"one-{events}.json.gz"
    if not one.exists():
        write(one, events, 0)
    text = gzip.decompress(one.read_bytes())
    target = folder / f"ranks-{events}-of-{ranks}"
    target.mkdir(exist_ok=True)
    for rank in range(ranks):
        path = target / f"rank{rank}.json.gz"
        if not path.exists():
            about = json.dumps({"rank": rank, "world_size": ranks})
            path.write_bytes(gzip.compress(text.replace(b"{", f'{{"distributedInfo": {about},'.encode(), 1), 1))
    return target


def client(script: Path, folder: Path, ranks: int, workers: int, *, traced: bool = False) -> dict[str, float]:
    done = subprocess.run([sys.executable, str(script), str(folder), str(ranks), str(workers),
                           "traced" if traced else "plain"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    figures: dict[str, float] = json.loads(done.stdout)
    if figures["compared"] != ranks:
        raise SystemExit(f"{figures['compared']} of {ranks} ranks were compared")
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", default=RANKS, help=f"by commas ({RANKS})")
    parser.add_argument("--events", type=int, default=EVENTS, help=f"of each trace ({EVENTS:,})")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of 1 and 2 workers (3)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "xpu-triage-bench")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    sizes = sorted(int(n) for n in given.ranks.split(","))
    given.folder.mkdir(parents=True, exist_ok=True)
    script = given.folder / "fleet_client.py"
    script.write_text(CLIENT)
    folder = job(given.folder, sizes[-1], given.events)
    print(f"{machine()}; {given.events:,} events a rank")

    print(f"\n{'ranks':>6}{'client peak MB':>16}{'Python peak MB':>16}{'ranks/s':>9}")
    peaks = {}
    for ranks in sizes:
        plain, traced = client(script, folder, ranks, 2), client(script, folder, ranks, 2, traced=True)
        peaks[ranks] = plain["peak_mb"]
        print(f"{ranks:>6}{plain['peak_mb']:>16.1f}{traced['python_mb']:>16.2f}{plain['ranks_per_s']:>9.1f}",
              flush=True)

    rates: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(given.repeats):
        for workers in (1, 2) if turn % 2 else (2, 1):
            rates[workers].append(client(script, folder, sizes[-1], workers)["ranks_per_s"])
    pairs = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    one, two = (statistics.median(rates[workers]) for workers in (1, 2))
    print(f"\n{sizes[-1]} ranks: {one:.1f} ranks/s with 1 worker, {two:.1f} with 2; load {os.getloadavg()[0]:.1f} at "
          f"the end; ratio of pairs {', '.join(f'{ratio:.2f}' for ratio in pairs)}\n")
    lines = [verdict(f"client's peak, {sizes[-1]} ÷ {sizes[0]} ranks", peaks[sizes[-1]] / peaks[sizes[0]], FLAT),
             verdict("throughput, 2 ÷ 1 workers", statistics.median(pairs), FASTER, at_most=False)]
    print("\n".join(lines))
    raise SystemExit(any(line.startswith("MISS") for line in lines))


if __name__ == "__main__":
    main()

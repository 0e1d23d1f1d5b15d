"""`xpu-triage diagnose` on a large trace, against its own floor, and how both grow.

    python benchmarks/bench_diagnose.py                      # a million events, five repeats, then the growth
    python benchmarks/bench_diagnose.py --events 100000 --sizes "" --repeats 3

The floor is igzip decompression plus a simdjson parse of the same bytes, each in its own process, in turn
with what is measured: a ratio of one run says something on any machine, a number of seconds only on the one
that took it. Needs the `bench` extra (pysimdjson). Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Summary, interleaved, machine, ratios, summary, verdict, warn_noise
from synthetic_trace import write

HERE = Path(__file__).resolve().parent
WALL_RATIO, PEAK_MB, EVENTS = 2.0, 350.0, 1_000_000
SIZES = "100000,300000,1000000,3000000"
EXPONENT = 1.1
"""Growth counts as linear up to this slope of log value over log events between the two largest sizes, where
fixed costs no longer flatten it."""

PARTS = {
    "diagnose": ["-m", "xpu_triage", "diagnose", "{file}", "--json"],
    "load": [
        "-c",
        "import sys; from pathlib import Path; from xpu_triage.evidence import kineto; "
        "print(len(kineto.read(Path(sys.argv[1]))))",
        "{file}",
    ],
}
"""What can be measured: the command end to end, or the reader alone."""


@dataclass(frozen=True)
class Line:
    """value = intercept + slope × (events ÷ 10⁶) by least squares, and the exponents of value over events.

    `worst` is the largest relative residual, `exponent` is over all sizes, `exponent_at_the_end` between the
    two largest.
    """

    intercept: float
    slope: float
    worst: float
    exponent: float
    exponent_at_the_end: float


def fit(events: Sequence[int], values: Sequence[float]) -> Line:
    """A straight line through the measures, weighted by 1/value² so that each size counts alike."""
    x, weight = [n / 1e6 for n in events], [1 / v**2 for v in values]
    total = sum(weight)
    mx = sum(w * a for w, a in zip(weight, x, strict=True)) / total
    my = sum(w * b for w, b in zip(weight, values, strict=True)) / total
    slope = sum(w * (a - mx) * (b - my) for w, a, b in zip(weight, x, values, strict=True)) / sum(
        w * (a - mx) ** 2 for w, a in zip(weight, x, strict=True)
    )
    intercept = my - slope * mx
    worst = max(abs(intercept + slope * a - b) / b for a, b in zip(x, values, strict=True))
    logs = [math.log(n) for n in events], [math.log(v) for v in values]
    end = [(log[-1] - log[-2]) for log in logs]
    return Line(intercept, slope, worst, statistics.linear_regression(*logs).slope, end[1] / end[0])


def command(part: str, file: Path) -> list[str]:
    return [sys.executable, *(word.format(file=file) for word in PARTS[part])]


def trace_of(events: int, folder: Path, seed: int) -> Path:
    """The synthetic file of that size, made once."""
    path = folder / f"synthetic-{events}-{seed}.json.gz"
    if not path.exists():
        partial = path.with_name(f"partial-{path.name}")
        write(partial, events, seed)
        partial.rename(path)
    return path


def against_floor(part: str, file: Path, repeats: int, log: Path) -> tuple[dict[str, Summary], float]:
    """(summary of each arm, median wall ratio of the pairs)."""
    floor = [sys.executable, str(HERE / "floor.py"), str(file)]
    arms = interleaved({part: command(part, file), "floor": floor}, repeats, log)
    ratio = statistics.median(ratios(arms[part], arms["floor"]))
    return {name: summary(samples) for name, samples in arms.items()}, ratio


def growth(part: str, files: Mapping[int, Path], repeats: int, log: Path) -> dict[int, Summary]:
    """Summary by number of events."""
    grown = {}
    for events, file in files.items():
        grown[events] = summary(interleaved({part: command(part, file)}, repeats, log)[part])
        print(row(part, events, grown[events]), flush=True)
    return grown


def row(name: str, events: int, s: Summary) -> str:
    return f"{name:<10}{events:>11,}{s.wall_s:>9.2f}{s.cpu_s:>9.2f}{s.peak_mb:>10.0f}{s.spread:>9.0%}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=EVENTS, help="events of the main comparison")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", default=SIZES, help="events of the growth series, by commas; empty: none")
    parser.add_argument("--part", choices=tuple(PARTS), default="diagnose")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "xpu-triage-bench")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    part = given.part
    given.folder.mkdir(parents=True, exist_ok=True)
    log = given.folder / "output.log"
    figures: dict[str, object] = {"machine": machine(), "part": part, "events": given.events}
    print(figures["machine"])

    arms, ratio = against_floor(part, trace_of(given.events, given.folder, given.seed), given.repeats, log)
    print(f"\n{'':<10}{'events':>11}{'wall s':>9}{'CPU s':>9}{'peak MB':>10}{'spread':>9}")
    for name, s in arms.items():
        print(row(name, given.events, s))
    own, floor = arms[part], arms["floor"]
    print(f"{part}: wall {ratio:.2f} × its floor (median of {given.repeats} pairs), "
          f"CPU {own.cpu_s / floor.cpu_s:.2f} ×, memory {own.peak_mb / floor.peak_mb:.2f} ×\n")
    lines = [verdict("wall ÷ floor", ratio, WALL_RATIO)]
    if given.events == EVENTS:
        lines.append(verdict("peak MB at a million events", own.peak_mb, PEAK_MB))
    figures |= {"ratio": ratio, "arms": {name: asdict(s) for name, s in arms.items()}}

    sizes = sorted(int(float(n)) for n in given.sizes.split(",") if n.strip())
    if len(sizes) > 1:
        files = {n: trace_of(n, given.folder, given.seed) for n in sizes}
        grown = growth(part, files, given.repeats, log)
        for what in ("wall_s", "cpu_s", "peak_mb"):
            values = [getattr(s, what) for s in grown.values()]
            line = fit(sizes, values)
            print(f"{what} = {line.intercept:.3g} + {line.slope:.3g} per million events, "
                  f"off by at most {line.worst:.0%}; exponent {line.exponent:.2f}, "
                  f"{line.exponent_at_the_end:.2f} at the end")
            if what != "wall_s":  # the time of a busy machine says little about growth
                lines.append(verdict(f"exponent of {what}", line.exponent_at_the_end, EXPONENT))
            figures[what] = {**asdict(line), "values": dict(zip(sizes, values, strict=True))}
    print("\n" + "\n".join(lines + warn_noise(arms)))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    raise SystemExit(any(line.startswith("MISS") for line in lines))


if __name__ == "__main__":
    main()

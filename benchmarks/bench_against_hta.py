"""`xpu-triage diagnose` against HolisticTraceAnalysis, on the same recorded trace, in one run.

    python -m venv /somewhere/hta && /somewhere/hta/bin/pip install HolisticTraceAnalysis
    python benchmarks/bench_against_hta.py TRACE.json.gz --hta-python /somewhere/hta/bin/python

HTA runs in a virtual environment of its own, so neither tool changes what the other imports. Measured are
whole processes, start to end, in turn. Exit code 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from measure import interleaved, machine, ratios, summary, verdict, warn_noise

HERE = Path(__file__).resolve().parent
FASTER, MEMORY = 10.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path, help="a recorded trace, .json or .json.gz")
    parser.add_argument(
        "--hta-python", type=Path, required=True, help="the python of a virtual environment with HTA"
    )
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if not given.trace.is_file():
        parser.error(f"{given.trace}: no such file")
    trace = str(given.trace.resolve())
    hta = [str(given.hta_python), str(HERE / "hta_analyses.py"), trace]
    commands = {
        "diagnose": [sys.executable, "-m", "xpu_triage", "diagnose", trace, "--json"],
        "HTA all": hta,
        "HTA few": [*hta, "few"],
    }
    print(f"{machine()}\n{given.trace.name}")
    with tempfile.TemporaryDirectory() as folder:
        arms = interleaved(commands, given.repeats, Path(folder) / "log")
    results = {name: summary(samples) for name, samples in arms.items()}
    print(f"\n{'':<10}{'wall s':>9}{'CPU s':>9}{'peak MB':>10}{'spread':>9}")
    for name, s in results.items():
        print(f"{name:<10}{s.wall_s:>9.2f}{s.cpu_s:>9.2f}{s.peak_mb:>10.0f}{s.spread:>9.0%}")
    print("\n" + "\n".join(x for x in arms["HTA all"][-1].output.splitlines() if x.startswith("hta ")))

    own = results["diagnose"]
    others = ("HTA all", "HTA few")
    faster = {name: statistics.median(ratios(arms[name], arms["diagnose"])) for name in others}
    lines = [
        verdict("times faster than all its analyses", faster["HTA all"], FASTER, at_most=False),
        verdict("share of its memory", own.peak_mb / results["HTA all"].peak_mb, MEMORY),
    ]
    print("\n" + "\n".join(lines + warn_noise(results)))
    cpu = {name: results[name].cpu_s / own.cpu_s for name in others}
    print(f"      in CPU time: {cpu['HTA all']:.1f} times less than all, {cpu['HTA few']:.1f} than the five")
    print(f"      for comparison: {faster['HTA few']:.1f} times faster than its five breakdowns alone, "
          f"{own.peak_mb / results['HTA few'].peak_mb:.2f} of their memory")
    raise SystemExit(any(line.startswith("MISS") for line in lines))


if __name__ == "__main__":
    main()

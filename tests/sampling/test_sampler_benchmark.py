"""The benchmark runs, compares both arms in every cell, and says which targets were missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_benchmark_prints_a_row_for_each_cell_and_a_verdict(root: Path):
    script = [sys.executable, str(root / "benchmarks" / "bench_sampler.py"), "--threads", "1", "--budget-s", "0"]
    done = subprocess.run([*script, "--vocab", "500", "--batch", "2"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("    500     2  ") for line in lines) == 4 * 3
    missed = sum("MISSED" in line for line in lines)
    assert lines[-1] == (f"{missed} missed" if missed else "every target met")
    assert done.returncode == bool(missed)
    assert sum(line.startswith(("  race", "  inverse")) for line in lines) == 5

"""The README shows what the command really prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_the_screen_in_the_readme_is_the_output_of_its_command(root: Path):
    """Up to the hypotheses; ends of lines aside. Where this fails, paste the new output."""
    shown = re.search(r"^```\n\$ xpu-triage (diagnose \S+)\n(.*?)^```$", (root / "README.md").read_text(), re.M | re.S)
    assert shown is not None
    command = [sys.executable, "-m", "xpu_triage", *shown[1].split()]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    printed = re.split(r"^hypotheses ─", done.stdout, maxsplit=1, flags=re.M)[0]
    assert shown[2].splitlines() == [line.rstrip() for line in printed.splitlines()]

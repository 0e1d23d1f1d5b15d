"""Make the baselines that ship again, on the lab's virtual clock, so that two runs give the same bytes.

    python tools/baselines.py            make all and store them
    python tools/baselines.py --check    make all, change nothing, say which differ (exit code 1)

The server is one on paper (`src/xpu_triage/lab/counted_server.py`): nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from xpu_triage.baseline import store
from xpu_triage.baseline.records import BenchRecord, Environment
from xpu_triage.errors import TriageError
from xpu_triage.roofline import config_json, devices

FOLDER = Path(__file__).parents[1] / "playbook" / "baselines" / "lost-graphs"
DEVICE = "H100 SXM"
REQUESTS = {1: 16, 8: 32, 32: 64}
"""Counted in a load, by concurrency."""
PROMPTS, OUTPUTS = (128, 2048, 8192), (64, 256)
BUILDS = {"before.json": ("image 41", True, 41), "after.json": ("image 42", False, 42)}
"""File: engine version, decodes replay graphs, seed."""


def recorded(name: str, folder: Path = FOLDER) -> list[BenchRecord]:
    """The runs of one file, made now. Raises `MissingExtra` without torch, which the lab's package needs."""
    from xpu_triage.lab.counted_server import Build, CountedServer

    shape, device = config_json.read(folder / "config.json"), devices.by_name(DEVICE)
    if device is None:
        raise TriageError(f"{DEVICE} is not in the table of peaks")
    version, graphs, seed = BUILDS[name]
    environment = Environment("paper/dense-4b", "xpu-triage lab", version, f"{device.name}, on paper")
    server = CountedServer(shape, device, Build(version, decode_graphs=graphs), environment, seed=seed)
    return [replace(server.record(concurrency, prompt, output, REQUESTS[concurrency]), source=name)
            for concurrency, prompt, output in product(REQUESTS, PROMPTS, OUTPUTS)]


def text_of(records: Sequence[BenchRecord]) -> str:
    """The bytes of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "baseline.json"
        store.save(path, records, recorded="on a virtual clock")
        return path.read_text(encoding="utf-8")


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(description="Make the baselines that ship again.")
    parser.add_argument("--check", action="store_true", help="change nothing, say which differ")
    check = parser.parse_args(arguments).check
    differing = 0
    for name in BUILDS:
        path = folder / name
        try:
            now = text_of(recorded(name, folder))
        except TriageError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return error.exit_code
        same = path.exists() and path.read_text(encoding="utf-8") == now
        differing += not same
        if not same and not check:
            path.write_text(now, encoding="utf-8")
        print(f"{name}: {'the same' if same else 'different' if check else 'stored'}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())

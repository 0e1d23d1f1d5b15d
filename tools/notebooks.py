"""Execute the notebooks again and store them so that two runs give the same bytes.

    python tools/notebooks.py            execute all in place
    python tools/notebooks.py --check    execute all, change nothing, say which differ (exit code 1)
    python tools/notebooks.py 00_triage  only those whose name starts so
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from xpu_triage.report import own_kernel

FOLDER = Path(__file__).parents[1] / "notebooks"
RECORDED = ("00_triage", "01_utilization", "02_step_time", "03_operator_bisection", "06_baseline")
"""Notebooks over recorded evidence: their outputs are the same everywhere."""
LAB = ("04_sampler_fix", "05_host_side_eligibility")
"""Notebooks that run the lab: they need torch, and with the same torch their outputs are the same, because the
lab's clock is counted. Others are not stored executed."""

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
CELL_TIMEOUT_S = 120


def executed(path: Path) -> Any:
    """The notebook with fresh outputs and without anything that changes between runs or machines."""
    notebook = nbformat.read(path, as_version=4)
    with own_kernel() as name:
        NotebookClient(notebook, kernel_name=name, timeout=CELL_TIMEOUT_S, record_timing=False,
                       resources={"metadata": {"path": str(path.parent)}}).execute()
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """Only what says something: kernel, tags, outputs, counts."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {})
    return notebook


def text_of(notebook: Any) -> str:
    """The bytes of the file."""
    return nbformat.writes(notebook, version=4) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute the notebooks again.")
    parser.add_argument("names", nargs="*", help="only notebooks whose name starts so")
    parser.add_argument("--check", action="store_true", help="change nothing, say which differ")
    args = parser.parse_args()
    different = 0
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem not in RECORDED + LAB or (args.names and not path.stem.startswith(tuple(args.names))):
            continue
        if path.stem in LAB and find_spec("torch") is None:
            print(f"{path.name}: left as it is, torch is not installed: pip install -e '.[lab]'")
            continue
        try:
            text = text_of(executed(path))
        except CellExecutionError as error:
            print(f"{path.name}: {error.ename}: {error.evalue}", file=sys.stderr)
            return 1
        same = text == path.read_text(encoding="utf-8")
        different += not same
        print(f"{path.name}: {'the same' if same else 'different' if args.check else 'stored'}")
        if not args.check:
            path.write_text(text, encoding="utf-8")
    return 1 if args.check and different else 0


if __name__ == "__main__":
    sys.exit(main())

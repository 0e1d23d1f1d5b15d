"""The notebooks that run the lab: stored executed, the same again, and one line where torch is missing.

Their form is that of all notebooks (`test_notebooks.py`).
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("04_sampler_fix", "05_host_side_eligibility")
PINNED = ("torch", "matplotlib")
SIZE_LIMIT = 1_500_000

each = pytest.mark.parametrize("name", NAMES)
with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the lab needs the extra `lab` (torch)"
)


def path_of(name: str) -> Path:
    return ROOT / "notebooks" / f"{name}.ipynb"


def code_cells(name: str):
    return [cell for cell in nbformat.read(path_of(name), as_version=4).cells if cell.cell_type == "code"]


def text_of(name: str) -> str:
    return "\n".join(
        str(output.data.get("text/plain", ""))
        for cell in code_cells(name)
        for output in cell.outputs
        if "data" in output
    )


@each
def test_every_code_cell_but_the_parameters_has_its_output_and_none_an_error(name):
    for cell in code_cells(name)[1:]:
        assert [output.output_type for output in cell.outputs] == ["execute_result"], cell.source
        assert cell.execution_count


@each
def test_stored_outputs_hold_nothing_of_the_machine_that_made_them(name):
    text = path_of(name).read_text(encoding="utf-8")
    words = re.sub(r'"image/png": "[^"]*"', "", text)  # four letters in a row mean nothing in a picture
    for private in (str(ROOT), os.path.expanduser("~") + "/", "/tmp", "site-packages"):
        assert private not in words
    notebook = json.loads(text)
    assert set(notebook["metadata"]) == {"kernelspec"}
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    assert len(text) < SIZE_LIMIT


@each
def test_cells_assert_what_they_show(name):
    assert sum("assert " in cell.source for cell in code_cells(name)) >= 8


@each
def test_only_cells_in_real_time_are_left_out_of_the_comparison_and_they_did_not_run(name):
    cells = [cell for cell in code_cells(name) if "nbval-ignore-output" in cell.metadata.get("tags", ())]
    assert len(cells) == 1
    assert "in_real_time(live" in cells[0].source
    assert "Not run here" in cells[0].outputs[0].data["text/plain"]


@each
def test_the_pictures_are_pictures(name):
    pictures = [
        output.data["image/png"]
        for cell in code_cells(name)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) >= 3
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def test_the_fallback_is_confirmed_repaired_and_its_ratio_called_a_recovery():
    text = text_of("04_sampler_fix")
    assert text.startswith("CONFIRMED  cpu-fallback")
    faulty, fixed, ratio = re.search(
        r"([\d,.]+) ms ÷ ([\d,.]+) ms = ([\d,.]+): a recovery ratio", text
    ).groups()
    number = [float(figure.replace(",", "")) for figure in (faulty, fixed, ratio)]
    assert number[0] / number[1] == pytest.approx(number[2], rel=1e-3)
    assert number[2] >= 20
    assert "no optimization gain" in text


def test_the_sweep_shows_why_low_concurrency_hides_it():
    """The rows of the table: batch, two steps, what is lost, the ratio."""
    rows = re.findall(
        r"^ *(\d+) +([\d,.]+) ms +([\d,.]+) ms +[\d,.]+ ms +([\d.]+) ", text_of("04_sampler_fix"), re.M
    )
    ratios = {int(batch): float(ratio) for batch, *_, ratio in rows}
    assert list(ratios) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert ratios[1] < 2 < 20 < ratios[256]
    assert sorted(ratios.values()) == list(ratios.values())


def test_the_condition_is_confirmed_counted_and_guarded():
    text = text_of("05_host_side_eligibility")
    assert text.startswith("CONFIRMED  implicit-sync")
    assert re.search(r"^the queue +together +9 +1$", text, re.M)
    assert re.search(r"^the dispatcher +together +9 +1$", text, re.M)
    assert "torch.all patched: 16 of 17 waits unnoticed" in text
    assert "assert_no_sync: 0 of 17 waits unnoticed, 0 false alarms" in text
    assert "The derived flag was wrong 0 times" in text


@with_torch
@each
def test_executing_again_gives_the_same_bytes(name):
    """With the versions that `constraints.txt` pins, which decide over kernels and over pixels."""
    for package in PINNED:
        if version(package).partition("+")[0] != pinned(package):
            pytest.skip(f"{package} is not the pinned {pinned(package)}")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import notebooks as tool
    finally:
        sys.path.remove(str(ROOT / "tools"))
    assert tool.text_of(tool.executed(path_of(name))) == path_of(name).read_text(encoding="utf-8")


def pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{package}=="))


def test_without_torch_the_lessons_are_refused_in_one_line_that_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from xpu_triage.errors import MissingExtra\n"
        "try:\n    from xpu_triage.notebook import lessons\n"
        "except MissingExtra as error:\n    print(*error._render_traceback_(), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == ("MissingExtra: torch is not installed. "
                           "pip install 'xpu-triage[lab]' (in a checkout: pip install -e '.[lab]')\n")
    assert done.stderr == ""


def test_the_other_notebooks_never_import_torch():
    code = "import sys, xpu_triage.notebook; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@with_torch
def test_papermill_with_a_wrong_parameter_name_is_refused_with_the_right_one(tmp_path):
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(path_of(NAMES[0])),
        "out.ipynb",
        "--no-progress-bar",
        "-p",
        "batc",
        "8",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0
    assert "unknown parameter 'batc'. Did you mean 'batch'?" in done.stderr

"""The notebooks themselves: their form, their stored outputs, and that these come out again."""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RECORDED = [path for path in NOTEBOOKS if path.stem.startswith(("00_", "01_", "02_", "03_"))]
MOST_LINES = 10
SIZE_LIMIT = 1_500_000

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
recorded = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)


def read(path: Path):
    return nbformat.read(path, as_version=4)


def code_cells(path: Path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def texts_of(outputs) -> str:
    return "\n".join(
        str(text) for output in outputs for key, text in output.get("data", {}).items() if key[:5] == "text/"
    )


def test_the_four_recorded_notebooks_are_there():
    assert [path.stem for path in RECORDED] == [
        "00_triage", "01_utilization", "02_step_time", "03_operator_bisection"]


@every
def test_cells_are_short_and_hold_no_code_that_belongs_in_the_package(path):
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= MOST_LINES
        kinds = {type(node) for node in ast.walk(ast.parse(cell.source))}
        assert not kinds & {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While}


@every
def test_the_first_screen_says_what_it_asks_how_long_it_takes_and_whether_it_is_safe(path):
    cells = read(path).cells
    first = cells[0].source
    assert first.startswith("# ")
    for word in ("**Question**", "**Takes**", "**Safe in production**"):
        assert word in first
    tags = [tag for cell in cells[:4] for tag in cell.metadata.get("tags", ())]
    assert "parameters" in tags
    assert "verdict" in tags


@every
def test_only_the_first_code_cell_declares_parameters_and_the_next_checks_them(path):
    parameters, following, *rest = code_cells(path)
    assert parameters.metadata["tags"] == ["parameters"]
    assert "show.check_parameters(globals())" in following.source
    assert not [cell for cell in rest if "parameters" in cell.metadata.get("tags", ())]


@every
def test_links_lead_to_files_that_exist(path):
    texts = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    texts += [html for cell in code_cells(path) for output in cell.outputs
              for html in re.findall(r'href="([^"]+)"', str(output.get("data", {}).get("text/html", "")))]
    targets = [
        target
        for text in texts
        for target in re.findall(r"\]\(([^)#]+)", text) or [text]
        if "/" in target or ".ipynb" in target
    ]
    targets = [target for target in targets if re.fullmatch(r"[\w./-]+", target)]
    assert targets
    for target in targets:
        assert (path.parent / target).exists(), target


@recorded
def test_every_code_cell_but_the_parameters_has_its_output_and_none_an_error(path):
    """A stripped notebook passes nbval: it has nothing to compare."""
    for cell in code_cells(path)[1:]:
        assert cell.outputs, cell.source
        assert {output.output_type for output in cell.outputs} <= {"execute_result", "display_data"}, cell.source
        assert cell.execution_count


@recorded
def test_stored_outputs_hold_nothing_of_the_machine_that_made_them(path):
    text = path.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert os.path.expanduser("~") + "/" not in text
    notebook = json.loads(text)
    assert set(notebook["metadata"]) == {"kernelspec"}
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    assert len(text) < SIZE_LIMIT


@recorded
def test_the_stored_verdict_is_that_of_the_incident(path):
    (cell,) = [cell for cell in code_cells(path) if "verdict" in cell.metadata.get("tags", ())]
    text = texts_of(cell.outputs)
    assert "CONFIRMED  cpu-fallback" in text
    assert "aten::exponential_" in text


def test_the_sheet_alone_is_at_most_probable_and_its_figures_are_held_against_each_other():
    text = "\n".join(texts_of(cell.outputs) for cell in code_cells(ROOT / "notebooks" / "02_step_time.ipynb"))
    assert "PROBABLE  cpu-fallback" in text
    assert "32 tokens/s × 4.89 s = 156.5 tokens a step, for 256 running requests." in text


def test_the_ratio_of_faulty_and_fixed_is_called_a_recovery():
    text = "\n".join(texts_of(cell.outputs) for cell in code_cells(ROOT / "notebooks" / "03_operator_bisection.ipynb"))
    assert re.search(r"ms ÷ .* ms = \d+\.\d+: a recovery ratio", text)


@pytest.mark.parametrize("name", ["00_triage", "01_utilization", "02_step_time", "03_operator_bisection"])
def test_executing_again_gives_the_same_bytes(name):
    """With the versions that `constraints.txt` pins; with another matplotlib the pictures may differ, the
    text not."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import notebooks as tool
    finally:
        sys.path.remove(str(ROOT / "tools"))
    path = ROOT / "notebooks" / f"{name}.ipynb"
    again, stored = tool.text_of(tool.executed(path)), path.read_text(encoding="utf-8")
    if version("matplotlib") == pinned("matplotlib"):
        assert again == stored
    else:
        assert without_pictures(again) == without_pictures(stored)


def pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{package}=="))


def without_pictures(text: str) -> str:
    return re.sub(r'"image/png": "[^"]*"', '"image/png": ""', text)


def test_the_pictures_are_pictures():
    for path in RECORDED:
        pictures = [output["data"]["image/png"] for cell in code_cells(path) for output in cell.outputs
                    if "image/png" in output.get("data", {})]
        assert pictures
        assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def papermill(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The plain papermill command, run in `folder`."""
    command = [sys.executable, "-m", "papermill", str(ROOT / "notebooks" / "00_triage.ipynb"), "out.ipynb",
               "--no-progress-bar", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_papermill_takes_a_relative_path_from_any_folder(tmp_path):
    from xpu_triage.notebook import incident

    (tmp_path / "mine.yaml").write_bytes(Path(incident("sheet.yaml")).read_bytes())
    done = papermill(tmp_path, "-p", "evidence", "mine.yaml")
    assert done.returncode == 0, done.stderr[-2000:]
    text = "\n".join(texts_of(cell.outputs) for cell in code_cells(tmp_path / "out.ipynb"))
    assert "PROBABLE  cpu-fallback" in text
    assert "mine.yaml" in text


def test_papermill_with_a_wrong_parameter_name_is_refused_with_the_right_one(tmp_path):
    done = papermill(tmp_path, "-p", "evidnce", "mine.yaml")
    assert done.returncode != 0
    assert "unknown parameter 'evidnce'. Did you mean 'evidence'?" in done.stderr
    (error,) = [output for cell in code_cells(tmp_path / "out.ipynb") for output in cell.outputs
                if output.output_type == "error"]
    assert len(error.traceback) == 1, "the refusal is one line in the saved notebook"


def test_papermill_with_evidence_that_is_not_there_stops_in_one_line(tmp_path):
    done = papermill(tmp_path, "-p", "evidence", "nowhere.json")
    assert done.returncode != 0
    (error,) = [output for cell in code_cells(tmp_path / "out.ipynb") for output in cell.outputs
                if output.output_type == "error"]
    assert len(error.traceback) == 1
    assert "nowhere.json" in error.traceback[0]


def test_make_test_compares_the_notebooks_strictly():
    """nbval without `--nbval-lax`, over the folder; the recorded notebooks carry no tag that turns it off."""
    recipe = (ROOT / "Makefile").read_text()
    assert re.search(r"pytest .*--nbval .*notebooks/0\[0-3\]", recipe), "recorded evidence: strictly"
    assert re.search(r"pytest .*--nbval-lax .*notebooks/0\[45\]", recipe), "lab: lax, with assertions in cells"
    for path in RECORDED:
        assert "nbval" not in path.read_text(encoding="utf-8")
    assert "nbval" in str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])

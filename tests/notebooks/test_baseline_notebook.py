"""The notebook on baselines: stored executed, the same again, and as its files say.

Its form is that of all notebooks (`test_notebooks.py`).
"""

from __future__ import annotations

import base64
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
PATH = ROOT / "notebooks" / "06_baseline.ipynb"
SIZE_LIMIT = 1_500_000


def code_cells(path: Path = PATH):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def text_of(path: Path = PATH) -> str:
    return "\n".join(str(output.get("data", {}).get("text/plain", "")) for cell in code_cells(path)
                     for output in cell.outputs)


def test_every_code_cell_but_the_parameters_has_its_output_and_none_an_error():
    for cell in code_cells()[1:]:
        assert [output.output_type for output in cell.outputs] == ["execute_result"], cell.source
        assert cell.execution_count


def test_stored_outputs_hold_nothing_of_the_machine_that_made_them():
    text = PATH.read_text(encoding="utf-8")
    words = re.sub(r'"image/png": "[^"]*"', "", text)
    for private in (str(ROOT), os.path.expanduser("~") + "/", "/tmp", "site-packages"):
        assert private not in words
    notebook = json.loads(text)
    assert set(notebook["metadata"]) == {"kernelspec"}
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    assert len(text) < SIZE_LIMIT
    assert "nbval" not in text


def test_the_pictures_are_pictures():
    pictures = [output.data["image/png"] for cell in code_cells() for output in cell.outputs
                if "image/png" in output.get("data", {})]
    assert len(pictures) == 7
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def test_the_stored_verdict_is_that_of_the_files():
    from xpu_triage.baseline import store
    from xpu_triage.baseline.compare import compare
    from xpu_triage.baseline.dimension import dimension

    folder = ROOT / "playbook" / "baselines" / "lost-graphs"
    found = dimension(compare(*(store.load(folder / name) for name in ("before.json", "after.json"))))
    assert text_of().startswith(f"{str(found.kind).upper()}\n{found.text}")


def test_the_stored_ratio_of_the_worst_load_is_that_of_its_median_times():
    """Per token of one request, 128 → 256 tokens: now ÷ before, from the files' own medians."""
    from xpu_triage.baseline import store

    folder = ROOT / "playbook" / "baselines" / "lost-graphs"
    before, now = (next(r.stat("tpot").p50 for r in store.load(folder / name).records
                        if (r.concurrency, r.prompt_tokens, r.output_tokens) == (1, 128, 256))
                   for name in ("before.json", "after.json"))
    stated = re.search(r"time per token, at worst \(concurrency 1, prompt 128, output 256\).*: × ([\d.]+)", text_of())
    assert stated is not None
    assert float(stated[1]) == pytest.approx(now / before, abs=0.02)


def test_it_says_that_nothing_was_measured():
    assert "counted on a virtual clock, not measured" in text_of()
    assert any("counted and not measured" in cell.source for cell in nbformat.read(PATH, as_version=4).cells)


def test_every_notebook_links_to_it():
    for path in sorted((ROOT / "notebooks").glob("0[0-5]*.ipynb")):
        assert "(06_baseline.ipynb)" in nbformat.read(path, as_version=4).cells[-1].source, path.stem


def test_executing_again_gives_the_same_bytes():
    """With the matplotlib that `constraints.txt` pins; with another the pictures may differ, the text not."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import notebooks as tool
    finally:
        sys.path.remove(str(ROOT / "tools"))
    assert PATH.stem in tool.RECORDED
    again, stored = tool.text_of(tool.executed(PATH)), PATH.read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    if f"matplotlib=={version('matplotlib')}" not in pins:
        again, stored = (re.sub(r'"image/png": "[^"]*"', '"image/png": ""', text) for text in (again, stored))
    assert again == stored


def papermill(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "papermill", str(PATH), "out.ipynb", "--no-progress-bar", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_papermill_takes_recordings_from_any_folder(tmp_path):
    source = ROOT / "playbook" / "baselines" / "lost-graphs" / "before.json"
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(source.read_bytes())
    done = papermill(tmp_path, "-p", "old", "a.json", "-p", "new", "b.json", "-p", "gbps", "1200")
    assert done.returncode == 0, done.stderr[-2000:]
    text = text_of(tmp_path / "out.ipynb")
    assert text.startswith("NO REGRESSION")
    assert "from b.json against a.json" in text
    assert "the model's config.json is not given" in text, "the shipped model is no other's"


def test_papermill_with_a_wrong_parameter_name_is_refused_with_the_right_one(tmp_path):
    done = papermill(tmp_path, "-p", "devise", "H100 SXM")
    assert done.returncode != 0
    assert "unknown parameter 'devise'. Did you mean 'device'?" in done.stderr

"""The report: whole or not at all, offline, and harmless. What a browser makes of it is tested in
tests/browser."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from xpu_triage import report
from xpu_triage.errors import MissingExtra, TriageError, UnusableInput
from xpu_triage.notebook import incident

HOSTILE = "<script>alert(1)</script>\x1b[31m$x$"


def executed(*outputs, cells=()):
    """A notebook as if it had run: a verdict cell with these outputs, then `cells`."""
    verdict = new_code_cell("show.verdict(d)", outputs=list(outputs), metadata={"tags": ["verdict"]})
    return new_notebook(cells=[verdict, *cells])


def shown(text, html="<p>card</p>"):
    return new_output("execute_result", {"text/plain": text, "text/html": html}, execution_count=1)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    out = report.write_report([incident("faulty.json.gz")], tmp_path_factory.mktemp("report") / "new" / "r.html")
    assert os.listdir(out.parent) == ["r.html"], "nothing lies beside it"
    return out.read_text(encoding="utf-8")


def test_the_report_of_the_incident_names_verdict_and_operator(page):
    assert "<title>xpu-triage: CONFIRMED cpu-fallback, " in page
    assert "aten::exponential_" in page
    assert page.count("<img ") >= 4


def test_it_holds_no_code_no_script_and_nothing_that_loads(page):
    assert "check_parameters" not in page
    assert "<script" not in page
    assert set(re.findall(r'(?:src|href|action|data|poster)="(?!data:)([^"]*)"', page)) == set()
    assert not re.search(r"@import|url\(", page)


def test_the_page_forbids_itself_every_request(page):
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page


def test_the_same_evidence_gives_the_same_page(page, tmp_path):
    again = report.write_report([incident("faulty.json.gz")], tmp_path / "again.html")
    assert again.read_text(encoding="utf-8") == page


def test_the_title_is_escaped_and_short():
    notebook = executed(shown(f"PROBABLE  x\n{HOSTILE * 40}"))
    title = report.page_title(notebook)
    assert len(title) <= 120
    assert "\x1b" not in title
    html = report.to_html(notebook)
    assert "<title>xpu-triage: PROBABLE x, &lt;script&gt;" in html
    assert "<script" not in html


def test_text_outputs_are_escaped_and_links_out_of_the_page_are_text():
    outputs = [new_output("stream", name="stdout", text=HOSTILE), new_output("stream", name="stderr", text=HOSTILE)]
    plain = new_output("display_data", {"text/plain": HOSTILE})
    link = new_markdown_cell("[there](other.ipynb) and [here](#top)")
    page = report.to_html(executed(*outputs, plain, cells=[link]))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 3
    assert "other.ipynb" not in page
    assert 'href="#top"' in page


def test_cells_meant_for_the_notebook_alone_stay_there():
    cell = new_markdown_cell("how to run me", metadata={"tags": ["only-in-notebook"]})
    assert "how to run me" not in report.to_html(executed(cells=[cell]))


def test_a_failing_notebook_leaves_nothing_behind(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("not a trace")
    out = tmp_path / "sub" / "r.html"
    with pytest.raises(TriageError, match="the triage notebook stopped"):
        report.write_report([str(bad)], out)
    assert sorted(os.listdir(tmp_path)) == ["bad.json"]


def test_an_old_report_stays_where_a_new_one_fails(tmp_path):
    out = tmp_path / "r.html"
    out.write_text("old")
    with pytest.raises(TriageError):
        report.write_report([str(tmp_path / "missing.json")], out)
    assert out.read_text() == "old"


def test_a_folder_or_a_forbidden_place_is_refused_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UnusableInput, match="is there and is no file"):
        report.write_report(["x"], tmp_path / "folder.html")
    monkeypatch.setattr(report, "execute", lambda evidence, **_: executed(shown("CONFIRMED")))
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableInput, match="cannot be written") as caught:
        report.write_report(["x"], tmp_path / "file" / "r.html")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("package", ["papermill", "nbconvert", "nbformat"])
def test_without_the_extra_its_name_is_said(package, monkeypatch, tmp_path):
    known = report.find_spec
    monkeypatch.setattr(report, "find_spec", lambda name: None if name == package else known(name))
    with pytest.raises(MissingExtra, match=rf"{package} is not installed.*\[report\]"):
        report.write_report(["x"], tmp_path / "r.html")


def test_a_notebook_without_the_parameter_is_refused(tmp_path, monkeypatch):
    (tmp_path / report.NOTEBOOK).write_text(nbformat.writes(new_notebook(cells=[new_code_cell("1")])))
    monkeypatch.setattr(report, "shipped", lambda name: tmp_path)
    with pytest.raises(TriageError, match="no parameter 'evidence'"):
        report.execute(["x"])


def test_the_kernel_is_this_interpreter_and_the_environment_is_put_back(monkeypatch):
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    with report.own_kernel() as name:
        folder = Path(os.environ["JUPYTER_PATH"])
        assert sys.executable in (folder / "kernels" / name / "kernel.json").read_text()
    assert "JUPYTER_PATH" not in os.environ
    assert not folder.exists()

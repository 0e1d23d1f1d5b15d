"""Notebook parameters: wrong names and types are refused, evidence is found."""

from __future__ import annotations

import pytest

from xpu_triage.errors import UnusableInput
from xpu_triage.notebook.parameters import check_names, check_parameters, incident, pieces

DECLARED = 'evidence: str = ""  # trace\nfixed: str = ""'


def ran(*cells: str) -> dict[str, object]:
    """A notebook's globals after it ran these cells: IPython keeps their source in `In`."""
    return {"In": ["", *cells]}


def test_the_declared_parameters_pass():
    check_parameters(ran(DECLARED))
    check_parameters(ran(DECLARED, '# Parameters\nevidence = "trace.json"\n'))
    check_parameters(ran(DECLARED, '# Parameters\nevidence = ["trace.json", "sheet.yaml"]\n'))


def test_a_wrong_name_is_refused_with_the_nearest_one():
    with pytest.raises(UnusableInput, match=r"unknown parameter 'evidenc'.*Did you mean 'evidence'"):
        check_parameters(ran(DECLARED, '# Parameters\nevidenc = "trace.json"\n'))


def test_a_name_like_no_other_is_refused_with_all_that_there_are():
    with pytest.raises(UnusableInput, match="Parameters here: evidence, fixed"):
        check_parameters(ran(DECLARED, "# Parameters\nzzz = 1\n"))


@pytest.mark.parametrize("value", ["1.5", "true", "None", "[1, 2]", "{}"])
def test_a_value_of_another_type_is_refused(value):
    source = f"# Parameters\nevidence = {value.replace('true', 'True')}\n"
    with pytest.raises(UnusableInput, match="parameter 'evidence'"):
        check_parameters(ran(DECLARED, source))


def test_what_papermill_took_for_a_number_is_still_text():
    """`papermill -p pid 4242` gives the number, and so does a path that is one."""
    check_parameters(ran("pid: str = ''\nseconds: float = 30.0", "# Parameters\npid = 4242\nseconds = 60\n"))
    assert pieces(4242) == ["4242"]


def test_a_flag_given_as_text_is_refused():
    """`papermill -p live no` gives the text "no", which is true."""
    with pytest.raises(UnusableInput, match="takes a bool"):
        check_names({"live": "no"}, {"live": False})


def test_cells_that_the_reader_adds_are_no_parameters():
    check_parameters(ran(DECLARED, "x = 3", "from xpu_triage import notebook as show"))


def test_an_error_in_a_notebook_is_one_line():
    with pytest.raises(UnusableInput) as caught:
        check_names({"a": 1}, {})
    (line,) = caught.value._render_traceback_()
    assert line.startswith("UnusableInput: unknown parameter 'a'")


def test_evidence_is_cut_at_semicolons_unless_it_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a;b.json").write_text("")
    assert pieces("a;b.json") == ["a;b.json"]
    assert pieces("a.json; b.yaml;") == ["a.json", "b.yaml"]
    assert pieces(["x y.json", " "]) == ["x y.json"]
    assert pieces("  ") == pieces([]) == []


def test_the_incident_ships():
    for name in ("faulty.json.gz", "fixed.json.gz", "sheet.yaml"):
        with open(incident(name), "rb") as file:
            assert file.read(1)

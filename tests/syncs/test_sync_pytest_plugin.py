"""The pytest plugin, in a pytest of its own: what fails, what passes, and what loading it costs."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

PLUGIN = "xpu_triage.syncs.pytest_plugin"

TESTS = """
import warnings
import pytest
import torch

X = torch.arange(3.0)

@pytest.fixture
def read_by_a_fixture():
    return X.tolist()

@pytest.mark.no_sync
def test_clean(read_by_a_fixture):
    assert (X + 1).shape == (3,)

@pytest.mark.no_sync
def test_reads():
    if X.any():
        pass

@pytest.mark.no_sync(allowed=1)
def test_one_is_allowed():
    X.tolist()

@pytest.mark.no_sync(allowed=1)
def test_two_are_not():
    X.tolist()
    X.sum().item()

@pytest.mark.no_sync
class TestAll:
    def test_in_a_class(self):
        bool(X.any())

@pytest.mark.no_sync
@pytest.mark.xfail(strict=True)
def test_may_be_expected():
    X.tolist()

def test_fixture(no_sync):
    X.tolist()
    with no_sync():
        X + 1
    with pytest.raises(AssertionError, match="X.sum"):
        with no_sync():
            X.sum().item()

def test_without_either():
    X.tolist()

@pytest.mark.no_sync
def test_a_failure_of_its_own():
    assert X.shape == (4,)
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", PLUGIN, "-p", "no:cacheprovider", *arguments]
    clean = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=clean, check=False)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> tuple[dict[str, str], str]:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "test_them.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    done = run_pytest(folder, "--strict-markers", "test_them.py")
    results = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASSED", "FAILED", "XFAIL", "ERROR"):
            results[rest.split(" - ")[0].rpartition("::")[2].strip()] = word
    return results, done.stdout


def test_the_marker_and_the_fixture_decide_as_they_say(outcome):
    results, text = outcome
    assert results == {
        "test_clean": "PASSED",
        "test_reads": "FAILED",
        "test_one_is_allowed": "PASSED",
        "test_two_are_not": "FAILED",
        "test_in_a_class": "FAILED",
        "test_may_be_expected": "XFAIL",
        "test_fixture": "PASSED",
        "test_without_either": "PASSED",
        "test_a_failure_of_its_own": "FAILED",
    }, text


def test_a_failure_shows_the_line_that_read(outcome):
    _, text = outcome
    assert "aten::item on cpu" in text
    assert "test_them.py:" in text
    assert "if X.any():" in text
    assert "assert X.shape == (4,)" in text, "a failure of the test itself is shown as ever"


def test_a_wrong_argument_of_the_marker_is_an_error(tmp_path):
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.no_sync(alowed=1)\ndef test(): pass\n")
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "alowed" in done.stdout


def test_loading_it_imports_no_torch(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test():\n    assert 'xpu_triage.syncs' in sys.modules\n"
        "    assert not {'torch', 'numpy', 'polars', 'xpu_triage.syncs.counter'} & set(sys.modules)\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def test_pytest_finds_it_by_the_entry_point(root):
    entry_points = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert entry_points == {"xpu_triage": PLUGIN}
    assert import_module(PLUGIN).no_sync

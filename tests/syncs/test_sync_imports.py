"""The package costs nothing until it is used, and says in one line what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import xpu_triage.syncs

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise {error}
sys.meta_path.insert(0, Hide())
import xpu_triage.syncs
try:
    xpu_triage.syncs.count_syncs
except Exception as error:
    print(type(error).__name__, error)
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_imports_no_torch():
    assert python("import xpu_triage.syncs, sys; print('torch' in sys.modules)") == "False"


def test_all_that_it_exports_is_there():
    for name in xpu_triage.syncs.__all__:
        assert getattr(xpu_triage.syncs, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'count'"):
        _ = xpu_triage.syncs.count


def test_without_torch_the_extra_is_named():
    said = python(HIDE.format(error="ModuleNotFoundError('No module', name='torch')"))
    assert said == ("MissingExtra torch is not installed. "
                    "pip install 'xpu-triage[lab]' (in a checkout: pip install -e '.[lab]')")


def test_with_torch_npu_and_no_cann_one_line_says_so():
    said = python(HIDE.format(error="RuntimeError('Failed to load the backend extension: torch_npu. libhccl.so')"))
    assert said.startswith("TriageError torch_npu is installed but cannot load")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in said
    assert "\n" not in said


def test_another_failure_of_torch_is_not_hidden():
    assert python(HIDE.format(error="RuntimeError('broken')")) == "RuntimeError broken"

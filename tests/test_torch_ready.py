"""Every part that needs torch says in one line why it cannot have it, wherever the import fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = {
    "sampling": "import xpu_triage.sampling",
    "lab": "import xpu_triage.lab",
    "syncs": "import xpu_triage.syncs; xpu_triage.syncs.count_syncs",
    "lessons": "import xpu_triage.notebook.lessons",
}
COMMAND = "from xpu_triage.cli import main; raise SystemExit(main(['lab', 'faults']))"
every_part = pytest.mark.parametrize("part", PARTS)


@pytest.fixture
def torch_npu_without_cann(tmp_path: Path) -> dict[str, str]:
    """An environment with a package that registers itself with torch as torch_npu does, and cannot load."""
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text(
        "def _autoload():\n    raise ImportError('libhccl.so: cannot open shared object file')\n"
    )
    info = tmp_path / "torch_npu-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return {"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": os.environ.get("HOME", "")}


def said(code: str, environment: dict[str, str] | None = None) -> list[str]:
    """What the exception of `code` says, line by line."""
    script = f"try:\n    {code}\nexcept Exception as error:\n    print(type(error).__name__, error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


def needs_torch() -> None:
    pytest.importorskip("torch", reason="without torch there is nothing that torch_npu could break")


@every_part
def test_without_torch_the_extra_is_named(part: str):
    (line,) = said(f"import sys; sys.modules['torch'] = None; {PARTS[part]}")
    assert line == ("MissingExtra torch is not installed. "
                    "pip install 'xpu-triage[lab]' (in a checkout: pip install -e '.[lab]')")


@every_part
def test_with_torch_npu_and_no_cann_one_line_says_so_and_what_to_do(part: str, torch_npu_without_cann):
    needs_torch()
    (line,) = said(PARTS[part], torch_npu_without_cann)
    assert line.startswith("TriageError torch_npu is installed but cannot load, and torch with it: CANN is not set up")
    assert line.endswith("or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to use torch without the NPU")


@every_part
def test_what_that_line_advises_works(part: str, torch_npu_without_cann):
    needs_torch()
    assert said(PARTS[part], torch_npu_without_cann | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) == []


@every_part
@pytest.mark.parametrize(
    "failure",
    ["RuntimeError('broken')", "ImportError('libgomp.so.1')", "ModuleNotFoundError('no sympy', name='sympy')"],
)
def test_another_failure_of_torch_is_not_taken_for_one_of_these(part: str, failure: str):
    hide = (
        "import sys; spec = lambda self, name, path=None, target=None: (_ for _ in ()).throw("
        f"{failure}) if name == 'torch' else None; sys.meta_path.insert(0, type('Hide', (), dict(find_spec=spec))())"
    )
    (line,) = said(f"{hide}; {PARTS[part]}")
    assert line.split()[0] == failure.partition("(")[0]
    assert "torch_npu" not in line


def test_the_command_ends_with_the_same_line_and_no_traceback(torch_npu_without_cann):
    needs_torch()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], capture_output=True, text=True, env=torch_npu_without_cann
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "CANN is not set up" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1

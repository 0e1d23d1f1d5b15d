"""The core runs on a serving box: importing it pulls in neither torch nor plots nor Jupyter."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "matplotlib", "IPython", "jupyter_core", "nbformat", "papermill", "polars", "rich")


def loaded_after(code: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) if done.stdout.strip() else set()


def test_the_walk_imports_nothing_heavy():
    assert loaded_after("import xpu_triage.diagnosis, xpu_triage.cli, xpu_triage.contract") == set()


def test_the_terminal_output_adds_rich_alone():
    assert loaded_after("import xpu_triage.render") == {"rich"}


def test_a_trace_alone_loads_neither_probes_nor_telemetry_nor_a_baseline_nor_the_terminal(root):
    """Half of the time of a small diagnosis is loading modules."""
    others = ("rich", "ssl", "httpx", "xpu_triage.live.watch", "xpu_triage.telemetry.serving",
              "xpu_triage.baseline.compare", "xpu_triage.redact", "xpu_triage.fleet.compare")
    trace = root / "playbook/incidents/p800-exponential-fallback/faulty.json.gz"
    code = f"import sys\nfrom xpu_triage.cli import main\ncode = main(['diagnose', {str(trace)!r}, '--json'])"
    done = subprocess.run([sys.executable, "-c", f"{code}\nprint(code, [m for m in {others!r} if m in sys.modules])"],
                          capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_plain_import_loads_no_module_of_the_walk():
    code = "import xpu_triage, sys\nassert 'numpy' not in sys.modules and 'xpu_triage.diagnosis' not in sys.modules"
    assert loaded_after(code) == set()


def test_the_two_public_names_are_what_they_say_before_and_after_the_module_is_loaded():
    import xpu_triage

    first = xpu_triage.diagnose
    from xpu_triage.diagnosis import Diagnosis, diagnose

    assert set(xpu_triage.__all__) == {"Diagnosis", "diagnose"}
    assert first is diagnose
    assert xpu_triage.diagnose is diagnose
    assert xpu_triage.Diagnosis is Diagnosis

"""The incident that ships is what the lab records now, and its pages state what the lab gives."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from xpu_triage import lab

SLUG = "p800-exponential-fallback"
AGAIN = "the source has moved on: `make incidents notebooks`, then the figures on the incident's pages"


@pytest.fixture(scope="module")
def tool(root: Path) -> ModuleType:
    """`tools/incidents.py`, which is no part of the package."""
    sys.path.insert(0, str(root / "tools"))
    try:
        import incidents
    finally:
        sys.path.remove(str(root / "tools"))
    return incidents


@pytest.fixture(scope="module")
def pinned_torch(root: Path) -> None:
    """Another torch may split an operator into other kernels."""
    pin = re.search(r"^torch==(\S+)$", (root / "constraints.txt").read_text(), re.M)
    assert pin is not None
    here = torch.__version__.partition("+")[0]
    if here != pin[1]:
        pytest.skip(f"the incident is recorded with torch {pin[1]}, here is {here}")


@pytest.mark.usefixtures("pinned_torch")
def test_the_traces_that_ship_are_byte_for_byte_what_the_lab_records(tool: ModuleType, root: Path):
    assert {r.path for r in tool.RECORDINGS} == {f"{SLUG}/faulty.json.gz", f"{SLUG}/fixed.json.gz"}
    for recording in tool.RECORDINGS:
        stored, now = (root / "playbook/incidents" / recording.path).read_bytes(), tool.recorded(recording)
        assert gzip.decompress(now) == gzip.decompress(stored), f"{recording.path}: {AGAIN}"
        assert now == stored, "the same trace, packed by another zlib"


def test_a_run_after_syncs_were_counted_in_the_process_is_the_same(tmp_path: Path):
    """The counter stays among the operators once it was used; its frames are none of the workload's."""
    script = (
        "import sys, pathlib\nfrom xpu_triage import lab\nfrom xpu_triage.syncs import count_syncs\n"
        "def record(name):\n"
        "    lab.run('item-per-step', batch=4, vocab=50, steps=2, out=pathlib.Path(sys.argv[1]) / name)\n"
        "record('before')\nwith count_syncs('dispatch') as syncs: record('counted')\n"
        "record('after')\nprint(len(syncs.rows))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) > 0
    before, after = ((tmp_path / name / "trace.json.gz").read_bytes() for name in ("before", "after"))
    assert after == before


def test_the_tool_stores_what_differs_and_with_check_only_says_so(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(tool, "recorded", lambda recording: gzip.compress(recording.fault.encode(), 9, mtime=0))
    paths = [tmp_path / recording.path for recording in tool.RECORDINGS]
    assert tool.main(["--check"], tmp_path) == 1
    assert not any(path.exists() for path in paths)
    assert tool.main([], tmp_path) == 0
    assert tool.main(["--check"], tmp_path) == 0
    content = gzip.decompress(paths[0].read_bytes())
    capsys.readouterr()
    for changed, said in (
        (gzip.compress(content, 9, mtime=1), "packed by another zlib"),
        (gzip.compress(b"other", 9, mtime=0), "different"),
        (paths[0].read_bytes()[:-4], "not a whole gzip file"),
    ):
        paths[0].write_bytes(changed)
        assert tool.main(["--check"], tmp_path) == 1
        assert paths[0].read_bytes() == changed
        first, second = capsys.readouterr().out.splitlines()
        assert said in first
        assert second.endswith(": the same")


@pytest.mark.usefixtures("pinned_torch")
def test_the_table_of_the_batches_is_what_the_lab_gives(root: Path, tmp_path: Path):
    page = (root / f"playbook/incidents/{SLUG}.md").read_text()
    table = re.findall(r"^\| \d+ \| .* ms \| .* × \| .*\|$", page, re.M)
    assert [row.split()[1] for row in table] == ["1", "8", "32", "128", "256"]
    for row in table:
        batch = int(row.split()[1])
        faulty, fixed = (
            lab.run("exponential-fallback", batch=batch, steps=3, out=tmp_path, repair=repair)
            for repair in (False, True)
        )
        assert row == (
            f"| {batch} | {faulty.stats.fallback_ns / 3e6:,.0f} ms | {faulty.step_ms:,.0f} ms "
            f"| {fixed.step_ms:.1f} ms | {faulty.step_ms / fixed.step_ms:.1f} × "
            f"| {100 * faulty.utilization_fraction:.0f} % | {faulty.tokens_per_s:.0f} |"
        ), AGAIN


def test_the_readme_names_every_figure_of_the_model_with_its_source(root: Path):
    readme = (root / f"playbook/incidents/{SLUG}/README.md").read_text()
    stated = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", readme, re.M)
    assert [f"{name} = {value}  ({source})" for name, value, source in stated] == lab.MODELS["p800"].described()

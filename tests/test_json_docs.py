"""docs/json.md names every field that the commands print: real output is walked, and what the page lacks is a
failure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet_job import written_job
from xpu_triage import contract, fingerprints
from xpu_triage.baseline.commands import load
from xpu_triage.baseline.compare import compare
from xpu_triage.baseline.dimension import dimension
from xpu_triage.baseline.figures import METRICS
from xpu_triage.baseline.tables import to_json as comparison_json
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.diagnosis import diagnose
from xpu_triage.fleet.contract import to_json as fleet_json
from xpu_triage.fleet.diagnosis import judge_ranks
from xpu_triage.fleet.inputs import find_ranks
from xpu_triage.fleet.summary import diagnose_rank
from xpu_triage.roofline import config_json, devices
from xpu_triage.roofline.commands import to_json as roofline_json
from xpu_triage.roofline.floors import Load
from xpu_triage.steps.results import CAUSES

IDS = {page.id for page in fingerprints.load()} | {"not enough evidence"}

NAMED_BY_WHAT_THEY_HOLD = {
    # path of a mapping whose keys are names out of the evidence → what they can be; None for any
    "signals": CATALOGUE, "unknown": CATALOGUE, "others[].signals": CATALOGUE, "ranks[].signals": CATALOGUE,
    "steps.devices[].idle_ms": {*map(str, CAUSES)}, "steps.list[].devices": None, "verdicts": IDS,
    "loads[].figures": None, "all_together": None,
}


def paths_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, key) of every field; the keys of a mapping in NAMED_BY_WHAT_THEY_HOLD are held against that instead."""
    if isinstance(value, list):
        for each in value:
            yield from paths_of(each, f"{path}[]")
        return
    if not isinstance(value, dict):
        return
    named = path in NAMED_BY_WHAT_THEY_HOLD
    allowed = NAMED_BY_WHAT_THEY_HOLD.get(path)
    for key, inner in value.items():
        below = f"{path}.{key}" if path else key
        if not named:
            yield below, key
        else:
            assert allowed is None or key in allowed, below
            below = f"{path}.*"
        yield from paths_of(inner, below)


def documented(root: Path, part: int) -> set[str]:
    """The words in backticks of one of the page's three parts."""
    text = re.split(r"^##? ", (root / "docs/json.md").read_text(encoding="utf-8"), flags=re.M)[part]
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", text))))


def undocumented(root: Path, part: int, *outputs: dict[str, Any]) -> list[str]:
    known = documented(root, part)
    return sorted({path for output in outputs for path, key in paths_of(json.loads(json.dumps(output)))
                   if key not in known})


def test_a_field_that_the_page_lacks_is_found(root: Path):
    """The check itself: it goes into lists and mappings, and leaves names out of the evidence alone."""
    output = {"schema": 1, "steps": {"list": [{"name": "a", "sheep": 1}]}, "signals": {"step.wall_ms": {"goat": 2}}}
    assert undocumented(root, 1, output) == ["signals.*.goat", "steps.list[].sheep"]
    with pytest.raises(AssertionError, match="no such signal"):
        list(paths_of({"signals": {"no such signal": {}}}))


def test_every_field_of_a_diagnosis_is_documented(root: Path, tmp_path: Path):
    shipped = root / "playbook/incidents/p800-exponential-fallback"
    sheet = tmp_path / "sheet.yaml"
    sheet.write_text("schema: 1\nsignals: {serving.running: 256, step.wall_ms: 4.89 s, "
                     "serving.decode_tokens_per_s: 32}\n")
    prom = tmp_path / "a.prom"
    prom.write_text("vllm:num_requests_running 3\n")
    told = [contract.to_json(diagnose(*map(str, evidence))) for evidence in (
        [shipped], [shipped / "faulty.json.gz", sheet], [sheet], [prom], [root / "playbook/baselines/lost-graphs"])]
    assert told[0]["others"], "two traces: one leads"
    assert told[1]["conflicts"], "the sheet says otherwise than the trace"
    assert any(each["contradictions"] for each in told)
    assert any(each["bisection"]["findings"] for each in told)
    assert undocumented(root, 1, *told) == []


def test_every_kind_of_evidence_is_documented(root: Path, tmp_path: Path):
    """Of a folder with a file that nobody can read and one of a model, and of a lab's results."""
    (tmp_path / "README.md").write_text("# nothing\n")
    (tmp_path / "config.json").write_text((root / "playbook/baselines/lost-graphs/config.json").read_text())
    (tmp_path / "load.json").write_text((root / "playbook/baselines/lost-graphs/after.json").read_text())
    (tmp_path / "a.prom").write_text("vllm:num_requests_running 3\n")
    (tmp_path / "step_trace_time.csv").write_text(
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n1,5,1,0,1,4,10\n")
    kinds = {record.kind.partition(":")[0].partition(" ")[0] for record in diagnose(str(tmp_path)).evidence}
    assert {"unknown", "model", "bench", "metrics", "step_trace_time.csv"} <= kinds
    page = (root / "docs/json.md").read_text(encoding="utf-8")
    assert [kind for kind in kinds if f"`{kind}" not in page] == []
    assert "`ascend-summary`" in page


def test_every_field_of_a_fleet_is_documented(root: Path, tmp_path: Path):
    pytest.importorskip("fsspec", reason="needs the fleet extra")
    written_job(tmp_path, 4, slower={2: 1.5}, fallback=(1,))
    (tmp_path / "rank3.json").write_text("nothing")
    found = judge_ranks([diagnose_rank(piece) for piece in find_ranks([str(tmp_path)]).pieces])
    told = fleet_json(found)
    assert told["ranks"]
    assert told["left_out"]
    assert told["collectives"]
    assert told["signals"]
    assert undocumented(root, 2, told) == []


def test_every_field_of_a_comparison_is_documented(root: Path):
    runs = root / "playbook/baselines/lost-graphs"
    comparison = compare(load(runs / "before.json"), load(runs / "after.json"))
    told = comparison_json(comparison, dimension(comparison))
    assert {metric for each in told["loads"] for metric in each["figures"]} >= set(METRICS)
    assert undocumented(root, 3, told) == []


def test_every_field_of_a_roofline_is_documented(root: Path):
    shape = config_json.read(root / "playbook/baselines/lost-graphs/config.json")
    device = devices.by_name("H100 SXM")
    assert device is not None
    told = roofline_json(shape, device, [Load(1, 4096.0)], [512.0], 12.0)
    assert told["decode"][0]["share"] == pytest.approx(told["decode"][0]["floor_ms"] / 12)
    assert undocumented(root, 4, told) == []

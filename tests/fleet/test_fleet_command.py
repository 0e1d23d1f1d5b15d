"""`xpu-triage fleet` as people and programs meet it. The ranks are diagnosed in this process: Dask has tests of its
own."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fleet_job import written_job
from xpu_triage.errors import TriageError, UnusableInput
from xpu_triage.fleet import commands, diagnosis
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import Piece, find_ranks
from xpu_triage.fleet.plot import ranks as ranks_picture
from xpu_triage.fleet.render import ordered, print_fleet
from xpu_triage.fleet.result import RankResult
from xpu_triage.fleet.summary import diagnose_rank

pytest.importorskip("fsspec", reason="needs the fleet extra")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_this_process(pieces: Sequence[Piece], **_: Any) -> list[RankResult]:
        return [diagnose_rank(piece) for piece in pieces]

    monkeypatch.setattr(diagnosis, "diagnose_all", in_this_process)


def run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return commands.run(parser.parse_args([*map(str, words)]))


def told(*evidence: str | Path) -> FleetDiagnosis:
    return judge_ranks([diagnose_rank(piece) for piece in find_ranks([*map(str, evidence)]).pieces])


def printed(found: FleetDiagnosis, limit: int = 20) -> str:
    out = io.StringIO()
    print_fleet(found, limit, Console(file=out, width=140, highlight=False))
    return out.getvalue()


def test_the_verdict_comes_first_then_the_ranks_that_stand_out_then_what_is_not_compared(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_job(tmp_path, 6, slower={4: 1.5})
    (tmp_path / "rank1.json").write_text("nothing")

    assert run(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert "PROBABLE" in lines[1]
    assert "straggler: rank 4 (kernel-bound)" in lines[1]
    rows = [line for line in lines if line[:1].isdigit()]
    assert [line.split()[0] for line in rows] == ["4", "0", "2", "3", "5"]
    assert "late" in rows[0]
    assert text.index("Not compared") > text.index(rows[-1])
    assert "rank1.json: text of no known kind" in " ".join(text.split())


def test_the_json_holds_every_rank_in_plain_numbers_and_unknown_is_null(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_job(tmp_path, 5, slower={3: 1.5})
    (tmp_path / "rank2.json").unlink()
    (tmp_path / "rank2.json").mkdir()

    assert run(tmp_path, "--json", "--limit", "1") == 0
    out = json.loads(capsys.readouterr().out)
    assert out["schema"] == 1
    assert out["verdict"]["rank"] == "rank 3"
    assert out["verdict"]["fingerprint"] == "kernel-bound"
    assert [rank["rank"] for rank in out["ranks"]] == [0, 1, 3, 4]
    assert [left["rank"] for left in out["left_out"]] == [2]
    assert out["signals"]["comm.min_us"]["value"] == pytest.approx(20, abs=0.01)
    assert out["signals"]["comm.min_us"]["unit"] == "us"
    assert set(out["signals"]) == {"comm.min_us", "comm.max_us", "comm.skew_ms", "comm.compute_spread_ratio"}
    assert out["missing"] == [[2, 2]]
    assert out["collectives"] == [{"group": "", "ranks": 4, "steps": 4, "matched": 12, "cost_is_bound": True,
                                   "cost_ms": pytest.approx(0.06, rel=1e-3), "skew_ms": pytest.approx(0.75, rel=1e-3)}]
    (alone,) = [rank for rank in out["ranks"] if rank["late"]]
    assert (alone["own_ratio"], alone["wait_ms"], alone["group"]) == (
        pytest.approx(1.48, abs=0.01), pytest.approx(0, abs=1e-3), None)


def test_the_table_is_as_long_as_asked_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    written_job(tmp_path, 12, slower={7: 1.5, 9: 1.4})
    found = told(tmp_path)

    assert [row.result.rank for row in ordered(found.comparison.rows)[:3]] == [7, 9, 0]
    assert "… and 10 more, none of which stands out" in printed(found, 2)
    assert "… and 11 more (--limit shows more, --json all)" in printed(found, 1)
    assert "more" not in printed(found, 12).split("ranks ─")[1].split("by themselves")[0]


def test_names_from_evidence_reach_the_terminal_as_text(tmp_path: Path) -> None:
    hostile = tmp_path / "rank1\x1b[31m[bold].json"
    written_job(tmp_path, 3)[1].rename(hostile)
    hostile.write_text("\x1b[2J")
    bad = printed(told(tmp_path))

    assert "\x1b" not in bad
    assert "\\x1b[31m[bold]" in bad


def test_the_picture_shows_all_ranks_is_the_same_each_time_and_replaces_no_other_file(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_job(tmp_path, 4, slower={2: 1.6})
    target = tmp_path / "ranks.png"

    assert run(tmp_path / "rank*.json", "--plot", target) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"plot: {target}")
    assert target.read_bytes().startswith(b"\x89PNG")
    picture = ranks_picture(told(tmp_path / "rank*.json"))
    assert picture.png == ranks_picture(told(tmp_path / "rank*.json")).png == target.read_bytes()
    assert (picture.title, picture.subtitle) == ("straggler: rank 2 (kernel-bound)", "ms a step, 4 of 4 ranks")
    notes = tmp_path / "notes.png"
    notes.write_text("mine")
    for path, why in ((notes, "exists and is no picture"), (tmp_path / "x.html", "written as PNG"),
                      (tmp_path / "no" / "x.png", "no folder")):
        with pytest.raises(UnusableInput, match=why):
            run(tmp_path / "rank*.json", "--plot", path)
    assert notes.read_text() == "mine"


def test_without_times_the_picture_says_why(tmp_path: Path) -> None:
    sheets = []
    for rank in range(3):
        sheets.append(tmp_path / f"rank{rank}.yaml")
        sheets[-1].write_text("schema: 1\nsignals:\n  clock.core_fraction: 0.9\n")
    found = told(*sheets)

    assert found.comparison.per == ""
    assert found.verdict.title == "Not shown to be ranks of one job"
    assert ranks_picture(found).title == "Ranks"
    assert found.exit_code == 3


@pytest.mark.parametrize(("words", "why"), [
    (["--workers", "0"], "--workers 0: at least 1"), (["--limit", "-1"], "--limit -1: at least 1"),
    (["--workers", "2", "--scheduler", "tcp://x:1"], "--workers is for a cluster of this machine")])
def test_options_without_sense_are_refused_before_any_work(tmp_path: Path, words: list[str], why: str) -> None:
    with pytest.raises(UnusableInput, match=why):
        run(tmp_path / "rank0.json", *words)


def test_where_no_rank_can_be_read_the_refusal_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TriageError, match=r"none of 2 pieces of evidence can be compared: .*no such file") as refused:
        run(tmp_path / "rank0.json", tmp_path / "rank1.json")
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


def test_offering_the_command_imports_neither_dask_nor_fsspec_nor_rich() -> None:
    code = ("import argparse, sys; from xpu_triage.fleet import commands; "
            "commands.add_arguments(argparse.ArgumentParser()); "
            "print([m for m in ('dask', 'distributed', 'fsspec', 'rich', 'numpy', 'matplotlib') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

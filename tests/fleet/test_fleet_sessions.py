"""Several captures of one rank: one session is compared, they are not mixed, and it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet_job import written_job
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import Piece, find_ranks
from xpu_triage.fleet.result import RankResult
from xpu_triage.fleet.sessions import LeftOut, one_session, session_of
from xpu_triage.fleet.summary import diagnose_rank

pytest.importorskip("fsspec", reason="needs the fleet extra")


def told(*evidence: str | Path) -> FleetDiagnosis:
    return judge_ranks([diagnose_rank(piece) for piece in find_ranks([*map(str, evidence)]).pieces])


def names(ranks: list[RankResult]) -> list[str]:
    return [one.label for one in ranks]


def captures(*labels: tuple[str, int | None]) -> tuple[list[RankResult], list[LeftOut], list[str]]:
    out: list[LeftOut] = []
    notes: list[str] = []
    return one_session([RankResult(label, rank=rank) for label, rank in labels], out, notes), out, notes


@pytest.mark.parametrize("glob", ["", "rank*"])
def test_two_sessions_in_one_folder_are_not_mixed_and_the_one_with_most_ranks_is_compared(
        tmp_path: Path, glob: str) -> None:
    written_job(tmp_path, 4, name="rank{}.1111.pt.trace.json", slower={3: 1.5})
    written_job(tmp_path, 4, name="rank{}.2222.pt.trace.json")
    (tmp_path / "rank3.1111.pt.trace.json").unlink()
    found = told(tmp_path / glob)

    assert {Path(row.result.label).name for row in found.comparison.rows} == {
        f"rank{rank}.2222.pt.trace.json" for rank in range(4)}
    assert len(found.comparison.left_out) == 3
    assert all("sessions are not mixed" in left.why for left in found.comparison.left_out)
    assert any("several captures of 3 of 4 ranks: only those of one session" in n for n in found.comparison.notes)
    assert found.verdict.id == "kernel-bound"           # the straggler is of the other session


def test_a_rank_that_has_only_the_other_session_is_left_out() -> None:
    kept, out, _ = captures(("rank0.1.json", 0), ("rank0.2.json", 0), ("rank1.1.json", 1), ("rank2.1.json", 2),
                            ("rank3.2.json", 3))

    assert names(kept) == ["rank0.1.json", "rank1.1.json", "rank2.1.json"]
    assert {left.label: left.why for left in out}["rank3.2.json"] == (
        "rank 3 of another session than the others: sessions are not mixed")


def test_a_copy_of_one_rank_is_left_out_beside_the_others() -> None:
    kept, out, _ = captures(("rank_0.json", 0), ("rank_1.json", 1), ("rank_1_copy.json", 1), ("rank_2.json", 2))

    assert names(kept) == ["rank_0.json", "rank_1.json", "rank_2.json"]
    assert [left.label for left in out] == ["rank_1_copy.json"]


def test_times_that_differ_a_little_between_ranks_are_taken_in_order_where_all_have_as_many() -> None:
    kept, out, notes = captures(("rank0.1001.json", 0), ("rank0.2001.json", 0), ("rank1.1002.json", 1),
                                ("rank1.2003.json", 1))

    assert names(kept) == ["rank0.1001.json", "rank1.1002.json"]
    assert len(out) == 2
    assert notes == ["several captures of 2 of 2 ranks, and names do not tell the sessions: the first of each is "
                     "compared"]


def test_where_nobody_can_tell_which_capture_goes_with_the_others_the_rank_is_not_compared() -> None:
    kept, out, notes = captures(("rank0.1001.json", 0), ("rank1.1002.json", 1), ("rank1.2003.json", 1),
                                ("rank2.1004.json", 2))

    assert names(kept) == ["rank0.1001.json", "rank2.1004.json"]
    assert {left.rank for left in out} == {1}
    assert "these ranks are not compared" in notes[0]


def test_ranks_that_come_once_are_left_alone_whatever_their_names() -> None:
    kept, out, notes = captures(("a.json", 0), ("b/rank1.7.json", 1), ("", None), ("x", None))

    assert (len(kept), out, notes) == (4, [], [])


@pytest.mark.parametrize(("label", "rank", "session"), [
    ("d/rank1_run1.json", 1, "d/#_run1.json"), ("d/rank_007.1.json", 7, "d/#.1.json"),
    ("dp0_pp0_tp1_dcp0_ep1_rank3.17.pt.trace.json.gz", 3, "#_#_#_#_#_#.17.pt.trace.json.gz"),
    ("17-TP-5-DP-0.trace.json.gz", 5, "17-#-#.trace.json.gz"), ("trace-3.33.json", 3, "trace-#.33.json"),
    ("trace-03.json", 3, "trace-#.json"), ("a.json, b.json", 1, "a.json"), ("", 1, "")])
def test_a_session_is_a_name_without_what_tells_the_rank(label: str, rank: int, session: str) -> None:
    assert session_of(label, rank) == session


def test_entries_of_one_rank_are_a_piece_a_capture_and_one_file_in_two_formats_is_one(tmp_path: Path) -> None:
    for name in ("rank0.a.json", "rank0.b.json", "rank0_smi.csv", "rank1.a.json", "rank1_smi.csv", "rank2.a.sqlite",
                 "rank2.a.nsys-rep"):
        (tmp_path / name).write_text("{}")
    found = find_ranks([str(tmp_path)])

    assert [(piece.rank, [Path(path).name for path in piece.paths]) for piece in found.pieces] == [
        (0, ["rank0.a.json"]), (0, ["rank0.b.json"]), (1, ["rank1.a.json", "rank1_smi.csv"]),
        (2, ["rank2.a.nsys-rep", "rank2.a.sqlite"])]
    assert any("belong to one capture of several and were not read (rank0_smi.csv)" in note for note in found.notes)


def test_two_traces_inside_one_ranks_folder_are_said(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
    for capture in ("a", "b"):
        for rank, path in enumerate(written_job(tmp_path, 2, name=f"{capture}{{}}.json")):
            path.rename(tmp_path / f"rank{rank}" / f"{capture}.json")
    found = judge_ranks([diagnose_rank(Piece(f"rank{rank}", (str(tmp_path / f"rank{rank}"),), rank))
                         for rank in range(2)])

    assert any(note.startswith("several traces in the evidence of one rank: rank 0, rank 1")
               for note in found.comparison.notes)

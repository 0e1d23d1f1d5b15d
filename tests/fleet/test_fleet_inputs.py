"""Which files are one rank's evidence, told by names alone, and how remote ones come here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_job import written_job
from xpu_triage.errors import MissingExtra, UnusableInput

pytest.importorskip("fsspec", reason="needs the fleet extra")

import fsspec  # type: ignore[import-untyped]

from xpu_triage.fleet import fetch, inputs
from xpu_triage.fleet.inputs import Piece, find_ranks, rank_of
from xpu_triage.fleet.summary import diagnose_rank


@pytest.mark.parametrize(("name", "rank"), [
    ("rank3.json", 3), ("rank_12_trace.json.gz", 12), ("trace-rank-007.json", 7), ("RANK 4", 4),
    ("dp0_pp0_tp1_dcp0_ep1_rank3.1767189312.pt.trace.json.gz", 3),
    ("1767189312.25-TP-5.trace.json.gz", 5), ("1767189312.25-TP-5-DP-0-PP-0-EP-0.trace.json.gz", 5),
    ("1767189312.25-TP-5-DP-1.trace.json.gz", None),    # which of the data-parallel ones holds how many is not said
    ("host_4242.1767189312.pt.trace.json", None), ("crank7.json", None), ("rankine8.json", None), ("rank.json", None),
    ("rank12345678.json", None), ("tp.json", None), ("HTTP-2.json", None), ("vllm-eager-tp8.json", None)])
def test_a_rank_is_read_off_a_name_only_where_the_name_states_it(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


@given(st.integers(0, 999_999), st.sampled_from(["rank{}.json", "x_rank-{}_y", "trace.rank_{}.json.gz", "Rank {}"]))
def test_any_number_after_the_word_rank_is_read(number: int, shape: str) -> None:
    assert rank_of(shape.format(number)) == number


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def found(*evidence: Any) -> list[tuple[int | None, list[str]]]:
    pieces = find_ranks([*map(str, evidence)]).pieces
    return [(piece.rank, [Path(path).name for path in piece.paths]) for piece in pieces]


def test_files_and_folders_that_are_named_are_a_rank_each(tmp_path: Path) -> None:
    made(tmp_path, "a/trace.json", "a/smi.csv", "b.json", "c_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json")

    assert found(tmp_path / "b.json", tmp_path / "a", tmp_path / "c_ascend_pt") == [
        (None, ["b.json"]), (None, ["a"]), (None, ["c_ascend_pt"])]


def test_a_folder_of_numbered_files_is_a_rank_for_each_number_in_order_of_numbers(tmp_path: Path) -> None:
    made(tmp_path, "rank10.json", "rank9.json", "rank9_smi.csv", "front.json", "README.md", ".hidden.json")

    assert found(tmp_path) == [(9, ["rank9.json", "rank9_smi.csv"]), (10, ["rank10.json"]), (None, ["front.json"])]
    (note,) = find_ranks([str(tmp_path)]).notes
    assert "1 files belong to no rank and were not read (README.md)" in note


def test_a_folder_of_folders_or_of_several_traces_is_several_ranks(tmp_path: Path) -> None:
    made(tmp_path / "runs", "n1_ascend_pt/x", "n2_ascend_pt/x", "notes.txt")
    made(tmp_path / "mixed", "n1_ascend_pt/x", "n2_ascend_pt/x", "trace_view.json")
    made(tmp_path / "flat", "host_1.2.pt.trace.json", "host_2.2.pt.trace.json")
    made(tmp_path / "nested/job", "node0/trace.json", "node1/trace.json")

    assert found(tmp_path / "runs") == [(None, ["n1_ascend_pt"]), (None, ["n2_ascend_pt"])]
    assert found(tmp_path / "mixed") == [
        (None, ["n1_ascend_pt"]), (None, ["n2_ascend_pt"]), (None, ["trace_view.json"])]
    assert found(tmp_path / "flat") == [(None, ["host_1.2.pt.trace.json"]), (None, ["host_2.2.pt.trace.json"])]
    assert found(tmp_path / "nested") == [(None, ["node0"]), (None, ["node1"])]


def test_a_folder_with_one_trace_and_what_lies_beside_it_is_one_rank(tmp_path: Path) -> None:
    made(tmp_path, "trace.json", "smi.csv", "logs/engine.log")

    assert found(tmp_path) == [(None, [tmp_path.name])]


def test_a_glob_names_a_rank_a_match_and_a_file_with_brackets_in_its_name_is_taken_as_it_is(tmp_path: Path) -> None:
    made(tmp_path, "rank2.json", "rank10.json", "other.txt", "rank[1].json")

    assert found(tmp_path / "rank?*.json") == [(2, ["rank2.json"]), (10, ["rank10.json"]), (None, ["rank[1].json"])]
    assert found(tmp_path / "rank[1].json") == [(None, ["rank[1].json"])]
    with pytest.raises(UnusableInput, match="matches nothing"):
        find_ranks([str(tmp_path / "*.sqlite")])


def test_what_is_named_twice_is_read_once_and_a_label_is_what_was_given(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "rank0.json", "rank1.json")
    monkeypatch.chdir(tmp_path)

    pieces = find_ranks(["rank1.json", ".", "rank*.json"]).pieces

    assert [piece.label for piece in pieces] == ["rank1.json", "rank0.json"]
    assert all(os.path.isabs(path) for piece in pieces for path in piece.paths)  # a worker has another folder


@pytest.mark.parametrize(("given", "why"), [
    ("ftp://host/rank0.json", "a URL of a kind that is not read"),
    ("simplecache::s3://bucket/x", "no such|a URL of a kind that is not read"),
    ("zip://x::s3://bucket/y.zip", "a URL of a kind that is not read"),
    ("github://org:repo@main/x", "a URL of a kind that is not read"), ("", "no path given")])
def test_urls_that_are_not_evidence_where_it_lies_are_refused(given: str, why: str) -> None:
    if given.startswith("simplecache"):  # no `://` in front: a path like any other, and no such file
        assert [piece.label for piece in find_ranks([given]).pieces] == [given]
    else:
        with pytest.raises(UnusableInput, match=why):
            find_ranks([given])


def test_nothing_named_and_more_than_can_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "rank0.json", "rank1.json", "rank2.json")
    monkeypatch.setattr(inputs, "MAX_RANKS", 2)

    with pytest.raises(UnusableInput, match="no evidence given"):
        find_ranks([])
    with pytest.raises(UnusableInput, match="more than 2 pieces"):
        find_ranks([str(tmp_path)])


def test_a_file_system_whose_package_is_missing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(*_: Any) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(importlib.import_module("fsspec.core"), "url_to_fs", no_package)

    with pytest.raises(UnusableInput, match=r"Install s3fs to access S3.*pip install 'fsspec\[s3\]'"):
        find_ranks(["s3://bucket/rank0.json"])


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtra, match=r"pip install 'xpu-triage\[fleet\]'"):
        find_ranks(["rank0.json"])


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    """A remote folder with the traces of three ranks, of a file system that has no local paths."""
    fs = fsspec.filesystem("memory")
    url = f"memory://{uuid4().hex}"
    for path in written_job(tmp_path, 3):
        fs.pipe_file(f"{url}/{path.name}", path.read_bytes())
        fs.pipe_file(f"{url}/deep/{path.stem}/run/{path.name}", path.read_bytes())
    yield url
    fs.rm(url, recursive=True)


def test_remote_ranks_are_listed_copied_diagnosed_and_called_by_their_urls(bucket: str, tmp_path: Path) -> None:
    pieces = find_ranks([f"{bucket}/rank*.json"]).pieces

    assert [piece.rank for piece in pieces] == [0, 1, 2]
    assert all(piece.paths[0].startswith("memory://") for piece in pieces)
    result = diagnose_rank(pieces[1])
    assert (result.error, result.rank, result.rank_from) == ("", 1, "trace")
    assert result.label == pieces[1].label
    assert result.signals()["step.count"].value == 4


def test_a_remote_folder_is_copied_with_what_is_below_it_and_the_copies_are_gone_afterwards(
        bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    piece = find_ranks([f"{bucket}/deep"]).pieces[2]
    before = set(tmp_path.iterdir())

    with fetch.fetched(piece) as here:
        (folder,) = here.paths
        assert [path.name for path in folder.rglob("*.json")] == ["rank2.json"]
        assert here.as_given(f"{folder}/x: no good") == f"{piece.paths[0]}/x: no good"
    assert set(tmp_path.iterdir()) == before
    assert diagnose_rank(piece).rank == 2


def test_remote_evidence_that_is_missing_or_too_large_is_the_ranks_own_refusal(
        bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such file or folder" in diagnose_rank(Piece("x", (f"{bucket}/rank9.json",), 9)).error
    monkeypatch.setattr(fetch, "MAX_BYTES", 10)
    result = diagnose_rank(Piece("x", (f"{bucket}/rank0.json",), 0))
    assert "more than one rank's evidence has" in result.error
    assert result.rank == 0

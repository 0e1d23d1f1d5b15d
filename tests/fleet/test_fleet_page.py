"""`xpu-triage fleet --report`: one page, whole or not at all, that asks nobody for anything."""

from __future__ import annotations

import argparse
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs the fleet extra")
pytest.importorskip("matplotlib", reason="needs the report extra")

from fleet_job import written_job
from xpu_triage.errors import MissingExtra, UnusableInput
from xpu_triage.fleet import commands, page
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import Piece, rank_of
from xpu_triage.fleet.summary import diagnose_rank


class Seen(HTMLParser):
    """Tags with their attributes, and the text of the table's cells by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        self._in_cell = tag == "td"

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False


def job(folder: Path, ranks: int = 6) -> list[Path]:
    return written_job(folder, ranks, slower={4: 1.5})


def told(*paths: Path) -> FleetDiagnosis:
    return judge_ranks([diagnose_rank(Piece(path.name, (str(path),), rank_of(path.name))) for path in paths])


def run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return commands.run(parser.parse_args([*map(str, words)]))


def test_the_page_has_verdict_picture_and_every_rank_and_loads_nothing(tmp_path: Path) -> None:
    text = page.page(told(*job(tmp_path)))
    seen = Seen(text)

    assert "straggler: rank 4 (kernel-bound)" in text
    assert [row[0] for row in seen.rows if row] == ["4", "0", "1", "2", "3", "5"]
    assert (seen.rows[1][6], seen.rows[1][7].split(", ")[0], seen.rows[1][8]) == (
        "kernel-bound (probable)", "late", "rank4.json")
    assert "shown to be of one job" in text
    assert "comm.skew_ms 0.75" in text
    (picture,) = [about["src"] for tag, about in seen.tags if tag == "img"]
    assert (picture or "").startswith("data:image/png;base64,iVBORw0KGgo")
    assert not {"script", "link", "iframe", "a"} & {tag for tag, _ in seen.tags}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text


def test_the_same_evidence_gives_the_same_page(tmp_path: Path) -> None:
    paths = job(tmp_path)

    assert page.page(told(*paths)) == page.page(told(*paths))


def test_names_from_evidence_are_text_in_it(tmp_path: Path) -> None:
    paths = job(tmp_path, 5)
    hostile = paths[3].rename(tmp_path / "rank3<script>alert('1')&\x1b[31m\".json")
    paths[3] = hostile
    text = page.page(told(*paths, tmp_path / "rank9<img src=x>.json"))

    assert "<script" not in text
    assert "<img src=x" not in text
    assert "\x1b" not in text
    assert "rank3&lt;script&gt;alert(&#x27;1&#x27;)&amp;\\x1b[31m&quot;.json" in text
    assert "rank9&lt;img src=x&gt;.json: no such file" in text


def test_files_that_are_not_of_one_job_have_a_page_that_says_so_with_their_own_verdicts(tmp_path: Path) -> None:
    first = written_job(tmp_path, 2, name="a{}.json")[0]
    second = written_job(tmp_path, 2, name="b{}.json", slower={0: 2.0, 1: 2.0})[0]
    text = page.page(told(first, second))

    assert "These are not ranks of one job" in text
    assert "look at:" not in text
    assert [row[6] for row in Seen(text).rows if row] == ["kernel-bound (probable)"] * 2


def test_a_table_of_very_many_ranks_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_ROWS", 2)
    text = page.page(told(*job(tmp_path)))

    assert len([row for row in Seen(text).rows if row]) == 2
    assert "4 more (--json has all)" in text


def test_the_command_writes_the_page_after_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path)
    target = tmp_path / "job.html"
    target.write_text("an older page")

    assert run(tmp_path / "rank*.json", "--report", target, "--workers", "1") == 0
    printed = capsys.readouterr().out
    assert printed.index("straggler: rank 4") < printed.index(f"report: {target}")
    assert "straggler: rank 4" in target.read_text()


def test_what_a_page_must_not_replace_is_refused_before_any_work(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = job(tmp_path)
    evidence = first.rename(tmp_path / "rank0.html")
    for path, why in ((tmp_path / "job.txt", "no name for a report"), (evidence, "is the evidence itself"),
                      (tmp_path / "no" / "job.html", "no folder to write it in")):
        with pytest.raises(UnusableInput, match=why):
            run(evidence, "--report", path)
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"xpu-triage\[report\]"):
        run(evidence, "--report", tmp_path / "job.html")

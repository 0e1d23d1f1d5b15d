"""The terminal: what a reader sees at 80 columns, counted right, not repeated, and not cut."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from synthetic_walks import diagnosis_of, fallback_walk, host_only_walk, verdict_of
from xpu_triage import fingerprints
from xpu_triage.contract import to_json
from xpu_triage.diagnosis import EvidenceRecord, diagnose
from xpu_triage.pipes import columns, wrapped
from xpu_triage.render import console, print_diagnosis, print_page
from xpu_triage.render_evidence import by_its_end, shared_folder
from xpu_triage.render_lines import folded
from xpu_triage.render_telemetry import lines
from xpu_triage.signals import Signal
from xpu_triage.verdict import Level

ONE_OF_MANY = re.compile(r"(?<![\d.,–×-])\b1 ([a-z]+(?:[^s ]s))\b")
"""A single thing in the plural: `1 readings`."""


def printed(found, width=80):
    out = io.StringIO()
    print_diagnosis(found, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def rendered(parts, width):
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def in_one_line(text):
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("width", [40, 80, 100])
def test_nothing_is_wider_than_the_terminal(width):
    assert max(map(len, printed(diagnosis_of(fallback_walk()), width).splitlines())) <= width


def test_steps_that_take_the_same_are_one_figure():
    assert "6 steps found by annotation, step[DECODE …]: each 100.00 ms" in in_one_line(
        printed(diagnosis_of(fallback_walk(6))))
    one = in_one_line(printed(diagnosis_of(host_only_walk())))
    assert "1 step found by annotation, ProfilerStep#…: 10.00 ms" in one
    assert "shortest" not in one


def test_steps_that_differ_have_three_figures():
    walk = fallback_walk(6)
    *others, last = walk.steps.steps
    longer = replace(walk.steps, steps=(*others, replace(last, end=last.end + 50_000_000)))
    assert "median 100.00 ms, shortest 100.00 ms, longest 150.00 ms" in in_one_line(
        printed(diagnosis_of(replace(walk, steps=longer, devices=()))))


def test_how_steps_were_found_is_said_once():
    walk = host_only_walk()
    by_anchor = replace(walk, steps=replace(walk.steps, method="anchor", detail="anchor: hipGraphLaunch × 40"))
    assert "found by anchor, hipGraphLaunch × 40:" in in_one_line(printed(diagnosis_of(by_anchor)))
    window = replace(walk, steps=replace(walk.steps, method="window", detail="no recurring mark"))
    assert "one window of 10.00 ms, the whole capture: no recurring mark" in in_one_line(printed(diagnosis_of(window)))


def test_without_a_verdict_the_box_says_so_once():
    verdict = verdict_of(Level.NOT_ENOUGH, title="Not enough evidence to name a cause")
    out = printed(diagnosis_of(host_only_walk(), verdict))
    assert out.casefold().count("not enough evidence") == 1


def test_a_share_says_of_what():
    verdict = verdict_of()
    queue = replace(verdict.hypotheses[0], share=0.8, share_of="the time to first token")
    assert "explains 80.0 % of the time to first token" in printed(
        diagnosis_of(host_only_walk(), replace(verdict, hypotheses=(queue,))))


def test_where_more_speaks_against_all_of_them_the_title_says_so():
    verdict = verdict_of(Level.NOT_ENOUGH)
    less = replace(verdict.hypotheses[0], score=-1.0)
    assert "against each speaks as much as for it" in in_one_line(
        printed(diagnosis_of(host_only_walk(), replace(verdict, hypotheses=(less,)))))


def test_a_long_list_is_folded_and_the_json_has_all_of_it():
    verdict = verdict_of()
    reasons = tuple(replace(verdict.hypotheses[0].for_[0], text=f"reason number {i}") for i in range(20))
    many = replace(verdict, hypotheses=(replace(verdict.hypotheses[0], for_=reasons),))
    found = diagnosis_of(host_only_walk(), many)
    found = replace(found, measured=replace(found.measured, notes=tuple(f"note number {i}" for i in range(20))))
    out = printed(found)
    assert len(re.findall("reason number", out)) == len(re.findall("note number", out)) == 6
    assert out.count("and 14 more (--json shows all)") == 2
    told = to_json(found)
    assert len(told["hypotheses"][0]["for"]) == 20
    assert set(told["notes"]) >= {f"note number {i}" for i in range(20)}


def test_one_line_more_is_shown_rather_than_announced():
    assert list(folded(["a", "b", "c"], 2)) == ["a", "b", "c"]
    assert list(folded(["a", "b", "c", "d"], 2)) == ["a", "b", "and 2 more (--json shows all)"]
    assert list(folded([], 2)) == []


FOLDER = "/data/of/a/run/whose/path/is/long"


def test_pieces_of_one_folder_are_named_from_there_and_those_not_used_together():
    records = [EvidenceRecord(f"{FOLDER}/out/trace_view.json", "ascend trace_view.json Level1", 10,
                              notes=("mind this",)),
               *(EvidenceRecord(f"{FOLDER}/out/{name}", "unknown", notes=("not used: text of no known kind",))
                 for name in ("a.csv", "b.csv"))]
    out = in_one_line(printed(diagnosis_of(host_only_walk(), evidence=records)))
    assert out.count(FOLDER) == 1
    assert f"in {FOLDER}/out: trace_view.json: ascend trace_view.json Level1, 10 events · mind this" in out
    assert "not used: text of no known kind (a.csv, b.csv)" in out
    assert " 0 events" not in out


def test_names_that_two_folders_share_keep_them():
    records = [EvidenceRecord(f"{FOLDER}/{rank}/a.csv", "unknown", notes=("not used: empty",)) for rank in (0, 1)]
    out = in_one_line(printed(diagnosis_of(host_only_walk(), evidence=records)))
    assert "not used: empty (0/a.csv, 1/a.csv)" in out


@pytest.mark.parametrize(("paths", "folder"), [
    ([f"{FOLDER}/a", f"{FOLDER}/b/c"], FOLDER), (["/a", "/b"], ""), (["a/b", "a/c"], "a"), (["a", "b"], ""),
    (["/a/b"], ""), (["/a/b", "a/b"], ""), ([], ""),
])
def test_the_folder_that_pieces_share(paths, folder):
    assert shared_folder(paths) == folder


def test_a_long_path_is_named_by_its_end():
    assert by_its_end(f"{FOLDER}/{'x' * 40}/run/out/a.json") == "…/run/out/a.json"
    assert by_its_end("a.json") == "a.json"
    assert by_its_end("x" * 90) == "x" * 90


def told(name, window, how="bench"):
    return Signal(name, 12.5, how, window, "somewhere")


def test_what_several_figures_cover_is_said_once():
    covers = "20 requests, 4 in flight, 64 → 32 tokens"
    shown = rendered(lines([told("latency.ttft_ms", f"{covers}: median"), told("latency.e2e_ms", f"{covers}: longest"),
                            told("latency.itl_ms", covers), told("step.wall_ms", "something else", how="log")]), 100)
    assert sum(covers in line for line in shown) == 1
    assert shown[0] == f"bench; {covers}"
    assert shown[1].split() == ["latency.ttft_ms", "12.5", "ms", "median"]
    assert shown[3].split() == ["latency.itl_ms", "12.5", "ms"]
    assert shown[4].endswith("log; something else")


def test_words_without_room_beside_their_figure_go_below_it():
    words = "median of the gaps between tokens as the engine itself counts them"
    wide = rendered(lines([told("serving.request_decode_tokens_per_s", words)]), 140)
    narrow = rendered(lines([told("serving.request_decode_tokens_per_s", words)]), 60)
    assert len(wide) == 1
    assert narrow[0].split() == ["serving.request_decode_tokens_per_s", "12.5", "tokens/s"]
    assert " ".join(" ".join(narrow[1:]).split()) == f"bench; {words}"


SINGLE = {
    "smi.csv": "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
               "2026/11/30 06:00:00.000, 0, 9 %, 2000 MiB, 81559 MiB\n",
    "a.prom": "# scraped 2026-11-30T06:00:00Z\nvllm:num_requests_running 1\nvllm:num_preemptions_total 1\n",
    "sheet.yaml": "schema: 1\nsignals: {step.wall_ms: 41}\n",
    "other.txt": "nothing of interest\n",
}


def test_one_of_a_thing_is_never_in_the_plural(tmp_path: Path):
    for name, text in SINGLE.items():
        (tmp_path / name).write_text(text)
    out = printed(diagnose(str(tmp_path)), 240)
    assert "smi: nvidia-smi --query-gpu, 1 reading" in out
    assert "1 preemption since the server started" in out
    assert "sheet, 1 figure" in out
    assert ONE_OF_MANY.findall(out) == []


def test_that_check_finds_the_plural_and_leaves_units_alone():
    assert ONE_OF_MANY.findall("1 readings, 21 requests, 0.1 tokens, 1 of 3, 1 ms, 1 s, 1 process") == ["readings"]


def test_two_values_of_one_signal_are_shown_alike_with_their_unit(tmp_path: Path):
    for name, figure in (("a.yaml", "4890"), ("b.yaml", "5.2 s")):
        (tmp_path / name).write_text(f"schema: 1\nsignals: {{step.wall_ms: {figure}}}\n")
    out = in_one_line(printed(diagnose(str(tmp_path)), 200))
    assert "step.wall_ms: 4,890 ms (" in out
    assert "is used, not 5,200 ms (" in out


CODE = re.compile(r"^( *)```\w*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", fingerprints.load(), ids=lambda page: page.id)
def test_code_of_a_page_stands_as_it_is_written_however_narrow_the_terminal(page):
    out = io.StringIO()
    print_page(page, Console(file=out, width=60, highlight=False))
    printed = out.getvalue().splitlines()
    blocks = CODE.findall(page.body)
    assert blocks
    for indent, code in blocks:
        for line in filter(str.strip, code.splitlines()):
            assert line.removeprefix(indent) in printed


def test_what_no_operator_is_to_blame_for_is_named_once():
    walk = fallback_walk(6)
    hidden = replace(walk.findings[0], about="hidden", name="device work that the capture lacks", path=(),
                     spread=False, step_without_ms=None, total_share=0.1)
    found = diagnosis_of(replace(walk, findings=(walk.findings[0], hidden)))
    assert "next: 10.0 % idle: work that the capture lacks (busy is a lower bound) " in in_one_line(
        printed(found)) + " "
    assert "device work that the capture lacks" not in in_one_line(printed(found))


@pytest.mark.parametrize(("asked", "width"), [
    ("80", 80), ("", 100), ("0", 100), ("-80", 100), ("eighty", 100), ("²", 100), ("9" * 30, 100)])
def test_where_there_is_no_terminal_columns_is_honoured_if_it_can_be(monkeypatch, asked, width):
    monkeypatch.setenv("COLUMNS", asked)
    assert columns(io.StringIO()) == width


def test_what_is_piped_has_no_spaces_at_its_ends(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_diagnosis(diagnosis_of(fallback_walk()), console())
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert max(map(len, lines)) == 60  # the rules and the box


def test_a_long_line_wraps_at_words_and_a_path_stays_whole():
    assert wrapped("  one two three", 9, indent=4) == "  one two\n    three"
    assert wrapped("in /a/path/that/is-longer", 9) == "in\n  /a/path/that/is-longer"

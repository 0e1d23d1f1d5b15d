"""What the notebook on baselines calls: which recordings, the card, the tables, and one recording alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from baseline_runs import ENVIRONMENT, Paper, summaries
from xpu_triage.baseline import store
from xpu_triage.errors import UnusableInput
from xpu_triage.notebook import baselines as show

GRID = ((1, 8), (128, 1024, 4096), (64,))
SHOWN = (show.verdict, show.reasons, show.recordings, show.ratios, show.stages, show.limit)
PICTURES = (show.heat_map, show.ratio_matrix, show.tail_matrix, show.roofline, show.ttft_fit)


@pytest.fixture(scope="module")
def shipped() -> show.Read:
    return show.read()


def saved(folder: Path, name: str, paper: Paper, seed: int, **environment: str) -> str:
    records = paper.baseline(seed, 40, GRID).records
    path = folder / name
    store.save(path, [replace(r, environment=replace(r.environment, **environment)) for r in records])
    return str(path)


def test_the_pair_that_ships_is_a_slower_decode(shipped):
    text = show.verdict(shipped).text
    assert text.startswith("DECODE\nTokens are slower: decode. It weighs less with more requests in flight: a fixed ")
    assert "time per token, at worst (concurrency 1, prompt 128, output 256)" in text
    assert "of what memory allows with 1 × 256 tokens, 79 % before: 42 %" in text
    assert "from playbook/baselines/lost-graphs/after.json against playbook/baselines/lost-graphs/before.json" in text


def test_the_worst_load_s_share_worked_by_hand(shipped):
    """Weights 7,228,882,944 bytes and 256 × 131,072 of KV: 7.2624 GB ÷ 3,350 GB/s = 2.168 ms; a step takes 5.2 now."""
    text = show.limit(shipped).text
    assert "now     1 × 256 tokens          7.26       2.17  memory" in text
    steps, _ = shipped.steps(shipped.now)
    step = next(s for s in steps if (s.batch, s.cell.prompt_tokens, s.cell.output_tokens) == (1, 128, 256))
    assert step.share == pytest.approx(2.168 / step.ms, rel=1e-3)


def test_the_ratios_list_what_is_sure_and_count_the_rest(shipped):
    text = show.ratios(shipped).text
    entries = shipped.comparison.entries
    rows = [line for line in text.splitlines() if line.startswith("concurrency")]
    assert len(rows) == show.MOST_RATIOS
    assert all(line.endswith(("worse", "better")) for line in rows)
    rest = text.replace("\n", " ").split("Not listed: ")[1].rstrip(".").split(", ")
    assert sum(int(part.split()[0]) for part in rest) + len(rows) == len(entries)


def test_a_tail_that_alone_is_worse_is_in_the_card_and_in_the_ratios(tmp_path):
    """A tenth of the first tokens 4 s later: 68 to some 4,070 ms."""
    for name, seed in (("a.json", 1), ("b.json", 2)):
        records = Paper().baseline(seed, 200, ((8,), (128,), (64,))).records
        if name == "b.json":
            records[0].requests.ttft_ms[::10] += 4000
        store.save(tmp_path / name, records)
    both = show.read(str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert show.verdict(both).text.startswith("THE TAIL")
    assert "time to first token, slowest tenth, at worst (concurrency 8, prompt 128, output 64)" in (
        show.verdict(both).text)
    assert "time to first token, slowest tenth" in show.ratios(both).text


def test_one_recording_is_looked_at_by_itself(tmp_path):
    alone = show.read(new=saved(tmp_path, "now.json", Paper(), 1))
    assert show.verdict(alone).text.startswith("ONE RECORDING\nNothing to compare with")
    assert "One recording" in show.ratios(alone).text
    assert show.ratio_matrix(alone).title == "Ratios now ÷ before"
    assert show.heat_map(alone).title.startswith("Time to first token: ")
    for what in (*SHOWN, *PICTURES):
        assert repr(what(alone))
    assert show.read(old=alone.now.source).now.source == alone.now.source, "old alone is the one that there is"


def test_own_recordings_never_get_the_shipped_model(tmp_path):
    mine = show.read(saved(tmp_path, "a.json", Paper(), 1), saved(tmp_path, "b.json", Paper(prefill=0.09), 2))
    assert mine.shape is None
    assert "config.json is not given" in show.limit(mine).text
    assert show.roofline(mine).title == "Decode steps against their floor"
    assert show.verdict(mine).text.startswith("PREFILL")


def test_a_device_is_taken_from_the_recording_and_its_peaks_from_the_table(tmp_path):
    config = show.path_of("config.json")
    path = saved(tmp_path, "a.json", Paper(), 1)
    assert show.read(path, config=config).device.gbps == 864, "L40S, as the recording says"
    unknown = show.read(saved(tmp_path, "b.json", Paper(), 1, device="Kunlun P800"), config=config)
    assert "no peak is known for Kunlun P800" in show.limit(unknown).text
    typed = show.read(path, config=config, gbps=1200, tflops=300, device="Kunlun P800")
    assert (typed.device.gbps, typed.device.tflops, typed.device.how) == (1200, 300, "typed")
    nameless = show.read(saved(tmp_path, "c.json", Paper(), 1, device=""), config=config)
    assert "the device is not named" in show.limit(nameless).text


def test_another_model_is_refused_in_one_line_unless_told(tmp_path):
    old, new = saved(tmp_path, "a.json", Paper(), 1), saved(tmp_path, "b.json", Paper(), 2, model="m/other-70b")
    with pytest.raises(UnusableInput, match=r"model m/model-8b and m/other-70b") as caught:
        show.read(old, new)
    assert len(caught.value._render_traceback_()) == 1
    assert any("compared all the same" in note for note in show.read(old, new, anyway=True).comparison.notes)


@pytest.mark.parametrize("more", [{"tp": 0}, {"tp": 5000}, {"gbps": -1.0}, {"tflops": float("inf")},
                                  {"gbps": float("nan")}])
def test_impossible_parameters_are_one_line(more):
    with pytest.raises(UnusableInput):
        show.read(**more)


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_what_is_no_recording_is_one_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnusableInput):
        show.read(name)


def test_summaries_without_single_requests_make_no_claim(tmp_path):
    for name, ms in (("a.json", 100.0), ("b.json", 300.0)):
        store.save(tmp_path / name, summaries(ms).records)
    both = show.read(str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert show.verdict(both).text.startswith("NO CLAIM")
    assert "Not listed: 1 unknown" in show.ratios(both).text


def test_hostile_names_are_text_everywhere(tmp_path):
    name = "<script>alert(1)</script>\x1b[31m"
    mine = show.read(saved(tmp_path, "a.json", Paper(), 1, model=name, device=name),
                     saved(tmp_path, "b.json", Paper(decode=14.0), 2, model=name, device=name),
                     config=show.path_of("config.json"), gbps=1000)
    for what in SHOWN:
        shown = what(mine)
        assert "<script" not in shown.html
        assert "\x1b" not in shown.html + shown.text
    for what in PICTURES:
        assert "\x1b" not in repr(what(mine))
    assert ENVIRONMENT.model not in show.recordings(mine).text


def test_everything_is_the_same_each_time(shipped):
    again = show.read()
    for what in SHOWN:
        assert what(shipped) == what(again)

"""The server on paper: its times are the arithmetic that it says, its scheduler the lab's, its baselines those that
ship."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from xpu_triage.baseline import store
from xpu_triage.baseline.compare import compare
from xpu_triage.baseline.dimension import Kind, dimension
from xpu_triage.baseline.records import BenchRecord, Environment
from xpu_triage.lab.counted_server import Build, CountedServer, Noise
from xpu_triage.roofline import config_json
from xpu_triage.roofline.devices import Device

QUIET = Noise(step=0.0, front=0.0, run=0.0, stalls_per_step=0.0)
CARD = Device("card", 1000.0, 100.0, "typed")
FOLDER = Path("playbook", "baselines", "lost-graphs")


@pytest.fixture(scope="module")
def tool(root: Path) -> ModuleType:
    """`tools/baselines.py`, which is no part of the package."""
    sys.path.insert(0, str(root / "tools"))
    try:
        import baselines
    finally:
        sys.path.remove(str(root / "tools"))
    return baselines


def served(root: Path, noise: Noise = QUIET, seed: int = 1, **build: float) -> CountedServer:
    shape = config_json.read(root / FOLDER / "config.json")
    return CountedServer(shape, CARD, replace(Build("b"), **build), Environment("m"), noise, seed=seed)


def run(root: Path, concurrency: int, prompt: int, output: int, requests: int = 8, **build: float) -> BenchRecord:
    return served(root, **build).record(concurrency, prompt, output, requests)


def test_a_token_of_one_request_worked_by_hand(root: Path):
    """7,228,882,944 bytes of weights and 131,072 a cached token. Token i of 64 behind a prompt of 128 reads 127 + i of
    them; the mean of those after the first is 159: 7.24972 GB ÷ (0.85 × 1,000 GB/s) = 8.529 ms, and 0.2 of scheduling.
    """
    record = run(root, 1, 128, 64)
    assert record.stat("tpot").p50 == pytest.approx(8.529 + 0.2, abs=0.005)


def test_without_graphs_a_step_is_the_longer_of_device_and_issuing(root: Path):
    """14 × 32 + 2 = 450 kernels. At 11 µs 4.95 ms are hidden behind the device's 8.53; at 40 µs the host takes 18."""
    plain = run(root, 1, 128, 64).stat("tpot").p50
    assert run(root, 1, 128, 64, decode_graphs=False).stat("tpot").p50 == plain
    slow = run(root, 1, 128, 64, decode_graphs=False, operator_us=40.0)
    assert slow.stat("tpot").p50 == pytest.approx(18.2, abs=0.01)


def test_the_first_token_worked_by_hand(root: Path):
    """2,000 tokens in one piece: 2 × 3,221,225,472 × 2,000 + 2 × 393,216,000 for the head + 2,001,000 pairs × 32
    layers × 2 × 24 heads × 256 = 12.8849 + 0.0008 + 0.7868 = 13.6725 TFLOP ÷ (0.6 × 100) = 227.9 ms; 0.2 of scheduling
    and 6 in front."""
    assert run(root, 1, 2000, 2).stat("ttft").p50 == pytest.approx(227.875 + 6.2, abs=0.02)


def test_a_prompt_of_an_eighth_has_a_sixty_fourth_of_the_square():
    from xpu_triage.roofline.floors import pairs

    assert pairs(4096) / pairs(512) == pytest.approx(64, rel=0.002)


def test_requests_beside_each_other_share_the_weights(root: Path):
    """Eight read the weights once: the step grows by their caches alone, 7 × 159 × 131,072 bytes = 0.17 ms."""
    one, eight = run(root, 1, 128, 64).stat("itl").p50, run(root, 8, 128, 64, 32).stat("itl").p50
    assert eight - one == pytest.approx(0.17, abs=0.06)


def test_all_connections_stay_busy_and_their_first_request_is_not_counted(root: Path):
    record = run(root, 4, 128, 64, 20)
    assert (record.completed, len(record.requests), record.concurrency) == (20, 20, 4.0)
    assert float(record.requests.e2e_ms.sum()) / 1000 / record.duration_s == pytest.approx(4, rel=0.1)


def test_one_seed_gives_the_same_figures_and_another_gives_others(root: Path):
    one, again, other = (served(root, Noise(), seed).record(2, 128, 16, 12).requests.e2e_ms for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_device_without_peaks_is_refused(root: Path):
    shape = config_json.read(root / FOLDER / "config.json")
    with pytest.raises(ValueError, match="both needed"):
        CountedServer(shape, Device("P800", None, None, ""), Build("b"), Environment(), seed=1)


# ---- what ships


@pytest.mark.parametrize("name", ["before.json", "after.json"])
def test_the_baselines_that_ship_are_byte_for_byte_what_the_tool_makes(tool: ModuleType, root: Path, name: str):
    assert tool.text_of(tool.recorded(name)) == (root / FOLDER / name).read_text(encoding="utf-8"), (
        "make them again: python tools/baselines.py, then make notebooks")


def test_they_are_small_and_say_that_nothing_was_measured(root: Path):
    files = [root / FOLDER / name for name in ("before.json", "after.json")]
    assert sum(path.stat().st_size for path in files) < 100_000
    for path in files:
        assert all("counted on a virtual clock, not measured" in r.notes for r in store.load(path).records)


def test_the_page_states_what_the_files_hold(root: Path):
    page = (root / FOLDER / "README.md").read_text(encoding="utf-8")
    stated = re.search(r"\| time per token of one request, 128 → 64 tokens \| ([\d.]+) ms \| ([\d.]+) ms \|", page)
    assert stated is not None
    for name, ms in zip(("before.json", "after.json"), stated.groups(), strict=True):
        record = next(r for r in store.load(root / FOLDER / name).records
                      if (r.concurrency, r.prompt_tokens, r.output_tokens) == (1, 128, 64))
        assert f"{record.stat('tpot').p50:.2f}" == ms
    assert f"{float(stated[2]) / float(stated[1]):.2f} is the way" in page
    assert "18 loads" in page
    assert len(store.load(root / FOLDER / "before.json").cells) == 18


def test_the_pair_is_a_slower_decode_with_a_fixed_cost(root: Path):
    found = dimension(compare(*(store.load(root / FOLDER / name) for name in ("before.json", "after.json"))))
    assert found.kind is Kind.DECODE
    assert "a fixed cost of each step" in found.text

"""Pictures of baselines: what they say, what is visibly no claim, that they are stable, and that names do no harm."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from baseline_runs import ENVIRONMENT, Paper, summaries
from model_configs import LLAMA_2_7B
from xpu_triage.baseline.compare import Comparison, State, compare
from xpu_triage.baseline.dimension import dimension
from xpu_triage.baseline.figures import METRICS, TAILS
from xpu_triage.baseline.limit import measured_steps
from xpu_triage.baseline.records import BenchRecord, Stat
from xpu_triage.baseline.store import Baseline, Cell, baseline
from xpu_triage.plots import baseline as maps
from xpu_triage.plots import canvas, load_grid
from xpu_triage.plots import limit as limits
from xpu_triage.roofline import config_json
from xpu_triage.roofline.devices import Device

GRID = ((1, 8), (128, 2048), (64, 256))
HOSTILE = "$\\frac{a}{\x1b[31m<script>alert(1)</script>\n" + "x" * 4000
LLAMA = config_json.shape_of(LLAMA_2_7B, "config.json")
CARD = Device("card", 3000.0, 1000.0, "typed", "typed")
LENGTHS = np.repeat([128.0, 1024.0, 4096.0], 20)


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB"))


def has_colour(picture, colour):
    rgb = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return bool((pixels(picture) == rgb).all(axis=2).any())


def run(value: float | None, concurrency: float | None = 1, prompt: float | None = 128, output: float | None = 64,
        rate: float | None = None) -> BenchRecord:
    return BenchRecord("file", "vllm bench serve", ENVIRONMENT, concurrency, rate, prompt, output,
                       {"ttft": Stat(p50=value), "tpot": Stat(p50=value)}, 10.0, 10, 0, value, 1.0)


@pytest.fixture(scope="module")
def slower() -> Comparison:
    return compare(Paper().baseline(1, 100, GRID), Paper(decode=14.0).baseline(2, 100, GRID))


def steps_of(paper: Paper, seed: int = 1):
    return measured_steps(paper.baseline(seed, 20, GRID).records, LLAMA, CARD)[0]


def curve(tokens: np.ndarray, seed: int = 0) -> np.ndarray:
    """20 ms + 10 ms per 1,000 tokens + 1 ms per (1,000 tokens)², with 2 % noise."""
    return (20 + tokens / 100 + (tokens / 1000) ** 2) * np.exp(np.random.default_rng(seed).normal(0, 0.02, len(tokens)))


# ---- heat maps


def test_a_heat_map_names_its_ends_and_where_they_are():
    """Medians as they are in the records: least and most of four loads."""
    kept = baseline([run(10.0), run(20.0, 8), run(40.0, prompt=2048), run(80.0, 8, 2048)])
    picture = maps.heat_map(kept, "ttft", "now")
    assert picture.title == "Time to first token now: 10 to 80 ms"
    assert "least at concurrency 1, prompt 128, output 64; most at concurrency 8, prompt 2,048" in picture.subtitle
    assert has_colour(picture, maps.LOW)
    assert has_colour(picture, maps.HIGH)


def test_repeats_of_a_load_are_one_box_with_their_median():
    kept = baseline([run(10.0), run(30.0), run(90.0)])
    assert maps.heat_map(kept).title == "Time to first token: 30 ms in every load"


def test_lengths_within_a_few_per_cent_share_a_row():
    cells = [Cell(1, None, prompt, 64) for prompt in (2040, 2048, 2060, 4096)]
    rows = load_grid.axis(cells, lambda c: (c.prompt_tokens,), lambda p: load_grid.length_label(p[0]), 10)
    assert rows.labels == ("2,040", "4,096")
    assert [rows.at[cell] for cell in cells] == [0, 0, 0, 1]


def test_of_too_many_loads_the_ends_are_kept_and_the_rest_is_counted():
    kept = baseline([run(10.0 + i, prompt=100 * 1.3 ** i) for i in range(15)])
    assert "5 loads not drawn" in maps.heat_map(kept).subtitle
    cells = [Cell(1, None, float(10 ** i), 64) for i in range(8)]
    rows = load_grid.axis(cells, lambda c: (c.prompt_tokens,), lambda p: f"{p[0]:.0f}", 3)
    assert (rows.labels[0], rows.labels[-1]) == ("1", "10000000")


def test_rates_and_unknown_lengths_have_names_of_their_own():
    assert load_grid.in_flight_label((None, 5.0)) == "5/s"
    assert load_grid.in_flight_label((None, None)) == "unknown"
    maps.heat_map(baseline([run(10.0, None, None, None, rate=5.0), run(12.0, None, None, None)]))


@pytest.mark.parametrize("value", [None, 0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("metric", METRICS)
def test_a_latency_that_nobody_measured_is_no_picture_and_says_so(value, metric):
    picture = maps.heat_map(baseline([run(value)]), metric)
    assert "by load" in picture.title


def test_an_unknown_metric_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match="ttft, itl, e2e, throughput"):
        maps.heat_map(baseline([run(1.0)]), "tftt")


# ---- the matrix


def test_the_matrix_says_the_dimension_and_how_many_ratios_allow_a_claim(slower):
    picture = maps.ratio_matrix(slower, dimension(slower))
    assert "decode" in picture.title
    for shown, metrics in ((picture, METRICS), (maps.tail_matrix(slower), TAILS)):
        entries = [entry for entry in slower.entries if entry.metric in metrics]
        claims = sum(entry.state in (State.WORSE, State.BETTER, State.SAME) for entry in entries)
        assert f"{claims} of {len(entries)} allow a claim" in shown.subtitle


def test_the_key_says_which_interval_grey_rests_on(slower):
    """A box shows the wide interval, of all at once."""
    same = {State.SAME}
    assert [text for line in maps._keys(same, "10 % slower") for *_, text in line] == [
        "not 10 % slower (its own 95 %)"]
    assert "all at once in 99 of 100" in maps.ratio_matrix(only(slower, State.SAME), dimension(slower)).subtitle


def test_the_matrix_of_the_slowest_tenth_names_the_worst_of_it():
    old, new = (Paper().baseline(seed, 100, ((8,), (128, 2048), (64,))) for seed in (1, 2))
    new.records[1].requests.ttft_ms[::10] += 4000
    picture = maps.tail_matrix(compare(old, new))
    assert picture.title.startswith("The slowest tenth of the requests: time to first token × ")
    assert picture.title.endswith("at concurrency 8, prompt 2,048, output 64")
    assert has_colour(picture, maps.WORSE[1])
    assert maps.tail_matrix(compare(old, old)).title.endswith("none is surely slower")


def test_without_enough_requests_for_a_tenth_there_is_no_matrix_of_it():
    few = compare(Paper().baseline(1, 40, GRID), Paper().baseline(2, 40, GRID))
    assert maps.tail_matrix(few).title == "The slowest tenth, new ÷ old"
    assert "slowest tenth of the requests: " in maps.tail_matrix(
        compare(Paper().baseline(1, 60, GRID), Paper().baseline(2, 60, GRID))).title


def only(comparison: Comparison, state: State) -> Comparison:
    return replace(comparison, entries=tuple(replace(entry, state=state) for entry in comparison.entries))


def test_only_what_is_sure_has_a_colour(slower):
    """The strongest colour is that of twice as long; the key at the foot shows it wherever there is a claim."""
    verdict = dimension(slower)
    for state, colour in ((State.WORSE, maps.WORSE[1]), (State.BETTER, maps.BETTER[1]), (State.SAME, maps.SURE_SAME)):
        assert has_colour(maps.ratio_matrix(only(slower, state), verdict), colour)
    for state in (State.UNCLEAR, State.UNKNOWN, State.CLIENT):
        spread = np.ptp(pixels(maps.ratio_matrix(only(slower, state), verdict)).astype(int), axis=2)
        assert spread.max() < 40, f"{state} is drawn without a hue"


def test_without_single_requests_there_is_a_ratio_and_no_claim():
    found = compare(summaries(100.0), summaries(250.0))
    picture = maps.ratio_matrix(found, dimension(found))
    assert f"0 of {len(found.entries)} allow a claim" in picture.subtitle
    assert not has_colour(picture, maps.WORSE[1])


def test_worse_and_better_are_apart_for_every_eye():
    spec = importlib.util.spec_from_file_location("eyes", Path(__file__).with_name("test_palette.py"))
    eyes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(eyes)
    for vision in eyes.VISION.values():
        for share in (0.3, 1.0):
            worse, better = (load_grid.between(*ends, share) for ends in (maps.WORSE, maps.BETTER))
            assert np.linalg.norm(eyes.lab(worse, vision) - eyes.lab(better, vision)) > eyes.APART


def test_figures_are_readable_on_every_face():
    """Contrast of WCAG 2, (L1 + 0.05) ÷ (L2 + 0.05). White and this ink give √(1.05 ÷ 0.063) = 4.1 at worst, on the
    face between them; 3 is asked of bold text."""
    def luminance(colour: str) -> float:
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for ends in (maps.WORSE, maps.BETTER, (maps.LOW, maps.HIGH), (maps.SURE_SAME, maps.SURE_SAME)):
        for share in np.linspace(0, 1, 21):
            face = load_grid.between(*ends, float(share))
            light, dark = sorted((luminance(face), luminance(load_grid.readable_on(face))), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3.9, (face, share)


# ---- the roofline


def test_the_roofline_says_the_farthest_and_the_nearest_step():
    """Llama 2 7B at 3,000 GB/s: one request reads 13.2 GB in 4.4 ms. Paper decodes in 8 to 10."""
    steps = steps_of(Paper())
    picture = limits.roofline(steps, limits.Hardware(LLAMA, CARD), steps_of(Paper(decode=6.0), 2))
    far, near = min(steps, key=lambda s: s.share), max(steps, key=lambda s: s.share)
    assert picture.title.startswith(f"Decode at {100 * far.share:.0f} % of what memory allows with ")
    assert f"at {100 * near.share:.0f} % with" in picture.title
    assert far.words in picture.subtitle


def test_one_step_alone_and_a_floor_by_arithmetic_are_drawn():
    """At 1 TFLOP/s one token of 6.6·10⁹ weights takes 13.2 ms, longer than 4.4 ms of reading."""
    slow = replace(CARD, tflops=1.0)
    one = measured_steps([run(20.0)], LLAMA, slow)[0]
    picture = limits.roofline(one, limits.Hardware(LLAMA, slow))
    assert picture.title == "Decode at 66 % of what arithmetic allows with 1 × 160 tokens"


def test_without_a_step_the_roofline_says_what_would_give_one():
    assert "against their floor" in limits.roofline((), limits.Hardware(LLAMA, CARD)).title


def test_many_lengths_are_few_series():
    records = [run(20.0, c, 100 * 2.0 ** i) for c in (1, 4) for i in range(9)]
    steps = measured_steps(records, LLAMA, CARD)[0]
    limits.roofline(steps, limits.Hardware(LLAMA, CARD))
    assert len(limits._series(steps, ())) == limits.MOST_SERIES


# ---- the first token


def test_the_fit_s_title_is_the_share_of_the_square():
    """At 4,096 tokens: 16.8 of 20 + 41.0 + 16.8 = 77.7 ms are the square, 21.6 %."""
    picture = limits.ttft_fit({"now": (LENGTHS, curve(LENGTHS))}, limits.Hardware(LLAMA, CARD))
    assert picture.title.startswith("At 4,096 tokens the square of attention is ")
    share = float(picture.title.split(" is ")[1].split(" %")[0])
    assert share == pytest.approx(21.6, abs=4)


def test_a_line_is_not_called_a_square():
    straight = (20 + LENGTHS / 100) * np.exp(np.random.default_rng(3).normal(0, 0.05, len(LENGTHS)))
    assert "a square cannot be told from noise" in limits.ttft_fit({"now": (LENGTHS, straight)}).title


def test_where_the_last_cannot_be_fitted_its_points_are_drawn_with_the_reason():
    two = np.array([128.0, 128.0, 4096.0, 4096.0] * 4)
    picture = limits.ttft_fit({"before": (LENGTHS, curve(LENGTHS)), "now": (two, curve(two))})
    assert picture.title.endswith("no fit")
    assert "prompts of 2 lengths" in picture.subtitle


@pytest.mark.parametrize("points", [{}, {"now": (np.zeros(0), np.zeros(0))},
                                    {"now": (np.array([np.nan, 5.0]), np.array([3.0, np.nan]))}])
def test_without_points_the_picture_says_so(points):
    assert limits.ttft_fit(points).title == "Time to first token over prompt length"


def test_zeros_and_unknown_times_are_left_out():
    times = curve(LENGTHS)
    times[:3] = [0.0, np.nan, -5.0]
    assert "57 prompts" in limits.ttft_fit({"now": (LENGTHS, times)}).subtitle


# ---- all of them


def every_picture(model: str = "m/model-8b") -> list[canvas.Picture]:
    def named(kept: Baseline) -> Baseline:
        of = replace(kept.environment, model=model)
        return baseline([replace(record, environment=of) for record in kept.records], source=model)

    found = compare(named(Paper().baseline(1, 20, GRID)), named(Paper(prefill=0.09).baseline(2, 20, GRID)))
    hardware = limits.Hardware(replace(LLAMA, name=model), replace(CARD, name=model))
    return [maps.heat_map(named(Paper().baseline(1, 20, GRID)), "ttft", model),
            maps.ratio_matrix(found, replace(dimension(found), text=f"{model}. {model}")),
            maps.tail_matrix(compare(named(Paper().baseline(1, 60, GRID)), named(Paper().baseline(2, 60, GRID)))),
            limits.roofline(steps_of(Paper()), hardware, steps_of(Paper(decode=4.0))),
            limits.ttft_fit({model: (LENGTHS, curve(LENGTHS))}, hardware, model)]


def test_every_picture_is_the_same_each_time_and_as_wide_as_the_others():
    for first, again in zip(every_picture(), every_picture(), strict=True):
        assert first.png == again.png
        assert pixels(first).shape[1] == canvas.WIDTH_IN * canvas.DPI


def test_no_words_touch_the_edge_of_the_paper():
    for picture in every_picture():
        assert (pixels(picture)[:, -8:] == 255).all(), picture.title
        assert (pixels(picture)[-4:] == 255).all(), picture.title


def test_hostile_names_are_drawn_as_text():
    for picture in every_picture(HOSTILE):
        assert "\x1b" not in picture.title + picture.subtitle
        assert "\n" not in picture.title + picture.subtitle


def test_matplotlib_is_imported_when_the_first_picture_is_drawn():
    code = ("import sys, xpu_triage.plots.baseline, xpu_triage.plots.limit, xpu_triage.notebook.baselines; "
            "sys.exit('matplotlib' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

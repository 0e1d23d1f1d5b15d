"""Every plot on every kind of diagnosis: what it says, that it is stable, and that names do no harm."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from synthetic_walks import (
    MS,
    Row,
    device_only_walk,
    diagnosis_of,
    fallback_walk,
    host_only_walk,
    renamed,
    trace_of,
)
from xpu_triage import plots
from xpu_triage.errors import MissingExtra
from xpu_triage.plots import canvas, device_lanes, palette
from xpu_triage.plots.device_lanes import chosen_step, paint
from xpu_triage.plots.series import MOST_BARS, typical, warm_up
from xpu_triage.signals import Signal
from xpu_triage.steps.results import Step, Steps
from xpu_triage.trace import Kind

ALL = (plots.lanes, plots.step_times, plots.utilization, plots.waterfall)
WALKS = {
    "fallback": fallback_walk,
    "host only": host_only_walk,
    "device only": device_only_walk,
    "no trace": lambda: None,
}


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB"))


def has_colour(picture, colour):
    rgb = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return bool((pixels(picture) == rgb).all(axis=2).any())


@pytest.mark.parametrize("plot", ALL)
@pytest.mark.parametrize("kind", WALKS)
def test_every_plot_draws_every_kind_of_evidence_the_same_each_time(plot, kind):
    diagnosis = diagnosis_of(WALKS[kind]())
    first = plot(diagnosis)
    assert pixels(first).shape[1] == canvas.WIDTH_IN * canvas.DPI
    assert plot(diagnosis).png == first.png


@pytest.mark.parametrize("wall_ms", [0.5, 48.72, 4860.46, 9999.99, 5_000_000, 86_400_000])
@pytest.mark.parametrize("count", [1, 10, 2000])
def test_no_words_beside_the_steps_touch_the_edge_of_the_paper(wall_ms, count):
    wall = round(wall_ms * 1e6)
    steps = tuple(Step("s", i * wall, (i + 1) * wall, "decode") for i in range(count))
    walk = fallback_walk(1)
    use = replace(walk.devices[0], busy=np.zeros(count, np.int64))
    drawn = plots.step_times(diagnosis_of(replace(walk, steps=Steps("annotation", "", steps), devices=(use,))))
    assert (pixels(drawn)[:, -8:] == 255).all()


def test_the_title_states_the_finding_in_words():
    diagnosis = diagnosis_of(fallback_walk())
    assert (
        plots.lanes(diagnosis).title
        == "Device idle 94.0 % of step 1 of 6 (decode): host runs aten::exponential_"
    )
    assert (
        plots.utilization(diagnosis).title == "Device idle 94.0 % of the window: host runs aten::exponential_"
    )
    assert plots.step_times(diagnosis).title == "6 decode steps, median 100.00 ms, device busy 6.0 %"
    assert plots.waterfall(diagnosis).title == "90.0 % of the step: aten::exponential_"
    assert "without it 9.00 ms" in plots.waterfall(diagnosis).subtitle


def test_a_device_that_works_is_called_busy():
    walk = device_only_walk()
    gapless = replace(walk.devices[0], gaps=replace(walk.devices[0].gaps, end=walk.devices[0].gaps.start))
    assert plots.utilization(diagnosis_of(replace(walk, devices=(gapless,)))).title.startswith(
        "Device busy 69.0 %"
    )


def test_the_idle_of_a_fallback_is_drawn_in_the_colour_of_host_work():
    diagnosis = diagnosis_of(fallback_walk())
    for plot in (plots.lanes, plots.utilization, plots.waterfall):
        assert has_colour(plot(diagnosis), palette.CAUSE_COLOURS["host_op"])
    assert not has_colour(plots.utilization(diagnosis), palette.CAUSE_COLOURS["peer_wait"])


@pytest.mark.parametrize("plot", ALL)
def test_without_a_trace_the_picture_says_so(plot):
    picture = plot(diagnosis_of(None))
    assert "[picture]" in repr(picture)
    assert picture.title


def test_without_device_work_no_utilization_is_drawn():
    assert plots.utilization(diagnosis_of(host_only_walk())).title == (
        "Utilization over time: no device work in this trace")


def test_a_sheet_gives_one_bar_of_what_it_tells_and_leaves_the_rest_open():
    signals = [
        Signal("device.busy_fraction", 0.46, "typed"),
        Signal("idle.launching_fraction", 0.47, "typed"),
    ]
    picture = plots.utilization(diagnosis_of(None, signals=signals))
    assert picture.title == "From the sheet: busy 46.0 %, launching 47.0 %"
    assert picture.subtitle == "7.0 % of the window is not given"


def test_a_reported_utilization_is_not_drawn_as_busy():
    picture = plots.utilization(
        diagnosis_of(None, signals=[Signal("device.utilization_fraction", 0.0, "typed")])
    )
    assert picture.title == "Utilization: not in this evidence"


def test_a_first_step_that_stands_out_is_set_apart_from_the_median():
    walk = fallback_walk(6)
    first = Step("warm", -900 * MS, 100 * MS, "decode")
    picture = plots.step_times(
        diagnosis_of(replace(walk, steps=replace(walk.steps, steps=(first, *walk.steps.steps[1:]))))
    )
    assert picture.title.startswith("6 decode steps, median 100.00 ms")
    assert "first step 1,000.00 ms, set apart as warm-up" in picture.subtitle


def test_a_first_step_of_another_kind_is_no_warm_up():
    """A long prefill before decodes is other work, not a cold start; and the median is that of the
    decodes."""
    walk = fallback_walk(6)
    first = Step("prefill", -900 * MS, 100 * MS, "prefill")
    steps = (first, *walk.steps.steps[1:])
    assert not warm_up(steps)
    assert warm_up((replace(first, phase="decode"), *steps[1:]))
    assert typical(steps) == (100.0 * MS, "5 decode steps")


def test_the_slowest_and_the_median_step_are_chosen_by_wall_time():
    walls = (5, 9, 1, 7, 3)
    steps, start = [], 0
    for wall in walls:
        steps.append(Step(f"s{wall}", start, start + wall))
        start += wall
    walk = replace(fallback_walk(1), steps=Steps("annotation", "", tuple(steps)))
    assert chosen_step(walk, "slowest").name == "s9"
    assert chosen_step(walk, "median").name == "s5"
    with pytest.raises(ValueError, match="'slowest' or 'median'"):
        chosen_step(walk, "fastest")


def test_a_column_is_painted_from_below_in_proportion():
    image = paint(np.array([[0.5, 0.25], [0.0, 1.0]]), ["#000000", "#ff0000"], 4)
    assert image[:, 0].tolist() == [[0, 0, 0], [0, 0, 0], [255, 0, 0], [255, 255, 255]]
    assert (image[:, 1] == [255, 0, 0]).all()


HOSTILE = "$\\frac{a}{\x1b[31m<script>alert(1)</script>\n" + "x" * 4000


@pytest.mark.parametrize("plot", ALL)
def test_hostile_names_are_drawn_as_text(plot):
    walk = renamed(fallback_walk(2, operator="evil"), "evil", HOSTILE)
    picture = plot(diagnosis_of(walk))
    assert "\x1b" not in picture.title + picture.subtitle
    assert "\n" not in picture.title
    assert len(picture.title) < 200


def test_a_dollar_sign_is_no_mathematics():
    """`$_$` as mathematics would be an error of matplotlib's parser."""
    plots.lanes(diagnosis_of(renamed(fallback_walk(1), "aten::exponential_", "$_{$")))


def test_a_hundred_thousand_events_are_few_artists(monkeypatch):
    """The lanes are images and the boxes one collection: the number of artists does not follow the events."""
    counts = []

    def count(title, subtitle, height, draw):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(canvas.WIDTH_IN, height))
        draw(figure)
        counts.append(len(figure.findobj()))
        return canvas.Picture(title, subtitle, b"")

    monkeypatch.setattr(device_lanes, "picture", count)
    for events in (100, 50_000):
        rows = []
        for i in range(events):
            rows.append(Row(i * 2000, 900, f"op {i % 50}", Kind.HOST_OP, thread=0))
            rows.append(Row(i * 2000 + 500, 700, "kernel", Kind.KERNEL, device=0, launch=2 * i))
        walk = fallback_walk(1)
        trace = trace_of(rows)
        steps = Steps("window", "", (Step("capture", 0, events * 2000),))
        plots.lanes(diagnosis_of(replace(walk, trace=trace, steps=steps)))
    assert counts[1] <= counts[0] + 200


def test_many_steps_share_bars():
    walk = fallback_walk(1)
    steps = tuple(Step("s", i * MS, (i + 1) * MS) for i in range(5 * MOST_BARS))
    use = replace(walk.devices[0], busy=np.full(len(steps), MS // 2, dtype=np.int64))
    picture = plots.step_times(
        diagnosis_of(replace(walk, steps=Steps("annotation", "", steps), devices=(use,)))
    )
    assert picture.title == f"{5 * MOST_BARS:,} steps, median 1.00 ms, device busy 50.0 %"


def test_a_users_matplotlib_settings_change_nothing(monkeypatch):
    import matplotlib as mpl

    before = plots.waterfall(diagnosis_of(fallback_walk(1))).png
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "text.usetex": True}):
        assert plots.waterfall(diagnosis_of(fallback_walk(1))).png == before


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"xpu-triage\[report\]"):
        plots.lanes(diagnosis_of(fallback_walk(1)))


def test_matplotlib_is_imported_when_the_first_plot_is_drawn():
    code = "import sys, xpu_triage.plots, xpu_triage.notebook; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

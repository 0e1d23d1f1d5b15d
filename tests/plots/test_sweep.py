"""The batch sweep: what it says, and that it can be drawn for whatever was swept."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from xpu_triage.plots import palette
from xpu_triage.plots.sweep import SweepPoint, batch_sweep, ticks_between
from xpu_triage.steps.results import Cause

GROWS = [
    SweepPoint(1, 65.2, 46.5, 0.80, 0.99),
    SweepPoint(16, 347.0, 46.5, 0.15, 0.99),
    SweepPoint(256, 4860.0, 48.8, 0.01, 0.99),
]
PEAKS = [
    SweepPoint(1, 2.6, 2.3, 0.71, 0.81),
    SweepPoint(8, 5.3, 2.6, 0.41, 0.79),
    SweepPoint(256, 6.5, 4.5, 0.63, 0.88),
]


def draw(points, cause=Cause.HOST_OP):
    return batch_sweep(points, cause=cause, of="a model")


def test_the_title_tells_the_ratio_at_both_ends():
    """65.2 ÷ 46.5 = 1.4; 4,860 ÷ 48.8 = 99.6."""
    assert draw(GROWS).title == "The fault makes a step 1.4 times as long at batch 1, 100 at batch 256"
    assert draw(GROWS).subtitle == "a model"


def test_the_title_tells_the_highest_ratio_where_it_lies_between():
    assert (
        draw(PEAKS).title
        == "The fault makes a step 1.1 times as long at batch 1, 2.0 at batch 8, 1.4 at batch 256"
    )


def test_one_batch_size_is_told_once_and_none_says_so():
    assert draw(GROWS[:1]).title == "The fault makes a step 1.4 times as long at batch 1"
    assert "No batch size was run" not in draw(GROWS[:1]).title
    assert draw([]).title == "Batch sweep"


@pytest.mark.parametrize("cause", list(Cause))
def test_the_fault_has_the_colour_of_its_cause_and_the_picture_is_the_same_each_time(cause):
    picture = draw(PEAKS, cause)
    assert picture.png == draw(PEAKS, cause).png
    image = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).reshape(-1, 3)
    colours = [palette.CAUSE_COLOURS[cause], palette.BUSY_COLOURS["compute"]]
    for colour in colours:
        rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (image == rgb).all(axis=1).any()


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.5, 12, [2, 5, 10]),
        (24, 8300, [50, 100, 200, 500, 1000, 2000, 5000]),
        (0.9, 12_000, [1, 10, 100, 1000, 10_000]),
        (0.03, 0.3, [0.05, 0.1, 0.2]),
    ],
)
def test_ticks_are_round_numbers_inside_the_axis(low, high, ticks):
    assert ticks_between(low, high) == pytest.approx(ticks)


def test_a_fault_that_costs_nothing_can_be_drawn():
    assert draw([SweepPoint(1, 2.0, 2.0, 0.0, 0.0), SweepPoint(2, 2.0, 2.0, 0.0, 0.0)]).png

"""The colours: one a cause, and all of them apart for every kind of eye."""

from __future__ import annotations

import itertools

import numpy as np

from xpu_triage.plots import palette
from xpu_triage.steps.results import CAUSES

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "full": np.eye(3),
    "without red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                             [-0.003882, -0.048116, 1.051998]]),
    "without green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                               [-0.011820, 0.042940, 0.968881]]),
    "without blue": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                              [0.004733, 0.691367, 0.303900]]),
}
APART = 20.0
"""Distance in CIE L*a*b* (1976). About 2 is just visible side by side; 20 is told apart across a legend."""


def lab(colour: str, vision: np.ndarray) -> np.ndarray:
    """L*a*b* of a hex colour as an eye with this vision has it (D65)."""
    srgb = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = to_xyz @ np.clip(vision @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def test_every_cause_and_kind_of_work_has_a_colour_of_its_own_and_words():
    assert set(palette.PARTS) == set(palette.PART_COLOURS) == set(palette.PART_WORDS)
    assert len(set(palette.PART_COLOURS.values())) == len(palette.PARTS) == 3 + len(CAUSES)


def test_every_two_colours_stay_apart_for_full_vision_and_each_colour_blindness():
    for vision in VISION.values():
        seen = {part: lab(colour, vision) for part, colour in palette.PART_COLOURS.items()}
        for one, other in itertools.combinations(seen, 2):
            assert np.linalg.norm(seen[one] - seen[other]) > APART, (one, other)


def test_the_measure_itself_knows_a_confusable_pair():
    red, green = "#b06060", "#808040"
    full, without = (
        np.linalg.norm(lab(red, VISION[v]) - lab(green, VISION[v])) for v in ("full", "without green")
    )
    assert full > 40
    assert without < 0.75 * full

"""Levels of a log: where its figures fall apart in time, and where they only move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.telemetry import regimes
from xpu_triage.telemetry.regimes import Part, parts

Level = tuple[int, float, float]
"""Lines, running, tokens per second."""


def levels(*of: Level, every_s: float = 10.0) -> list[Part]:
    running = np.concatenate([np.full(lines, float(count)) for lines, count, _ in of])
    rate = np.concatenate([np.full(lines, tokens) for lines, _, tokens in of])
    return parts(np.arange(len(rate)) * every_s, running, rate)


def ends(found: list[Part]) -> list[int]:
    return [part.last + 1 for part in found]


def test_a_change_of_speed_is_found_to_the_line() -> None:
    before, last = levels((500, 128, 3200), (60, 256, 52.4))
    assert (before.first, before.last, last.first, last.last) == (0, 499, 500, 559)
    assert (last.running, last.tokens_per_s, last.lines, last.seconds, last.since) == (256, 52.4, 60, 600, 5000)
    assert (before.running, before.tokens_per_s) == (128, 3200)


def test_a_load_that_is_another_is_another_level_at_the_same_speed_of_a_request() -> None:
    assert ends(levels((100, 100, 2500), (100, 10, 250))) == [100, 200]


@pytest.mark.parametrize("of", [
    [(600, 128, 3200)],
    [(300, 128, 3200), (300, 128, 1200)],   # 2.7 times: prompts and lengths move a rate as much
    [(300, 100, 2500), (300, 200, 2600)],
    [(2, 128, 3200)],
])
def test_what_moves_by_less_is_one_level(of: list[Level]) -> None:
    assert len(levels(*of)) == 1


@pytest.mark.parametrize("lines", [1, 2, 5])
def test_what_lasts_for_less_than_a_minute_is_none(lines: int) -> None:
    assert len(levels((100, 128, 3200), (lines, 128, 30), (100, 128, 3200))) == 1
    assert len(levels((100, 128, 3200), (lines, 128, 30))) == 1
    assert len(levels((lines, 128, 30), (100, 128, 3200))) == 1


def test_lines_without_times_are_counted() -> None:
    time = np.full(106, np.nan)
    running, rate = np.full(106, 64.0), np.concatenate((np.full(100, 1600.0), np.full(6, 16.0)))
    assert ends(parts(time, running, rate)) == [100, 106]
    assert len(parts(time[:-1], running[:-1], rate[:-1])) == 1


def test_a_standstill_is_a_level_and_so_is_a_queue_before_an_idle_engine() -> None:
    assert ends(levels((100, 64, 1600), (30, 64, 0.0))) == [100, 130]
    assert ends(levels((100, 64, 1600), (30, 0, 0.0))) == [100, 130]


def test_every_change_is_a_level_and_equal_ones_around_a_short_one_are_one() -> None:
    found = levels((50, 64, 1600), (30, 64, 40), (50, 64, 1600), (3, 64, 40), (50, 64, 1600), (20, 64, 40))
    assert ends(found) == [50, 80, 183, 203]


def test_lines_without_a_figure_count_for_none_and_places_stay_those_of_the_log() -> None:
    running, rate = np.full(200, 64.0), np.concatenate((np.full(100, 1600.0), np.full(100, 16.0)))
    rate[::7] = np.nan
    running[::11] = np.nan
    before, last = parts(np.arange(200) * 10.0, running, rate)
    assert before.last < 100 <= last.first
    assert parts(np.zeros(3), np.full(3, np.nan), np.ones(3)) == []


@pytest.mark.parametrize(("last", "drain"), [
    ((20, 4, 200.0), True),      # 200 s, few, each faster
    ((40, 4, 200.0), False),     # 400 s: a load of its own
    ((20, 4, 2.0), False),       # few, and slow: not the end of the load alone
    ((20, 100, 20.0), False),    # as many
])
def test_few_requests_at_the_end_for_a_short_time_are_a_load_that_ran_out(last: Level, drain: bool) -> None:
    found = levels((200, 128, 3200), last)
    assert len(found) == 2
    assert regimes.is_drain(found[1], found[0]) is drain


@given(st.lists(st.floats(0.6, 1.6), min_size=20, max_size=200), st.floats(1, 1e4))
def test_a_load_that_only_swings_is_one_level(swings: list[float], rate: float) -> None:
    """1.6 ÷ 0.6 is less than three."""
    size = len(swings)
    assert len(parts(np.arange(size) * 10.0, np.full(size, 32.0), rate * np.array(swings))) == 1


@given(st.integers(10, 300), st.integers(10, 300), st.floats(9, 1000), st.booleans(), st.randoms(use_true_random=False))
def test_a_change_beyond_the_swings_is_found_within_a_window(before: int, after: int, factor: float, slower: bool,
                                                             luck) -> None:
    rate = np.array([luck.uniform(0.7, 1.4) for _ in range(before + after)]) * 1000
    rate[before:] *= 1 / factor if slower else factor
    found = parts(np.arange(len(rate)) * 10.0, np.full(len(rate), 32.0), rate)
    assert len(found) == 2
    assert abs(found[1].first - before) <= regimes.WINDOW

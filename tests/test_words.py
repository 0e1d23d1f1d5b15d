"""What is counted is named for what it is, and one of it in the singular."""

from __future__ import annotations

import numpy as np
import pytest

from xpu_triage.samples import Fact, Samples, Series
from xpu_triage.text import counted
from xpu_triage.words import read_words


@pytest.mark.parametrize(
    ("kind", "count", "said"),
    [
        ("sheet", 0, "0 figures"),
        ("sheet", 1, "1 figure"),
        ("sheet", 3, "3 figures"),
        ("kineto", 1, "1 event"),
        ("kineto", 2376, "2,376 events"),
        ("smi:nvidia", 1, "1 reading"),
        ("metrics", 1_000_000, "1,000,000 samples"),
        ("log", 1, "1 line with figures"),
        ("something new", 2, "2 events"),
        ("", 1, "1 event"),
    ],
)
def test_evidence_is_counted_in_words(kind: str, count: int, said: str):
    assert read_words(kind, count) == said


@pytest.mark.parametrize(("count", "words", "said"), [
    (0, ("reading",), "0 readings"), (1, ("reading",), "1 reading"), (2376, ("event",), "2,376 events"),
    (1, ("entry", "entries"), "1 entry"), (2, ("entry", "entries"), "2 entries"),
    (1, ("span is", "spans are"), "1 span is"), (3, ("span is", "spans are"), "3 spans are"),
])
def test_a_count_is_followed_by_its_word(count: int, words: tuple[str, ...], said: str):
    assert counted(count, *words) == said


def series(of: str, quantity: str, count: int, kind: str = "device") -> Series:
    return Series(kind, of, quantity, np.arange(float(count)), np.ones(count))


def test_a_reading_is_one_look_however_many_columns_and_devices_it_has():
    table = Samples("a tool", "f", tuple(series(str(device), quantity, 1) for device in range(8)
                                         for quantity in ("utilization", "power", "memory_used")))
    assert table.readings == 1
    over_time = Samples("a tool", "f", (series("0", "utilization", 30), series("0", "power", 29),
                                        series("77", "cpu", 3, "process")))
    assert over_time.readings == 30
    names = tuple(Fact("device", device, "name", "X") for device in "01")
    assert Samples("a tool", "f", (), names).readings == 1
    assert Samples("a tool", "f", ()).readings == 0

"""What is counted is named for what it is, and one of it in the singular."""

from __future__ import annotations

import pytest

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

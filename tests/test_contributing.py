"""CONTRIBUTING.md describes the language of rules as it is: its example is read by the reader of rules, its functions
are those there are, its figures are those in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from xpu_triage import expressions, rules
from xpu_triage.weighing import MARGIN, PROBABLE_SCORE


@pytest.fixture(scope="module")
def chapter(root: Path) -> str:
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition("### The language of rules\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def example(chapter: str) -> rules.Rule:
    block = re.search(r"```yaml\n(.*?)```", chapter, re.S)
    assert block is not None
    raw, = yaml.safe_load(block[1])["for"]
    return rules.from_page(raw)


def test_its_example_is_a_rule_that_works_as_the_text_says(example: rules.Rule):
    # 1,000 launches of 10 µs are 10 ms of a step of 16 ms: 0.625
    figures = {"kernel.per_step": 1000, "host.launch_us": 10, "step.wall_ms": 16}
    assert example.holds(figures) is True
    assert example.holds({**figures, "step.wall_ms": 40}) is False
    assert example.holds({**figures, "device.busy_fraction": 0.9}) is None, "`given` does not hold"
    assert example.holds({"kernel.per_step": 1000, "step.wall_ms": 16}) is None, "unknown goes through"
    assert example.worth({}) == 2


def test_it_lists_every_function_and_no_other(chapter: str):
    table = chapter.partition("| function | gives |")[2].partition("\n\n")[0]
    cells = [row.split(" | ")[0] for row in table.splitlines()]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)\(", cell)}
    assert listed == set(expressions._FUNCTIONS)


def test_it_explains_every_part_of_a_rule_and_of_a_page(chapter: str):
    named = set(re.findall(r"`(\w+)", chapter)) | {"signal", "comparison", "threshold"}
    assert named >= rules._KEYS
    assert named >= {"needs", "share", "finding", "confirm", "measure", "any_of", "for", "against"}


def test_its_figures_are_those_in_use(chapter: str):
    words = " ".join(chapter.split())
    assert f"what it is worth, 0 to {rules.MAX_WEIGHT:g}" in words
    assert f"*probable* from {PROBABLE_SCORE:g} on" in words
    assert f"no other within {MARGIN:g}" in words


@pytest.mark.parametrize("comparison", sorted(expressions.COMPARISONS))
def test_it_names_every_comparison(chapter: str, comparison: str):
    assert f"{comparison} " in chapter or f"{comparison}`" in chapter

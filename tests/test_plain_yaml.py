"""YAML as plain data: what YAML would quietly do to a hand-typed sheet is an error here."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.plain_yaml import BadYaml, load


def test_mappings_lists_and_plain_scalars_become_plain_data():
    text = "a: 1\nb: {value: 2.5e3, unit: s}\nc: [yes, Off, 'no', null, ~, -3, +4.5, .5, word]\nd:\ne: 0.18.0"
    assert load(text) == {
        "a": 1, "b": {"value": 2500.0, "unit": "s"}, "c": [True, False, "no", None, None, -3, 4.5, 0.5, "word"],
        "d": None, "e": "0.18.0"}


def test_a_quoted_number_stays_text_and_a_huge_one_stays_a_number():
    assert load("'12'") == "12"
    assert load("1e400") == math.inf
    assert load("123456789012345678901234567890") == pytest.approx(1.2345678901234568e29)


def test_an_empty_text_is_nothing():
    assert load("") is None
    assert load("# only a comment\n") is None


@pytest.mark.parametrize(("text", "says"), [
    ("a: 1\na: 2", "'a' is given twice (line 2)"),
    ("a: &x 1\nb: *x", "aliases (*x) are not read (line 2)"),
    ("a: !!python/object:os.system x", "tags (tag:yaml.org,2002:python/object:os.system) are not read (line 1)"),
    ("a: !mine x", "tags (!mine) are not read"),
    ("a: [1\nb: 2", "not valid YAML"),
    ("a: 1\n---\nb: 2", "more than one document"),
    ("? [1, 2]\n: 3", "a key must be plain text (line 1)"),
    ("a: \x00", "not valid YAML"),
    ("{a: " * 30 + "1" + "}" * 30, "nested more than 20 deep"),
    ("[" * 100_000, "nest"),
    ("a: [" + "1," * 30_000 + "1]", "more than 20,000 values"),
])
def test_what_is_not_plain_data_is_refused_with_its_line(text, says):
    with pytest.raises(BadYaml) as refusal:
        load(text)
    assert says in str(refusal.value)


def test_line_numbers_count_from_where_the_text_begins():
    with pytest.raises(BadYaml, match=r"line 12"):
        load("a: 1\na: 2", first_line=11)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_nothing_else_happens(text):
    with contextlib.suppress(BadYaml):
        load(text)

"""What a notebook displays: the same rows as HTML and as text, with every text harmless."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from synthetic_walks import (
    VerdictLevel,
    device_only_walk,
    diagnosis_of,
    fallback_walk,
    host_only_walk,
    renamed,
    verdict_of,
)
from xpu_triage import notebook as show
from xpu_triage.diagnosis import EvidenceRecord
from xpu_triage.notebook.shown import label, lines, table
from xpu_triage.resources import shipped
from xpu_triage.signals import Signal

EVERYTHING = (
    show.verdict,
    show.reasons,
    show.contradictions,
    show.next_steps,
    show.evidence,
    show.signals,
    show.busy,
    show.idle,
    show.smi,
    show.steps,
    show.warm,
    show.cross_check,
    show.finding,
    show.second,
)
HOSTILE = "<script>alert('$x$')</script>\x1b[31m\n&amp;\"'"


class Elements(HTMLParser):
    """The names of all elements and all attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.data: list[str] = []
        self.feed(page)

    @property
    def text(self) -> str:
        return "".join(self.data)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.data.append(data)


def html_of(shown) -> str:
    return shown._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("what", EVERYTHING)
@pytest.mark.parametrize("walk", [fallback_walk, host_only_walk, device_only_walk, lambda: None])
def test_every_display_has_words_for_every_kind_of_evidence(what, walk):
    shown = what(diagnosis_of(walk()))
    assert repr(shown).strip()
    assert Elements(html_of(shown)).text.strip()


@pytest.mark.parametrize("what", EVERYTHING)
def test_hostile_names_stay_text(what):
    walk = renamed(fallback_walk(2, operator="evil"), "evil", HOSTILE)
    verdict = verdict_of(title=HOSTILE, summary=HOSTILE)
    evidence = (EvidenceRecord(HOSTILE, HOSTILE, 1, 0, (HOSTILE,)),)
    shown = what(
        diagnosis_of(walk, verdict, [Signal("sync.site", HOSTILE, "trace", HOSTILE, HOSTILE)], evidence)
    )
    page = Elements(html_of(shown))
    assert "script" not in page.elements
    assert not {name for name in page.attributes if name.startswith("on")}
    for text in (repr(shown), page.text):
        assert "\x1b" not in text
    assert 'class="mathjax_ignore' in html_of(shown), "a `$` must not be typeset as mathematics"


def test_a_table_shows_the_same_cells_as_page_and_as_text():
    shown = table(("name", "share"), [("a", "1.0 %"), ("bb", "20.0 %")], numbers=(1,), title="T", note="N")
    assert repr(shown).splitlines() == ["T", "name   share", "a      1.0 %", "bb    20.0 %", "N"]
    assert Elements(html_of(shown)).data == ["T", "name", "share", "a", "1.0 %", "bb", "20.0 %", "N"]


def test_an_empty_list_says_that_it_is_empty():
    assert repr(lines("Contradictions", [], empty="None of them contradict.")) == "None of them contradict."


def test_what_ships_is_named_by_its_place_and_everything_else_as_given():
    inside = shipped("playbook") / "incidents" / "x.json"
    assert label(str(inside)) == "playbook/incidents/x.json"
    assert label("relative/trace.json") == "relative/trace.json"


@pytest.mark.parametrize("level", list(VerdictLevel))
def test_the_card_names_level_cause_figures_and_next_step(level):
    text = repr(show.verdict(diagnosis_of(fallback_walk(), verdict_of(level))))
    assert text.splitlines()[0] == str(level).upper() + (
        "" if level is VerdictLevel.NOT_ENOUGH else "  cpu-fallback"
    )
    assert "one step (6 whole steps): 100.00 ms" in text
    assert "a step without it: 9.00 ms" in text
    assert "Next: Run the fixed sampler." in text


def test_the_idle_table_adds_up_to_the_idle():
    """91 + 2 + 1 ms of 100 ms."""
    text = repr(show.idle(diagnosis_of(fallback_walk())))
    assert "91.0 %  91.00 ms" in text
    assert "Together 94.0 % of the window." in text


def test_busy_is_divided_by_whole_steps_and_its_parts_add_up():
    row = repr(show.busy(diagnosis_of(fallback_walk()))).splitlines()[1].split()
    assert row[1::2][:5] == ["6.0", "4.0", "0.0", "2.0", "94.0"][:len(row[1::2][:5])]


def sheet(**values: float):
    return diagnosis_of(
        None,
        signals=[Signal(name.replace("__", "."), v, "typed", "", "s.yaml") for name, v in values.items()],
    )


def test_throughput_times_step_time_is_held_against_the_running_batch():
    """The incident: 32 × 4.89 = 156.5 tokens a step, for 256 running; 256 ÷ 156.5 = 1.64."""
    told = repr(show.cross_check(sheet(
        serving__decode_tokens_per_s=32, step__wall_ms=4890, serving__running=256)))
    assert "32 tokens/s × 4.89 s = 156.5 tokens a step, for 256 running requests." in told
    assert "by a factor of 1.64" in told


def test_figures_of_one_load_are_said_to_agree():
    """64 requests in steps of 41 ms give 1,561 tokens/s."""
    told = repr(
        show.cross_check(sheet(serving__decode_tokens_per_s=1560, step__wall_ms=41, serving__running=64))
    )
    assert "They agree." in told


def test_two_of_the_three_give_the_third_and_fewer_say_what_is_missing():
    assert "256 requests ÷ 0.1 s = 2,560 tokens/s" in repr(
        show.cross_check(sheet(step__wall_ms=100, serving__running=256))
    )
    assert "= 3.2 requests must be running" in repr(
        show.cross_check(sheet(step__wall_ms=100, serving__decode_tokens_per_s=32)))
    assert "unknown here: serving.decode_tokens_per_s, serving.running" in repr(
        show.cross_check(sheet(step__wall_ms=100))
    )


def test_a_recovery_ratio_is_called_what_it_is():
    """884 ÷ 48 = 18.42."""
    told = repr(show.recovery(sheet(step__wall_ms=884), sheet(step__wall_ms=48)))
    assert "884.00 ms ÷ 48.00 ms = 18.42: a recovery ratio." in told
    assert "no optimization gain" in told


def test_equal_steps_are_no_recovery_and_a_missing_step_time_gives_no_ratio():
    assert "no recovery" in repr(show.recovery(sheet(step__wall_ms=100), sheet(step__wall_ms=99)))
    assert "no ratio" in repr(show.recovery(sheet(), sheet(step__wall_ms=99)))
    assert "No evidence of the state after a fix" in repr(show.recovery(sheet(step__wall_ms=100), None))


def test_unknown_signals_are_named_with_their_reason():
    assert "device.busy_fraction: no device work in this trace" in repr(
        show.signals(diagnosis_of(host_only_walk()))
    )

"""The catalogue is one table: names, units, windows. Where the project's own source of it is at hand, the two agree."""

from __future__ import annotations

import re

import pytest

from xpu_triage import fingerprints, limits
from xpu_triage.catalogue import CATALOGUE, EVIDENCE, UNITS
from xpu_triage.units import value_of

GROUPS = ["device", "step", "idle", "sync", "fallback", "placement", "kernel", "host", "comm", "serving", "latency",
          "kv", "client", "process", "clock", "power", "warmup", "roofline", "log", "ab"]
ENDING_OF_UNIT = {unit: unit.lower() for unit in UNITS} | {"number": "exponent"}
WITHOUT_ENDING = {"count", "bool", "text"}


def test_the_catalogue_has_all_its_groups_in_order():
    assert list(dict.fromkeys(spec.group for spec in CATALOGUE.values())) == GROUPS


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=lambda spec: spec.name)
def test_every_row_is_complete_and_its_example_is_a_value_of_its_unit(spec):
    assert spec.unit in UNITS
    assert spec.meaning
    assert set(spec.evidence) <= set(EVIDENCE)
    assert value_of(spec, spec.example) == spec.example


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=lambda spec: spec.name)
def test_a_name_ends_in_its_unit_and_counts_facts_and_texts_have_none(spec):
    if spec.unit in WITHOUT_ENDING:
        assert not spec.name.endswith(tuple(f"_{ending}" for ending in ENDING_OF_UNIT.values()))
    else:
        assert re.search(rf"[._]{ENDING_OF_UNIT[spec.unit]}$", spec.name)


def test_every_signal_is_read_by_a_page_or_by_a_limit():
    read = {name for page in fingerprints.load() for name in page.names}
    read |= {name for limit in limits.load() for name in limit.when.names}
    assert set(CATALOGUE) - read == set()


def test_some_rows_say_what_they_are_not():
    assert "not busy" in CATALOGUE["device.utilization_fraction"].meaning
    assert CATALOGUE["device.busy_fraction"].from_trace
    assert not CATALOGUE["device.utilization_fraction"].from_trace


def test_the_table_agrees_with_the_source_it_was_taken_from(shared):
    source = {}
    for line in (shared / "signals.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `([\w.]+)`( ●)? \| (.*) \|$", line):
            unit, _, evidence, example = (cell.strip() for cell in match[3].split(" | "))
            source[match[1]] = (unit, bool(match[2]), tuple(evidence.split(", ")), example)
    added_since = {"kernel.recorded", "comm.fused_fraction", "idle.other_device_fraction",
                   "device.copy_wait_fraction", "device.copy_over_launching_fraction",
                   "device.copy_over_host_op_fraction", "serving.prefill_run_fraction", "serving.prefill_run_ms",
                   "serving.running_spread_ratio", "serving.queued_fraction",
                   "device.link_copy_fraction", "kernel.top_compute_name", "host.online_fraction",
                   "latency.baseline_least_ratio", "latency.baseline_most_ratio",
                   "latency.baseline_tail_ratio"}  # each by the rules for adding one
    ours = {spec.name: (spec.unit, spec.from_trace, spec.evidence)
            for spec in CATALOGUE.values() if spec.name not in added_since}
    assert ours == {name: row[:3] for name, row in source.items()}
    for name, (_, _, _, example) in source.items():
        ours_written = CATALOGUE[name].example
        assert example in (ours_written, str(ours_written).lower()) or float(example) == ours_written

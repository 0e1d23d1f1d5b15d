"""Values, headers and times as tools print them in columns, with what they mean worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import columns
from xpu_triage.evidence.smi.columns import (
    Column,
    Place,
    Readings,
    converted,
    header,
    is_unknown,
    number,
    opaque,
    places,
)
from xpu_triage.evidence.smi.stamps import Clock, stamp


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "-", "[Not Supported]", "[Unknown Error]", "ERR!", "", " n/a ",
                                  "[Requested functionality has been deprecated]", "[GPU is lost]"])
def test_what_a_tool_does_not_know_is_unknown(text: str) -> None:
    assert is_unknown(text)


@pytest.mark.parametrize("text", ["0", "0 %", "None", "Disabled", "0x0"])
def test_zero_and_words_are_known(text: str) -> None:
    assert not is_unknown(text)


@pytest.mark.parametrize(("text", "expected"), [
    ("27.22 W", (27.22, "W")), ("(300Mhz)", (300.0, "Mhz")), ("100%", (100.0, "%")), ("0", (0.0, "")),
    ("-5 C", (-5.0, "C")), (".5", (0.5, "")), ("1e3", (1000.0, "")), ("53 °C", (53.0, "°C"))])
def test_a_number_has_its_unit(text: str, expected: tuple[float, str]) -> None:
    assert number(text) == expected


@pytest.mark.parametrize("text", ["1e999", "0x1FF", "16.0GT/s x16 *", "96.00.A5.00.01", "P0", "1 2", "nan", "26B910DE"])
def test_what_is_no_finite_number_is_none(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(("quantity", "value", "unit", "expected"), [
    ("memory_used", 1, "MiB", 1.048576), ("memory_used", 1, "GiB", 1073.741824), ("memory_total", 2e9, "B", 2000),
    ("power", 69850, "mW", 69.85), ("core_clock", 1.98, "GHz", 1980), ("core_clock", 300, "Mhz", 300),
    ("utilization", 17, "%", 0.17), ("utilization", 100.3, "%", 1.0), ("energy", 1500, "mJ", 1.5),
    ("temperature", -5, "Celsius Degree", -5)])
def test_units_become_the_one_of_the_quantity(quantity: str, value: float, unit: str, expected: float) -> None:
    assert converted(quantity, value, unit) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("quantity", "value", "unit"), [
    ("power", 5, "MHz"), ("power", 5, ""), ("utilization", 255, "%"), ("utilization", -1, "%"), ("power", -1, "W")])
def test_what_a_quantity_cannot_be_is_unknown(quantity: str, value: float, unit: str) -> None:
    assert converted(quantity, value, unit) is None


@pytest.mark.parametrize(("text", "name", "unit"), [
    ("utilization.gpu [%]", "utilization.gpu", "%"), ("HBM Capacity(MB)", "HBM Capacity", "MB"),
    ("Temperature (Sensor edge) (C)", "Temperature (Sensor edge)", "C"),
    ("GPU Core Temperature (Celsius Degree)", "GPU Core Temperature", "Celsius Degree"),
    ("Temperature (Sensor edge)", "Temperature (Sensor edge)", ""),
    ("(Topology) Numa Node", "(Topology) Numa Node", "")])
def test_a_header_is_a_name_and_a_unit(text: str, name: str, unit: str) -> None:
    head = header(text)
    assert (head.name, head.unit) == (name, unit)


TABLE = (Column("power", ("draw", "average"), "W"),)


def test_of_two_columns_for_one_quantity_the_first_with_values_wins() -> None:
    heads = [header("average [W]"), header("draw [W]")]
    assert [place.quantity for place in places(heads, TABLE)] == ["", "power"]
    assert [place.quantity for place in places(heads, TABLE, [["70 W", "[N/A]"]])] == ["power", ""]
    assert [place.quantity for place in places(heads, TABLE, [["[N/A]", "[N/A]"]])] == ["", "power"]


@pytest.mark.parametrize("name", ["uuid", "GPU UUID", "serial", "pci.bus_id", "Serial Number", "hostname", "Unique ID",
                                  "platform.host_id", "fabric.clusterUuid", "PCI / Bus Id", "pci/pci_bus_id", "PCI Bus",
                                  "platform.chassis_serial_number", "GUID", "Board ID"])
def test_names_of_a_machine_or_a_board_are_not_kept(name: str) -> None:
    assert places([header(name)], ())[0].dropped


@pytest.mark.parametrize("name", ["pcie.link.gen.current", "fan.speed [%]", "PCIe Replay Count", "bar1"])
def test_other_names_are_kept(name: str) -> None:
    assert not places([header(name)], ())[0].dropped


def test_a_value_of_another_kind_is_counted_and_unknown() -> None:
    readings = Readings()
    for text in ("5 MHz", "N/A", "5 W"):
        readings.cell(Place("draw", "W", "power"), text, of="0")
    samples = readings.samples("tool", "file")
    assert samples.skipped == 1
    assert [str(value) for value in samples.series[0].values] == ["nan", "nan", "5.0"]


def test_names_and_words_come_out_harmless() -> None:
    readings = Readings()
    readings.cell(places([header("a\x1b[31mb")], ())[0], "x\x07<b>", of="0")
    assert [(fact.name, fact.value) for fact in readings.samples("tool", "file").facts] == [
        ("a\\x1b[31mb", "x\\x07<b>")]


@pytest.mark.parametrize(("text", "expected"), [
    ("2024/09/08 13:03:31.000", (1725800611.0, "epoch")), ("2024-09-08T13:03:31.250Z", (1725800611.25, "epoch")),
    ("2024-09-08T15:03:31+02:00", (1725800611.0, "epoch")), ("20240908 13:03:31", (1725800611.0, "epoch")),
    ("Sun Sep  8 13:03:31 2024", (1725800611.0, "epoch")), ("Sun Sep  8 13:03:31 UTC 2024", (1725800611.0, "epoch")),
    ("1725800611", (1725800611.0, "epoch")), ("1725800611250", (1725800611.25, "epoch")),
    ("21:23:00.500", (76980.5, "day")), ("24:00:00", None), ("2024/13/08 13:03:31", None), ("0", None), ("N/A", None)])
def test_times_are_read_in_every_form(text: str, expected: tuple[float, str] | None) -> None:
    assert stamp(text) == expected


def test_a_time_of_day_goes_on_over_midnight() -> None:
    clock = Clock()
    assert [clock.at(text) for text in ("23:59:59", "00:00:01", "00:00:02")] == [86399, 86401, 86402]
    assert clock.counts_from == "day"


def test_times_of_one_file_count_from_the_same() -> None:
    clock = Clock()
    assert clock.at("23:59:59") == 86399
    assert clock.at("2024/09/08 13:03:31.000") is None


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_none(text: str) -> None:
    read = number(text)
    assert read is None or abs(read[0]) < float("inf")
    found = stamp(text)
    assert found is None or found[1] in ("epoch", "day")


@given(st.sampled_from(sorted(columns.QUANTITIES)), st.floats(allow_nan=False), st.sampled_from(
    ["%", "MiB", "B", "W", "mW", "MHz", "C", "J", "", "furlong"]))
def test_what_is_converted_is_in_range(quantity: str, value: float, unit: str) -> None:
    got = converted(quantity, value, unit)
    assert got is None or math.isfinite(got)
    if got is not None and columns.QUANTITIES[quantity] == "fraction":
        assert 0 <= got <= 1


def test_an_identity_is_kept_as_a_word_that_tells_devices_apart_and_nothing_else() -> None:
    readings = Readings()
    heads = [header("uuid"), header("pci.bus_id"), header("power.draw [W]")]
    table = (Column("power", ("power.draw",), "W"),)
    for of, uuid in (("0", "GPU-11111111-aaaa"), ("1", "GPU-22222222-bbbb"), ("2", "gpu-11111111-AAAA "), ("3", "N/A")):
        readings.pairs(heads, [uuid, "00000000:18:00.0", "70"], table, of=of)
    said = {fact.of: fact.value for fact in readings.samples("tool", "x").facts if fact.name == "identity"}
    assert said["0"] == said["2"] != said["1"]
    assert "3" not in said
    assert all(len(word) == 16 and "1111" not in word and "2222" not in word for word in said.values())
    assert opaque("a") == opaque("A ") != opaque("b")


def test_an_identity_alone_is_no_reading() -> None:
    readings = Readings()
    readings.pairs([header("uuid")], ["GPU-1"], (), of="0")
    with pytest.raises(UnusableInput, match="without a reading"):
        readings.samples("tool", "x")

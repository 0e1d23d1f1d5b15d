"""`nvidia-smi -q` as text and as XML: the same device, told twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from smi_columns import facts, text_of, times, values
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence.smi import nvidia_query
from xpu_triage.samples import Samples

TEXT = """\

==============NVSMI LOG==============

Timestamp                                 : Wed Jan 22 04:28:41 2025
Driver Version                            : 550.127.05

Attached GPUs                             : 2
GPU 00000000:06:00.0
    Product Name                          : NVIDIA A10
    Serial Number                         : 1324722021038
    GPU UUID                              : GPU-51ae0086
    PCI
        Bus                               : 0x06
        Bus Id                            : 00000000:06:00.0
    Fan Speed                             : 30 %
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
        SW Thermal Slowdown               : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 4957 us
    FB Memory Usage
        Total                             : 2000 MiB
        Used                              : 1000 MiB
    BAR1 Memory Usage
        Used                              : 1 MiB
    Utilization
        Gpu                               : 97 %
        Memory                            : 41 %
    Temperature
        GPU Current Temp                  : 83 C
        Memory Current Temp               : N/A
    GPU Power Readings
        Power Draw                        : 121.30 W
        Current Power Limit               : 120.00 W
        Default Power Limit               : 150.00 W
    Module Power Readings
        Power Draw                        : N/A
    Clocks
        Graphics                          : 1000 MHz
        SM                                : 1005 MHz
        Memory                            : 6250 MHz
    Max Clocks
        SM                                : 1695 MHz
        Memory                            : 6251 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : /home/me/python
            Used GPU Memory               : 900 MiB
        Process ID                        : 4243
            Type                          : C
            Name                          : worker
            Used GPU Memory               : 50 MiB
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 1
        FB Memory Usage
            Total                         : 100 MiB
            Used                          : 10 MiB
    MIG Device
        Index                             : 2
        GPU Instance ID                   : 5
        FB Memory Usage
            Total                         : 200 MiB
            Used                          : 20 MiB
    Utilization
        Gpu                               : N/A
    Processes                             : None
"""

XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
    <timestamp>Wed Jan 22 04:28:41 2025</timestamp>
    <gpu id="00000000:06:00.0">
        <product_name>NVIDIA A10</product_name>
        <mig_devices>None</mig_devices>
        <serial>1324722021038</serial><uuid>GPU-51ae0086</uuid>
        <pci><pci_bus>06</pci_bus><pci_bus_id>00000000:06:00.0</pci_bus_id></pci>
        <fan_speed>30 %</fan_speed>
        <performance_state>P0</performance_state>
        <clocks_event_reasons>
            <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
            <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
            <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
            <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
        </clocks_event_reasons>
        <fb_memory_usage><total>2000 MiB</total><used>1000 MiB</used></fb_memory_usage>
        <utilization><gpu_util>97 %</gpu_util><memory_util>41 %</memory_util></utilization>
        <temperature><gpu_temp>83 C</gpu_temp><memory_temp>N/A</memory_temp></temperature>
        <gpu_power_readings><power_draw>121.30 W</power_draw><current_power_limit>120.00 W</current_power_limit>
            <default_power_limit>150.00 W</default_power_limit></gpu_power_readings>
        <module_power_readings><power_draw>N/A</power_draw></module_power_readings>
        <clocks><graphics_clock>1000 MHz</graphics_clock><sm_clock>1005 MHz</sm_clock>
            <mem_clock>6250 MHz</mem_clock></clocks>
        <max_clocks><sm_clock>1695 MHz</sm_clock><mem_clock>6251 MHz</mem_clock></max_clocks>
        <supported_clocks><supported_mem_clock><value>6251 MHz</value>
            <supported_graphics_clock>1695 MHz</supported_graphics_clock></supported_mem_clock></supported_clocks>
        <processes><process_info><gpu_instance_id>N/A</gpu_instance_id><pid>4242</pid><type>C</type>
            <process_name>/home/me/python</process_name><used_memory>900 MiB</used_memory></process_info>
            <process_info><pid>4243</pid><type>C</type><process_name>worker</process_name>
            <used_memory>50 MiB</used_memory></process_info></processes>
    </gpu>
    <gpu id="00000000:07:00.0">
        <product_name>NVIDIA A100</product_name>
        <mig_mode><current_mig>Enabled</current_mig></mig_mode>
        <mig_devices>
            <mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id>
                <fb_memory_usage><total>100 MiB</total><used>10 MiB</used></fb_memory_usage></mig_device>
            <mig_device><index>2</index><gpu_instance_id>5</gpu_instance_id>
                <fb_memory_usage><total>200 MiB</total><used>20 MiB</used></fb_memory_usage></mig_device>
        </mig_devices>
        <utilization><gpu_util>N/A</gpu_util></utilization>
    </gpu>
</nvidia_smi_log>
"""


def read(folder: Path, text: str) -> Samples:
    assert nvidia_query.matches(text)
    (path := folder / "any.name").write_text(text)
    return nvidia_query.read(path)


@pytest.mark.parametrize(("text", "tool"), [(TEXT, "nvidia-smi -q"), (XML, "nvidia-smi -q -x")])
def test_text_and_xml_say_the_same(tmp_path: Path, text: str, tool: str) -> None:
    samples = read(tmp_path, text)
    assert (samples.tool, samples.clock, samples.skipped, samples.notes) == (tool, "epoch", 0, ())
    said = values(samples)
    assert said["0", "utilization"] == [0.97]
    assert said["0", "memory_activity"] == [0.41]
    assert said["0", "memory_used"] == [1048.576]
    assert said["0", "memory_total"] == [2097.152]
    assert said["0", "power"] == [121.3]
    assert said["0", "power_limit"] == [120]
    assert said["0", "power_rated"] == [150]
    assert said["0", "core_clock"] == [1005]
    assert said["0", "memory_clock"] == [6250]
    assert said["0", "core_clock_max"] == [1695]
    assert said["0", "memory_clock_max"] == [6251]
    assert said["0", "temperature"] == [83]
    assert facts(samples, "name") == {"0": ["NVIDIA A10"], "1": ["NVIDIA A100"]}
    assert facts(samples, "limit_reason") == {"0": ["sw_power_cap, hw_thermal_slowdown"]}
    assert times(samples, "0", "power") == [1737520121.0]


@pytest.mark.parametrize("text", [TEXT, XML])
def test_with_mig_the_device_is_unknown_and_its_parts_have_their_memory(tmp_path: Path, text: str) -> None:
    said = values(read(tmp_path, text))
    assert said["1", "utilization"] == [None]
    assert said["1/MIG 0", "memory_used"] == [10.48576]
    assert said["1/MIG 2", "memory_used"] == [20.97152]
    assert said["1/MIG 2", "memory_total"] == [209.7152]


@pytest.mark.parametrize("text", [TEXT, XML])
def test_processes_have_the_memory_that_they_hold(tmp_path: Path, text: str) -> None:
    samples = read(tmp_path, text)
    assert values(samples, "process") == {("4242", "device_memory"): [943.7184], ("4243", "device_memory"): [52.4288]}
    assert facts(samples, "device", "process") == {"4242": ["0"], "4243": ["0"]}
    assert facts(samples, "name", "process") == {"4242": ["python"], "4243": ["worker"]}


@pytest.mark.parametrize("text", [TEXT, XML])
def test_no_serial_number_or_address_is_kept(tmp_path: Path, text: str) -> None:
    kept = text_of(read(tmp_path, text))
    assert not any(word in kept for word in ("1324722021038", "51ae0086", "06:00", "0x06", "/home"))
    assert "30" not in kept  # the fan is a reading, not text
    assert "1695" not in kept


def test_an_entry_that_is_no_quantity_keeps_its_section_and_name(tmp_path: Path) -> None:
    said = values(read(tmp_path, TEXT))
    assert said["0", "Fan Speed"] == [30]
    assert said["0", "BAR1 Memory Usage / Used"] == [1]
    assert said["0", "Module Power Readings / Power Draw"] == [None]


@pytest.mark.parametrize("text", [TEXT, XML])
def test_a_loop_of_logs_is_a_series(tmp_path: Path, text: str) -> None:
    later = text.replace("04:28:41", "04:28:46").replace("97 %", "12 %")
    samples = read(tmp_path, text + later)
    assert values(samples)["0", "utilization"] == [0.97, 0.12]
    assert times(samples, "0", "utilization") == [1737520121.0, 1737520126.0]
    assert values(samples)["1/MIG 0", "memory_used"] == [10.48576, 10.48576]


@pytest.mark.parametrize(("section", "draw", "limit"), [
    ("Power Readings", "Power Draw", "Enforced Power Limit"),
    ("GPU Power Readings", "Average Power Draw", "Current Power Limit")])
def test_power_under_its_older_and_newer_names(tmp_path: Path, section: str, draw: str, limit: str) -> None:
    samples = read(tmp_path, f"==============NVSMI LOG==============\nGPU 0000:06:00.0\n    {section}\n"
                             f"        {draw} : 70 W\n        {limit} : 300 W\n        Power Limit : 350 W\n")
    assert values(samples)["0", "power"] == [70]
    assert values(samples)["0", "power_limit"] == [300]


def test_clocks_throttle_reasons_of_older_drivers_all_inactive_are_none(tmp_path: Path) -> None:
    text = TEXT.replace("Clocks Event Reasons\n", "Clocks Throttle Reasons\n").replace(": Active", ": Not Active")
    assert facts(read(tmp_path, text), "limit_reason") == {"0": ["none"]}


def test_throttle_reasons_of_older_drivers_in_xml(tmp_path: Path) -> None:
    text = XML.replace("clocks_event_reason", "clocks_throttle_reason")
    assert facts(read(tmp_path, text), "limit_reason") == {"0": ["sw_power_cap, hw_thermal_slowdown"]}


@pytest.mark.parametrize("line", ["    MIG Device : None\n", "    MIG Devices : None\n"])
def test_no_mig_device_is_none(tmp_path: Path, line: str) -> None:
    samples = read(tmp_path, TEXT.replace("    Fan Speed", line + "    Fan Speed", 1))
    assert {of for of, _ in values(samples)} == {"0", "1", "1/MIG 0", "1/MIG 2"}


def test_xml_that_is_cut_off_is_read_up_to_the_cut(tmp_path: Path) -> None:
    samples = read(tmp_path, XML[:XML.index("<product_name>NVIDIA A100")])
    assert values(samples)["0", "utilization"] == [0.97]
    assert "cut off" in samples.notes[0]


@pytest.mark.parametrize("declared", [
    '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>',
    '<!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/hostname">]>'])
def test_entities_are_refused(tmp_path: Path, declared: str) -> None:
    text = XML.replace('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', declared)
    with pytest.raises(UnusableInput, match="entities"):
        read(tmp_path, text)


def test_a_log_without_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="without a reading"):
        read(tmp_path, "==============NVSMI LOG==============\nAttached GPUs : 0\n")

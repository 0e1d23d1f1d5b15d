"""Whatever a file holds: a reader gives values that can be, or refuses in one line."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smi_columns import READERS, only, text_of
from xpu_triage.errors import UnusableInput
from xpu_triage.samples import QUANTITIES, Samples

MODULES = {name: importlib.import_module(f"xpu_triage.evidence.smi.{name}") for name in READERS}

GOOD = {
    "nvidia_columns": "timestamp, index, name, utilization.gpu [%], power.draw [W], clocks_event_reasons.active\n"
                      "2025/03/01 10:00:00.000, 0, A30, 97 %, 164.10 W, 0x0000000000000004\n",
    "nvidia_query": "==============NVSMI LOG==============\n\nGPU 00000000:06:00.0\n    Product Name : A10\n"
                    "    Utilization\n        Gpu : 97 %\n    Processes\n        Process ID : 42\n"
                    "            Used GPU Memory : 9 MiB\n",
    "intel_stats": "| Device ID           | 0    |\n| GPU Utilization (%) | 99.5 |\n| GPU Power (W)       | 97   |\n",
    "rocm_list": "GPU[0] : GPU use (%): 7\nGPU[0] : Average Graphics Package Power (W): 36.0\n",
    "intel": "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)\n06:00:00.000, 0, 99.5, 120\n",
    "ascend_usages": "NPU ID : 0\nChip Count : 1\nHBM Capacity(MB) : 65536\nAicore Usage Rate(%) : 5\nChip ID : 0\n",
    "kunlun_columns": "0 0 - - 41 - - - 88 - - - - - - - - 1000 98304 7\n",
    "amd_json": '{"card0": {"GPU use (%)": "7", "Average Graphics Package Power (W)": "36.0"}}\n',
}
MORE = {
    "nvidia_columns": "# gpu         pid   type     sm    command\n# Idx           #    C/G      %    name\n"
                      "    0         42     C      5    python\n",
    "nvidia_query": '<?xml version="1.0" ?>\n<nvidia_smi_log><gpu id="0000:06:00.0"><utilization>'
                    "<gpu_util>97 %</gpu_util></utilization></gpu></nvidia_smi_log>\n",
    "amd_json": "timestamp,gpu,gfx_activity,socket_power\n1740823200,0,95,1180\n",
}
SHEET = "schema: 1\ntitle: slow\nsignals:\n  device.utilization_mean: 0.2\n"
TRACE = '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}'
METRICS = '# HELP a b\n# TYPE a gauge\nDCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="x"} 3\n'
STACK = "Process 1: python\nPython v3.12 (/usr/bin/python3)\n\nThread 0x7F (idle): \"Main\"\n    wait (a.py:3)\n"


def read(name: str, text: str) -> Samples | None:
    """What the reader makes of a file with this text; None where it refuses it in one line."""
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "file").write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            return MODULES[name].read(path)  # type: ignore[no-any-return]
        except UnusableInput as error:
            refused = str(error)
    assert "\n" not in refused
    return None


def can_be(samples: Samples) -> bool:
    return all(np.isnan(series.values).all() or (
        bool((series.known >= 0).all() and (series.known <= 1).all()) if QUANTITIES.get(series.quantity) == "fraction"
        else bool(np.isfinite(series.known).all())) for series in samples.series)


@pytest.mark.parametrize("name", READERS)
def test_each_format_has_one_reader(name: str) -> None:
    assert only(MODULES[name], GOOD[name], MODULES)
    assert name not in MORE or only(MODULES[name], MORE[name], MODULES)


@pytest.mark.parametrize("text", [SHEET, TRACE, METRICS, STACK, "", "hello\n", "a,b\n1,2\n", "[1, 2]\n",
                                  "time_s,pid,cpu_percent\n0.5,42,99.0\n", "| GPU  Name |\n|  0  A10 |\n"])
def test_other_evidence_is_not_taken(text: str) -> None:
    assert not [name for name, module in MODULES.items() if module.matches(text)]


@pytest.mark.parametrize("name", READERS)
def test_no_escape_code_or_line_end_comes_through(name: str) -> None:
    for good in (GOOD[name], MORE.get(name, GOOD[name])):
        samples = read(name, good.replace("A30", "A\x9b31m<script>").replace("python", "py\x1b]0;x\x07"))
        assert samples is not None
        assert not any(character in text_of(samples).replace("\n", "") for character in "\x1b\x9b\x07\r")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("value", ["1e308", "9" * 400, "-5", "inf", "nan", "١٢"])
def test_numbers_that_cannot_be_are_unknown(name: str, value: str) -> None:
    for found in ("97", "99.5", "5\n", " 7\n", '"7"', "95"):
        samples = read(name, GOOD[name].replace(found, value + ("\n" if found.endswith("\n") else "")))
        assert samples is None or can_be(samples)


@pytest.mark.parametrize("name", READERS)
def test_every_cut_of_a_file_is_read_or_refused(name: str) -> None:
    for good in (GOOD[name], MORE.get(name, GOOD[name])):
        for cut in range(len(good)):
            samples = read(name, good[:cut])
            assert samples is None or can_be(samples)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(READERS), more=st.booleans(), at=st.floats(0, 1), junk=st.text(max_size=12))
def test_junk_anywhere_is_read_around_or_refused(name: str, more: bool, at: float, junk: str) -> None:
    good = MORE.get(name, GOOD[name]) if more else GOOD[name]
    where = int(at * len(good))
    samples = read(name, good[:where] + junk + good[where:])
    assert samples is None or can_be(samples)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(READERS), text=st.text(max_size=200))
def test_any_text_is_refused_or_read(name: str, text: str) -> None:
    MODULES[name].matches(text)
    samples = read(name, text)
    assert samples is None or can_be(samples)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for module in MODULES.values():
        with pytest.raises(UnusableInput, match="cannot be read"):
            module.read(tmp_path / "absent")

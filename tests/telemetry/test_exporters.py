"""Device readings out of exporters' dumps, with the values that a person reads off them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scrape_dumps import scrape
from xpu_triage.evidence import prometheus
from xpu_triage.samples import QUANTITIES, Samples
from xpu_triage.telemetry.exporters import device_samples

Table = dict[tuple[str, str], list[float]]


def table(samples: Samples) -> Table:
    """By device and quantity, the readings; what has no common name left out."""
    return {(series.of, series.quantity): series.values.tolist() for series in samples.series
            if series.quantity in QUANTITIES}


def one(*dumps: dict[str, float], times: tuple[float, ...] = ()) -> Samples:
    scrapes = [scrape(dump, times[i] if times else None, labels="") for i, dump in enumerate(dumps)]
    (samples,) = device_samples(scrapes)
    return samples


def facts(samples: Samples) -> set[tuple[str, str, str]]:
    return {(fact.of, fact.name, fact.value) for fact in samples.facts}


def test_recorded_dumps(shared: Path) -> None:
    (dcgm,) = device_samples(prometheus.read(shared / "samples" / "smi" / "dcgm-exporter-l4-idle.prom"))
    assert table(dcgm) == {("0", "utilization"): [0.0], ("0", "memory_activity"): [0.0]}
    assert facts(dcgm) == {("0", "name", "NVIDIA L4")}
    assert {series.quantity for series in dcgm.series} - set(QUANTITIES) == {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER"}
    (npu,) = device_samples(prometheus.read(shared / "samples" / "smi" / "npu-exporter-metrics-testfixture.prom"))
    assert table(npu) == {("0", "utilization"): [0.36], ("0", "temperature"): [62.0], ("0", "power"): [188.0],
                          ("0", "memory_total"): [pytest.approx(68719.476736)]}  # 64 GiB
    assert facts(npu) == {("0", "name", "Ascend910B")}


def test_dumps_of_serving_engines_hold_no_devices(shared: Path) -> None:
    for path in (shared / "samples" / "metrics").glob("*.prom"):
        assert device_samples(prometheus.read(path)) == ()


DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": 97, "DCGM_FI_DEV_MEM_COPY_UTIL": 41, "DCGM_FI_DEV_FB_USED": 1000,
    "DCGM_FI_DEV_FB_FREE": 3000, "DCGM_FI_DEV_FB_RESERVED": 96, "DCGM_FI_DEV_POWER_USAGE": 409.7,
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": 500, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 400, "DCGM_FI_DEV_SM_CLOCK": 1410,
    "DCGM_FI_DEV_MEM_CLOCK": 1593, "DCGM_FI_DEV_GPU_TEMP": 61, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 319159391,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9956, "DCGM_FI_PROF_DRAM_ACTIVE": 0.69,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x4 | 0x40 | 0x1,
}


def dcgm(values: dict[str, float], gpu: int = 0, extra: str = "") -> dict[str, float]:
    return {f"{name}{{gpu={gpu},UUID=GPU-{gpu},pci_bus_id=0:1,Hostname=secret-host,modelName=A100{extra}}}": value
            for name, value in values.items()}


def test_dcgm_units_and_limits() -> None:
    samples = one(dcgm(DCGM), dcgm(DCGM | {"DCGM_FI_DEV_GPU_UTIL": 3, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 1}),
                  times=(100.0, 101.0))
    found = table(samples)
    assert found["0", "utilization"] == [0.97, 0.03]
    assert found["0", "memory_activity"] == pytest.approx([0.41, 0.41])
    assert found["0", "memory_used"][0] == pytest.approx(1048.576)          # 1,000 MiB
    assert found["0", "memory_total"][0] == pytest.approx(4096 * 1.048576)  # used + free + reserved
    assert found["0", "power"] == [409.7, 409.7]
    assert found["0", "power_limit"] == [400, 400]                          # in force
    assert found["0", "energy"][0] == pytest.approx(319159.391)             # mJ
    assert (found["0", "core_clock"][0], found["0", "memory_clock"][0]) == (1410, 1593)
    assert facts(samples) == {("0", "name", "A100"), ("0", "limit_reason", "sw_power_cap, hw_thermal_slowdown"),
                              ("0", "limit_reason", "none")}
    assert (samples.clock, samples.series[0].times.tolist()) == ("epoch", [100.0, 101.0])
    own = {series.quantity: series.values[0] for series in samples.series}
    assert own["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == 0.9956  # another measure of use: kept under its own name


def test_nothing_that_identifies_a_machine_is_kept() -> None:
    samples = one(dcgm(DCGM))
    said = " ".join([*(series.of for series in samples.series), *(str(fact) for fact in samples.facts), *samples.notes])
    assert "secret-host" not in said
    assert "GPU-0" not in said


def test_a_mig_instance_has_its_engine_activity_and_its_own_name() -> None:
    values = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5, "DCGM_FI_DEV_FB_USED": 100}
    samples = one(dcgm(values, extra=",GPU_I_ID=1,GPU_I_PROFILE=3g.40gb")
                  | dcgm(values | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.25}, extra=",GPU_I_ID=2"))
    assert table(samples)["0/MIG 1", "utilization"] == [0.5]
    assert table(samples)["0/MIG 2", "utilization"] == [0.25]


@pytest.mark.parametrize("blank", [
    2147483632, 2147483634, 9223372036854775794, 140737488355328, math.nan, math.inf, -1,
])
def test_what_dcgm_does_not_know_is_unknown(blank: float) -> None:
    samples = one(dcgm({"DCGM_FI_DEV_GPU_UTIL": blank, "DCGM_FI_DEV_POWER_USAGE": blank}))
    assert all(math.isnan(values[0]) for values in table(samples).values())
    assert len(table(samples)) == 2


def test_devices_of_two_hosts_are_not_one() -> None:
    dumps = [{f"DCGM_FI_DEV_GPU_UTIL{{gpu=0,Hostname={host}}}": use} for host, use in (("a", 10), ("b", 90))]
    samples = one(dumps[0] | dumps[1])
    assert table(samples) == {("0:0", "utilization"): [0.1], ("1:0", "utilization"): [0.9]}
    assert "2 hosts" in samples.notes[0]


def npu(values: dict[str, float], chip: int = 0) -> dict[str, float]:
    return {f"npu_chip_info_{name}{{id={chip},model_name=910B3,vdie_id=X-{chip},pcie_bus_info=0:c1}}": value
            for name, value in values.items()}


def test_npu_exporter_of_several_versions() -> None:
    samples = one(npu({"utilization": 0, "overall_utilization": 12, "hbm_used_memory": 61000,
                       "hbm_total_memory": 65536, "used_memory": 5, "total_memory": 6, "aicore_current_freq": 800}, 3)
                  | npu({"overall_utilization": 7, "used_memory": 1000, "total_memory": 2000, "hbm_total_memory": 0},
                        4))
    found = table(samples)
    assert found["3", "utilization"] == [0.0]                           # AI Core, as npu-smi shows it
    assert found["3", "memory_used"][0] == pytest.approx(61000 * 1.048576)
    assert found["3", "core_clock"] == [800]
    assert found["4", "utilization"] == [0.07]
    assert found["4", "memory_total"][0] == pytest.approx(2000 * 1.048576)  # a chip without HBM
    assert facts(samples) == {("3", "name", "910B3"), ("4", "name", "910B3")}


def test_npu_exporter_without_used_hbm_takes_no_ddr_for_it() -> None:
    assert ("0", "memory_used") not in table(one(npu({"hbm_total_memory": 65536, "used_memory": 5})))


def test_an_unreadable_npu_is_unknown_not_idle() -> None:
    found = table(one(npu({"utilization": -1, "power": -1})))
    assert all(math.isnan(values[0]) for values in found.values())


@pytest.mark.parametrize("written", [str, str.upper, "amd_{}".format])
def test_amd_exporter_in_either_case_and_with_a_prefix(written: object) -> None:
    labels = "{gpu_id=2,gpu_partition_id=0,card_series=MI300X,hostname=h,serial_number=123"
    values = {"gfx_activity": 43, "umc_activity": 7, "used_vram": 284, "total_vram": 196592, "package_power": 141}
    dump = {f"{written(f'gpu_{name}')}{labels}}}": value for name, value in values.items()}  # type: ignore[operator]
    dump |= {f"{written('gpu_clock')}{labels},clock_index={i},clock_type=GPU_CLOCK_TYPE_SYSTEM}}": clock  # type: ignore[operator]
             for i, clock in enumerate((2100, 1900, 65535))}
    samples = one(dump)
    found = table(samples)
    assert found["2", "utilization"] == [0.43]
    assert found["2", "memory_activity"] == [0.07]
    assert found["2", "memory_total"][0] == pytest.approx(196592 * 1.048576)
    assert found["2", "power"] == [141]
    assert found["2", "core_clock"] == [2000]  # mean of the dies that answer
    assert facts(samples) == {("2", "name", "MI300X")}


def test_amd_partitions_are_apart() -> None:
    dump = {f"gpu_gfx_activity{{gpu_id=0,gpu_partition_id={part}}}": 10.0 * part for part in range(2)}
    assert table(one(dump)) == {("0/0", "utilization"): [0.0], ("0/1", "utilization"): [0.1]}


def test_intel_devices_are_counted_and_their_tiles_not_taken_beside_them() -> None:
    def labels(bdf: str, tile: str = "") -> str:
        return f"{{pci_bdf={bdf},dev_name=Max 1550,uuid=u,src=direct{f',sub_dev={tile}' if tile else ''}}}"
    samples = one({f"xpum_engine_ratio{labels('0:9')}": 0.5, f"xpum_engine_ratio{labels('0:9', '0')}": 0.9,
                   f"xpum_engine_ratio{labels('0:3', '1')}": 0.25, f"xpum_memory_used_bytes{labels('0:9')}": 2e9})
    assert table(samples) == {("1", "utilization"): [0.5], ("1", "memory_used"): [2000.0],
                              ("0/1", "utilization"): [0.25]}


def test_nvidia_gpu_exporter_gets_its_index_from_the_info() -> None:
    info = "nvidia_smi_gpu_info{uuid=U,index=5,name=NVIDIA L40S,pci_bus_id=0:1,serial=1}"
    values = {"utilization_gpu_ratio": 0.09, "utilization_memory_ratio": 0.02, "memory_used_bytes": 1.29499136e9,
              "memory_total_bytes": 4.8305799168e10, "power_draw_watts": 110.23, "enforced_power_limit_watts": 350,
              "power_default_limit_watts": 350, "clocks_current_sm_clock_hz": 2.52e9, "clocks_max_sm_clock_hz": 2.52e9,
              "temperature_gpu": 54, "clocks_event_reasons_active": 0, "pci_bus": 1, "serial": 7}
    samples = one({info: 1} | {f"nvidia_smi_{name}{{uuid=U}}": value for name, value in values.items()})
    assert table(samples) == {
        ("5", "utilization"): [0.09], ("5", "memory_activity"): [0.02],
        ("5", "memory_used"): [pytest.approx(1294.99136)], ("5", "memory_total"): [pytest.approx(48305.799168)],
        ("5", "power"): [110.23], ("5", "power_limit"): [350],
        ("5", "power_rated"): [350], ("5", "core_clock"): [2520], ("5", "core_clock_max"): [2520],
        ("5", "temperature"): [54]}
    assert facts(samples) == {("5", "name", "NVIDIA L40S"), ("5", "limit_reason", "none")}
    assert not {series.quantity for series in samples.series} & {"nvidia_smi_pci_bus", "nvidia_smi_serial"}


def test_triton() -> None:
    samples = one({"nv_gpu_utilization{gpu_uuid=B}": 0.8, "nv_gpu_utilization{gpu_uuid=A}": 0.2,
                   "nv_inference_count{model=x}": 3})
    assert table(samples) == {("0", "utilization"): [0.2], ("1", "utilization"): [0.8]}


def test_hostile_names_are_made_harmless_and_short() -> None:
    samples = one({"DCGM_FI_DEV_GPU_UTIL{gpu=\x1b[31m" + "x" * 99 + ",modelName=<script>\x07}": 5})
    assert len(samples.series[0].of) <= 20
    assert "\x1b" not in samples.series[0].of
    assert samples.facts[0].value == "<script>\\x07"


def test_other_dumps_are_of_no_device() -> None:
    assert device_samples([]) == ()
    assert device_samples([scrape({"gpu_count": 3, "node_load1": 2, "nv_inference_count": 1})]) == ()

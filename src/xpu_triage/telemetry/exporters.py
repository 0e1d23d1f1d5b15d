"""Device readings out of the dumps of the vendors' Prometheus exporters.

Names and units: dcgm-exporter `etc/*.csv`; npu-exporter `collector/metrics`; AMD device-metrics-exporter
`docs/configuration/metricslist.md`; Intel XPU Manager `rest/prometheus_exporter`; nvidia_gpu_exporter
`docs/METRICS.md`; Triton `docs/user_guide/metrics.md`. Host names, UUIDs, serial numbers and bus addresses tell devices
apart and are not kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..samples import QUANTITIES, Recorder, Samples, Scrape
from ..text import clean, shorten

MIB = 1.048576
"""MB in a MiB."""

DCGM_BLANK = (2147483632.0, 140737488355328.0, 9.2e18)
"""From here up DCGM's 32-bit integers, floats and 64-bit integers say why there is no value (`dcgm_structs.h`), in 16
codes each, which a float cannot tell apart in the last."""

CLOCK_REASONS = {
    0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's clock event reasons. Bit 0 says that the device is idle, which limits nothing."""

Labels = Mapping[str, str]
Reading = tuple[str, Labels, float]
"""The metric's whole name, its labels, its value."""
Metrics = dict[str, list[Reading]]
"""By the name below the exporter's prefix."""


@dataclass(frozen=True)
class _Metric:
    name: str
    """Below the exporter's prefix, in lower case."""
    scale: float = 1.0
    """To the quantity's unit."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Label to a part of its value that a reading must have."""


@dataclass(frozen=True)
class _Exporter:
    tool: str
    prefix: str
    """A regular expression; what follows it is the metric's name."""
    device: tuple[str, ...]
    """Labels that hold the device's index, the first that is there; with none, devices are counted."""
    counted: tuple[str, ...]
    """Labels to tell devices apart by where no index is given."""
    metrics: Mapping[str, tuple[_Metric, ...]]
    """Quantity to its metrics, the best first."""
    part: tuple[str, str] = ("", "")
    """The label of a part of a device, and how the part is written (`MIG `)."""
    part_alone: bool = False
    """A figure of a part is beside the one of the whole device, and only taken where there is none."""
    name: tuple[str, ...] = ()
    """Labels that hold the device's name."""
    reasons: tuple[str, ...] = ()
    """Metrics that are a bit mask of clock event reasons."""
    is_blank: tuple[float, ...] = ()


_EXPORTERS = (
    _Exporter(
        "DCGM exporter", r"dcgm_fi_", ("gpu",), ("uuid", "UUID", "device"),
        {
            "utilization": (_Metric("dev_gpu_util", 0.01), _Metric("prof_gr_engine_active")),
            "memory_activity": (_Metric("dev_mem_copy_util", 0.01), _Metric("prof_dram_active")),
            "memory_used": (_Metric("dev_fb_used", MIB),),
            "memory_total": (_Metric("dev_fb_total", MIB),),
            "power": (_Metric("dev_power_usage"),),
            "power_limit": (_Metric("dev_enforced_power_limit"), _Metric("dev_power_mgmt_limit")),
            "power_rated": (_Metric("dev_power_mgmt_limit_def"),),
            "core_clock": (_Metric("dev_sm_clock"),),
            "core_clock_max": (_Metric("dev_max_sm_clock"),),
            "memory_clock": (_Metric("dev_mem_clock"),),
            "memory_clock_max": (_Metric("dev_max_mem_clock"),),
            "temperature": (_Metric("dev_gpu_temp"),),
            "energy": (_Metric("dev_total_energy_consumption", 0.001),),
        },
        part=("GPU_I_ID", "MIG "), name=("modelName",),
        reasons=("dev_clocks_event_reasons", "dev_clock_throttle_reasons"), is_blank=DCGM_BLANK,
    ),
    _Exporter(
        "npu-exporter", r"npu_chip_info_", ("id", "npuID", "npu_id"), ("vdie_id", "uuid", "pcie_bus_info"),
        {
            "utilization": (_Metric("utilization", 0.01), _Metric("overall_utilization", 0.01)),
            "memory_used": (_Metric("hbm_used_memory", MIB), _Metric("used_memory", MIB)),
            "memory_total": (_Metric("hbm_total_memory", MIB), _Metric("total_memory", MIB)),
            "power": (_Metric("power"),),
            "core_clock": (_Metric("aicore_current_freq"),),
            "core_clock_max": (_Metric("aicore_freq"),),
            "temperature": (_Metric("temperature"),),
        },
        name=("modelName", "model_name", "name"),
    ),
    _Exporter(
        "AMD Device Metrics Exporter", r"(?:amd_)?gpu_", ("gpu_id",), ("serial_number", "gpu_uuid"),
        {
            "utilization": (_Metric("gfx_activity", 0.01),),
            "memory_activity": (_Metric("umc_activity", 0.01),),
            "memory_used": (_Metric("used_vram", MIB),),
            "memory_total": (_Metric("total_vram", MIB),),
            "power": (_Metric("package_power"), _Metric("average_package_power"), _Metric("power_usage")),
            "core_clock": (_Metric("clock", where={"clock_type": "system"}),
                           _Metric("clock", where={"clock_type": "gfx"})),
            "memory_clock": (_Metric("clock", where={"clock_type": "mem"}),),
            "core_clock_max": (_Metric("max_clock", where={"clock_type": "system"}),),
            "memory_clock_max": (_Metric("max_clock", where={"clock_type": "mem"}),),
            "temperature": (_Metric("junction_temperature"), _Metric("edge_temperature")),
            "energy": (_Metric("energy_consumed", 1e-6),),
        },
        part=("gpu_partition_id", ""), name=("card_series",), is_blank=(65535.0, 4294967295.0),
    ),
    _Exporter(
        "Intel XPU Manager exporter", r"xpum_", (), ("pci_bdf", "uuid", "dev_file"),
        {
            "utilization": (_Metric("engine_ratio"),),
            "memory_activity": (_Metric("memory_bandwidth_ratio"),),
            "memory_used": (_Metric("memory_used_bytes", 1e-6),),
            "memory_used_fraction": (_Metric("memory_ratio"),),
            "power": (_Metric("power_watts"),),
            "core_clock": (_Metric("frequency_mhz", where={"location": "gpu", "type": "actual"}),),
            "temperature": (_Metric("temperature_celsius", where={"location": "gpu"}),),
            "energy": (_Metric("energy_joules_total"), _Metric("energy_joules")),
        },
        part=("sub_dev", ""), part_alone=True, name=("dev_name",),
    ),
    _Exporter(
        "nvidia_gpu_exporter", r"nvidia_smi_", (), ("uuid",),
        {
            "utilization": (_Metric("utilization_gpu_ratio"), _Metric("mig_graphics_activity_ratio")),
            "memory_activity": (_Metric("utilization_memory_ratio"),),
            "memory_used": (_Metric("memory_used_bytes", 1e-6), _Metric("mig_memory_used_bytes", 1e-6)),
            "memory_total": (_Metric("memory_total_bytes", 1e-6), _Metric("mig_memory_total_bytes", 1e-6)),
            "power": (_Metric("power_draw_watts"),),
            "power_limit": (_Metric("enforced_power_limit_watts"), _Metric("power_limit_watts")),
            "power_rated": (_Metric("power_default_limit_watts"),),
            "core_clock": (_Metric("clocks_current_sm_clock_hz", 1e-6),),
            "core_clock_max": (_Metric("clocks_max_sm_clock_hz", 1e-6),),
            "memory_clock": (_Metric("clocks_current_memory_clock_hz", 1e-6),),
            "memory_clock_max": (_Metric("clocks_max_memory_clock_hz", 1e-6),),
            "temperature": (_Metric("temperature_gpu"),),
            "energy": (_Metric("energy_joules_total"),),
        },
        part=("gpu_instance_id", "MIG "), name=("name",),
        reasons=("clocks_event_reasons_active", "clocks_throttle_reasons_active"),
    ),
    _Exporter(
        "Triton", r"nv_(?=gpu_|energy_)", (), ("gpu_uuid",),
        {
            "utilization": (_Metric("gpu_utilization"),),
            "memory_used": (_Metric("gpu_memory_used_bytes", 1e-6),),
            "memory_total": (_Metric("gpu_memory_total_bytes", 1e-6),),
            "power": (_Metric("gpu_power_usage"),),
            "power_limit": (_Metric("gpu_power_limit"),),
            "energy": (_Metric("energy_consumption"),),
        },
    ),
)

TOOLS = frozenset(exporter.tool for exporter in _EXPORTERS)
"""What readings out of `/metrics` are told apart by from those of a vendor's tool."""

_IDENTIFIES = re.compile(r"(?:^|_)(?:info|name|serial|uuid|pci|platform|pid|compute_app)(?:_|$)")
"""Metrics whose value or labels tell a machine or a process, and nothing of its load."""
_HOST = ("Hostname", "hostname", "node", "instance")


def device_samples(scrapes: Sequence[Scrape]) -> tuple[Samples, ...]:
    """The device readings of every exporter in these dumps, a `Samples` an exporter, in the order of their times.

    Units are those of `samples.QUANTITIES`; what has no quantity there is kept under the exporter's own name. A value
    that cannot be (a share above 1, a negative one, the exporter's word for "not supported") is unknown.
    """
    timed = bool(scrapes) and all(scrape.time is not None for scrape in scrapes)
    ordered = sorted(scrapes, key=lambda scrape: scrape.time or 0.0) if timed else list(scrapes)
    return tuple(samples for exporter in _EXPORTERS if (samples := _samples(exporter, ordered, timed)) is not None)


def _samples(exporter: _Exporter, scrapes: Sequence[Scrape], timed: bool) -> Samples | None:
    prefix = re.compile(exporter.prefix, re.IGNORECASE)
    dumps = [(scrape, _below(scrape, prefix)) for scrape in scrapes]
    dumps = [(scrape, metrics) for scrape, metrics in dumps if _is_of(exporter, metrics)]
    if not dumps:
        return None
    every = (labels for _, metrics in dumps for found in metrics.values() for _, labels, _ in found)
    devices = _Devices(exporter, every)
    recorder = Recorder()
    for scrape, metrics in dumps:
        time = scrape.time if timed else None
        for of, readings in devices.readings(metrics).items():
            _record(exporter, recorder, of, readings, time)
    sources = list(dict.fromkeys(scrape.source for scrape, _ in dumps))
    return recorder.samples(exporter.tool, sources[0] if len(sources) == 1 else f"{sources[0]} … {sources[-1]}",
                            clock="epoch" if timed else "", notes=devices.notes)


def _below(scrape: Scrape, prefix: re.Pattern[str]) -> Metrics:
    """Metrics of one exporter by their name below its prefix."""
    metrics: Metrics = {}
    for name, found in scrape.values.items():
        if match := prefix.match(name):
            metrics.setdefault(name[match.end():].lower(), []).extend((name, labels, value) for labels, value in found)
    return metrics


def _is_of(exporter: _Exporter, metrics: Mapping[str, Iterable[object]]) -> bool:
    """Other exporters share a prefix as short as `gpu_`: one of the known metrics has to be there."""
    return any(metric.name in metrics for known in exporter.metrics.values() for metric in known)


class _Devices:
    """Tells devices apart, and names them without what identifies a machine."""

    def __init__(self, exporter: _Exporter, labels: Iterable[Labels]) -> None:
        self._exporter = exporter
        self.notes: tuple[str, ...] = ()
        hosts: dict[str, None] = {}
        counted: dict[tuple[str, str], None] = {}
        self._index: dict[str, str] = {}
        self._has_parts = False
        for each in labels:
            if self._key(each) is None:
                continue
            hosts[self._host(each)] = None
            counted[self._host(each), self._counted(each)] = None
            self._has_parts = self._has_parts or each.get(exporter.part[0], "0") not in ("", "0")
            if "index" in each and each.get("uuid"):  # nvidia_gpu_exporter says the index once, beside the UUID
                self._index[each["uuid"]] = clean(each["index"])
        self._hosts = {host: str(number) for number, host in enumerate(sorted(hosts))}
        self._numbers: dict[tuple[str, str], str] = {}
        for host in hosts:
            on_host = sorted(key for at, key in counted if at == host)
            self._numbers |= {(host, key): str(number) for number, key in enumerate(on_host)}
        if len(hosts) > 1:
            self.notes = (f"devices of {len(hosts)} hosts: named host:device, both counted from 0",)

    def readings(self, metrics: Metrics) -> dict[str, Metrics]:
        """By device, its readings by metric."""
        whole: dict[str, Metrics] = {}
        parts: dict[str, Metrics] = {}
        for name, found in metrics.items():
            for reading in found:
                if (of := self._of(reading[1])) is None:
                    continue
                is_part = self._exporter.part_alone and reading[1].get(self._exporter.part[0])
                (parts if is_part else whole).setdefault(of, {}).setdefault(name, []).append(reading)
        return whole | {of: readings for of, readings in parts.items() if of.rpartition("/")[0] not in whole}

    def _of(self, labels: Labels) -> str | None:
        key = self._key(labels)
        if key is None:
            return None
        host = self._host(labels)
        given = next((labels[name] for name in self._exporter.device if labels.get(name)), None)
        index = given or self._index.get(labels.get("uuid", "")) or self._numbers[host, self._counted(labels)]
        of = shorten(clean(index), 20)
        label, word = self._exporter.part
        part = labels.get(label, "")
        if part and (word or self._has_parts or self._exporter.part_alone):
            of = f"{of}/{word}{shorten(clean(part), 20)}"
        return of if len(self._hosts) == 1 else f"{self._hosts[host]}:{of}"

    def _key(self, labels: Labels) -> str | None:
        """Something that tells the device, None for a reading of none."""
        names = (*self._exporter.device, *self._exporter.counted)
        return next((labels[name] for name in names if labels.get(name)), None)

    def _counted(self, labels: Labels) -> str:
        return next((labels[name] for name in self._exporter.counted if labels.get(name)), "")

    def _host(self, labels: Labels) -> str:
        return next((labels[name] for name in _HOST if labels.get(name)), "")


def _record(exporter: _Exporter, recorder: Recorder, of: str, readings: Metrics, time: float | None) -> None:
    used: set[str] = set()
    known: dict[str, float | None] = {}
    for quantity, metrics in exporter.metrics.items():
        for metric in _same_memory(quantity, metrics, readings):
            values = [_value(exporter, quantity, value, metric.scale) for _, labels, value in
                      readings.get(metric.name, ()) if _fits(labels, metric)]
            if not values or known.get(quantity) is not None:
                continue
            certain = [value for value in values if value is not None]
            known[quantity] = sum(certain) / len(certain) if certain else None
            used.add(metric.name)
    if exporter.is_blank is DCGM_BLANK:
        _total_memory(exporter, readings, known)
    for quantity, value in known.items():
        recorder.add(of, quantity, value, time=time)
    for label in exporter.name:
        every = (labels for found in readings.values() for _, labels, _ in found)
        if named := next((labels[label] for labels in every if labels.get(label)), ""):
            recorder.say(of, "name", shorten(clean(named), 80), time=time)
            break
    if (limits := _limits(exporter, readings)) is not None:
        recorder.say(of, "limit_reason", limits, time=time)
    for name, found in readings.items():
        if name not in used and len(found) == 1 and not _IDENTIFIES.search(name):
            whole, _, value = found[0]
            recorder.add(of, whole, None if _is_blank(exporter, value) else value, time=time)


def _fits(labels: Labels, metric: _Metric) -> bool:
    return all(part in labels.get(label, "").lower() for label, part in metric.where.items())


def _same_memory(quantity: str, metrics: tuple[_Metric, ...], readings: Metrics) -> tuple[_Metric, ...]:
    """Used and total are of one memory: where a chip has HBM, its DDR is another."""
    if quantity in ("memory_used", "memory_total") and any(
            value > 0 for name in ("hbm_total_memory", "hbm_used_memory") for _, _, value in readings.get(name, ())):
        return metrics[:1]
    return metrics


def _is_blank(exporter: _Exporter, value: float) -> bool:
    """Whether this is the exporter's word for a value that it does not have."""
    if not math.isfinite(value) or value in exporter.is_blank:
        return True
    small, real, large = DCGM_BLANK
    return exporter.is_blank is DCGM_BLANK and (
        small <= value < small + 16 or real <= value < real + 16 or value >= large)


def _value(exporter: _Exporter, quantity: str, value: float, scale: float) -> float | None:
    """In the quantity's unit; None where the exporter does not know, or what it says cannot be."""
    if _is_blank(exporter, value) or (value < 0 and quantity != "temperature"):
        return None
    value *= scale
    if QUANTITIES[quantity] == "fraction":
        return min(value, 1.0) if value <= 1.01 else None
    return None if quantity == "memory_total" and value == 0 else value


def _total_memory(exporter: _Exporter, readings: Metrics, known: dict[str, float | None]) -> None:
    """DCGM's default set has used and free memory, and newer ones reserved."""
    used = known.get("memory_used")
    if known.get("memory_total") is not None or used is None or "dev_fb_free" not in readings:
        return
    others = [_value(exporter, "memory_used", readings[name][0][2], MIB)
              for name in ("dev_fb_free", "dev_fb_reserved") if name in readings]
    certain = [value for value in others if value is not None]
    if len(certain) == len(others):
        known["memory_total"] = used + sum(certain)


def _limits(exporter: _Exporter, readings: Metrics) -> str | None:
    """Limits that are active, `none` where the exporter reports them all inactive; None where it reports none."""
    for name in exporter.reasons:
        for _, _, value in readings.get(name, ()):
            if math.isfinite(value) and 0 <= value < 2 ** 31 - 16:
                return ", ".join(_reasons(int(value))) or "none"
    return None


def _reasons(bits: int) -> Iterator[str]:
    for bit, reason in CLOCK_REASONS.items():
        if bits & bit:
            yield reason
    if rest := bits & ~(sum(CLOCK_REASONS) | 1):
        yield f"0x{rest:x}"

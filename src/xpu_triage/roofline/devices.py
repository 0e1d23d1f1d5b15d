"""What a device can do at most, by its product name, or by its memory's clock and width.

The table is `playbook/platforms/peaks.yaml`. A name that is not in it whole is unknown: variants of one product differ
by a factor of two, and nothing is guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from .. import plain_yaml
from ..errors import TriageError
from ..resources import shipped
from ..samples import Samples
from ..text import clean, shorten

TRANSFERS_PER_CLOCK: Mapping[tuple[str, str], int] = {
    ("nvidia", ""): 2, ("amd", "hbm2"): 2, ("amd", "hbm2e"): 2, ("amd", "hbm3"): 4, ("amd", "hbm3e"): 4,
    ("amd", "gddr6"): 16}
"""Transfers per pin and cycle of the memory clock *that the vendor's tool prints*, by vendor and memory type.

NVIDIA prints half the data rate for every type (H100: 2,619 MHz for 5.2 Gbit/s HBM3; L40S: 9,001 MHz for 18 Gbit/s
GDDR6), so 2 always. AMD prints the memory's own clock: HBM2 1,200 MHz for 2.4 Gbit/s (MI100: 1,229 GB/s over 4,096
bits), HBM3 1,300 MHz for 5.2 Gbit/s (MI300X: 5,325 over 8,192), GDDR6 1,249 MHz for 20 Gbit/s. Any other pair is
unknown."""


_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Device:
    """What one device can do; None for unknown."""

    name: str
    gbps: float | None
    """Advertised memory bandwidth, 10⁹ bytes a second."""
    tflops: float | None
    """Dense 16-bit arithmetic, 10¹² operations a second."""
    source: str
    """Where the figures are from, in words."""
    how: str = "spec"
    """`spec` for a table, `smi` or `trace` for clocks that were read, `typed` for a person."""


class BadTable(TriageError):
    """The table of peaks has a mistake."""


@cache
def table(path: Path | None = None) -> Mapping[str, Device]:
    """All devices of the table by every product name, in lower case. Raises BadTable, one line."""
    path = path or shipped("playbook") / "platforms" / "peaks.yaml"
    try:
        raw = plain_yaml.load(path.read_text(encoding="utf-8"))
        return {_key(name): device for label, entry in raw["devices"].items()
                for name in entry["names"] for device in [_device(label, entry)]}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadTable(f"table of device peaks: {error}", where=path) from None


def by_name(name: str) -> Device | None:
    """The device of this product name; None where the table does not have it."""
    found = table().get(_key(name)) or table().get(f"nvidia {_key(name)}")
    return found or next((device for device in table().values() if _key(device.name) == _key(name)), None)


def known() -> tuple[str, ...]:
    """The devices of the table, by their short names."""
    return tuple(dict.fromkeys(device.name for device in table().values()))


def near(name: str) -> tuple[str, ...]:
    """Devices of the table of which one may have been meant: of the same numbers (an H20 is no H200), and with every
    word of this name, or spelled nearly like it. To ask, never to take it."""
    spelled = {**{key: device.name for key, device in table().items()}, **{_key(short): short for short in known()}}
    numbers = set(_NUMBER.findall(name))
    alike = [key for key in spelled if numbers and numbers <= set(_NUMBER.findall(key))]
    holding = [key for key in alike if all(word in key for word in _key(name).split())]
    close = holding or get_close_matches(_key(name), alike, n=3, cutoff=0.7)
    return tuple(dict.fromkeys(spelled[key] for key in close))


def from_names(names: Iterable[str]) -> tuple[Device | None, str]:
    """The one device that these product names are of; else None, and why."""
    printed = dict.fromkeys(_plain(name) for name in names)
    known = {name: by_name(name) for name in printed if name}
    if not known:
        return None, "the evidence does not name the device"
    if len(known) > 1:
        return None, f"devices of several kinds ({', '.join(list(known)[:3])}): whose peak counts is not known"
    name, device = next(iter(known.items()))
    if device is None:
        return None, (f"no peak is known for {name}: measure it (roofline.probe_gbps) or give it "
                      "(roofline.peak_gbps)")
    return device, ""


def from_samples(samples: Sequence[Samples]) -> tuple[Device | None, str]:
    """The device that vendor tools name."""
    return from_names(fact.value for each in samples for fact in each.facts
                      if fact.kind == "device" and fact.name == "name")


def from_trace(meta: Mapping[str, Any]) -> tuple[Device | None, str]:
    """The device in a trace's `deviceProperties`: by its own bandwidth where memory clock and bus width stand there,
    else by its name."""
    listed = meta.get("deviceProperties")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    device, why = from_names(str(entry["name"]) for entry in entries if isinstance(entry.get("name"), str))
    found = {measured for entry in entries if (measured := _bandwidth_in(entry)) is not None}
    if len(found) != 1:
        return device, why
    gbps = found.pop()
    name = device.name if device else clean(shorten(str(entries[0].get("name") or "device"), 60))
    return Device(name, gbps, device.tflops if device else None,
                  "memory clock and bus width in the trace's deviceProperties", "trace"), ""


def from_evidence(metas: Iterable[Mapping[str, Any]], samples: Sequence[Samples]) -> tuple[Device | None, str]:
    """The device that the traces' own words (`Trace.meta`) or vendor tools name: the first that is known. Where two
    of them name different ones nothing is taken, and why."""
    found: dict[str, Device] = {}
    reasons: list[str] = []
    for device, why in (*map(from_trace, metas), from_samples(samples)):
        if device is not None:
            found.setdefault(device.name, device)
        elif why not in reasons:
            reasons.append(why)
    if len(found) > 1:
        return None, f"traces and tools name different devices ({', '.join(found)}): whose peak counts is not known"
    if found:
        return next(iter(found.values())), ""
    return None, max(reasons, key=len, default="the evidence does not name the device")


def computed_gbps(clock_mhz: float, bus_bits: float, transfers: int = 2) -> float | None:
    """transfers × clock × width ÷ 8, in 10⁹ bytes a second; None for figures that no memory has.

    >>> round(computed_gbps(2619, 5120) or 0)
    3352
    """
    gbps = transfers * clock_mhz * 1e6 * bus_bits / 8 / 1e9
    return gbps if math.isfinite(gbps) and clock_mhz > 0 and bus_bits >= 32 and 1 <= gbps <= 1_000_000 else None


def transfers_per_clock(vendor: str, memory: str = "") -> int | None:
    """Of TRANSFERS_PER_CLOCK; None for unknown."""
    vendor = vendor.casefold()
    return TRANSFERS_PER_CLOCK.get((vendor, memory.casefold())) or TRANSFERS_PER_CLOCK.get((vendor, ""))


def _bandwidth_in(entry: Mapping[str, Any]) -> float | None:
    """`memoryBandwidth` in bytes a second (Nsight Systems, TARGET_INFO_GPU), or clock in kHz and width in bits (CUDA's
    device properties)."""
    whole = _number(entry, "memoryBandwidth")
    if whole is not None:
        return whole / 1e9 if 1e9 <= whole <= 1e15 else None
    clock = _number(entry, "memoryClockRate", "memory_clock_rate")
    width = _number(entry, "memoryBusWidth", "globalMemoryBusWidth", "memory_bus_width")
    if clock is None or width is None or not str(entry.get("name", "")).casefold().startswith(("nvidia", "tesla")):
        return None
    return computed_gbps(clock / 1000, width)


def _number(entry: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        raw = entry.get(name)
        if isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw) and 0 < raw < 1e18:
            return float(raw)
    return None


def _device(label: str, entry: Mapping[str, Any]) -> Device:
    figures = {name: entry.get(name) for name in ("bf16_tflops", "gbps")}
    for name, value in figures.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
            raise ValueError(f"{label}: {name} is {value!r}")
    if not isinstance(entry["source"], str) or not entry["source"]:
        raise ValueError(f"{label}: a peak without a source")
    gbps, tflops = figures["gbps"], figures["bf16_tflops"]
    return Device(label, None if gbps is None else float(gbps), None if tflops is None else float(tflops),
                  entry["source"])


def _plain(name: str) -> str:
    return " ".join(clean(shorten(name, 80)).split())


def _key(name: str) -> str:
    return " ".join(name.casefold().split())

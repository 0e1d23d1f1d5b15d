"""What is at hand when something is asked for: which kinds of evidence were given, of which vendor's device and which
engine, and the commands that get more there. Words for the reader; no rule and no verdict looks at any of it.

The commands are those of `playbook/live.md` and of the vendors' pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .redact_words import HIDDEN
from .samples import Telemetry
from .telemetry.engines import engine_of

_AGAIN = "for i in $(seq 15); do date -u +'# %FT%TZ'; timeout 5 {tool}; sleep 2; done > {file}"
"""For a tool that prints no time of its own."""

DEVICE_COMMANDS: Mapping[str, str] = {
    "nvidia": "TZ=UTC nvidia-smi dmon -s pucm -o DT -d 1 -c 30 > dmon.txt",
    "ascend": _AGAIN.format(tool="npu-smi info", file="npu-smi-info.txt"),
    "kunlun": _AGAIN.format(tool="xpu-smi", file="xpu-smi.txt"),
    "amd": "TZ=UTC amd-smi monitor -p -t -u -m -v -w 1 -W 30 --csv > amd-smi.csv",
    "intel": "sudo TZ=UTC xpu-smi dump -d -1 -m 0,1,2,3,5,17,18,35 -i 1 -n 30 --date > xpu-smi.csv",
    "gaudi": _AGAIN.format(tool="hl-smi", file="hl-smi.txt"),
    "cambricon": _AGAIN.format(tool="cnmon", file="cnmon.txt"),
    "hygon": _AGAIN.format(tool="hy-smi", file="hy-smi.txt"),
    "mthreads": _AGAIN.format(tool="mthreads-gmi", file="mthreads-gmi.txt"),
    "metax": _AGAIN.format(tool="mx-smi", file="mx-smi.txt"),
    "iluvatar": _AGAIN.format(tool="ixsmi", file="ixsmi.txt"),
}
"""Half a minute of readings, by vendor."""

_VENDORS: tuple[tuple[str, str], ...] = (
    (r"kunlun|\bxre\b|\bp800\b", "kunlun"), (r"npu-smi|\bascend|torch_npu|\bcann\b", "ascend"),
    (r"\bnsys\b|nvidia|\bcuda\b|geforce|\bdcgm", "nvidia"), (r"amd-smi|rocm|\bamd\b|\bhip\b|radeon|instinct", "amd"),
    (r"hl-smi|gaudi|habana", "gaudi"), (r"\(intel\)|\bintel\b|kineto xpu", "intel"), (r"cnmon|cambricon", "cambricon"),
    (r"hy-smi|hygon", "hygon"), (r"mthreads|moore threads", "mthreads"), (r"mx-smi|metax", "metax"),
    (r"ixsmi|iluvatar", "iluvatar"))
"""What names of tools, trace formats and what a person typed say of the vendor; the first that fits counts."""

ANY_SERVER = "http://HOST:PORT"
"""Where nobody knows which server it is: no command that reaches another one by mistake."""

_METRICS: Mapping[str, str] = {"trtllm": "/prometheus/metrics"}
"""Where an engine serves its metrics, where that is not `/metrics`."""

_PROFILER: Mapping[str, str] = {
    "vllm": "curl -X POST {server}/start_profile; sleep 2; curl -X POST {server}/stop_profile",
    "sglang": "curl -X POST {server}/start_profile -H 'Content-Type: application/json' "
              """-d '{{"num_steps": 10, "with_stack": true}}'"""}
"""The engine's own profiler, where it was started with it (README, "How to get a trace")."""

_ENGINES = ("vllm", "sglang", "lmdeploy", "trtllm", "tgi")


@dataclass(frozen=True)
class AtHand:
    """Empty: nothing is known of what was given."""

    kinds: frozenset[str] = frozenset()
    """Of `catalogue.EVIDENCE`."""
    vendor: str = ""
    """A key of DEVICE_COMMANDS; empty where it is not known, or where there are several."""
    engine: str = ""
    """`vllm`, `sglang`, …; empty likewise."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Signals that the evidence should give and cannot, each with the reason."""
    server: str = ""
    """The address of the server that the evidence is of; empty where it is not known, is hidden, or there are
    several."""

    def command(self, kind: str) -> str:
        """How to get evidence of this kind here, ready to paste; empty where that is not known."""
        match kind:
            case "smi":
                return DEVICE_COMMANDS.get(self.vendor, "xpu-triage watch --device auto --out device")
            case "metrics":
                url = f"{self.server or ANY_SERVER}{_METRICS.get(self.engine, '/metrics')}"
                return f"for i in 1 2; do curl -s {url} > metrics-$(date -u +%Y%m%dT%H%M%SZ).prom; sleep 30; done"
            case "trace":
                return _PROFILER.get(self.engine, "").format(server=self.server or ANY_SERVER)
            case "stacks":
                return ("for i in 1 2 3 4 5; do py-spy dump --json --nonblocking --pid PID > stacks-$i.json; sleep 3; "
                        "done")
            case "os":
                return "top -b -d 5 -n 6 > top.txt"
        return ""


def at_hand(telemetry: Telemetry, formats: Iterable[str], typed: Iterable[str], unknown: Mapping[str, str],
            servers: Iterable[str] = ()) -> AtHand:
    """From telemetry, the formats of the traces, what a person typed of the platform, and the servers that were
    watched."""
    formats = tuple(formats)
    kinds = {name for name, there in (
        ("smi", any(each.kind == "device" for samples in telemetry.samples for each in samples.series)),
        ("os", any(each.kind == "process" for samples in telemetry.samples for each in samples.series)),
        ("metrics", telemetry.scrapes), ("stacks", telemetry.stacks), ("log", telemetry.logs),
        ("bench", telemetry.benches), ("trace", formats)) if there}
    words = [*formats, *(samples.tool for samples in telemetry.samples)]
    vendors = set(filter(None, map(_vendor, words))) or set(filter(None, map(_vendor, typed)))
    engines = set(_engines(telemetry)) or {name for name in _ENGINES for text in typed if name in _squeezed(text)}
    watched = {"" if HIDDEN.search(server) else server for server in servers if server}
    return AtHand(frozenset(kinds), vendors.pop() if len(vendors) == 1 else "",
                  engines.pop() if len(engines) == 1 else "", unknown, watched.pop() if len(watched) == 1 else "")


def _vendor(text: str) -> str:
    return next((vendor for words, vendor in _VENDORS if re.search(words, text, re.IGNORECASE)), "")


def _engines(telemetry: Telemetry) -> Iterator[str]:
    for log in telemetry.logs:
        if log.engine:
            yield _squeezed(log.engine)
    for scrape in telemetry.scrapes:
        for name in scrape.values:
            if found := engine_of(name):
                yield _squeezed(found[0].name)


def _squeezed(name: str) -> str:
    """`TensorRT-LLM` and `trtllm` are one name.

    >>> _squeezed("TensorRT-LLM"), _squeezed("vLLM 0.14")
    ('trtllm', 'vllm014')
    """
    return re.sub(r"[^a-z0-9]", "", name.casefold()).replace("tensorrtllm", "trtllm")

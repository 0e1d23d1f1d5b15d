"""A vendor's own tool, run once a sample. Its output goes to a file as it is, each piece after a line with the time,
as if a person had run `date; tool` again and again; lists of processes are cut off.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..text import clean
from .clock import iso
from .command import Done
from .probe import Trouble

TIMEOUT_S = 10.0
MAX_CARDS = 16

CPU_SHARE = 0.03
"""Of one core, for these programs: several are Python scripts that take half a second each."""

_FIELDS = ("timestamp,index,name,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,"
           "enforced.power.limit,power.default_limit,clocks.current.sm,clocks.max.sm,clocks.current.memory,"
           "clocks.max.memory,temperature.gpu,pstate,clocks_event_reasons.active")
_OLD_FIELDS = _FIELDS.replace("clocks_event_reasons", "clocks_throttle_reasons")
_ROCM = ("--showuse", "--showmemuse", "--showpower", "--showmaxpower", "--showclocks", "--showtemp", "--showmeminfo",
         "vram", "--showproductname", "--json")

_PROCESSES = re.compile(r"\bprocess(?:es)?\b|\bPID\b", re.IGNORECASE)
_RULE = re.compile(r"[\s|+=*-]*$")
_NPU = re.compile(r"NPU ID\s*:\s*(\d+)")

Run = Callable[[Sequence[str]], Done]
"""Runs a program within bounds; raises `Trouble`."""


@dataclass(frozen=True)
class Tool:
    label: str
    """As people name it."""
    program: str
    commands: tuple[tuple[str, ...], ...]
    """Arguments to try, the first that prints what is expected is used: versions differ."""
    expected: re.Pattern[str]
    """What its output has to hold. Two vendors call theirs `xpu-smi`."""
    file: str
    is_table: bool = True
    """Drawn for people, with processes under it."""
    has_times: bool = False
    """Every line has the time: lines follow one header."""


TOOLS: tuple[Tool, ...] = (
    Tool("nvidia-smi", "nvidia-smi", ((f"--query-gpu={_FIELDS}", "--format=csv"),
                                      (f"--query-gpu={_OLD_FIELDS}", "--format=csv")),
         re.compile(r"^timestamp,.*\n.*\d"), "nvidia-smi.csv", is_table=False, has_times=True),
    Tool("npu-smi (Ascend)", "npu-smi", (("info",),), re.compile(r"npu-smi.*\n(?:.*\n)*.*AICore", re.IGNORECASE),
         "npu-smi-info.txt"),
    Tool("xpu-smi (Kunlun)", "xpu-smi", ((),), re.compile(r"XPU-RT"), "xpu-smi-kunlun.txt"),
    Tool("xpu-smi (Intel)", "xpu-smi", (("dump", "--date", "-d", "-1", "-m", "0,1,2,3,5,17,18", "-i", "1", "-n", "1"),
                                        ("dump", "-d", "-1", "-m", "0,1,2,3,5,17,18", "-i", "1", "-n", "1"),
                                        ("dump", "-d", "-1", "--metrics", "0,1,2,3,5,17,18", "--interval", "1",
                                         "--number", "1")),
         re.compile(r"^Timestamp,\s*DeviceId", re.MULTILINE), "xpu-smi-intel.csv", is_table=False, has_times=True),
    Tool("amd-smi", "amd-smi", (("metric", "--json"),), re.compile(r"^\s*[\[{]"), "amd-smi.json", is_table=False),
    Tool("rocm-smi", "rocm-smi", (_ROCM,), re.compile(r'^\s*\{\s*"card', re.MULTILINE), "rocm-smi.json",
         is_table=False),
    Tool("hl-smi (Gaudi)", "hl-smi", ((),), re.compile(r"HL-SMI"), "hl-smi.txt"),
    Tool("cnmon (Cambricon)", "cnmon", ((),), re.compile(r"CNMON"), "cnmon.txt"),
    Tool("hy-smi (Hygon)", "hy-smi", ((),), re.compile(r"\b(?:HCU|DCU|GPU)%?"), "hy-smi.txt"),
)


class Smi:
    """One vendor's tool. Raises `Trouble` where none on PATH answers, naming those that are there."""

    interval_s = 2.0

    def __init__(self, run: Run, *, path: str | None = None) -> None:
        self._run = run
        self.trouble: list[str] = []
        self.cpu_s = 0.0
        failed: list[str] = []
        for tool in TOOLS:
            program = shutil.which(tool.program, path=path)
            if program is None:
                continue
            for arguments in tool.commands:
                try:
                    done = run((program, *arguments))
                except Trouble as trouble:
                    failed.append(str(trouble))
                    break  # one that hangs or does not start is not asked again in another way
                if tool.expected.search(done.out):
                    self._tool, self._argv, self.label = tool, (program, *arguments), tool.label
                    self._cards = self._listed(program) if tool.program == "npu-smi" else ()
                    return
                failed.append(_failure(tool, done))
        there = f": {'; '.join(dict.fromkeys(failed))}" if failed else " on PATH"
        raise Trouble(f"no vendor's tool answers{there}" if failed else f"no vendor's tool{there}", final=True)

    def sample(self, moment: datetime) -> dict[str, tuple[str, str]]:
        """File to (header, lines). Raises `Trouble`."""
        self.cpu_s = 0.0
        done = self._done(self._argv)
        tool = self._tool
        if not tool.expected.search(done.out):
            raise Trouble(_failure(tool, done))
        name = f"device/{tool.file}"
        if tool.has_times:
            header, _, rows = done.out.lstrip().partition("\n")
            return {name: (f"{header.rstrip()}\n", _whole(rows))}
        text = without_processes(done.out) if tool.is_table else done.out
        found = {name: ("", f"# {iso(moment)}\n{_whole(text)}")}
        if self._cards:
            found["device/npu-smi-usages.txt"] = ("", f"# {iso(moment)}\n{self._usages()}")
        return found

    @property
    def needed_interval_s(self) -> float:
        """Seconds between samples that keep these programs within CPU_SHARE."""
        return max(self.interval_s, self.cpu_s / CPU_SHARE)

    def close(self) -> None:
        """Nothing is open."""

    def _done(self, argv: Sequence[str]) -> Done:
        done = self._run(argv)
        self.cpu_s += done.cpu_s
        return done

    def _listed(self, program: str) -> tuple[str, ...]:
        """The cards, for `npu-smi info -t usages`, which has memory bandwidth; none where it cannot list them."""
        try:
            return tuple(dict.fromkeys(_NPU.findall(self._run((program, "info", "-l")).out)))[:MAX_CARDS]
        except Trouble:
            return ()

    def _usages(self) -> str:
        text = ""
        for card in self._cards:
            done = self._done((self._argv[0], "info", "-t", "usages", "-i", card))
            if "Rate(%)" in done.out:
                text += _whole(done.out)
        return text


def without_processes(table: str) -> str:
    """A table without its list of processes: their names are nobody's business, and no figure is in it.

    >>> without_processes("| 0  910B |\\n+---+\\n| NPU | Process id | Process name |\\n| 0 | 77 | python |")
    '| 0  910B |\\n+---+\\n'
    """
    kept: list[str] = []
    for line in table.splitlines(keepends=True):
        if _PROCESSES.search(line):
            break
        kept.append(line)
    while len(kept) > 1 and _RULE.match(kept[-1]) and _RULE.match(kept[-2]):
        kept.pop()
    return "".join(kept)


def _whole(text: str) -> str:
    text = text.strip("\n")
    return f"{text}\n" if text else ""


def _failure(tool: Tool, done: Done) -> str:
    said = f": {done.first_line}" if done.first_line else ""
    code = f" (exit {done.code})" if done.code else ""
    return clean(f"{tool.program} does not answer as {tool.label} does{code}{said}")

"""Figures while the recording runs: the folder's files, read by the readers and measured by the functions that the
diagnosis uses. On a terminal one picture, refreshed; elsewhere one line when a step has its first figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .. import render_telemetry, telemetry
from ..errors import UnusableInput
from ..evidence import detect, telemetry_readers
from ..pipes import columns, wrapped
from ..telemetry.measured import Measured
from ..text import clean, shorten
from ..units import show
from .folder import Folder, plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

STEPS = ("1 utilization", "2 step time", "3 operator bisection")
WAITED_FOR = ("the first samples", "two scrapes of /metrics", "a dump of the process that runs the model")
SHOWN = 8
"""Signals of one step on a terminal."""

ON_ONE_LINE = 4
COMPLAINTS = 5
"""What failed, on a terminal: the last so many. All of it is printed at the end."""

REFRESH_S, SELDOM_S = 1.0, 4.0
"""Seconds between two looks, and at most: step 1 is on screen within 5. After EARLY_S at most twice that."""

EARLY_S = 12.0

BACK = 4
"""Of scrapes and dumps the last and the one so many before are looked at: cheap, and wide enough for slow steps. The
diagnosis takes them all."""

CPU_SHARE = 0.01
"""Of one core, for looking: where that takes longer it is done less often."""


class Figures:
    """What the folder says so far. A file is read again only where it has changed."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._read: dict[str, tuple[tuple[int, int], telemetry_readers.Read | None]] = {}
        self._readers: dict[tuple[str, str], telemetry_readers.Reader] = {}
        """By folder and ending: files of one probe are of one kind."""
        self._due = 0.0
        for reader in telemetry_readers.READERS:  # all modules are loaded now, and not while somebody is measured
            reader.matches("")
        self.measured: Measured = telemetry.measure(telemetry_readers.gathered([]))

    def look(self, gone_s: float) -> bool:
        """Measure again if it is time; whether it did."""
        if gone_s < self._due:
            return False
        began = time.thread_time()
        changed = False
        for name in sorted(self._folder.files):
            changed |= self._take(name)
        if changed:
            self.measured = telemetry.measure(telemetry_readers.gathered(self._recent()))
        most = SELDOM_S if gone_s < EARLY_S else 2 * SELDOM_S
        self._due = gone_s + min(max(REFRESH_S, (time.thread_time() - began) / CPU_SHARE), most)
        return changed

    def _recent(self) -> list[telemetry_readers.Read]:
        """Files that grow, and two of those that follow each other."""
        kept: dict[str, list[telemetry_readers.Read]] = {}
        for name, (_, read) in self._read.items():
            if read is not None:
                kept.setdefault(_followed(name), []).append(read)
        return [read for reads in kept.values() for read in (*reads[-1 - BACK:-1][:1], reads[-1])]

    def _take(self, name: str) -> bool:
        path = self._folder.path / name
        try:
            state = path.stat().st_size, path.stat().st_mtime_ns
            if name in self._read and self._read[name][0] == state:
                return False
            self._read[name] = state, self._as_read(path)
        except OSError:
            return False
        return True

    def _as_read(self, path: Path) -> telemetry_readers.Read | None:
        """One file as its reader reads it; None for one that is no telemetry, or none yet."""
        kind = path.parent.name, path.suffix
        try:
            reader = self._readers.get(kind) or detect.find(path)[0].reader
            if reader is None:
                return None
            self._readers[kind] = reader
            return reader.read(path)
        except UnusableInput:
            return None


def complain(line: str) -> None:
    """One thing that failed, on stderr: one line where it is no terminal, for whoever searches a log."""
    line = f"watch: {clean(line)}"
    print(wrapped(line, columns(sys.stderr)) if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


class Screen(Protocol):
    """What a recording tells while it runs."""

    said: set[str]
    """Complaints that stay on the terminal; the others are to be printed at the end."""

    def tick(self, gone_s: float) -> None:
        """So many seconds have gone."""

    def tell(self, line: str) -> None:
        """A probe failed at something, for the first time in these words."""


class Plain:
    """One line for each step, when its first figures are there, and one for each thing that fails."""

    def __init__(self, figures: Figures, hide: Callable[[str], str], to_stderr: bool) -> None:
        self._figures, self._hide, self._to_stderr = figures, hide, to_stderr
        self._told: set[int] = set()
        self.said: set[str] = set()

    def tick(self, gone_s: float) -> None:
        if len(self._told) == len(STEPS) or not self._figures.look(gone_s):
            return
        for step, title in enumerate(STEPS, start=1):
            signals = render_telemetry.of_step(self._figures.measured, step)
            if signals and step not in self._told:
                self._told.add(step)
                shown = "; ".join(f"{signal.name} {shorten(show(signal.value, signal.unit), 48)}"
                                  for signal in signals[:ON_ONE_LINE])
                file = sys.stderr if self._to_stderr else sys.stdout
                line = self._hide(f"{gone_s:5.1f} s  {title}: {shown}")
                print(wrapped(line, columns(file), indent=9), flush=True, file=file)

    def tell(self, line: str) -> None:
        self.said.add(line)
        complain(self._hide(line))


class Panel:
    """One picture, drawn anew where something changed, and once a second: the seconds that go by show that it runs,
    also where nothing answers. It leaves the terminal when the recording ends."""

    def __init__(self, live: Live, figures: Figures, hide: Callable[[str], str], seconds: float) -> None:
        self._live, self._figures, self._hide, self._seconds = live, figures, hide, seconds
        self._complaints: list[str] = []
        self._drawn: tuple[int, int] | None = None
        self.said: set[str] = set()
        self.tick(0.0)

    def tick(self, gone_s: float) -> None:
        changed = self._figures.look(gone_s)
        state = int(gone_s), len(self._complaints)
        if changed or state != self._drawn:
            self._drawn = state
            self._live.update(picture(self._figures.measured, gone_s, self._seconds, self._hide, self._complaints),
                              refresh=True)

    def tell(self, line: str) -> None:
        self._complaints.append(line)


@contextmanager
def shown(folder: Folder, figures: Figures, *, seconds: float, hide: Callable[[str], str] = plain,
          to_stderr: bool = False) -> Iterator[Screen]:
    """Where to tell what happens: a picture on a terminal, lines elsewhere."""
    from rich.console import Console

    console = Console(stderr=to_stderr, highlight=False)
    if not console.is_terminal:
        yield Plain(figures, hide, to_stderr)
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Panel(live, figures, hide, seconds)


def picture(measured: Measured, gone_s: float, seconds: float, hide: Callable[[str], str],
            complaints: Sequence[str] = ()) -> RenderableType:
    """What fails, then the three steps, each with its first signals or what it waits for."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"recording, {min(gone_s, seconds):.0f} of {seconds:.0f} s. Ctrl-C ends it"
                                        " and keeps what there is", style="bold")]
    parts += [Text(f"  {clean(hide(line))}", style="yellow") for line in complaints[-COMPLAINTS:]]
    for step, (title, waited_for) in enumerate(zip(STEPS, WAITED_FOR, strict=True), start=1):
        parts.append(Text(title, style="dim"))
        signals = render_telemetry.of_step(measured, step)
        if not signals:
            parts.append(Text(f"  waiting for {waited_for}", style="italic"))
            continue
        table = Table.grid(padding=(0, 2, 0, 0))
        for signal in signals[:SHOWN]:
            value = hide(shorten(show(signal.value, signal.unit), 48))
            table.add_row(Text(f"  {signal.name}"), Text(value), Text(hide(signal.window), style="dim"))
        parts.append(table)
    return Group(*parts)


def _followed(name: str) -> str:
    """What files that follow each other have in common: `metrics` of `metrics/0003.prom`.

    >>> _followed("metrics/0003.prom"), _followed("device/nvidia-smi.csv")
    ('metrics', 'device/nvidia-smi.csv')
    """
    folder, _, file = name.partition("/")
    return folder if file.partition(".")[0].isdigit() else name

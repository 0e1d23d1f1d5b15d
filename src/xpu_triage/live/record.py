"""The recording: probes in threads on one monotonic schedule, bounded in time, each on its own.

What a probe cannot do costs one line and stops no other. Ctrl-C keeps what there is.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from .. import __version__
from ..text import clean, shorten
from .clock import Clock, iso
from .folder import RECORD, Folder
from .probe import Probe, Trouble

GRACE_S = 6.0
"""Seconds after the end that a sample which is under way has to finish; the longest timeout of a request is 5."""

TICK_S = 0.5
MAX_SAID = 20
"""Different complaints of one probe that are kept."""

MAX_UNEXPECTED = 3
"""Unexpected errors in a row after which a probe is given up."""


@dataclass(eq=False)
class Track:
    """One probe, and what became of it."""

    probe: Probe
    samples: int = 0
    said: Counter[str] = field(default_factory=Counter)
    """What failed, in words, and how often."""
    ended: bool = False
    """It came to its end; else it was still at work when the time was up."""

    def say(self, line: str) -> None:
        line = clean(shorten(" ".join(line.split()), 300))
        if line in self.said or len(self.said) < MAX_SAID:
            self.said[line] += 1

    def lines(self) -> list[str]:
        return [f"{line} ({count} times)" if count > 1 else line for line, count in self.said.items()]


@dataclass(frozen=True)
class Recording:
    """What a recording came to."""

    folder: Path
    started: str
    seconds: float
    interrupted: bool
    tracks: Sequence[Track]
    notes: Sequence[str] = ()

    @property
    def said(self) -> list[str]:
        """What failed, a line each, with the probe's name."""
        return [f"{track.probe.name}: {line}" for track in self.tracks for line in track.lines()]


def run(track: Track, clock: Clock, until: float, stop: Event) -> None:
    """Sample on the beat until the time is up. A sample that takes longer than the interval costs the beats it missed;
    it is not made up for."""
    probe = track.probe
    due = clock.now() + probe.delay_s
    unexpected = 0
    try:
        while due < until and not stop.is_set():
            if clock.wait(due - clock.now(), stop):
                break
            try:
                probe.sample()
                track.samples += 1
                unexpected = 0
            except Trouble as trouble:
                track.say(str(trouble))
                if trouble.final:
                    break
            except OSError as error:  # a full disk, mostly
                track.say(f"cannot be written: {error.strerror or type(error).__name__}")
            except Exception as error:  # no probe stops another, and none shows what it was working on
                track.say(f"unexpected {type(error).__name__}")
                unexpected += 1
                if unexpected >= MAX_UNEXPECTED:
                    break
            due = following(due, probe.interval_s, clock.now())
    finally:
        with suppress(Exception):
            probe.close()
        track.ended = True


def following(due: float, interval_s: float, now: float) -> float:
    """The next beat after `now`."""
    beats = max(1, int((now - due) // interval_s) + 1)
    return due + beats * interval_s


def watch(folder: Folder, probes: Sequence[Probe], *, seconds: float, clock: Clock, facts: Mapping[str, Any],
          tick: Callable[[float], None] = lambda _: None, tell: Callable[[str], None] = lambda _: None,
          after: Callable[[list[str]], None] | None = None) -> Recording:
    """Record for `seconds`, then what comes `after`, which writes what it has to say into the list that it is given.

    `tick` is called with the seconds gone, about twice a second, and `tell` with what failed as soon as it did, once
    for the same words, both from this thread. Ctrl-C ends the recording and not the program; a second one during what
    follows is let through.
    """
    started = clock.now()
    begun = iso(clock.utc())
    tracks = [Track(probe) for probe in probes]
    stop = Event()
    _write(folder, begun, None, facts, tracks, interrupted=False, notes=[])
    threads = [threading.Thread(target=run, args=(track, clock, started + seconds, stop), daemon=True,
                                name=f"xpu-triage {track.probe.name}") for track in tracks]
    interrupted = False
    told: set[str] = set()
    try:
        for thread in threads:
            thread.start()
        while (left := started + seconds - clock.now()) > 0 and any(thread.is_alive() for thread in threads):
            clock.wait(min(TICK_S, left), stop)
            _tell_new(tracks, told, tell)
            tick(clock.now() - started)
    except KeyboardInterrupt:
        interrupted = True
    stop.set()
    lasted = clock.now() - started
    notes: list[str] = []
    try:
        _join(threads, clock)
        if after is not None and not interrupted:
            after(notes)
    except KeyboardInterrupt:
        interrupted = True
    except Exception as error:  # what was recorded is still worth a verdict
        notes.append(f"unexpected {type(error).__name__} after the recording")
    for track in tracks:
        if not track.ended:
            track.say("still waiting for an answer when the time was up")
    with suppress(OSError):
        _write(folder, begun, lasted, facts, tracks, interrupted=interrupted, notes=notes)
    return Recording(folder.path, begun, lasted, interrupted, tracks, notes)


def _tell_new(tracks: Sequence[Track], told: set[str], tell: Callable[[str], None]) -> None:
    """What failed since the last look. How often is not told: that is known at the end."""
    for track in tracks:
        for line in [f"{track.probe.name}: {words}" for words in list(track.said)]:
            if line not in told:
                told.add(line)
                tell(line)


def _join(threads: Sequence[threading.Thread], clock: Clock) -> None:
    deadline = clock.now() + GRACE_S
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(deadline - clock.now(), 0.05))


def _write(folder: Folder, begun: str, lasted: float | None, facts: Mapping[str, Any], tracks: Sequence[Track], *,
           interrupted: bool, notes: Sequence[str]) -> None:
    """`watch.json`: what was asked, what answered, and what did not. No host, user or command line."""
    said: dict[str, Any] = {
        "watch": 1, "version": __version__, "started": begun, "seconds": None if lasted is None else round(lasted, 1),
        "interrupted": interrupted, **facts,
        "probes": [{"name": track.probe.name, "samples": track.samples, "notes": list(track.probe.notes),
                    "failed": track.lines()} for track in tracks],
        "notes": list(notes),
    }
    said["files"] = sorted(name for name in folder.files if name != RECORD)
    folder.write(RECORD, json.dumps(said, indent=1, ensure_ascii=False) + "\n")

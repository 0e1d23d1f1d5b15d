"""The command `xpu-triage watch`: record the three steps' evidence from what runs, then diagnose the record."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from ..errors import UnusableInput
from ..pipes import reader_may_leave
from ..redact import Redactor
from ..redact_evidence import redacting
from ..text import clean, shorten
from . import command, device, record, server, service
from .arguments import KEY, add_arguments
from .clock import Clock
from .folder import RECORD, Folder, plain, prepared
from .probe import Probe
from .process import ProcessProbe
from .profiler import Profiler
from .request import Address, Client, address
from .smi import TIMEOUT_S as SMI_TIMEOUT_S
from .stacks import TIMEOUT_S as STACKS_TIMEOUT_S
from .stacks import StacksProbe

if TYPE_CHECKING:
    from .screen import Figures

MIN_SECONDS, MAX_SECONDS = 1.0, 3600.0
MIN_INTERVAL_S = 0.5
NICENESS = 5
"""Whoever is watched goes first: what we start inherits it."""
LEAST_SECRET = 8
"""Letters of a key from which on it is looked for in what is written; a shorter one is a placeholder."""

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*(?:([!-~]+)\s+)?env:([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Options:
    out: Path
    server: Address | None = None
    pid: str | None = None
    """A process id, or `auto`; None to look at no process."""
    device: bool = True
    seconds: float = 30.0
    interval_s: float = 2.0
    """Of the scrapes."""
    profile: bool = False
    profile_dir: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By the name of the environment variable; in no message and no file."""
    redact: bool = False


def run(args: argparse.Namespace) -> int:
    """Record, diagnose, print. Exit code as of `xpu-triage diagnose`. Raises `UnusableInput`, `MissingExtra`."""
    options = options_of(args, os.environ)
    with suppress(OSError):
        os.nice(max(NICENESS - os.nice(0), 0))
    if not options.redact:
        return _run(args, options, None)
    with redacting() as redactor:
        return _run(args, options, redactor)


def _run(args: argparse.Namespace, options: Options, redactor: Redactor | None) -> int:
    if args.report:
        from ..report import check_target

        check_target([str(options.out)], args.report)
    prepared(options.out)
    hide = hiding(options.secrets.values(), redactor)
    folder = Folder(options.out, hide)
    from .screen import Figures, complain, shown

    figures = Figures(folder)
    with terminated_like_interrupted(), shown(folder, figures, seconds=options.seconds, hide=hide,
                                              to_stderr=args.json) as screen:
        recording = recorded(options, folder, screen.tick, tell=screen.tell, step_ms=lambda: _step_ms(figures),
                             redactor=redactor)
    if redactor is not None:
        folder.hide_again(redactor.bare)
    if not any(name != RECORD for name in folder.files):
        raise UnusableInput("nothing could be recorded", where=hide(str(options.out)),
                            todo=hide("; ".join(recording.said)) or "Name a server, a process or a device")
    for line in (*recording.said, *recording.notes):
        if line not in screen.said:  # else told when it happened, and not again since
            complain(hide(line))
    return _judged(options.out, args, hide)


def record_into(out: Path, *, server: str = "", pid: str = "", seconds: float = 30.0) -> record.Recording:
    """Record a server, by URL, and the processes of `pid` (or `auto`) into the new folder `out`, with this machine's
    devices, as the command does without further options. Raises `UnusableInput`."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    asked = [*(["--server", server] if server else []), *(["--pid", pid] if pid else [])]
    options = options_of(parser.parse_args([*asked, "--seconds", str(seconds), "--out", str(out)]), os.environ)
    prepared(out)
    return recorded(options, Folder(out, hiding(options.secrets.values(), None)), lambda _: None)


def options_of(args: argparse.Namespace, environment: Mapping[str, str]) -> Options:
    """What was asked for, checked. Raises `UnusableInput`."""
    if not MIN_SECONDS <= args.seconds <= MAX_SECONDS:
        raise UnusableInput(f"--seconds is between {MIN_SECONDS:g} and {MAX_SECONDS:g}")
    if not MIN_INTERVAL_S <= args.interval <= MAX_SECONDS:
        raise UnusableInput(f"--interval is at least {MIN_INTERVAL_S:g} s", todo="A scrape costs the server something")
    if not (args.server or args.pid or args.device != "none"):
        raise UnusableInput("nothing to watch", todo="Give --server URL, --pid auto, or leave out --device none")
    if args.profile and not args.server:
        raise UnusableInput("--profile asks the server", todo="Give --server URL")
    if args.profile_dir is not None and not (args.profile and args.profile_dir.is_dir()):
        raise UnusableInput("--profile-dir is no folder here" if args.profile else "--profile-dir goes with --profile",
                            where=args.profile_dir)
    if args.pid is not None:
        service.parsed(args.pid)
    headers, secrets = headers_of(args.header, environment)
    return Options(out=args.out, server=address(args.server) if args.server else None, pid=args.pid,
                   device=args.device != "none", seconds=args.seconds, interval_s=args.interval, profile=args.profile,
                   profile_dir=args.profile_dir.absolute() if args.profile_dir else None, headers=headers,
                   secrets=secrets, redact=args.redact)


def headers_of(given: Sequence[str], environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Headers, and the secrets in them by the variable they came from. A value on the command line is refused: every
    user of the machine can read it there. Raises `UnusableInput`, without the value."""
    headers: dict[str, str] = {}
    secrets: dict[str, str] = {}
    if key := environment.get(KEY, "").strip():
        headers["Authorization"] = f"Bearer {_sendable(key, KEY)}"
        secrets[KEY] = key
    for text in given:
        match = _HEADER.fullmatch(text.strip())
        if match is None:
            raise UnusableInput("--header wants 'NAME: env:VARIABLE', the value is read from the environment",
                                todo="For a token: --header 'Authorization: Bearer env:MY_TOKEN'")
        name, scheme, variable = match.groups()
        value = environment.get(variable, "").strip()
        if not value:
            raise UnusableInput(f"--header {name}: the environment has no {variable}")
        secrets[variable] = value
        value = _sendable(value, variable)
        headers = {known: kept for known, kept in headers.items() if known.lower() != name.lower()}
        headers[name] = f"{scheme} {value}" if scheme else value
    return headers, secrets


def _sendable(value: str, variable: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise UnusableInput(f"the environment's {variable} cannot be sent in a header",
                            todo="It has characters outside ASCII, or a line end in it")
    return value


def hiding(secrets: Iterable[str], redactor: Redactor | None) -> Callable[[str], str]:
    """Takes secrets out of text (a server may repeat what it was sent), and names where there is a redactor."""
    words = sorted((word for word in secrets if len(word) >= LEAST_SECRET), key=len, reverse=True)

    def hide(text: str) -> str:
        for word in words:
            text = text.replace(word, "[secret]")
        return redactor.text(text) if redactor is not None else text

    return hide if words or redactor is not None else plain


def recorded(options: Options, folder: Folder, tick: Callable[[float], None], *, clock: Clock | None = None,
             tell: Callable[[str], None] = lambda _: None, step_ms: Callable[[], float | None] = lambda: None,
             redactor: Redactor | None = None) -> record.Recording:
    """Run the probes that were asked for."""
    clock = clock or Clock()
    client = Client(options.server, options.headers) if options.server else None
    facts = {"asked": {"seconds": options.seconds, "server": str(options.server) if options.server else None,
                       "pid": options.pid, "device": options.device, "profile": options.profile},
             "redacted": options.redact}

    def after(notes: list[str]) -> None:
        assert client is not None
        first = next(iter(sorted(folder.path.glob("metrics/*.prom"))), None)
        engine = server.engine(first.read_text(encoding="utf-8", errors="replace")) if first else ""
        profiler = Profiler(client, folder, clock, engine=engine, directory=options.profile_dir, step_ms=step_ms(),
                            redact=redactor.text if redactor else None, notes=notes)
        profiler.run(Event())

    return record.watch(folder, probes(options, folder, clock, client), seconds=options.seconds, clock=clock,
                        facts=facts, tick=tick, tell=tell, after=after if options.profile else None)


def probes(options: Options, folder: Folder, clock: Clock, client: Client | None) -> list[Probe]:
    """One probe for each thing that was asked for. Nothing is opened yet: each does that in its own thread."""
    env = command.environment(options.secrets)
    made: list[Probe] = []
    if options.device:
        made.append(device.DeviceProbe(
            lambda: device.found(lambda argv: command.run(argv, timeout_s=SMI_TIMEOUT_S, env=env)), folder, clock,
            seconds=options.seconds, elsewhere=lambda: client is not None and server.tells_of_a_device(folder)))
    if client is not None:
        made.append(server.MetricsProbe(client, folder, clock, interval_s=options.interval_s, seconds=options.seconds))
    if options.pid is not None:
        pid = service.parsed(options.pid)
        port = options.server.port if options.server is not None and options.server.is_local else None
        processes = ProcessProbe(lambda: service.Service(pid, role=service.role_of_title(), port=port,
                                                         psutil=service.psutil_library()), folder, clock)

        def target() -> tuple[int, str] | None:
            roles = [(process.pid, role) for process, role in processes.processes]
            chosen = service.runs_the_model(roles, processes.cpu)
            return None if chosen is None else (chosen, dict(roles)[chosen])

        made += [processes, StacksProbe(target, lambda argv: command.run(argv, timeout_s=STACKS_TIMEOUT_S, env=env),
                                        folder, clock, seconds=options.seconds)]
    return made


def _step_ms(figures: Figures) -> float | None:
    """The step time measured so far."""
    value = next((signal.value for signal in figures.measured.signals if signal.name == "step.wall_ms"), None)
    return float(value) if isinstance(value, int | float) else None


def _judged(out: Path, args: argparse.Namespace, hide: Callable[[str], str]) -> int:
    """Diagnose the folder and print it, as `xpu-triage diagnose` does."""
    from ..contract import to_json
    from ..diagnosis import diagnose

    diagnosis = diagnose(out)
    told = sys.stderr if args.json else sys.stdout
    with reader_may_leave() if args.report else nullcontext():
        if args.json:
            print(json.dumps(to_json(diagnosis), indent=2, allow_nan=False))
        else:
            from ..render import print_diagnosis

            print_diagnosis(diagnosis)
        print(hide(f"record: {clean(shorten(str(out), 200))}"), file=told)
    if args.report:
        from ..report import write_report

        write_report([str(out)], args.report)
        print(hide(f"report: {args.report}"), file=told)
    return diagnosis.exit_code


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM as Ctrl-C: whoever ends us gets the record, and no server is left profiling."""
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

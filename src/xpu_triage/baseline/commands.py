"""`xpu-triage baseline record | import | compare`.

Exit codes of `compare`: 0 no regression, 1 a regression, 3 not enough to tell, 2 unusable input: so that a pipeline
can stop on 1 and a person looks at 3. `record` and `import`: 0, or 1 where a part of what was asked came to nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UnusableInput
from ..text import clean, counted

if TYPE_CHECKING:
    from .record import Event
    from .records import BenchRecord
    from .store import Baseline

KEY = "XPU_TRIAGE_API_KEY"

_OURS = frozenset(("model", "prompt", "messages", "stream", "max_tokens", "max_completion_tokens", "n", "best_of",
                   "stream_options", "ignore_eos"))
"""Fields of a request that the recorder sets itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The three commands below `baseline`."""
    commands = parser.add_subparsers(required=True, metavar="WHAT")

    command = commands.add_parser(
        "record", help="measure a grid of loads on a server",
        description=f"Sends requests to an OpenAI-compatible server. A key is read from ${KEY} and never kept.",
        epilog="An interrupted recording goes on where it stopped when it is started again. Exit code: 0 recorded, "
               "1 some loads came to nothing, 2 unusable input.")
    command.add_argument("--server", required=True, metavar="URL", help="like http://127.0.0.1:8000")
    command.add_argument("--out", required=True, type=Path, metavar="FILE_OR_DIR",
                         help="a file ending in .json, or a folder that gets a file for each load")
    command.add_argument("--concurrency", type=_numbers, default=(1, 8, 32), metavar="N,N",
                         help="requests in flight (1,8,32)")
    command.add_argument("--prompt-tokens", type=_numbers, default=(128, 2048), metavar="N,N", help="(128,2048)")
    command.add_argument("--output-tokens", type=_numbers, default=(64,), metavar="N,N", help="(64)")
    command.add_argument("--requests", type=int, metavar="N",
                         help="counted in each load; one more for each connection goes first (200, or 10 for each "
                              "connection: with so many a slow-down of 10 %% is found)")
    command.add_argument("--seconds", type=float, default=120.0, metavar="S",
                         help="after which a load starts no more requests (120)")
    command.add_argument("--timeout", type=float, default=120.0, metavar="S", help="of one request (120)")
    command.add_argument("--field", action="append", default=[], metavar="NAME=VALUE",
                         help="a field of every request, a number or true or false, as the service is used: "
                              "temperature=0.7 (may be repeated)")
    command.add_argument("--model", metavar="NAME", help="where the server has several")
    command.add_argument("--device", default="", metavar="NAME", help="what it runs on, kept with the figures")
    command.add_argument("--engine-version", default="", metavar="V", help="where the server does not tell")
    command.set_defaults(baseline=_record)

    command = commands.add_parser(
        "import", help="keep results of other load generators as a baseline",
        epilog="Exit code: 0 all kept, 1 some files could not be read, 2 unusable input.")
    command.add_argument("files", nargs="+", metavar="FILE", type=Path,
                         help="a result of vllm bench serve, sglang, guidellm, aiperf, evalscope or llmeter")
    command.add_argument("--out", required=True, type=Path, metavar="FILE")
    command.set_defaults(baseline=_import)

    command = commands.add_parser(
        "compare", help="which dimension got worse: prefill, decode, queue, KV, or everything",
        epilog="Exit code: 0 no regression, 1 a regression, 3 not enough to tell, 2 unusable input.")
    for name in ("old", "new"):
        command.add_argument(name, type=Path, metavar=name.upper(),
                             help="a baseline, a folder of recorded loads, or a result of a load generator")
    command.add_argument("--json", action="store_true", help="print the comparison as JSON")
    command.add_argument("--anyway", action="store_true", help="also where model or device differ")
    command.set_defaults(baseline=_compare)


def run(args: argparse.Namespace) -> int:
    """Run the command that was chosen. Raises `TriageError`."""
    code: int = args.baseline(args)
    return code


def _record(args: argparse.Namespace) -> int:
    from ..live.request import address
    from .record import Plan, record

    plan = Plan(args.concurrency, args.prompt_tokens, args.output_tokens, args.requests, args.seconds, args.timeout,
                _fields(args.field))
    key = os.environ.get(KEY, "")
    with _progress() as show:
        done = record(address(args.server), plan, args.out, headers={"Authorization": f"Bearer {key}"} if key else {},
                      model=args.model, device=clean(args.device), engine_version=clean(args.engine_version), show=show)
    print(clean(f"{len(done.records)} of {counted(len(plan.cells), 'load')}: {done.path}"))
    for line in done.failed:
        print(clean(f"failed: {line}"))
    return 1 if done.failed else 0


def _import(args: argparse.Namespace) -> int:
    from . import store

    if args.out.exists():
        raise UnusableInput("is there already", where=args.out, todo="Name another file, or move it away")
    records: list[BenchRecord] = []
    failed: list[str] = []
    for path in args.files:
        try:
            records += load(path).records
        except UnusableInput as error:
            failed.append(str(error))
    if not records:
        raise UnusableInput(failed[0] if len(failed) == 1 else f"none of {len(failed)} files can be used; {failed[0]}")
    store.save(args.out, records)
    from .loads import words

    for record in records:
        print(clean(f"{words(store.cell_of(record))}: {record.tool}, "
                    f"{counted(record.completed, 'request') if record.completed else 'unknown requests'}"))
        for line in (*record.definitions, *record.notes, *_limits(record)):
            print(clean(f"  {line}"))
    for line in failed:
        print(f"xpu-triage: {line}", file=sys.stderr)
    return 1 if failed else 0


def _limits(record: BenchRecord) -> Iterator[str]:
    """What the run cannot be asked for later."""
    from .figures import MIN_TAIL_REQUESTS
    from .resampling import MIN_REQUESTS

    count = 0 if record.requests is None else len(record.requests)
    if count < MIN_REQUESTS:
        yield (f"times of {count or 'no'} single requests: nothing will be claimed against it, for a ratio gets an "
               f"interval from {MIN_REQUESTS} on (vllm bench serve --save-detailed, or xpu-triage baseline record)")
    elif count < MIN_TAIL_REQUESTS:
        yield f"{count} requests: only a large change will show, and no tail is compared; 200 show 10 %"


def _compare(args: argparse.Namespace) -> int:
    from .compare import compare
    from .dimension import dimension
    from .tables import parts, to_json

    comparison = compare(load(args.old), load(args.new), anyway=args.anyway)
    verdict = dimension(comparison)
    if args.json:
        print(json.dumps(to_json(comparison, verdict), indent=2, allow_nan=False))
    else:
        from ..render import console

        out = console()
        for part in parts(comparison, verdict):
            out.print(part)
    return verdict.exit_code


def load(path: Path) -> Baseline:
    """A baseline file, a folder of recorded loads, or the result file of a load generator. Raises `UnusableInput`."""
    from ..evidence import bench
    from ..evidence.chunks import pieces
    from . import store

    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise UnusableInput("no recorded load in this folder", where=path)
        return store.baseline([record for file in files for record in store.load(file).records], source=str(path))
    try:
        head = next(iter(pieces(path, [])), b"")
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    if store.matches(head[:4096].decode("utf-8", "replace").removeprefix("\ufeff")):
        return store.load(path)
    return store.baseline(bench.read(path), source=str(path))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))  # ValueError: argparse says which option


_numbers.__name__ = "list of numbers"


def _fields(given: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for one in given:
        name, is_there, value = one.partition("=")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        if not is_there or not name.isidentifier() or not isinstance(parsed, int | float) or parsed != parsed:
            raise UnusableInput("--field wants NAME=VALUE with a number, true or false",
                                todo="Like --field temperature=0.7")
        if name in _OURS:
            raise UnusableInput(f"--field {name} is set by the recording itself", todo="Leave it out")
        fields[name] = parsed
    return fields


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar for the load that runs where stderr is a terminal, and a line for each that is done."""
    if not sys.stderr.isatty():
        def say(event: Event) -> None:
            if event.said:
                print(clean(f"{event.number}/{event.of}  {event.cell}: {event.said}"), flush=True)

        yield say
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   console=Console(stderr=True), transient=True, refresh_per_second=4)
    task = bar.add_task("asking the server")

    def show(event: Event) -> None:
        name = escape(clean(f"{event.number}/{event.of}  {event.cell}"))
        if event.said:
            bar.console.print(f"{name}: {escape(clean(event.said))}", highlight=False)
        bar.update(task, description=name, completed=event.done, total=event.requests)

    with bar:
        yield show

"""The `xpu-triage` command. Exit code 0 for a verdict, 3 for not enough evidence, 2 for unusable input."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from . import __version__, interrupts, lab_load, lab_serve
from .baseline import commands as baseline
from .diagnosis import Progress, diagnose
from .errors import TriageError, UnusableInput
from .fleet import commands as fleet
from .live import arguments as watch
from .pipes import reader_may_leave
from .roofline import commands as roofline


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Refusals are one line on stderr; no traceback reaches the reader."""
    args = _parser().parse_args(argv)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  both may be closed where a service starts us
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except TriageError as error:
        print(f"xpu-triage: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        return interrupts.said(error)
    except BrokenPipeError:  # the reader of our output has gone (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # what is left: a full disk under stdout or the temporary folder
        where = f"{error.filename}: " if error.filename else ""
        print(f"xpu-triage: {where}{error.strerror or error}", file=sys.stderr)
        return TriageError.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="xpu-triage", description="Why is this LLM service slow? Utilization, step time, operator bisection.")
    parser.add_argument("--version", action="version", version=f"xpu-triage {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser(
        "diagnose", help="walk the evidence to a verdict",
        epilog="Exit code: 0 a verdict, 3 not enough evidence, 2 unusable input.")
    command.add_argument("evidence", nargs="+", metavar="EVIDENCE",
                         help="a profiler trace, SMI output, /metrics dumps, py-spy dumps, an engine log, a benchmark's"
                              " result, a model's config.json, an evidence sheet (.yaml), or a folder of them")
    command.add_argument("--baseline", metavar="FILE", type=Path,
                         help="what the same service did while it was well (`xpu-triage baseline`)")
    command.add_argument("--json", action="store_true", help="print the diagnosis as JSON (see docs/json.md)")
    command.add_argument("--report", metavar="FILE.html", type=Path, help="write one offline HTML report")
    command.add_argument("--redact", action="store_true",
                         help="hash host names, user names, addresses and paths in what is printed and in the report")
    command.set_defaults(run=_diagnose)

    command = commands.add_parser(
        "watch", help="record what runs now, then diagnose the record",
        epilog="It only reads, except for --profile. Exit code as of diagnose.")
    watch.add_arguments(command)

    command = commands.add_parser("roofline", help="the floor of a decode step and of a prompt, for a model and device")
    roofline.add_arguments(command)

    command = commands.add_parser("baseline", help="measure a server while it is well, and what got worse since")
    baseline.add_arguments(command)
    command.set_defaults(run=baseline.run)

    command = commands.add_parser("fleet", help="many ranks of one job: stragglers, ranks that differ, one to look at")
    fleet.add_arguments(command)
    command.set_defaults(run=fleet.run)

    command = commands.add_parser("fingerprints", help="list the failures known here, or read one's page")
    command.add_argument("id", nargs="?", metavar="ID")
    command.set_defaults(run=_fingerprints)

    lab = commands.add_parser("lab", help="reproduce an incident on a laptop, as evidence").add_subparsers(
        required=True, metavar="WHAT")
    command = lab.add_parser("faults", help="the faults known here, and what each should be diagnosed as")
    command.set_defaults(run=_lab_faults)
    command = lab.add_parser("run", help="run a small engine with a fault and record it")
    command.add_argument("--fault", default="none", metavar="NAME", help="see `xpu-triage lab faults`")
    command.add_argument("--batch", type=int, default=256, help="requests decoded together (256)")
    command.add_argument("--vocab", type=int, default=152_000, help="words in the vocabulary (152000)")
    command.add_argument("--steps", type=int, default=20, help="steps recorded (20)")
    command.add_argument("--clock", choices=("virtual", "real"), default="virtual",
                         help="virtual: the same bytes every time; real: the host's own time")
    command.add_argument("--repair", action="store_true", help="the same workload without the fault")
    command.add_argument("--out", required=True, metavar="DIR", type=Path, help="where the evidence goes")
    command.set_defaults(run=_lab_run)
    command = lab.add_parser("serve", help="a small server with a fault, for the live tools to look at")
    lab_serve.add_arguments(command)
    command.set_defaults(run=lab_serve.run)
    command = lab.add_parser("load", help="requests for that server, or for another on this machine",
                             epilog="Exit code: 0 all answered, 1 some failed, 2 unusable input.")
    lab_load.add_arguments(command)
    command.set_defaults(run=lab_load.run)
    return parser


def _diagnose(args: argparse.Namespace) -> int:
    if not args.redact:
        return _diagnosed(args, str)
    from .redact_evidence import redacting

    with redacting() as redactor:
        return _diagnosed(args, redactor.text)


def _diagnosed(args: argparse.Namespace, hide: Callable[[str], str]) -> int:
    from .contract import to_json

    if args.report:
        from .report import check_target, write_report

        check_target(args.evidence, args.report)
    with _progress(hide) as progress:
        diagnosis = diagnose(*args.evidence, progress=progress, baseline=args.baseline)
    with reader_may_leave() if args.report else nullcontext():
        if args.json:
            print(json.dumps(to_json(diagnosis), indent=2, allow_nan=False))
        else:
            from .render import print_diagnosis

            print_diagnosis(diagnosis)
    if args.report:  # after the verdict: a report that fails must not cost the answer
        write_report(args.evidence, args.report, baseline=str(args.baseline or ""))
        print(f"report: {hide(str(args.report))}", file=sys.stderr if args.json else sys.stdout)
    return diagnosis.exit_code


def _fingerprints(args: argparse.Namespace) -> int:
    from difflib import get_close_matches

    from . import fingerprints
    from .render import print_list, print_page

    pages = fingerprints.load()
    if args.id is None:
        print_list(pages)
        return 0
    page = next((page for page in pages if page.id == args.id), None)
    if page is None:
        near = get_close_matches(args.id, [page.id for page in pages], n=1)
        raise UnusableInput(f"no fingerprint {args.id!r}", todo=(
            f"Did you mean {near[0]!r}?" if near else "`xpu-triage fingerprints` lists them"))
    print_page(page)
    return 0


def _lab_faults(args: argparse.Namespace) -> int:
    from . import lab

    print(*lab.fault_lines(lab.faults()), sep="\n")
    return 0


def _lab_run(args: argparse.Namespace) -> int:
    from . import lab

    done = lab.run(args.fault, batch=args.batch, vocab=args.vocab, steps=args.steps, clock=args.clock,
                   repair=args.repair, out=args.out)
    print(*lab.run_lines(done), sep="\n")
    return 0


@contextmanager
def _progress(hide: Callable[[str], str]) -> Iterator[Progress | None]:
    """A progress bar on stderr while long files are read; nothing at all where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from .text import clean, shorten

    bar = Bar(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
              console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def show(path: str, done: int, total: int) -> None:
        if path not in tasks:
            tasks[path] = bar.add_task(escape(shorten(clean(Path(hide(path)).name), 40)), total=total)
        bar.update(tasks[path], completed=done)

    with bar:
        yield show


if __name__ == "__main__":
    sys.exit(main())

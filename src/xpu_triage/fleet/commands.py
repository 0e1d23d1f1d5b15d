"""`xpu-triage fleet`: many ranks' evidence to one verdict for their job. Imports Dask only to run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingExtra, UnusableInput

if TYPE_CHECKING:
    from .cluster import Progress

LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("evidence", nargs="+", metavar="EVIDENCE",
                        help="a rank's trace or folder, a folder of ranks, a glob in quotes, or a URL of these "
                             "(s3://, gs://, hdfs://, …)")
    parser.add_argument("--scheduler", metavar="ADDRESS",
                        help="a running Dask scheduler (tcp://HOST:8786), whose workers see the same paths; without it "
                             "this machine's cores")
    parser.add_argument("--workers", type=int, metavar="N", help="processes on this machine (one a core)")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON, every rank in it")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw all ranks")
    parser.add_argument("--report", type=Path, metavar="FILE.html",
                        help="write verdict, picture and table as one offline page")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="N", help=f"ranks in the table ({LIMIT})")
    parser.epilog = "Exit code: 0 a verdict, 3 not enough evidence, 2 unusable input."


def run(args: argparse.Namespace) -> int:
    """Diagnose, compare, print. Raises UnusableInput and MissingExtra as `diagnose_fleet` does."""
    for name in ("workers", "limit"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UnusableInput(f"--{name} {value}: at least 1 is needed")
    if args.scheduler and args.workers:
        raise UnusableInput("--workers is for a cluster of this machine, --scheduler names another",
                            todo="Give one of them")
    _check_target(args.plot)
    _check_report(args.report, args.evidence)
    from .diagnosis import diagnose_fleet

    with _progress() as progress:
        found = diagnose_fleet(*args.evidence, scheduler=args.scheduler, workers=args.workers, progress=progress)
    if args.json:
        from .contract import to_json

        print(json.dumps(to_json(found), indent=2, allow_nan=False))
    else:
        from .render import print_fleet

        print_fleet(found, args.limit)
    if args.plot:  # after the verdict: a picture that fails must not cost the answer
        sys.stdout.flush()
        from .plot import ranks

        ranks(found).save(args.plot)
        print(f"plot: {args.plot}", file=sys.stderr if args.json else sys.stdout)
    if args.report:
        sys.stdout.flush()
        from .page import write_page

        write_page(found, args.report)
        print(f"report: {args.report}", file=sys.stderr if args.json else sys.stdout)
    return found.exit_code


def _check_target(path: Path | None) -> None:
    """Refuse, before the work, what would replace anything but a picture, or cannot be written."""
    if path is None:
        return
    if path.suffix.lower() != ".png":
        raise UnusableInput("a plot is written as PNG", where=path, todo="Name a file that ends in .png")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UnusableInput("there is no folder to write it in", where=path, todo="Name a file in a folder that exists")
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(8) != b"\x89PNG\r\n\x1a\n":
                raise UnusableInput("exists and is no picture", where=path, todo="Name another file")


def _check_report(path: Path | None, evidence: Sequence[str]) -> None:
    """Refuse, before the work, a name that is no page's, what is no file, the evidence; and a page without pictures."""
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm"):
        raise UnusableInput("is no name for a report", where=path, todo="Let it end in .html")
    if (path.exists() and not path.is_file()) or not path.absolute().parent.is_dir():
        raise UnusableInput("there is no folder to write it in, or it is no file", where=path,
                            todo="Name a file in a folder that exists")
    if any(os.path.realpath(path) == os.path.realpath(one) for one in evidence):
        raise UnusableInput("is the evidence itself", where=path, todo="Name another file for the report")
    if find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "report")


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A count on stderr, nothing at all where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(TextColumn("ranks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
              console=Console(stderr=True), transient=True)
    task = bar.add_task("ranks", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)

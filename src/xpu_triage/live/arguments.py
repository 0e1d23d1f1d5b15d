"""The options of `xpu-triage watch`, apart from what runs it: the other commands need none of the probes."""

from __future__ import annotations

import argparse
from pathlib import Path

KEY = "XPU_TRIAGE_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `xpu-triage watch`."""
    parser.add_argument("--server", metavar="URL", help="poll its /metrics (http://127.0.0.1:8000)")
    parser.add_argument("--pid", metavar="PID|auto", help="CPU by thread and py-spy dumps of this process and below; "
                        "auto finds the server by what its processes call themselves")
    parser.add_argument("--device", choices=("auto", "none"), default="auto",
                        help="auto: NVML, else the vendor's tool on PATH")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="how long to record (30)")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="between two scrapes (2)")
    parser.add_argument("--profile", action="store_true",
                        help="then start and stop the server's own profiler, for a few steps")
    parser.add_argument("--profile-dir", type=Path, metavar="DIR", help="where the server writes its traces, from here")
    parser.add_argument("--header", action="append", default=[], metavar="'NAME: env:VAR'",
                        help="a header for the server, its value from the environment ('X-Api-Key: env:MY_KEY'); "
                             f"{KEY} is sent as a bearer token")
    parser.add_argument("--redact", action="store_true",
                        help="hash host names, user names, addresses and paths, in the folder and in the report")
    parser.add_argument("--json", action="store_true", help="print the diagnosis as JSON")
    parser.add_argument("--report", metavar="FILE.html", type=Path, help="write one offline HTML report")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="a new folder for the record")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from .watch import run

    return run(args)

"""`xpu-triage lab serve`: the lab's server in the foreground, until somebody stops it. Imports torch only to run."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from types import FrameType

LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--fault", default="none", metavar="NAME",
                        help="a fault of `xpu-triage lab faults`, or queueing-idle-device, kv-pressure, "
                             "prefill-starves-decode, tokenizer-cpu, slow-front")
    parser.add_argument("--batch", type=int, default=16, help="most requests decoded together (16)")
    parser.add_argument("--vocab", type=int, default=152_000, help="words in the vocabulary (152000)")
    parser.add_argument("--weights-gb", type=float, metavar="GB", help="weights that a step reads (8)")
    parser.add_argument("--context", type=int, default=1024, help="most tokens of one request (1024)")
    parser.add_argument("--host", default=LOOPBACK, help=f"address to serve at ({LOOPBACK}: this machine alone)")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--profile-dir", type=Path, metavar="DIR", help="where /stop_profile leaves traces")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write a line for each iteration")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop by itself after so long")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted, terminated, or the time is over. Raises `TriageError` where it cannot start."""
    from .lab.server import LabServer, Options
    from .lab.serving import Setup

    setup = Setup(fault=args.fault, batch=args.batch, vocab=args.vocab, weights_gb=args.weights_gb,
                  context=args.context, iteration_tokens=max(512, 2 * args.batch))
    # Whoever can reach this machine alone may also switch the fault; nobody else may.
    options = Options(profile_dir=args.profile_dir, log=args.log, admin=args.host in (LOOPBACK, "localhost", "::1"))
    over = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        over.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with LabServer(setup, options, host=args.host, port=args.port) as server:
            print(f"{server.url}  model {setup.model_name}, fault {server.fault.name}, {server.engine.device.name}, "
                  f"process {os.getpid()}", flush=True)
            if options.admin:
                print(f"""switch: curl {server.url}/lab/fault -d '{{"fault": "none"}}'""", flush=True)
            print("stop: Ctrl-C", flush=True)
            over.wait(args.seconds)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0

"""Record the incidents that ship again, in the lab and on its virtual clock, so that two runs give the same bytes.

    python tools/incidents.py            record all and store them
    python tools/incidents.py --check    record all, change nothing, say which differ (exit code 1)

The traces name lines of the lab and of the sampler: where those move, the traces are to be recorded again, and
the notebooks after them (`make incidents notebooks`). With the torch that `constraints.txt` pins.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xpu_triage.errors import TriageError

FOLDER = Path(__file__).parents[1] / "playbook" / "incidents"
BATCH, VOCAB = 256, 152_000


@dataclass(frozen=True)
class Recording:
    """A trace that ships, and the run of the lab that it is."""

    path: str
    """Below the folder of the incidents."""
    fault: str
    steps: int
    repair: bool = False


RECORDINGS = (
    Recording("p800-exponential-fallback/faulty.json.gz", "exponential-fallback", steps=10),
    Recording("p800-exponential-fallback/fixed.json.gz", "exponential-fallback", steps=20, repair=True),
)


def recorded(recording: Recording) -> bytes:
    """The trace's file, recorded now. Raises `MissingExtra` without torch."""
    from xpu_triage import lab

    with tempfile.TemporaryDirectory() as folder:
        lab.run(recording.fault, batch=BATCH, vocab=VOCAB, steps=recording.steps, clock="virtual",
                repair=recording.repair, out=folder)
        return (Path(folder) / "trace.json.gz").read_bytes()


def compared(now: bytes, stored: bytes | None) -> str:
    """What there is to say of a trace recorded now, next to the one that is stored; empty for equal bytes."""
    if now == stored:
        return ""
    if stored is None:
        return "not there"
    try:
        same = gzip.decompress(now) == gzip.decompress(stored)
    except (OSError, EOFError, zlib.error):
        return "not a whole gzip file"
    return f"the same trace, packed by another zlib (here {zlib.ZLIB_RUNTIME_VERSION})" if same else "different"


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(description="Record the incidents that ship again.")
    parser.add_argument("--check", action="store_true", help="change nothing, say which differ")
    check = parser.parse_args(arguments).check
    differing = 0
    for recording in RECORDINGS:
        path = folder / recording.path
        try:
            now = recorded(recording)
        except TriageError as error:
            print(f"{recording.path}: {error}", file=sys.stderr)
            return error.exit_code
        said = compared(now, path.read_bytes() if path.exists() else None)
        differing += bool(said)
        if said and not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(now)
            said = "stored"
        print(f"{recording.path}: {said or 'the same'}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())

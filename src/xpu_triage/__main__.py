"""Where the `xpu-triage` command begins, also as `python -m xpu_triage`. The rest is loaded with signals in hand."""

from __future__ import annotations

import sys

from . import interrupts


def main() -> int:
    """Run one command; its exit code, 130 after Ctrl-C and 143 after SIGTERM."""
    interrupts.end_at_once()
    from .cli import main as command

    def run() -> int:
        interrupts.end_in_order()
        return command()

    return interrupts.run(run)


if __name__ == "__main__":
    sys.exit(main())

"""The lab server's tokenizer, and the same as a slow one in a process of its own.

    python tokenizer.py

reads one JSON object a line, `{"text": …, "vocab": …, "cpu_ms_per_token": …}`, and answers each with the list of token
ids. It imports nothing of the package: the process is there at once, and needs no torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress

BYTES_PER_TOKEN = 4


def token_ids(text: str, vocab: int) -> list[int]:
    """One token for every four bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return [zlib.crc32(data[i:i + BYTES_PER_TOKEN]) % vocab for i in range(0, len(data), BYTES_PER_TOKEN)]


def encode_slowly(text: str, vocab: int, cpu_ms_per_token: float) -> list[int]:
    """The same, by a tokenizer that takes so much CPU time for each token: only its cost is simulated."""
    ids = []
    for token in token_ids(text, vocab):
        until = time.process_time_ns() + cpu_ms_per_token * 1e6
        while time.process_time_ns() < until:
            pass
        ids.append(token)
    return ids


class TokenizerStopped(RuntimeError):
    """The tokenizer's process has ended."""


class TokenizerProcess:
    """One slow tokenizer for all requests: they wait for each other."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    @property
    def pid(self) -> int:
        return self._process.pid

    def encode(self, text: str, vocab: int, cpu_ms_per_token: float) -> list[int]:
        """Raises `TokenizerStopped` where the process ends before it has answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = json.dumps({"text": text, "vocab": vocab, "cpu_ms_per_token": cpu_ms_per_token})
        with self._one_at_a_time:
            try:
                self._process.stdin.write(question + "\n")
                self._process.stdin.flush()
                answer = self._process.stdout.readline()
            except (OSError, ValueError):  # ValueError: closed under our hands
                answer = ""
        if not answer:
            raise TokenizerStopped("the tokenizer has stopped")
        ids: list[int] = json.loads(answer)
        return ids

    def close(self) -> None:
        """End the process; whoever waits for an answer gets none."""
        self._process.kill()
        self._process.wait()
        with self._one_at_a_time, suppress(OSError):
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


def main() -> None:
    """Until the other end of stdin is closed."""
    for line in sys.stdin:
        print(json.dumps(encode_slowly(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

"""Bytes of a file in bounded pieces, inflated where they are gzip."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from kineto_files import written
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import chunks

NOISE = random.Random(7).randbytes(3 << 20)


def read(path: Path) -> tuple[list[bytes], list[str]]:
    notes: list[str] = []
    return list(chunks.pieces(path, notes)), notes


@pytest.mark.parametrize("content", [NOISE, b"a" * (5 << 20), b"", b"x"], ids=["noise", "run", "none", "one"])
@pytest.mark.parametrize("members", [1, 3])
def test_inflated_pieces_are_bounded_and_add_up(tmp_path: Path, content: bytes, members: int) -> None:
    part = -(-len(content) // members) or 1
    packed = b"".join(gzip.compress(content[i:i + part], 1) for i in range(0, len(content) or 1, part))
    found, notes = read(written(tmp_path / "x", packed))
    assert b"".join(found) == content
    assert max(map(len, found), default=0) <= chunks.PIECE
    assert notes == []


def test_plain_bytes_pass_as_they_are(tmp_path: Path) -> None:
    found, notes = read(written(tmp_path / "x.gz", NOISE))
    assert (b"".join(found), notes) == (NOISE, [])


def test_a_cut_stream_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    packed = gzip.compress(NOISE, 1)
    found, notes = read(written(tmp_path / "x", packed[:len(packed) // 2]))
    got = b"".join(found)
    assert NOISE.startswith(got)
    assert len(got) > len(NOISE) // 2 - (64 << 10)
    assert notes == [f"gzip has no end: cut at byte {len(packed) // 2:,} of the file, while it was written or copied"]


def test_a_wrong_checksum_and_foreign_bytes_are_noted(tmp_path: Path) -> None:
    packed = gzip.compress(b"hello", 1)
    assert "gzip damaged" in read(written(tmp_path / "x", packed[:-5] + b"\0" + packed[-4:]))[1][0]
    found, notes = read(written(tmp_path / "y", packed + b"more"))
    assert found == [b"hello"]
    assert "is not gzip: left out" in notes[0]


def test_the_ratio_counts_only_beyond_what_any_file_may_inflate_to(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "x", gzip.compress(bytes(8 << 20)))
    assert sum(map(len, read(path)[0])) == 8 << 20              # ratio near 1,000, but small
    monkeypatch.setattr(chunks, "RATIO_FREE", 4 << 20)
    with pytest.raises(UnusableInput, match="300 times the file beyond 4 MiB"):
        read(path)

"""Lines of text in any encoding that a shell writes, and what is no text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.evidence.lines import head_text, is_text, lines

TABLE = "# gpu    sm   mem\n# Idx     %     %\n    0    97    57\n    1     0     0\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_is_read_whatever_wrote_it(tmp_path: Path, encoding: str) -> None:
    (path := tmp_path / "x").write_bytes(TABLE.encode(encoding))
    notes: list[str] = []
    assert [line.lstrip("\ufeff") for line in lines(path, notes)] == TABLE.splitlines()
    assert notes == []
    assert is_text(path.read_bytes())


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_head_whose_first_white_space_byte_is_gone_is_still_told(encoding: str) -> None:
    head = ("\n" + TABLE).encode(encoding).lstrip()
    assert is_text(head)
    assert "97    57" in head_text(head)


def test_a_nul_in_one_label_makes_no_text_binary() -> None:
    text = 'vllm:num_requests_running{model_name="ti\0ny"} 3.0\n' * 20
    assert is_text(text.encode())                              # 20 of 1,000 bytes
    assert not is_text(text.replace("ti", "ti\0").encode())    # 40 of 1,020
    assert head_text(text.encode()) == text


@pytest.mark.parametrize("head", [
    b"\0" * 100, b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20" * 9, bytes(range(256)) * 8,
    b"\x7fELF\2\1\1\0\0\0\0\0\0\0",
    b"a\0", b"\0\0\0\1" * 300])
def test_binary_data_is_no_text(head: bytes) -> None:
    assert not is_text(head)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=16))
def test_latin_text_is_text_in_all_of_them(text: str) -> None:
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        assert is_text(text.encode(encoding))
        assert head_text(text.encode(encoding)) == text


@given(st.binary())
def test_anything_is_decided_and_decoded(head: bytes) -> None:
    assert is_text(head) in (True, False)
    assert isinstance(head_text(head), str)

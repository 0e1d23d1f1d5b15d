"""Names are cut where it costs least: the end of a path and its line stay."""

from __future__ import annotations

import pytest

from xpu_triage.text import shorten


@pytest.mark.parametrize(("text", "width", "shown"), [
    ("short.py(3): f", 14, "short.py(3): f"),
    # the folders go, not the file, the line or the function
    ("transformers/models/videomae/image_processing_videomae.py(178): preprocess", 50,
     "tra…/image_processing_videomae.py(178): preprocess"),
    # no room for the function: file and line stay
    ("models/image_processing_videomae.py(178): preprocess_and_more", 40, "image_processing_videomae.py(178): prep…"),
    # no room for the file: its end and the line
    ("models/image_processing_videomae.py(178): preprocess", 16, "…ideomae.py(178)"),
    # a place at the end of a sentence
    ("host waits in aten::item at a/very/long/way/to/incidents.py(40): sample", 44,
     "host waits in aten…/incidents.py(40): sample"),
    # no place in it: both ends stay
    ("void cutlass::Kernel<float, 128, 128, sm90>(Params)", 20, "void cutlass…Params)"),
])
def test_what_is_cut(text: str, width: int, shown: str) -> None:
    assert shorten(text, width) == shown
    assert len(shown) <= width

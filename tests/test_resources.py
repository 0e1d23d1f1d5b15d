"""What ships with the package is found in a checkout."""

from __future__ import annotations

import pytest

from xpu_triage.errors import TriageError
from xpu_triage.resources import shipped


def test_the_playbook_and_the_notebooks_are_found(root):
    assert (shipped("playbook") / "fingerprints").is_dir()
    assert shipped("notebooks").is_dir()


def test_a_folder_that_does_not_ship_is_an_error_in_one_line():
    with pytest.raises(TriageError, match="'cookbook' folder is missing"):
        shipped("cookbook")

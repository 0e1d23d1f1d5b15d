"""The ways to install say the same thing: pyproject.toml, constraints.txt and environment.yml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

OWN = "xpu-triage"
NOT_PINNED_HERE = {"torch-npu"}  # pinned as a pair with torch in its own extra, for hosts with CANN only


@pytest.fixture(scope="module")
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def extras(project: dict) -> dict[str, list[Requirement]]:
    return {name: [Requirement(r) for r in reqs] for name, reqs in project["optional-dependencies"].items()}


@pytest.fixture(scope="module")
def pins(root: Path) -> dict[str, str]:
    lines = (root / "constraints.txt").read_text().splitlines()
    rows = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.\-]+==[\w.+!]+", row) for row in rows), "constraints are exact pins"
    return {canonicalize_name(name): version for name, version in (row.split("==") for row in rows)}


def test_every_direct_dependency_is_pinned_to_a_version_that_its_range_admits(project, extras, pins):
    direct = [Requirement(r) for r in project["dependencies"]] + [r for reqs in extras.values() for r in reqs]
    checked = 0
    for requirement in direct:
        name = canonicalize_name(requirement.name)
        if name == OWN or name in NOT_PINNED_HERE:
            continue
        assert name in pins, f"{name} is not pinned"
        assert requirement.specifier.contains(pins[name]), f"{name}: {pins[name]} not in {requirement.specifier}"
        checked += 1
    assert checked >= 15


def test_conda_environment_installs_the_same_extras_with_the_same_pins(root, project, extras):
    environment = yaml.safe_load((root / "environment.yml").read_text())
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    pip_lines = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert {Requirement(d).name for d in plain} == {"python", "pip"}, "versions live in pyproject.toml alone"
    python = next(Requirement(d) for d in plain if d.startswith("python"))
    assert python.specifier == SpecifierSet(project["requires-python"])
    assert "-c constraints.txt" in pip_lines
    (install,) = [line for line in pip_lines if line.startswith("-e ")]
    named = re.fullmatch(r"-e \.\[([\w,]+)\]", install)[1].split(",")
    assert set(named) <= set(extras)
    assert {"notebooks", "lab"} <= set(named), "conda gives JupyterLab and torch"


def test_torch_is_tested_at_one_version_and_torch_npu_never_comes_by_default(project, extras, pins):
    assert pins["torch"] == "2.13.0"
    pair = {canonicalize_name(r.name): str(r.specifier) for r in extras["npu"]}
    assert pair == {"torch": "==2.13.0", "torch-npu": "==2.13.0"}
    with_npu = [name for name, reqs in extras.items() if any(canonicalize_name(r.name) == "torch-npu" for r in reqs)]
    assert with_npu == ["npu"]
    assert not any(Requirement(r).name.startswith("torch") for r in project["dependencies"])


def test_what_the_tests_import_is_in_the_extra_that_they_install(root, extras):
    makefile = (root / "Makefile").read_text()
    assert "-e '.[dev,bench,lab]'" in makefile
    assert {"pytest", "hypothesis", "ruff", "mypy", "nbstripout", "playwright"} <= {r.name for r in extras["dev"]}

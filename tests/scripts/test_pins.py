"""Everything the scripts install is pinned, for each Python they accept."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


ROOT = Path(__file__).parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def under(python: str, lines: Iterable[str]) -> list[Requirement]:
    """The requirements that hold under this Python."""
    here = {"python_version": python, "python_full_version": f"{python}.1"}
    every = map(Requirement, lines)
    return [each for each in every if each.marker is None or each.marker.evaluate(here)]


def pins(python: str) -> list[Requirement]:
    """The lines of the constraints file that hold under this Python."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return under(python, [line for line in lines if line and not line.startswith("#")])


def wanted(python: str) -> list[Requirement]:
    """What pyproject.toml asks for under it: to build, to run, for the recipes and the tests."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    always = (project["build-system"]["requires"], project["project"]["dependencies"])
    return under(python, chain(*always, *extras, project["dependency-groups"]["dev"]))


@pytest.mark.parametrize("python", PYTHONS)
def test_a_package_has_one_exact_version(python: str) -> None:
    """No range, no suffix of a private build, and no package twice."""
    found = pins(python)

    assert all(
        str(pin.specifier).startswith("==") and "," not in str(pin.specifier) for pin in found
    )
    assert not [pin for pin in found if "+" in str(pin.specifier) or "*" in str(pin.specifier)]
    assert max(Counter(canonicalize_name(pin.name) for pin in found).values()) == 1


@pytest.mark.parametrize("python", PYTHONS)
def test_a_dependency_is_pinned_to_a_version_that_it_allows(python: str) -> None:
    """Two people who run the scripts get the same packages."""
    found = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins(python)}

    for requirement in wanted(python):
        version = found.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} has no line in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} does not allow {version}"

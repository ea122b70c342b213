"""A member that is added to a family appears in the generated pages by itself."""

from pathlib import Path

import pytest
from support.extended import ROOT, ExtendedPackage


METER = '''"""A meter that a contributor adds."""

from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Meter


class Planted(Meter):
    """Shrubs per step, as the gardener counts them."""

    name = "planted_shrubs"
    unit = "1"

    def observe(self, block: StepBlock) -> Ratio | None:
        """One per step."""
        return Ratio(float(len(block)), float(len(block)), len(block))


METERS = (Planted(),)
'''

DETECTOR = '''"""Detectors that a contributor adds."""


def planted_cause(account: object, facts: object) -> None:
    """The garden takes a notable part of the step."""
'''

CHECK = (
    'Check(id="planted_check", about="No shrub stands in the way.", '
    'looks=[answer("pass", "none")]),'
)

COMMAND = '''"""`trainperf garden`: a command that a contributor adds."""

from dataclasses import replace

from trainperf.commands.report import COMMAND as REPORT


COMMAND = replace(REPORT, name="garden")
'''

RENDER = "import sys; from scripts.render_docs import main; sys.exit(main())"


GUARDS = """
from contracts import test_reading_names

test_reading_names.test_every_constant_is_a_reading()
test_reading_names.test_no_reading_is_named_by_a_bare_literal()
print(sorted(test_reading_names.READINGS))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> ExtendedPackage:
    """A package with one meter, detector, check and command more."""
    package = ExtendedPackage.copied_to(tmp_path_factory.mktemp("checkout"))
    package.add_file("meters/planted.py", METER)
    package.add_line("meters/__init__.py", '"planted",', after='"loss",')
    package.add_file("analysis/diagnosis/detectors/planted.py", DETECTOR)
    package.add_line(
        "analysis/diagnosis/__init__.py", '"planted:planted_cause",', after='"host:callbacks",'
    )
    package.add_line("analysis/doctor/checks.py", CHECK, after="CHECKS: tuple[Check, ...] = (")
    package.add_file("commands/garden.py", COMMAND)
    package.add_line("commands/__init__.py", '"garden",', after='"merge",')
    return package


@pytest.fixture(scope="module")
def pages(package: ExtendedPackage) -> Path:
    """Its pages."""
    package.run(RENDER, "--out", package.folder / "docs")
    return package.folder / "docs"


@pytest.mark.parametrize(
    ("page", "row"),
    [
        ("readings.md", "| `planted_shrubs` | 1 |"),
        ("findings.md", "| `planted_cause` | The garden takes a notable part of the step. |"),
        ("checks.md", "| `planted_check` | No shrub stands in the way |"),
        ("cli.md", "## trainperf garden"),
    ],
)
def test_a_new_member_has_its_row(pages: Path, page: str, row: str) -> None:
    """And had none before."""
    assert row in (pages / "reference" / page).read_text(encoding="utf-8")
    assert row not in (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")


def test_no_list_of_names_had_to_be_told(package: ExtendedPackage) -> None:
    """The guards of the names pass with a meter that has no constant: nobody looks it up."""
    assert "planted_shrubs" in package.run(GUARDS)

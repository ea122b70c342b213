"""Who may import whom, checked as a test; and how light an import is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
UNBOUND = {"__init__", "__main__"}
HEAVY = ("torch", "lightning", "tensorboard", "transformers")


def loaded_by(statement: str) -> set[str]:
    """Modules in a fresh interpreter after *statement*."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_the_import_contracts_of_pyproject_hold() -> None:
    """Base, live and offline tower, and the layers of the latter."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"

    result = subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr


def test_every_part_has_a_place_in_the_contracts() -> None:
    """A new module is placed when it is written: one that no contract names may import anything."""
    contracts = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[tool.importlinter]")[1]
    )
    parts = {
        path.stem
        for path in (ROOT / "trainperf").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    named = set(re.findall(r"\btrainperf\.(\w+)", contracts))
    assert parts - named == UNBOUND


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import trainperf` costs next to nothing: not even numpy."""
    loaded = loaded_by("import trainperf")

    assert not loaded & {*HEAVY, "numpy", "msgspec", "rich", "typer"}


@pytest.mark.parametrize(
    "module",
    ["trainperf.commands", "trainperf.analysis.summarize", "trainperf.reports.run.formats"],
)
def test_the_offline_tower_loads_no_torch(module: str) -> None:
    """Not even through somebody else's import."""
    assert not loaded_by(f"import {module}") & set(HEAVY)

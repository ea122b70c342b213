"""Rules that need a GPU, on run directories written by hand: no GPU was there to record any."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import faults.written
from faults.base import evidence_of, script_in


NAMES = sorted(module.name for module in pkgutil.iter_modules(faults.written.__path__))


@pytest.mark.parametrize("name", NAMES)
def test_the_planted_cause_comes_first_and_its_twin_has_none(name: str, tmp_path: Path) -> None:
    """What is wrong is named before all else; without it, not at all."""
    script = script_in(importlib.import_module(f"{faults.written.__name__}.{name}"))
    script.train(tmp_path / "broken", fixed=False)
    script.train(tmp_path / "fixed", fixed=True)

    broken, fixed = (evidence_of(tmp_path / run).summary for run in ("broken", "fixed"))

    assert (broken.findings[0].id,) == script.expected
    assert not {finding.id for finding in fixed.findings} & set(script.expected)

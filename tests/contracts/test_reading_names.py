"""A reading is named by its constant, so that a typo cannot read as *not measured*."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runs import RankSpec, make_run_dir, make_steps
from support.sources import ROOT, nodes

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import NAMES, find, phase_reading
from trainperf.core.steps.records import FACTS
from trainperf.meters import METERS


METERLESS = {"allreduce_skew_s", "flops_per_s", "mfu", "hfu"}
"""Readings of a report that stand on more than blocks of steps."""

READINGS = {meter.name for meter in METERS} | METERLESS

OTHER_NAMES = (
    "comparison/trace_differences.py",
    "core/readings.py",
    "core/artifacts/",
    "meters/",
    "traces/",
    "reports/capture/",
    "audit/",
)
"""Where the names are made, and where metrics of traces or fields of files are called alike."""


def literals() -> Iterator[tuple[str, int, str]]:
    """Every text constant of the package, with its place."""
    for path, node in nodes("trainperf"):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = path.relative_to(ROOT / "trainperf").as_posix()
            if not place.startswith(OTHER_NAMES):
                yield place, node.lineno, node.value


def test_every_constant_is_a_reading() -> None:
    """Of a meter, or one that no meter gives; a meter needs one when somebody looks it up."""
    assert METERLESS <= NAMES
    assert NAMES <= READINGS


def test_no_reading_is_named_by_a_bare_literal() -> None:
    """Facts of a step that are called alike excepted."""
    bare = [
        f"{place}:{line}: {text!r}"
        for place, line, text in literals()
        if text in READINGS - set(FACTS) or (text.startswith("phase_") and text.endswith("_s"))
    ]

    assert bare == []


def test_a_name_that_no_reading_has_is_an_error(tmp_path: Path) -> None:
    """In a run as in any other mapping; a reading that an old run lacks is not measured."""
    run = make_run_dir(tmp_path / "trainperf", [RankSpec(steps=make_steps(30))])
    summary = summarize(Run.open(run), now_s=0.0)

    with pytest.raises(KeyError, match="step_mean_ms"):
        summary.value("step_mean_ms")
    with pytest.raises(KeyError, match="dat_wait"):
        phase_reading("dat_wait")
    assert find({}, "step_s") is None

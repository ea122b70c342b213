"""Analyses of captures on disk, as they are written today and as earlier runs hold them."""

from pathlib import Path

import pytest

from trainperf.core.run_directory import ANALYSIS_SUFFIX
from trainperf.traces.capture_files import CaptureFacts, CaptureReport, read_all, write


@pytest.fixture
def analysis(tmp_path: Path) -> Path:
    """Where the analysis of a capture of the run *tmp_path* is, or will be."""
    target = tmp_path / "traces" / f"rank0-step000064-3steps{ANALYSIS_SUFFIX}"
    target.parent.mkdir()
    return target


def report() -> CaptureReport:
    """An analysis without ranks."""
    facts = CaptureFacts(first_step=64, first_index=64, complete_steps=3)
    return CaptureReport(ranks=(), answer="The GPU is idle.", capture=facts)


def test_an_analysis_is_read_as_it_was_written(tmp_path: Path, analysis: Path) -> None:
    """Word for word."""
    write(report(), analysis)
    assert read_all(tmp_path) == [report()]


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"findings": [{"rule": 1}]}'])
def test_a_damaged_analysis_is_ignored(tmp_path: Path, analysis: Path, body: str) -> None:
    """Nothing is raised: the report of the run is shown without it."""
    analysis.write_text(body)
    assert read_all(tmp_path) == []

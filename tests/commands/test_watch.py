"""`trainperf watch`: what it needs, and says where that is missing."""

import sys
from pathlib import Path

import pytest
from support.growing import even_ranks
from support.runs import make_run_dir

from trainperf.commands import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line on stderr of a command that could not be carried out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["trainperf", "watch", *arguments])
        assert main() == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run."""
    return make_run_dir(tmp_path / "run", even_ranks(1, 30))


def test_without_a_terminal_it_names_the_command_that_needs_none(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe, a log file, a job."""
    assert f"needs a terminal; `trainperf report {run}`" in refused(capsys, str(run))


def test_no_run_and_no_sensible_interval_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As everywhere."""
    assert "no such file or directory" in refused(capsys, str(tmp_path / "none"))
    assert "give a number above 0" in refused(capsys, "runs/a", "--every", "0")
    assert "--every: 2s: give a number" in refused(capsys, "runs/a", "--every", "2s")

"""A loop that brackets nothing: what was never measured is not shown as zero."""

import json
from pathlib import Path

import pytest

from trainperf.loop import LoopMonitor
from trainperf.testing import FakeClock


UNSEEN = ("forward", "backward", "optimizer")


def trained(path: Path, *phases: str) -> None:
    """A hundred steps of 10 ms, of which *phases* take 1 ms each; the report is printed."""
    clock = FakeClock()
    with LoopMonitor(path, clock=clock) as monitor:
        for _ in monitor.batches(range(100)):
            for phase in phases:
                with monitor.phase(phase):
                    clock.advance(ms=1)
            clock.advance(ms=10 - len(phases))
            monitor.end_step()


def test_a_phase_that_nothing_brackets_is_not_measured(tmp_path: Path) -> None:
    """Neither zero nor silent: the summary says what to write; what is bracketed has its 1 ms."""
    trained(tmp_path, "forward")
    readings = json.loads((tmp_path / "trainperf" / "summary.json").read_text())["readings"]

    assert readings["phase_forward_s"]["value"] == pytest.approx(0.001, rel=1e-9)
    for phase in UNSEEN[1:]:
        reading = readings[f"phase_{phase}_s"]
        assert reading["value"] is None
        assert reading["reason"] == f'not measured: nothing ran in phase("{phase}")'
    assert readings["phase_other_s"]["value"] == pytest.approx(0.009, rel=1e-9)


def test_the_report_of_a_loop_in_one_piece_says_how_to_split_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot say that nothing stands out where it has not looked."""
    trained(tmp_path)
    said = " ".join(capsys.readouterr().out.split())

    assert "100 % of it is outside every phase" in said
    assert "First: bracket forward, backward, optimizer." in said
    assert 'monitor.phase("forward")' in said
    assert "No clear bottleneck" not in said
    for phase in UNSEEN:
        assert f" {phase} not measured " in said


def test_a_loop_that_is_split_is_told_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the test above would prove nothing."""
    trained(tmp_path, *UNSEEN)
    said = capsys.readouterr().out

    assert "bracket" not in said
    assert "not measured" not in said

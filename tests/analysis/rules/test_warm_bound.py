"""A bound holds though the rest of the step gets faster with its cause gone."""

from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.core.findings import Finding


def bound(path: Path, device: str, **phases_ms: float) -> float | None:
    """Of the callbacks in two hundred equal steps."""
    spec = RankSpec(steps=make_steps(200, **phases_ms), info=make_info(device=device))
    findings: dict[str, Finding] = {
        finding.id: finding for finding in summary_of(path, [spec]).findings
    }
    return findings["callbacks"].gain_upper_bound


def test_in_a_short_step_all_else_may_take_a_third(tmp_path: Path) -> None:
    """Of 4 ms, callbacks take 2: the other 2 ms are those of cold caches."""
    assert bound(tmp_path, "cpu", callbacks=2, forward=2) == pytest.approx(4 / (2 / 3))


def test_in_a_long_step_a_refill_is_all_that_is_won(tmp_path: Path) -> None:
    """Two milliseconds of fifty."""
    assert bound(tmp_path, "cpu", callbacks=50, forward=50) == pytest.approx(100 / 48)


def test_a_device_that_is_ahead_does_not_mind_its_hosts_caches(tmp_path: Path) -> None:
    """Amdahl's law alone."""
    assert bound(tmp_path, "cuda", callbacks=2, forward=2) == pytest.approx(2)

"""What a change usually gains comes from the corpus, and orders the findings."""

from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.gains import ENOUGH, gain_table
from trainperf.core.findings import Finding, ranked


def waiting(path: Path, device: str) -> Finding:
    """The finding of two hundred steps that wait 40 of 100 ms for data."""
    info = make_info(device=device, config={"num_workers": 0}, hardware={"cpu_count": 8})
    steps = make_steps(200, data_wait=40, forward=60)
    findings = summary_of(path, [RankSpec(steps=steps, info=info)]).findings
    return next(finding for finding in findings if finding.id == "data_wait")


def test_the_range_is_that_of_the_rules_own_scripts(tmp_path: Path) -> None:
    """Of the 40 % that are lost, the parts of the table."""
    saved = gain_table().rules["data_wait"]
    finding = waiting(tmp_path, "cpu")

    assert saved.scripts >= ENOUGH
    assert finding.expected_gain is not None
    assert finding.expected_gain[0] == pytest.approx(1 / (1 - 0.4 * saved.low))


def test_no_range_reaches_beyond_its_bound(tmp_path: Path) -> None:
    """However much the scripts gained."""
    finding = waiting(tmp_path, "cpu")

    assert finding.expected_gain is not None
    assert finding.gain_upper_bound is not None
    assert 1 <= finding.expected_gain[0] <= finding.expected_gain[1] <= finding.gain_upper_bound


def test_scripts_on_a_cpu_say_nothing_of_a_device(tmp_path: Path) -> None:
    """There is no range then."""
    assert waiting(tmp_path, "cuda").expected_gain is None


def test_what_is_expected_comes_before_what_is_merely_possible() -> None:
    """Half of the step at most, and nobody knows; a third of it, which scripts saved indeed."""
    loose = Finding(
        id="loose", title="", advice="", evidence=(), action="", fraction=0.5, gain_upper_bound=2.0
    )
    shown = msgspec.structs.replace(
        loose, id="shown", fraction=0.35, gain_upper_bound=1.6, expected_gain=(1.4, 1.55)
    )

    assert [finding.id for finding in ranked([loose, shown])] == ["shown", "loose"]

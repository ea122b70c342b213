"""Machines that were sampled beside a run: what costs nothing accuses nobody."""

import gzip
from pathlib import Path

import pytest
from analysis.summary.test_machine import hot, run_of, scattered
from support.machines import plant_machine

from trainperf.analysis.diagnosis.detectors import machine
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary


CAUSES = {"device_throttled", "device_shared", "host_shared", "host_pressure"}

RECORDED = Path(__file__).parent / "recorded"
"""45 s of a small model on two cores of a quiet AMD EPYC, its machine beside it."""


def blamed(summary: Summary) -> set[str]:
    """Causes of the machine among the findings."""
    return CAUSES & {finding.id for finding in summary.findings}


@pytest.mark.parametrize("seed", range(4))
def test_a_machine_whose_trouble_costs_nothing_gives_no_finding(seed: int, tmp_path: Path) -> None:
    """Everything comes and goes, and steps stay as they are: chance does not accuse."""
    run = run_of(tmp_path, scattered(120, lambda _: 1.0, seed))
    plant_machine(
        run,
        120,
        host=lambda s: {"cpu_busy": 9.0, "io_pressure": 0.5} if (s // 10 + seed) % 3 == 0 else {},
        device=lambda s: {"reasons": 0x20, "others": 1.0} if (s // 7 + seed) % 4 == 0 else {},
        neighbours=(),
    )

    assert blamed(examine(Run.open(run)).summary) == set()


def test_slow_steps_that_the_machine_has_no_part_in_are_not_blamed_on_it(tmp_path: Path) -> None:
    """A healthy machine beside steps that are slow for reasons of their own."""
    run = run_of(tmp_path, scattered(120, hot(40, 80, 1.5), 0))
    plant_machine(run, 120, neighbours=())

    assert blamed(examine(Run.open(run)).summary) == set()


@pytest.mark.parametrize("ends", [80, 120])
def test_a_change_that_the_machine_explains_is_told_once(tmp_path: Path, ends: int) -> None:
    """No trace has to be captured to find out what the clock says."""
    run = run_of(tmp_path, scattered(120, hot(40, ends, 1.12), 0))
    thermal = {"sm_mhz": 1305.0, "reasons": 0x40}
    plant_machine(run, 120, device=lambda s: thermal if 40 < s <= ends else {}, neighbours=())

    findings = examine(Run.open(run)).summary.findings

    assert [finding.id for finding in findings] == ["device_throttled"]
    assert findings[0].title.endswith("were 12 % slower: the GPU lowered its clock (thermal)")


def test_a_recorded_healthy_machine_gives_no_finding(tmp_path: Path) -> None:
    """Although something else was on that host for a second."""
    for file in RECORDED.glob("*.gz"):
        (tmp_path / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    evidence = examine(Run.open(tmp_path))

    found = evidence.summary.machine
    assert found.hosts[0].samples > 40
    assert [cause.cause for cause in found.causes] == ["host shared"]
    assert blamed(evidence.summary) == set()


def test_every_cause_of_a_machine_is_one_of_these() -> None:
    """A new one is asked the same."""
    assert all(hasattr(machine, cause) for cause in CAUSES)

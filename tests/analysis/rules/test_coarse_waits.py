"""Advice about a wait that may be the loop's own code, and about one that is a loader's."""

from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Scalar


def first(summary: Summary) -> Finding:
    """What is to be done first."""
    return summary.findings[0]


@pytest.mark.parametrize(
    ("loop", "config", "advice", "action"),
    [
        (
            "outside",
            {},
            "Name what runs between the update and the next forward",
            "batches(loader)",
        ),
        ("outside", {"num_workers": 0}, "Fix the loader", "DataLoader(num_workers="),
        ("outside, loader heard", {}, "Fix the loader", "give the DataLoader more workers"),
        ("outside, loader heard", {"num_workers": 0}, "Fix the loader", "DataLoader(num_workers="),
    ],
)
def test_workers_are_advised_where_the_wait_is_known_to_be_for_a_loader(
    loop: str, config: dict[str, Scalar], advice: str, action: str, tmp_path: Path
) -> None:
    """Else it may be the loop's own code, which is told from it first."""
    finding = first(loaded_outside(tmp_path, loop, config, data_wait=50, forward=20))

    fixed = advice == "Fix the loader"
    assert (finding.id, finding.advice) == ("data_wait" if fixed else "unnamed_time", advice)
    assert action in finding.action
    assert finding.title.startswith("up to ") == (loop == "outside" and fixed)
    # To tell two things apart has gained nobody anything.
    assert (finding.expected_gain is None) == (not fixed)


@pytest.mark.parametrize(("python", "newer"), [("3.11.9", True), ("3.12.1", False), ("", True)])
def test_a_newer_python_is_named_where_it_would_tell(
    python: str, *, newer: bool, tmp_path: Path
) -> None:
    """From 3.12 on one that did not tell is no other."""
    summary = loaded_outside(tmp_path, "outside", {}, data_wait=50, forward=20, python=python)

    assert ("Python 3.12" in first(summary).action) == newer


@pytest.mark.parametrize("config", [{}, {"num_workers": 0}])
def test_a_pause_in_the_loops_own_code_is_no_fault_of_a_loader_that_was_heard(
    config: dict[str, Scalar], tmp_path: Path
) -> None:
    """What is advised is about that code."""
    summary = loaded_outside(
        tmp_path, "outside, loader heard", config, data_wait=1, other=50, forward=20, backward=5
    )

    finding = summary.findings[0]
    assert finding.id == "unnamed_time"
    assert all("worker" not in each.action for each in summary.findings)


def loaded_outside(
    path: Path, loop: str, config: dict[str, Scalar], *, python: str = "3.11.9", **phases_ms: float
) -> Summary:
    """Two hundred equal steps of a plain loop, recorded from outside."""
    info = make_info(device="cpu", config={"loop": loop, **config}, hardware={"cpu_count": 8})
    info = msgspec.structs.replace(info, software={"python": python})
    spec = RankSpec(steps=make_steps(200, optimizer=1.0, **phases_ms), info=info)
    return summarize(Run.open(make_run_dir(path / "trainperf", [spec])))

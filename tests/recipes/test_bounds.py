"""A bound is the most that a change can gain: what it takes away is left out, and no more."""

from pathlib import Path

import pytest
from support.audits import evidence_of, product, use
from support.runs import make_run

from recipes.gpt2 import bounds
from recipes.gpt2.stages import STAGES
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine


BOUND = {stage.name: stage.bound for stage in STAGES}


def loading(path: Path, data_wait: float, forward: float) -> Facts:
    """Two hundred steps on two CPUs without workers."""
    run = make_run(
        path / "run",
        config={"num_workers": 0},
        hardware={"cpu_count": 2},
        data_wait=data_wait,
        forward=forward,
    )
    return examine(Run.open(run))


def test_fewer_micro_batches_may_save_what_is_spent_around_each(tmp_path: Path) -> None:
    """Nothing to gain in forward (20 ms) and backward (30), but 50 ms of callbacks and loop.

    Forward is computed twice then: of 100 ms 70 are left where half a loop costs nothing, and
    2 ms less where caches stay warm.
    """
    evidence = evidence_of(
        tmp_path,
        [
            product("mm", 20, flops=20 * 10**9),
            product("mm", 30, flops=30 * 10**9, part="backward"),
        ],
        micro_batches=4,
        forward=20.0,
        backward=30.0,
        callbacks=10.0,
        loop=40.0,
    )

    assert bounds.larger_batch(evidence).at_most == pytest.approx(100 / 68, rel=0.01)


def test_a_stage_that_a_finding_asks_for_has_the_bound_of_the_finding(tmp_path: Path) -> None:
    """An update of 30 ms of 60, one operator after the other."""
    update = use("_foreach_addcdiv_", 30.0, part="optimizer")
    rest = product("mm", 29.0, flops=10**9)
    evidence = evidence_of(tmp_path, [update, rest], forward=30.0, optimizer=30.0)

    finding = {each.id: each for each in evidence.summary.findings}["optimizer_not_fused"]
    assert BOUND["fused"](evidence).at_most == finding.gain_upper_bound


@pytest.mark.parametrize("name", ["sdpa", "fused"])
def test_a_detector_that_is_silent_leaves_less_than_its_limit(name: str, tmp_path: Path) -> None:
    """Neither attention nor an update in the audited step: 3 of 30 ms, and 2 for warmer caches."""
    evidence = evidence_of(tmp_path, [product("mm", 29.0, flops=10**9)], forward=30.0)

    assert BOUND[name](evidence).at_most == pytest.approx(30 / 25)


@pytest.mark.parametrize("name", ["sdpa", "fused", "bf16", "compile", "vocabulary", "graphs"])
def test_without_an_audit_a_silent_rule_says_nothing(name: str, tmp_path: Path) -> None:
    """It had nothing to look at."""
    assert BOUND[name](loading(tmp_path, 0.0, 10.0)).at_most is None


@pytest.mark.parametrize(
    ("data_wait", "forward", "bound"),
    [
        pytest.param(20, 2, 22 / 20, id="two are advised, one makes every batch"),
        pytest.param(20, 80, 100 / 78, id="as the finding: 2 ms less for a warm step"),
        pytest.param(1, 80, 81 / (0.9 * 81 - 2), id="no finding: less than its limit"),
    ],
)
def test_the_loader_stage_is_bounded_by_its_one_worker(
    data_wait: float, forward: float, bound: float, tmp_path: Path
) -> None:
    """However many the report advises."""
    assert BOUND["loader"](loading(tmp_path, data_wait, forward)).at_most == pytest.approx(bound)

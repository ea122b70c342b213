"""Sharded training on two gloo ranks: what is measured as usual, and what is not covered."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.fits import Ran
from support.late import latest
from support.loops import read
from support.ranks import start_two

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.phases import Phase


pytestmark = [pytest.mark.ddp, pytest.mark.slow]

STEPS, POISONED = 20, [7, 9]

NAMES = {
    "lightning": "ModelParallelStrategy, FSDP2 (fully_shard)",
    "lightning-fsdp": "FSDPStrategy, FSDP",
    "fsdp2": "FSDP2 (fully_shard)",
    "fsdp": "FSDP",
    "tensor_parallel": "tensor parallelism (DTensor)",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both ranks have left their runs."""
    root = tmp_path_factory.mktemp("sharded")
    start_two(Path(__file__).parent / "sharded_ranks.py", root)
    return root


def ran(root: Path, case: str, rank: int) -> Any:
    """What a rank has recorded."""
    (path,) = (root / case).rglob(f"steps-rank{rank}.jsonl")
    return read(path)


@pytest.mark.parametrize("case", NAMES)
def test_steps_and_phases_are_as_usual_and_the_tail_is_not_covered(root: Path, case: str) -> None:
    """Under the strategy's own name, never as a tail of zero."""
    for rank in range(2):
        run: Ran = ran(root, case, rank)
        assert len(run.steps) == STEPS
        assert run.totals.faults == {}
        assert run.info.reasons["tail_ns"].startswith(f"not covered: {NAMES[case]};")
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
            assert all(step.host_ns[phase] > 0 for step in run.steps)


@pytest.mark.parametrize(
    ("case", "reshards"),
    [("fsdp2", True), ("fsdp", True), ("late-fsdp2", False), ("tensor_parallel", None)],
)
def test_whether_parameters_are_freed_after_a_forward_is_told(
    root: Path, case: str, reshards: object
) -> None:
    """As FSDP was told; nothing where there is none."""
    assert ran(root, case, 0).info.config.get("fsdp_reshard") is reshards


@pytest.mark.parametrize("case", ["late-fsdp2", "late-fsdp"])
def test_a_rank_that_is_late_for_the_reduction_of_gradients_is_named(root: Path, case: str) -> None:
    """Rank 1 sleeps before backward: rank 0 waits in it, where shards are reduced."""
    (run,) = (root / case).glob("trainperf*")

    points = {point.point: point for point in summarize(Run.open(run)).synchronisation}

    assert latest(points["backward"]).rank == 1
    assert latest(points["backward"]).cause == "callbacks"
    assert latest(points["backward"]).cause_s > 0.014


@pytest.mark.parametrize("case", ["fsdp2", "fsdp"])
def test_an_overflow_on_one_rank_is_counted_on_both(root: Path, case: str) -> None:
    """With FSDP by its sharded scaler; with FSDP2 the gradients themselves carry it over."""
    for rank in range(2):
        steps = ran(root, case, rank).steps
        assert [step.facts["attempts"] for step in steps] == [1] * STEPS
        assert [step.index for step in steps if step.facts["overflows"]] == POISONED


@pytest.mark.parametrize("case", ["fsdp2", "fsdp", "tensor_parallel"])
def test_nothing_of_ours_fails_on_sharded_tensors(root: Path, case: str) -> None:
    """Nor the audit of a step, which looks at every tensor."""
    for rank in range(2):
        assert json.loads((root / case / f"faults-{rank}.json").read_text()) == {}

"""Two gloo ranks that are given the same samples, or a part each, in real loops under DDP."""

import shutil
from pathlib import Path

import pytest
from support.loops import read
from support.ranks import start_two

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


pytestmark = [pytest.mark.ddp, pytest.mark.slow]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both ranks have left their runs."""
    root = tmp_path_factory.mktemp("same-inputs")
    start_two(Path(__file__).parent / "same_inputs_ranks.py", root)
    return root


def run_of(root: Path, case: str) -> Path:
    """The directory that both ranks wrote."""
    (path,) = (root / case).rglob("steps-rank0.jsonl")
    return path.parent


@pytest.mark.parametrize("loop", ["monitor", "outside"])
@pytest.mark.parametrize(
    ("planted", "same"),
    [("divided", ()), ("validation", ("validation",)), ("training", ("training",))],
)
def test_ranks_that_do_the_same_are_told_from_those_that_do_a_part_each(
    root: Path, loop: str, planted: str, same: tuple[str, ...]
) -> None:
    """Also where the validation leaves the wrapper out; what it is given is heard there, too."""
    run = run_of(root, f"{loop}-{planted}")

    assert summarize(Run.open(run)).run.same_inputs == same
    for rank in range(2):
        totals = read(run / f"steps-rank{rank}.jsonl").totals
        assert totals.faults == {}
        assert totals.config["validation_grad"] is False
        assert totals.config["validation_batches"] == (6 if "validation" in same else 3)


def test_without_the_file_of_a_rank_nothing_is_said(root: Path, tmp_path: Path) -> None:
    """It may have been given something else."""
    run = shutil.copytree(run_of(root, "monitor-training"), tmp_path / "run")
    (run / "steps-rank1.jsonl").unlink()

    assert summarize(Run.open(run)).run.same_inputs == ()

"""Two ranks of a Hugging Face training: one run, and the late one waits least."""

from pathlib import Path
from statistics import median

import pytest
import torch.multiprocessing as mp
from support.hugging_face_ranks import LATE_S, STEPS, train
from support.loops import Written, read
from support.ranks import free_port


def ranks_of(path: Path, *where: str) -> list[Written]:
    """What two ranks of a training have left in their one run."""
    mp.spawn(train, args=(path, free_port(), *where), nprocs=2)
    (run,) = (path / "out").glob("trainperf*")
    return [read(run / f"steps-rank{rank}.jsonl") for rank in range(2)]


@pytest.mark.slow
@pytest.mark.ddp
def test_the_tail_is_measured_though_the_callback_is_given_the_model_alone(tmp_path: Path) -> None:
    """DDP is found around it; its own wait at the end of backward is part of backward."""
    ranks = ranks_of(tmp_path)

    for rank, found in enumerate(ranks):
        assert (found.info.rank, found.info.world_size) == (rank, 2)
        assert [step.micro_batches for step in found.steps] == [2] * STEPS
        assert found.info.config["wrapper"] == "DistributedDataParallel"
        assert found.totals.faults == {}
    tails = [[step.facts["tail_ns"] / 1e9 for step in found.steps] for found in ranks]
    lag = median(fast - slow for fast, slow in zip(*tails, strict=True))
    backward = median(ranks[0].phase_s("backward")) - median(ranks[1].phase_s("backward"))
    assert lag > 0.75 * LATE_S
    assert backward > 0.75 * LATE_S


@pytest.mark.slow
@pytest.mark.ddp
def test_ranks_that_gather_their_token_counts_wait_for_a_late_loader_before_forward(
    tmp_path: Path,
) -> None:
    """`average_tokens_across_devices`: a point where ranks meet, which is nobody's backward."""
    fast, late = ranks_of(tmp_path, "loader")

    assert fast.info.config["average_tokens_across_devices"] is True
    assert median(late.phase_s("data_wait")[1:-1]) > LATE_S
    assert median(fast.phase_s("data_wait")[1:-1]) < 0.5 * LATE_S
    assert median(fast.phase_s("other")[1:-1]) > 0.75 * LATE_S
    assert median(fast.phase_s("backward")[1:-1]) < 0.5 * LATE_S


@pytest.mark.slow
@pytest.mark.ddp
def test_a_rank_that_rank_0_loads_for_says_so(tmp_path: Path) -> None:
    """`dispatch_batches`: its own loader is never asked, and its wait is between two steps."""
    first, other = ranks_of(tmp_path, "stream")

    assert "data_wait" not in first.totals.notes
    assert "dispatched by rank 0" in other.totals.notes["data_wait"]
    assert len(other.steps) == len(first.steps) == STEPS
    assert all(wait > 0 for wait in other.phase_s("data_wait")[1:])

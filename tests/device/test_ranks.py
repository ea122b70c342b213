"""Collectives are queued on a stream of their own, as NCCL's are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.device import two_ranks
from support.ranks import free_port
from torch import multiprocessing

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


pytestmark = pytest.mark.ddp


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they write."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(attached: None, root: Path) -> list[dict[str, Any]]:
    """What each of two ranks tells."""
    multiprocessing.spawn(two_ranks.start, (root, free_port()), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(root / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_a_reduction_is_queued_and_ddp_trains_ranks_to_the_same_weights(
    ranks: list[dict[str, Any]],
) -> None:
    """What comes behind `wait` sees the sum, and the host does not wait for it.

    DDP's reductions run beside the backward pass, and no step waits.
    """
    assert torch.equal(ranks[0]["weight"], ranks[1]["weight"])
    for rank in ranks:
        assert rank["early"] is False
        assert rank["doubled"].tolist() == [6.0] * 3
        assert rank["counts"] == {}
        assert len(rank["streams"]) == 3
        assert 0 not in rank["streams"]
        # The measured loop waits once a step by itself, and no wait in it is ours: after it, what
        # the ranks were given is read at once.
        assert rank["waits"] == {"device": two_ranks.MEASURED - two_ranks.SETTLED, "copy": 1}


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("loop", two_ranks.LOOPS)
def test_a_tail_is_the_reduction_and_what_a_rank_waits_for(root: Path, loop: str) -> None:
    """On the late rank the last reduction, which is under way as the gradients are complete."""
    tails = two_ranks.tails_ms(root / loop, 2)
    assert tails[1] > 0.7 * two_ranks.REDUCE_MS
    assert tails[0] - tails[1] > 0.6 * two_ranks.LATE_MS


@pytest.mark.usefixtures("ranks")
def test_the_report_has_the_point_at_which_the_ranks_meet(root: Path) -> None:
    """And what each of them waits there."""
    summary = summarize(Run.open(two_ranks.run_of(root / two_ranks.PLAIN)))
    points = {point.point: point for point in summary.synchronisation}
    first, second = points["backward"].wait_s
    assert first - second > 0.6e-3 * two_ranks.LATE_MS

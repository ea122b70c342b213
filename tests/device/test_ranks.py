"""Collectives are queued on a stream of their own, as NCCL's are."""

import socket
from typing import Any

import pytest
import torch
from support.device import two_ranks
from torch import multiprocessing


pytestmark = pytest.mark.ddp


@pytest.fixture(scope="module")
def ranks(attached: None, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks tells."""
    root = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(two_ranks.start, (root, port), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(root / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_a_reduction_is_queued_and_right(ranks: list[dict[str, Any]]) -> None:
    """What comes behind `wait` sees the sum, and the host does not wait for it."""
    for rank in ranks:
        assert rank["early"] is False
        assert rank["doubled"].tolist() == [6.0] * 3


def test_ddp_trains_ranks_to_the_same_weights(ranks: list[dict[str, Any]]) -> None:
    """Its reductions run beside the backward pass, and no step waits."""
    assert torch.equal(ranks[0]["weight"], ranks[1]["weight"])
    for rank in ranks:
        assert rank["counts"] == {}
        assert len(rank["streams"]) == 3
        assert 0 not in rank["streams"]

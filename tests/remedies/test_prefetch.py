"""Batches on the device, one ahead: the same ones in the same order."""

from typing import NamedTuple

import pytest
import torch

from trainperf.remedies import DevicePrefetcher


class Pair(NamedTuple):
    """What some loaders yield."""

    rows: torch.Tensor
    labels: torch.Tensor


def test_batches_of_any_shape_come_through_unchanged() -> None:
    """Mappings, named tuples, lists, and what is no tensor."""
    given = [
        {"x": torch.arange(3), "name": "a"},
        Pair(torch.ones(2), torch.zeros(1)),
        [torch.ones(1), 5],
    ]
    found = list(DevicePrefetcher(given, "cpu"))

    assert str(found) == str(given)
    assert [type(one) for one in found] == [dict, Pair, list]
    assert len(DevicePrefetcher(given, "cpu")) == 3


def test_an_empty_loader_is_empty() -> None:
    """No batch, no error."""
    assert list(DevicePrefetcher([], "cpu")) == []


class Moved:
    """A batch that moves itself."""

    def __init__(self, where: str = "made") -> None:
        self.where = where

    def to(self, device: torch.device, *, non_blocking: bool) -> "Moved":
        """Say where to."""
        return Moved(f"{device}, non_blocking={non_blocking}")


def test_a_batch_that_moves_itself_is_asked_to() -> None:
    """Rebuilding it from its parts could break what it promises, as for a packed sequence."""
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])

    found, alone = DevicePrefetcher([{"a": Moved()}, packed], "cpu")

    assert found["a"].where == "cpu, non_blocking=False"
    assert torch.equal(alone.data, packed.data)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_nothing_is_fetched_ahead_where_the_memory_is_the_hosts(device: str) -> None:
    """A batch is moved as it is taken, and the host waits: it may be freed right afterwards."""
    asked: list[int] = []
    batches = iter(DevicePrefetcher((asked.append(n) or [Moved()] for n in range(5)), device))

    (batch,) = next(batches)

    assert asked == [0]
    assert batch.where == f"{device}, non_blocking=False"

"""Batches on the device, one ahead: the same ones in the same order."""

from typing import NamedTuple

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

    assert found["a"].where == "cpu, non_blocking=True"
    assert torch.equal(alone.data, packed.data)


def test_the_loader_is_not_asked_for_more_than_is_taken_on_a_cpu() -> None:
    """Nothing is copied there, so nothing is fetched ahead."""
    asked: list[int] = []
    batches = iter(DevicePrefetcher((asked.append(n) or torch.ones(1) for n in range(5)), "cpu"))

    next(batches)

    assert asked == [0]

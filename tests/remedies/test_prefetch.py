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

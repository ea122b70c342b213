"""Batches are held, replayed and rearranged, and the loop's loader keeps its position."""

from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader, Sampler, TensorDataset

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import TrialsOver
from trainperf.trials.batch_source import BatchSource, demand_second_pass, second_pass


def loader(samples: int = 12, **settings: object) -> "DataLoader[tuple[torch.Tensor, ...]]":
    """Pairs of numbers in order."""
    return DataLoader(TensorDataset(torch.arange(samples)), batch_size=2, **settings)  # type: ignore[arg-type]


def values(batches: object) -> list[list[int]]:
    """The numbers in each batch."""
    return [batch[0].tolist() for batch in batches]  # type: ignore[attr-defined]


def test_the_last_batches_are_replayed_in_their_order() -> None:
    """Then the loop goes on with the next one."""
    source = BatchSource()
    batches = source.over(iter(range(100)))
    list(islice(batches, 5))
    source.draw_from(source.replay(2))

    assert list(islice(batches, 4)) == [3, 4, 3, 4]
    source.draw_from(None)
    assert next(batches) == 5


def test_a_second_pass_has_the_same_batches_and_leaves_the_first_where_it_was() -> None:
    """It begins anew at its end; the loop loses no batch."""
    first = loader()
    source = BatchSource(first)
    batches = source.over(iter(first))
    assert values(islice(batches, 2)) == [[0, 1], [2, 3]]
    source.draw_from(second_pass(first, workers=0, prefetch=None))

    assert values(islice(batches, 7))[-1] == [0, 1]
    source.draw_from(None)
    assert values(islice(batches, 4)) == [[4, 5], [6, 7], [8, 9], [10, 11]]


def test_a_stream_of_samples_has_no_second_pass() -> None:
    """It would take samples from the first."""
    with pytest.raises(ConfigError, match="would lose the samples"):
        demand_second_pass(DataLoader(ChainDataset([])))


class Counting(Sampler[int]):
    """Counts its epochs over data that cannot be had twice; the order of one may be under way."""

    def __init__(self, data: TensorDataset, order: Iterator[int] | None = None) -> None:
        self.data, self.order, self.epochs = data, order, 0

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        return self.order or iter(range(len(self.data)))


class Large(TensorDataset):
    """A second one does not fit into memory."""

    def __deepcopy__(self, memo: object) -> TensorDataset:
        raise MemoryError


def test_a_second_pass_walks_through_a_copy_of_the_sampler() -> None:
    """Not of its data; one that cannot be copied is not advanced, either."""
    data = Large(torch.arange(4))
    sampler = Counting(data)
    second = second_pass(DataLoader(data, batch_size=2, sampler=sampler), 0, None)
    assert values(islice(second, 2)) == [[0, 1], [2, 3]]
    assert sampler.epochs == 0

    under_way = Counting(data, order=(at for at in range(4)))
    with pytest.raises(ConfigError, match=r"cannot be copied.*generator"):
        second_pass(DataLoader(data, sampler=under_way), 0, None)


def test_batches_are_rearranged_a_pool_at_a_time() -> None:
    """What a loader that cannot be begun anew leaves over is a pool of its own."""
    source = BatchSource()
    batches = source.over(iter(range(6)))
    source.rearrange(lambda pool: pool[::-1], pool=4)

    assert list(batches) == [3, 2, 1, 0, 5, 4]


def test_it_begins_the_loader_anew_where_that_ends() -> None:
    """The epoch has no end."""
    source = BatchSource([1, 2])

    assert list(islice(source.over(iter([1, 2])), 5)) == [1, 2, 1, 2, 1]


def test_what_was_held_ahead_as_an_epoch_was_left_comes_again() -> None:
    """Or batches that are compared with each other would not be the same."""
    source = BatchSource(ahead=1)
    list(islice(source.over(iter(range(5))), 5))
    source.replay_only(4)
    begun = list(islice(source, 3))  # of which the loop has trained on two

    assert begun == [1, 2, 3]
    assert list(islice(source.over(iter(range(5))), 3)) == [3, 4, 1]


def test_the_process_ends_in_place_of_the_next_batch() -> None:
    """With exit code 0: nothing went wrong."""
    source = BatchSource()
    batches = source.over(iter([1]))
    source.end()

    with pytest.raises(TrialsOver) as raised:
        next(batches)
    assert not raised.value.code

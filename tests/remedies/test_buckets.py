"""Batches of neighbours in length: less padding, the same data."""

import random
from itertools import pairwise

import pytest
import torch
from support.fits import QUIET
from torch.utils.data import DataLoader

from trainperf.core.errors import ConfigError
from trainperf.remedies import BucketedBatches


_RANDOM = random.Random(7)  # noqa: S311 lengths, no secret
LENGTHS = [_RANDOM.randint(4, 400) for _ in range(1003)]


def padding(batches: list[list[int]]) -> float:
    """Share of padded batches that is no text."""
    text = sum(LENGTHS[number] for batch in batches for number in batch)
    every = sum(len(batch) * max(LENGTHS[number] for number in batch) for batch in batches)
    return 1 - text / every


def test_every_sequence_comes_exactly_once_an_epoch() -> None:
    """The data is unchanged; the last batch is as short as it must be."""
    batches = list(BucketedBatches(LENGTHS, 16))

    assert sorted(number for batch in batches for number in batch) == list(range(1003))
    assert sorted(map(len, batches)) == [11, *[16] * 62]
    assert len(BucketedBatches(LENGTHS, 16)) == 63


def test_there_is_far_less_padding() -> None:
    """Half of the tokens of a random order are none; of a bucketed one a few per cent."""
    shuffled = _RANDOM.sample(range(1003), 1003)
    plain = [shuffled[start : start + 16] for start in range(0, 1003, 16)]

    assert padding(plain) > 0.4
    assert padding(list(BucketedBatches(LENGTHS, 16))) < 0.08


def test_a_larger_pool_pads_less() -> None:
    """A pool of one batch sorts nothing that matters."""
    one, some, many = (
        padding(list(BucketedBatches(LENGTHS, 16, pool=pool))) for pool in (1, 5, 60)
    )

    assert one > some > many


def test_epochs_differ_and_repeat_with_their_seed() -> None:
    """The order is shuffled anew, and the same again for the same seed and epoch."""
    first = BucketedBatches(LENGTHS, 16, seed=3)
    before = list(first)
    first.set_epoch(1)
    other = BucketedBatches(LENGTHS, 16, seed=3)

    assert list(first) != before
    assert list(other) == before
    assert list(BucketedBatches(LENGTHS, 16, seed=4)) != before


def test_batches_are_not_sorted_by_length() -> None:
    """A curriculum from short to long would change what is learned."""
    longest = [max(LENGTHS[number] for number in batch) for batch in BucketedBatches(LENGTHS, 16)]

    assert 20 < sum(a < b for a, b in pairwise(longest)) < 42


def test_a_data_loader_takes_it() -> None:
    """As its `batch_sampler`."""
    loader = DataLoader(torch.arange(1003), batch_sampler=BucketedBatches(LENGTHS, 16))  # type: ignore[arg-type]

    assert sorted(torch.cat(list(loader)).tolist()) == list(range(1003))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*configure_optimizers. returned .None.")
def test_lightning_shuffles_anew_every_epoch() -> None:
    """It tells the epoch to the sampler; without that every epoch had the order of the first."""
    from lightning.pytorch import LightningModule, Trainer

    class Seen(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.epochs: dict[int, list[list[int]]] = {}

        def training_step(self, batch: torch.Tensor) -> None:
            """Note the batch."""
            self.epochs.setdefault(self.current_epoch, []).append(batch.tolist())

        def configure_optimizers(self) -> None:
            """Nothing is trained."""

    loader = DataLoader(torch.arange(64), batch_sampler=BucketedBatches(LENGTHS[:64], 8))  # type: ignore[arg-type]
    module = Seen()

    Trainer(**{**QUIET, "max_epochs": 2}).fit(module, loader)

    first, second = module.epochs[0], module.epochs[1]
    assert first != second
    every = [sorted(number for batch in epoch for number in batch) for epoch in (first, second)]
    assert every == [list(range(64))] * 2


@pytest.mark.parametrize(("batch_size", "pool"), [(0, 1), (1, 0)])
def test_nonsense_is_refused(batch_size: int, pool: int) -> None:
    """At construction, with the value."""
    with pytest.raises(ConfigError, match="=0: must be at least 1"):
        BucketedBatches(LENGTHS, batch_size, pool=pool)

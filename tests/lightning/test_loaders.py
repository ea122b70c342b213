"""Every wait for a batch is in the right step, whatever kind of loader makes it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from support.fits import (
    MS,
    Loader,
    Model,
    Pause,
    Stream,
    assert_comes_back,
    awake,
    fit,
    planted,
)
from torch.utils.data import DataLoader, Dataset

from trainperf.core.phases import Gap, Phase, Tag
from trainperf.lightning.session import ITERATOR_TAKES_OVER


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*`dataloader_iter`.*", "ignore:train_dataloader yielded None"
)


class Several(Model):
    """Takes a batch of batches, some of which may be missing."""

    def loss(self, batch: Any) -> torch.Tensor:
        """The sum of theirs."""
        parts = [super(Several, self).loss(part) for part in batch.values() if part is not None]
        return torch.stack(parts).sum()


@pytest.mark.parametrize(
    ("mode", "steps"), [("min_size", 12), ("max_size", 24), ("max_size_cycle", 24)]
)
def test_the_wait_for_several_loaders_is_all_data_wait(
    mode: str, steps: int, tmp_path: Path
) -> None:
    """As many steps as the mode yields, each with the wait of the slow loader among them."""
    sleeper = Pause()
    loaders = {"slow": Loader(24, slow=sleeper), "quick": Loader(12)}
    ran = planted(tmp_path, Several(), CombinedLoader(loaders, mode))
    assert ran.micro_batches() == [1] * steps
    slept_ns = sleeper.slept_ns[:steps]  # `min_size` takes one from the longer in vain
    assert_comes_back(ran, Phase.DATA_WAIT, slept_ns)


def unknown(batches: int) -> "DataLoader[torch.Tensor]":
    """A loader of unknown length."""
    return DataLoader(Stream(batches), batch_size=None)


class Iterating(Model):
    """Takes the loader's iterator and fetches by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.before_fetch: Callable[[], None] = awake

    def training_step(self, dataloader_iter: Iterator[Any]) -> Any:  # type: ignore[override]
        """One batch a step, and work of its own around the fetch."""
        self.before_fetch()
        batch, _, _ = next(dataloader_iter)
        loss = self.loss(batch)
        self.in_forward()
        return loss


class IteratingByHand(Iterating):
    """And updates by itself, too."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, dataloader_iter: Iterator[Any]) -> None:  # type: ignore[override]
        """One update."""
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(dataloader_iter))
        optimizer.step()


@pytest.mark.parametrize("model", [Iterating, IteratingByHand])
def test_a_training_step_that_fetches_by_itself_has_its_wait_measured(
    model: type[Iterating], tmp_path: Path
) -> None:
    """The fetch runs inside `training_step`, and is no part of the forward."""
    sleeper = Pause()
    ran = planted(tmp_path, model(), Loader(24, slow=sleeper))
    assert ran.micro_batches() == [1] * 24
    assert_comes_back(ran, Phase.DATA_WAIT, sleeper.slept_ns)


@pytest.mark.parametrize("where", ["before_fetch", "in_forward"])
@pytest.mark.parametrize("model", [Iterating, IteratingByHand])
def test_work_around_the_fetch_in_such_a_training_step_is_forward_of_the_same_step(
    model: type[Iterating], where: str, tmp_path: Path
) -> None:
    """The step begins with `training_step`, not with the fetch inside it, and goes on after it."""
    sleeper, slow = Pause(), model()
    setattr(slow, where, sleeper)
    assert_comes_back(planted(tmp_path, slow, Loader(24)), Phase.FORWARD, sleeper.slept_ns)


def test_such_a_training_step_says_that_the_transfer_cannot_be_measured(tmp_path: Path) -> None:
    """Not as zero, and not as a CPU's either: the user moves the batch."""
    ran = fit(tmp_path, Iterating(), Loader(4))
    assert ran.phase_ns(Phase.H2D) == [0] * 4
    assert ran.info.reasons["h2d_s"] == ITERATOR_TAKES_OVER
    assert ran.info.reasons["h2d_device_ns"] == ITERATOR_TAKES_OVER


class Gappy(Loader):
    """Yields `None` for some batches."""

    def __init__(self, pattern: str, slow: Callable[[], None]) -> None:
        super().__init__(len(pattern), slow=slow)
        self.pattern = pattern

    def __iter__(self) -> Iterator[Any]:
        for letter in self.pattern:
            self.slow()
            yield self.batch if letter == "x" else None


def test_a_batch_of_none_is_no_micro_batch_and_its_wait_is_the_next_steps(tmp_path: Path) -> None:
    """Nothing runs on it; a step has waited for all it took to get a batch."""
    slow = Pause(0.003)
    ran = planted(tmp_path, Model(), Gappy("x-xx--x-", slow))
    assert ran.micro_batches() == [1] * 4
    slept = slow.slept_ns
    waits = [slept[0], slept[1] + slept[2], slept[3], slept[4] + slept[5] + slept[6]]
    assert ran.phase_ns(Phase.DATA_WAIT) == waits
    assert ran.gap_ns(Gap.EPOCH_BOUNDARY) == slept[7]


@pytest.mark.parametrize(
    ("model", "loader", "accumulate", "groups", "partial", "first"),
    [
        # Seven batches in threes: the short last group is stepped, twice.
        (Model, unknown(7), 3, [3, 3, 1, 3, 3, 1], [2, 5], [0, 3]),
        # In manual optimization Lightning takes the end of the loader for a batch like any other.
        (IteratingByHand, unknown(3), 1, [1] * 6, [], [0, 3]),
        (Iterating, Loader(6), 2, [2] * 6, [], [0, 3]),
        # The fetch that ends the epoch makes no step.
        (Iterating, unknown(6), 2, [2] * 6, [], [0, 3]),
        # It did less work than its neighbours.
        (Model, Gappy("xx-xxx", awake), 2, [2, 1, 2] * 2, [1, 4], [0, 3]),
    ],
    ids=["unknown length", "no batch", "own fetch", "own fetch, unknown length", "lost to none"],
)
def test_a_group_that_was_cut_short_is_tagged(
    model: type[Model],
    loader: object,
    accumulate: int,
    groups: list[int],
    partial: list[int],
    first: list[int],
    tmp_path: Path,
) -> None:
    """In either of two epochs, the first group of which is tagged as well."""
    ran = fit(tmp_path, model(), loader, accumulate_grad_batches=accumulate, max_epochs=2)
    assert ran.micro_batches() == groups
    assert ran.tagged(Tag.PARTIAL_GROUP) == partial
    assert ran.tagged(Tag.FIRST_IN_EPOCH) == first


def test_an_epoch_that_the_user_ends_early_has_no_step_for_the_batch_refused(
    tmp_path: Path,
) -> None:
    """`on_train_batch_start` returning -1: the refused batch's wait lies between the epochs."""

    class Choosy(Model):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 3 else None

    slow = Pause(0.005)
    ran = planted(tmp_path, Choosy(), Loader(6, slow=slow), max_epochs=2)
    assert ran.micro_batches() == [1] * 6
    assert ran.tagged(Tag.FIRST_IN_EPOCH) == [0, 3]
    assert ran.gap_places(Gap.EPOCH_BOUNDARY) == [2, 5]
    assert ran.gap_ns(Gap.EPOCH_BOUNDARY) == slow.slept_ns[3] + slow.slept_ns[7]


def test_a_loader_that_ends_before_it_said_it_would_makes_no_step_of_its_end(
    tmp_path: Path,
) -> None:
    """Its `len` promises five, it yields three, and is slow to say that there are no more."""

    class Liar(Loader):
        def __iter__(self) -> Iterator[Any]:
            yield from [self.batch] * 3
            self.slow()

    slow = Pause(0.005)
    ran = planted(tmp_path, Model(), Liar(5, slow=slow), max_epochs=2)
    assert ran.micro_batches() == [1] * 6
    assert ran.gap_ns(Gap.EPOCH_BOUNDARY) == sum(slow.slept_ns)


class Squares(Dataset[torch.Tensor]):
    """Eight rows."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4)


def _slow_start(worker: int) -> None:
    time.sleep(0.3)


def test_the_start_of_workers_is_waited_for_by_the_first_step_of_each_epoch(
    tmp_path: Path,
) -> None:
    """And by no other; that step is tagged, so it is in no steady statistic."""
    loader = DataLoader(
        Squares(), batch_size=2, num_workers=1, worker_init_fn=_slow_start, prefetch_factor=1
    )
    ran = fit(tmp_path, Model(), loader, max_epochs=2)
    waited = ran.phase_ns(Phase.DATA_WAIT)
    assert ran.tagged(Tag.FIRST_IN_EPOCH) == [0, 4]
    assert max(range(1, 8), key=waited.__getitem__) == 4
    # They have begun to start a little before the wait, with the iterator.
    assert waited[4] > 100 * MS

"""Second loaders with other numbers of workers."""

import gc
import multiprocessing
from collections.abc import Iterator

import pytest
import torch
from support.toy_training import everything, only, switched, training
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from trainperf.trials.batch_source import BatchSource
from trainperf.trials.builtin import workers as workers_module
from trainperf.trials.builtin.workers import choices, workers
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


class Made(Dataset[int]):
    """Samples that tell which worker made them; -1 is none."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> int:
        worker = get_worker_info()
        return -1 if worker is None else worker.id


class Stream(IterableDataset[int]):
    """Samples without an order of their own."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def toy(**settings: int) -> Training:
    """A training with such a loader, and its loop at the first batch."""
    loader = DataLoader(Made(), batch_size=4, **settings)
    result = taking(loader)
    result.batches.over(iter(loader))
    return result


def taking(loader: DataLoader[int]) -> Training:
    """A training whose batches are that loader's."""
    toy = training()
    return Training(toy.module, toy.optimizers, toy.device, BatchSource(loader))


def offered(result: Training, monkeypatch: pytest.MonkeyPatch, cpus: int = 2) -> list[Trial]:
    """On a machine with so many CPUs."""
    monkeypatch.setattr(workers_module, "cpu_count", lambda: cpus)
    monkeypatch.setattr(workers_module, "host_cpus", lambda: cpus)
    return workers(result)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_batches_come_from_its_workers_while_it_is_on_and_the_loader_stays_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Switched twice; the workers idle in between, and are gone in the end."""
    result = toy()
    loop = result.batches
    trial = only(offered(result, monkeypatch), "workers_2")
    makers: list[set[int]] = []
    for _ in range(2):
        makers.append(_makers(next(loop)))
        trial.on()
        makers.append({next(iter(_makers(next(loop)))) for _ in range(4)})
        trial.off()
    assert makers == [{-1}, {0, 1}] * 2
    assert len(multiprocessing.active_children()) == 2
    trial.finish()
    gc.collect()

    assert not multiprocessing.active_children()
    assert len(list(loop._loops)) == 16 - 2


def test_threads_are_given_up_for_workers_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model on the CPU would compete with them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        result = toy()
        before = everything(result)
        trial = only(offered(result, monkeypatch), "workers_1_threads_1")
        computing = switched(trial, torch.get_num_threads)
        after = everything(result)
    finally:
        torch.set_num_threads(threads)

    assert computing == [2, 1, 2]
    assert after == before


@pytest.mark.parametrize(
    ("now", "cpus", "threads", "expected"),
    [
        (0, 2, 2, [(1, None), (2, None), (1, 1)]),
        (1, 2, 2, [(2, None), (1, 1)]),
        (0, 1, 1, [(1, None)]),
        (4, 16, 0, [(2, None), (8, None), (16, None)]),
        (0, 8, 8, [(1, None), (4, None), (1, 7), (4, 4)]),
    ],
)
def test_numbers_are_those_that_the_machine_has_cpus_for(
    now: int, cpus: int, threads: int, expected: list[tuple[int, int | None]]
) -> None:
    """Never what the loader has."""
    assert choices(now, cpus, threads) == expected


def test_a_loop_without_a_loader_that_can_be_doubled_says_so() -> None:
    """A stream would lose the samples."""
    assert "iterable" in only(workers(taking(DataLoader(Stream())))).why_not()
    assert "no DataLoader" in only(workers(training(batches=[1]))).why_not()


def _makers(batch: Tensor) -> set[int]:
    return set(batch.tolist())

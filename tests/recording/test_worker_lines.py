"""What is seen inside the workers of a real loader, against what was planted in them."""

import time
from collections.abc import Iterator

import msgspec
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from trainperf.analysis.diagnosis.workers import LoaderWorkers, loader_workers
from trainperf.analysis.summary.lines import phase_lines
from trainperf.core.artifacts.lines import WORKER_MAKING, SampledLines, SampledWorker
from trainperf.recording.worker_lines import WorkerLines, joined


pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

NOTHING = SampledLines(
    taken=0, every=1, sampled_s=0.0, cost_s=0.0, places=(), stacks=(), samples=()
)


class Sleeping(Dataset[torch.Tensor]):
    """Samples of 20 ms."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.decoded(index)

    def decoded(self, index: int) -> torch.Tensor:
        """One."""
        time.sleep(0.02)
        return torch.tensor(float(index))


class Shards(IterableDataset[torch.Tensor]):
    """So many of them, of a second each."""

    def __init__(self, number: int) -> None:
        self._shards = range(number)

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        for shard in self._shards[info.id :: info.num_workers]:
            for _ in range(100):
                time.sleep(0.01)
                yield torch.tensor(float(shard))


def lines_of(loader: "DataLoader[torch.Tensor]", *, pause_s: float = 0.0) -> SampledLines:
    """What was seen of the workers of one epoch of a loop that takes so long over each batch."""
    workers = WorkerLines()
    workers.start()
    for _ in loader:
        time.sleep(pause_s)
    lines = joined(NOTHING, workers.collect())
    workers.remove()
    return lines


def seen_by(lines: SampledLines) -> LoaderWorkers:
    """Of these lines."""
    seen = loader_workers(lines)
    assert seen is not None
    return seen


def test_workers_that_are_waited_for_make_batches_all_the_time_at_their_line() -> None:
    """And the loop that asks for them is in none of their stacks."""
    lines = lines_of(DataLoader(Sleeping(), batch_size=4, num_workers=2))
    seen = seen_by(lines)
    assert (len(seen.making), seen.at_work, seen.iterable) == (2, 2, False)
    assert min(seen.making) > 0.8
    (making,) = [each for each in phase_lines(lines, ()) if each.slot == WORKER_MAKING]
    assert making.owner is not None
    assert making.owner.function == "Sleeping.decoded"
    assert making.owner.fraction > 0.9
    inside = {lines.places[at].function for stack in lines.stacks for at in stack.frames}
    assert inside == {"Sleeping.__getitem__", "Sleeping.decoded"}


def test_workers_of_a_slow_loop_wait_for_as_long_as_was_planted() -> None:
    """Each makes a batch of 40 ms while the loop takes 160 ms for two."""
    loader = DataLoader(Sleeping(), batch_size=2, num_workers=2, prefetch_factor=1)
    seen = seen_by(lines_of(loader, pause_s=0.08))
    assert sum(seen.making) / 2 == pytest.approx(40 / 160, abs=0.12)


@pytest.mark.parametrize(("shards", "at_work"), [(1, 1), (2, 2)])
def test_workers_without_a_shard_are_seen_not_to_work(shards: int, at_work: int) -> None:
    """They end at once; the healthy neighbour has a shard for each."""
    seen = seen_by(lines_of(DataLoader(Shards(shards), batch_size=5, num_workers=2)))
    assert (len(seen.making), seen.at_work, seen.iterable) == (2, at_work, True)


def test_epochs_are_together_and_another_loader_is_apart() -> None:
    """A worker of a later epoch is the same one; validation has a dataset of its own."""

    def worker(number: int, dataset: int, making_s: float) -> SampledWorker:
        return SampledWorker(
            worker=number,
            of=2,
            dataset=dataset,
            iterable=False,
            making_s=making_s,
            waiting_s=4.0 - making_s,
            samples=20,
            cost_s=0.0,
        )

    rows = (worker(0, 1, 3.0), worker(1, 1, 2.0), worker(0, 1, 1.0), worker(1, 1, 2.0))
    lines = msgspec.structs.replace(NOTHING, workers=(*rows, worker(0, 2, 0.5)))
    assert seen_by(lines).making == pytest.approx((0.5, 0.5))


def test_a_process_that_becomes_no_worker_writes_nothing() -> None:
    """Its sampler ends."""
    context = torch.multiprocessing.get_context("fork")
    workers = WorkerLines()
    workers.start()
    process = context.Process(target=time.sleep, args=(0.5,))
    process.start()
    process.join()
    assert workers.collect() == ()
    workers.remove()

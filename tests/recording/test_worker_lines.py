"""What is seen inside the workers of a real loader, against what was planted in them."""

import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from trainperf.analysis.diagnosis.workers import LoaderWorkers, loader_workers
from trainperf.analysis.summary.lines import SampledCode
from trainperf.core.artifacts.lines import WORKER_MAKING, SampledLines, SampledWorker
from trainperf.recording.worker_lines import WorkerLines, joined


pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

measures = pytest.mark.slow
"""Real workers beside a real loop: whoever else uses the processors is measured, too."""

NOTHING = SampledLines(taken=0, every=1, cost_s=0.0, places=(), stacks=(), samples=())


class Sleeping(Dataset[torch.Tensor]):
    """Samples of 20 ms."""

    def __init__(self, samples: int = 200) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.decoded(index)

    def decoded(self, index: int) -> torch.Tensor:
        """One."""
        time.sleep(0.02)
        return torch.tensor(float(index))


class Shards(IterableDataset[torch.Tensor]):
    """So many of them, of two seconds each."""

    def __init__(self, number: int) -> None:
        self._shards = range(number)

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for shard in self._shards[info.id :: info.num_workers]:
            for _ in range(200):
                time.sleep(0.01)
                yield torch.tensor(float(shard))


def lines_of(loader: "DataLoader[torch.Tensor]", *, pause_s: float = 0.0) -> SampledLines:
    """What was seen of the workers of one epoch of a loop that takes so long over each batch."""
    workers = WorkerLines()
    workers.start()
    for _ in loader:
        time.sleep(pause_s)
    lines = joined(NOTHING, workers.collect())
    workers.end()
    return lines


def seen_by(lines: SampledLines, number: int = 2) -> LoaderWorkers:
    """Of these lines, of a loader with so many workers."""
    seen = loader_workers(lines, number)
    assert seen is not None
    return seen


@measures
def test_workers_that_are_waited_for_make_batches_all_the_time_at_their_line() -> None:
    """And the loop that asks for them is in none of their stacks."""
    lines = lines_of(DataLoader(Sleeping(), batch_size=4, num_workers=2))
    seen = seen_by(lines)
    assert (len(seen.making), seen.at_work, seen.iterable, seen.hands_over) == (2, 2, False, False)
    assert min(seen.making) > 0.6
    (making,) = [each for each in SampledCode(lines).phases(()) if each.slot == WORKER_MAKING]
    assert making.owner.function == "Sleeping.decoded"
    assert making.owner.fraction > 0.9
    inside = {lines.places[at].function for stack in lines.stacks for at in stack.frames}
    assert inside == {"Sleeping.__getitem__", "Sleeping.decoded"}


@measures
def test_workers_of_a_slow_loop_wait_for_as_long_as_was_planted() -> None:
    """A batch of 40 ms each in 160 ms; how near it comes `scripts.bench.workers` measures."""
    loader = DataLoader(Sleeping(120), batch_size=2, num_workers=2, prefetch_factor=1)
    seen = seen_by(lines_of(loader, pause_s=0.08))
    assert 0 < sum(seen.making) / 2 < 0.5


@measures
@pytest.mark.parametrize(("shards", "at_work"), [(1, 1), (2, 2)])
def test_workers_without_a_shard_are_seen_not_to_work(shards: int, at_work: int) -> None:
    """They end at once; the healthy neighbour has a shard for each."""
    seen = seen_by(lines_of(DataLoader(Shards(shards), batch_size=5, num_workers=2)))
    assert (len(seen.making), seen.at_work, seen.iterable) == (2, at_work, True)
    counts = sys.version_info >= (3, 12)
    assert [*map(bool, seen.batches)] == ([True, shards > 1] if counts else [])


class Parcel:
    """A batch that takes so long to be packed by its worker, and to be unpacked by the loop."""

    def __init__(self, packing_s: float, unpacking_s: float) -> None:
        self.packing_s, self.unpacking_s = packing_s, unpacking_s
        self.filling = b""

    def __getstate__(self) -> dict[str, object]:
        time.sleep(self.packing_s)
        return {**vars(self), "filling": bytes(1_000_000)}  # more than a pipe holds

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        time.sleep(self.unpacking_s)

    def of(self, samples: list[torch.Tensor]) -> "Parcel":
        """As a function that collates."""
        del samples
        return self


@measures
@pytest.mark.parametrize(
    ("packing_s", "unpacking_s", "hands_over"),
    [
        # Of 320 ms a batch of two workers, each takes 20 to make and none to pack.
        (0.0, 0.16, True),
        (0.06, 0.0, False),
    ],
)
def test_what_happens_to_a_batch_once_it_was_made(
    packing_s: float,
    unpacking_s: float,
    hands_over: bool,  # noqa: FBT001 what is expected
) -> None:
    """Packing it is a worker's work, at its line; waiting until it is taken over is none."""
    parcel = Parcel(packing_s, unpacking_s)
    loader = DataLoader(Sleeping(60), batch_size=1, num_workers=2, collate_fn=parcel.of)
    lines = lines_of(loader)
    seen = seen_by(lines)
    assert seen.hands_over == hands_over
    assert (sum(seen.making) / 2 < 0.5) == hands_over
    functions = {lines.places[at].function for stack in lines.stacks for at in stack.frames}
    assert not packing_s or "Parcel.__getstate__" in functions


class Products(Sleeping):
    """Samples that are computed, for as long on a fast machine as on a slow one."""

    def decoded(self, index: int) -> torch.Tensor:
        """One, after 10 ms of products."""
        factor, until_s = torch.ones(600, 600), time.perf_counter() + 0.01
        while time.perf_counter() < until_s:
            factor @ factor
        return torch.tensor(float(index))


def counted(threads: int) -> LoaderWorkers:
    """What is told of workers in which so many threads of torch compute."""
    loader = DataLoader(
        Products(600),
        batch_size=4,
        num_workers=2,
        worker_init_fn=lambda _: torch.set_num_threads(threads),
    )
    return seen_by(lines_of(loader))


@measures
def test_threads_of_torch_in_a_worker_are_counted() -> None:
    """Those that compute; ours and that of its queue do not.

    In a fresh process: in one that is forked from where they have computed, they wait for ever.
    """
    command = [sys.executable, __file__]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (ended.stdout, ended.stderr) == ("1\n3\n", "")


def worker(
    number: int, dataset: int, making_s: float, *, of: int = 2, samples: int = 20
) -> SampledWorker:
    """One process of four seconds."""
    return SampledWorker(
        worker=number,
        of=of,
        dataset=dataset,
        iterable=False,
        making_s=making_s,
        waiting_s=4.0 - making_s,
        samples=samples,
        cost_s=0.0,
    )


TWO_EPOCHS = (worker(0, 1, 3.0), worker(1, 1, 2.0), worker(0, 1, 1.0), worker(1, 1, 2.0))


@pytest.mark.parametrize(
    ("others", "number", "making"),
    [
        # A worker of a later epoch is the same one; validation has fewer workers.
        ((worker(0, 2, 3.9, of=1),), 2, (0.5, 0.5)),
        ((), None, (0.5, 0.5)),
        # Which of two loaders the loop trains from nobody knows.
        ((worker(0, 2, 3.9),), 2, None),
        ((worker(0, 2, 3.9, of=1),), None, None),
        ((), 4, None),
    ],
)
def test_epochs_are_together_and_another_loader_is_apart(
    others: tuple[SampledWorker, ...], number: int | None, making: tuple[float, float] | None
) -> None:
    """By the number of workers that the loop was given."""
    lines = msgspec.structs.replace(NOTHING, workers=(*TWO_EPOCHS, *others))
    seen = loader_workers(lines, number)
    assert (None if seen is None else seen.making) == making


def test_batches_that_were_counted_decide_who_works() -> None:
    """However long each made them; of an ended process and the one after it together."""
    counts = (3, 40, 1, 0)
    rows = (
        msgspec.structs.replace(each, batches=made)
        for each, made in zip(TWO_EPOCHS, counts, strict=True)
    )
    seen = loader_workers(msgspec.structs.replace(NOTHING, workers=tuple(rows)), 2)
    assert seen is not None
    assert (seen.batches, seen.at_work) == ((4, 40), 2)
    few = (msgspec.structs.replace(worker(0, 1, 3.0), batches=40), worker(1, 1, 0.0))
    seen = loader_workers(msgspec.structs.replace(NOTHING, workers=few), 2)
    assert seen is not None
    assert (seen.batches, seen.at_work) == ((), 1)


def test_too_little_of_a_worker_says_nothing() -> None:
    """Nor do workers of which none was seen to make a batch."""
    few = (worker(0, 1, 3.0, samples=9), worker(1, 1, 3.0, samples=9))
    for rows in (few, (worker(0, 1, 0.0), worker(1, 1, 0.0)), ()):
        assert loader_workers(msgspec.structs.replace(NOTHING, workers=rows), 2) is None


def test_ended_workers_are_together_and_a_later_fit_forgets_them() -> None:
    """Files do not gather, however many epochs there are, and the folder goes with the fit."""
    workers = WorkerLines()
    workers.start()
    loader = DataLoader(Sleeping(60), batch_size=4, num_workers=2)
    for _ in range(3):
        for _ in loader:
            pass
    tables = workers.collect()
    folder = workers._folder
    assert sorted(table.workers[0].worker for table in tables) == [0, 1]
    assert not list(folder.iterdir())
    frames = [at for table in tables for stack in table.stacks for at in stack.frames]
    assert 0 <= max(frames) < max(len(table.places) for table in tables)
    workers.forget_the_gone()
    assert workers.collect() == ()
    workers.end()
    assert not folder.exists()
    for _ in loader:
        pass
    assert workers._folder is None


def test_a_process_that_becomes_no_worker_writes_nothing() -> None:
    """Its sampler ends."""
    context = torch.multiprocessing.get_context("fork")
    workers = WorkerLines()
    workers.start()
    process = context.Process(target=time.sleep, args=(0.5,))
    process.start()
    process.join()
    assert workers.collect() == ()
    workers.end()


if __name__ == "__main__":
    for number in (1, 3):
        sys.stdout.write(f"{counted(number).threads}\n")

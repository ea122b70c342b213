"""The parts of a batch come back as they were planted, and the loader is as it was."""

import multiprocessing
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from support.loaders import AllHeavy, FromFile, Heavy, Naps, Rows, Slowly, Stream, Whole
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from trainperf.audit.loader import loader_anatomy
from trainperf.audit.loader.timed_loader import Parcel
from trainperf.core.artifacts.loader import LoaderAnatomy, Spread
from trainperf.core.errors import ConfigError


def close(found: Spread | float | None, planted_s: float) -> None:
    """Within 10 % of what was planted, or 0.3 ms."""
    assert found is not None
    found_s = found.mean_s if isinstance(found, Spread) else found
    assert found_s == pytest.approx(planted_s, rel=0.10, abs=3e-4)


@pytest.mark.parametrize(
    ("workers", "context"),
    [(0, None), (2, None), pytest.param(1, "spawn", marks=pytest.mark.slow)],
)
def test_samples_and_collate_cost_what_was_planted(workers: int, context: str | None) -> None:
    """Eight samples of 8 ms and a collate of 10: by the sleepers' own clocks.

    A worker that is spawned starts anew, and everything is sent to it.

    In the fork of a large process a sample costs some tenths of a millisecond more than its nap.
    """
    sample, batch = Naps(0.008), Naps(0.010)
    loader = DataLoader(
        Rows(sample),
        batch_size=8,
        num_workers=workers,
        collate_fn=Slowly(batch),
        shuffle=True,
        multiprocessing_context=context,
    )

    found = loader_anatomy(loader, batches=10)

    close(found.getitem, 8 * sample.mean_s)
    close(found.collate, batch.mean_s)
    assert (found.workers, found.samples, found.tensors) == (workers, 8, 1)
    assert found.batch_bytes == 8 * 4 * 4


@pytest.mark.parametrize(
    ("settings", "samples", "naps"),
    [
        # All samples of a batch at once, after one nap.
        ({"dataset": Whole(Naps(0.010)), "batch_size": 8}, 8, 1),
        # One after the other, over two workers.
        ({"dataset": Stream(Naps(0.008)), "batch_size": 4, "num_workers": 2}, 4, 4),
        # Without automatic batching a sample is a batch.
        ({"dataset": Rows(Naps(0.010)), "batch_size": None}, 1, 1),
        ({"dataset": Stream(Naps(0.010)), "batch_size": None}, 1, 1),
    ],
    ids=["whole batches", "stream", "rows", "stream of batches"],
)
def test_a_dataset_is_timed_as_it_is_asked(
    settings: dict[str, Any], samples: int, naps: int
) -> None:
    """By key, by batch, or by its iterator."""
    found = loader_anatomy(DataLoader(**settings), batches=10)

    close(found.getitem, naps * settings["dataset"].nap.mean_s)
    assert found.samples == samples
    assert found.kind == ("iterable" if isinstance(settings["dataset"], Stream) else "map")


def test_batches_are_those_of_the_batch_sampler() -> None:
    """Of two and of six rows by turns: four on average."""

    class Uneven(Sampler[list[int]]):
        def __iter__(self) -> Iterator[list[int]]:
            for _ in range(10):
                yield [0, 1]
                yield [0, 1, 2, 3, 4, 5]

    found = loader_anatomy(DataLoader(Rows(), batch_sampler=Uneven()), batches=17)

    assert found.batches == 16
    assert found.samples == 4


def test_transport_is_packing_the_queue_and_unpacking() -> None:
    """10 ms in the worker and 5 ms here; making them costs nothing."""
    Heavy.napped_s.clear()
    loader = DataLoader(Rows(), batch_size=4, num_workers=1, collate_fn=AllHeavy(0.010, 0.005))

    found = loader_anatomy(loader, batches=20)

    packing_s, unpacking_s = map(fmean, zip(*Heavy.napped_s, strict=True))
    close(found.transport, packing_s + unpacking_s)
    close(found.packing_s, packing_s)
    close(found.receiving_s, unpacking_s)
    assert found.making_s < 0.002
    assert found.worker_s == found.packing_s


def test_arrays_and_bytes_in_a_batch_take_room_too() -> None:
    """Beside the tensors, wherever they are."""
    loader = DataLoader(Rows(), batch_size=2, collate_fn=_mixed)

    found = loader_anatomy(loader, batches=2)

    assert (found.tensors, found.batch_bytes) == (1, 16 + 24 + 5)


def _mixed(samples: list[torch.Tensor]) -> Any:
    return {"row": samples[0], "more": [np.zeros(3), (b"bytes", "text")]}


def test_pinning_is_timed_where_the_loader_pins() -> None:
    """The loader calls the parcel's `pin_memory`, and that the batch's own."""
    nap = Naps(0.020)

    class Pinned:
        def pin_memory(self) -> str:
            nap()
            return "pinned"

    parcel = Parcel(Pinned(), worker=0, samples=1, getitem_ns=1, collate_ns=1).pin_memory()

    assert parcel.batch == "pinned"
    assert parcel.pinning_ns is not None
    close(parcel.pinning_ns / 1e9, nap.mean_s)


def anatomy(getitem_s: float, collate_s: float, packing_s: float | None = None) -> LoaderAnatomy:
    """One with these means."""
    return LoaderAnatomy(
        batches=10,
        workers=0,
        kind="map",
        samples=8,
        tensors=1,
        batch_bytes=128,
        getitem=Spread(mean_s=getitem_s, p95_s=getitem_s),
        collate=Spread(mean_s=collate_s, p95_s=collate_s),
        transport=None,
        pinning=None,
        packing_s=packing_s,
        receiving_s=None,
        start_s=0.1,
    )


@pytest.mark.parametrize(
    ("found", "step_s", "workers"),
    [
        (anatomy(0.020, 0.005), 0.010, 3),
        (anatomy(0.020, 0.005), 0.025, 1),
        (anatomy(0.020, 0.005), 1.0, 1),
        (anatomy(0.001, 0.001, packing_s=0.030), 0.010, 3),
    ],
)
def test_as_many_workers_are_needed_as_a_batch_takes_steps(
    found: LoaderAnatomy, step_s: float, workers: int
) -> None:
    """25 ms to make one: three workers for steps of 10 ms; packing goes on beside the next one."""
    assert found.workers_for(step_s) == workers


def test_the_workers_needed_are_told_where_the_step_is_known() -> None:
    """40 ms a batch or some more, and a step of 18."""
    loader = DataLoader(Rows(Naps(0.010)), batch_size=4)

    assert loader_anatomy(loader, batches=6, step_s=0.018).workers_needed == 3
    assert loader_anatomy(loader, batches=6).workers_needed is None


# -- the loader is as it was ------------------------------------------------------------------


class Noisy(Dataset[float]):
    """Draws from every generator there is, and from one of its own."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, key: int) -> float:
        drawn = random.random() + np.random.rand() + self.own.random()  # noqa: S311, NPY002
        return float(drawn + torch.rand(()).item() + key)


def samplers(dataset: Noisy) -> dict[str, dict[str, Any]]:
    """Settings of loaders whose order is drawn in different ways."""
    generator = torch.Generator().manual_seed(5)
    weighted = WeightedRandomSampler([1.0] * 64, 64, generator=torch.Generator().manual_seed(6))
    return {
        "global": {"batch_size": 8, "shuffle": True},
        "own": {"batch_size": 8, "shuffle": True, "generator": generator},
        "weighted": {"batch_size": 8, "sampler": weighted},
        "batches": {"batch_sampler": BatchSampler(RandomSampler(dataset), 8, drop_last=False)},
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ["global", "own", "weighted", "batches"])
def test_what_comes_afterwards_is_what_would_have_come(order: str, workers: int) -> None:
    """Order, augmentation and the dataset's own generator, to the bit."""
    epochs = []
    for look in (False, True):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 the user's global one
        torch.manual_seed(1)
        dataset = Noisy()
        loader = DataLoader(dataset, num_workers=workers, **samplers(dataset)[order])
        if look:
            loader_anatomy(loader, batches=4)
        epochs.append(torch.cat(list(loader)))

    assert torch.equal(*epochs)


def test_a_sampler_that_counts_its_epochs_does_not_count_ours() -> None:
    """It is a copy that we walk through; the dataset in it is not copied."""

    class Counting(SequentialSampler):
        epochs = 0

        def __iter__(self) -> Iterator[int]:
            self.epochs += 1
            return super().__iter__()

    class Huge(Rows):
        def __deepcopy__(self, memo: object) -> Rows:
            raise MemoryError("a second one does not fit")

    sampler = Counting(Huge())
    loader_anatomy(DataLoader(sampler.data_source, sampler=sampler), batches=2)  # type: ignore[arg-type] # a Rows

    assert sampler.epochs == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_dataset_loses_no_sample(workers: int) -> None:
    """Though what it gave does not come again."""
    loader = DataLoader(Stream(number=20), batch_size=4, num_workers=workers)

    loader_anatomy(loader, batches=3)

    assert torch.cat(list(loader))[:, 0].tolist() == list(range(20))


def test_the_users_initialisation_finds_the_users_dataset() -> None:
    """And may share the work out by setting its attributes."""
    loader = DataLoader(Rows(width=4), batch_size=8, num_workers=1, worker_init_fn=_widen)

    assert loader_anatomy(loader, batches=3).batch_bytes == 8 * 16 * 4


def _widen(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert isinstance(info.dataset, Rows)
    info.dataset.width = 16


class Sharing(Rows):
    """Only looks into the training process."""

    def __getitem__(self, key: int) -> torch.Tensor:
        assert torch.utils.data.get_worker_info() is None
        return super().__getitem__(key)


def test_a_dataset_that_has_no_worker_finds_none() -> None:
    """Nor does the collate function, which would make the batch in shared memory."""
    assert loader_anatomy(DataLoader(Sharing(), batch_size=4), batches=3).workers == 0


def test_no_process_is_left_behind() -> None:
    """Also where the look ended in the middle."""
    before = set(multiprocessing.active_children())

    loader_anatomy(DataLoader(Rows(Naps(0.001)), batch_size=4, num_workers=2), batches=3)

    assert set(multiprocessing.active_children()) == before


def test_a_look_ends_when_its_time_is_over() -> None:
    """Batches of 50 ms, and 0.15 s; a single slow batch is better than none."""
    loader = DataLoader(Rows(Naps(0.050)), batch_size=1)

    assert loader_anatomy(loader, batches=1000, limit_s=0.15).batches <= 5
    assert loader_anatomy(loader, batches=1, limit_s=0.0).batches == 1


# -- what is refused --------------------------------------------------------------------------


def test_a_stream_from_an_open_file_is_refused(tmp_path: Path) -> None:
    """All processes share its position: lines that we read would be lost to training."""
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\nc\n")
    loader = DataLoader(FromFile(path), batch_size=1)

    with pytest.raises(ConfigError, match=r"FromFile: holds an open file.*__iter__"):
        loader_anatomy(loader)

    assert [line for [line] in loader] == ["a\n", "b\n", "c\n"]
    loader.dataset.source["lines"].close()  # type: ignore[attr-defined] # its own


def test_where_nothing_can_be_forked_the_training_process_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Windows; an iterable dataset would lose what is looked at there, and is refused."""
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])

    found = loader_anatomy(DataLoader(Rows(), batch_size=4, shuffle=True), batches=3)

    assert (found.transport, found.receiving_s) == (None, None)
    assert found.samples == 4
    with pytest.raises(ConfigError, match=r"Stream: an iterable.*num_workers=1"):
        loader_anatomy(DataLoader(Stream(), batch_size=4))


class Once(Sampler[int]):
    """Its order is a generator that is under way."""

    def __init__(self) -> None:
        self.order = (number for number in range(10))

    def __iter__(self) -> Iterator[int]:
        return self.order


@pytest.mark.parametrize(
    ("loader", "options", "says"),
    [
        (DataLoader(Rows(), sampler=Once()), {}, r"cannot be copied.*generator"),
        # A list of tensors has no parts.
        ([torch.ones(1)], {}, "list: only a torch"),
        # Rather than divided by.
        (DataLoader(Rows(number=0), batch_size=4), {}, "Rows: it yields no batch"),
        # With what to pass instead.
        (DataLoader(Rows()), {"batches": 0}, r"batches=0.*try"),
    ],
)
def test_what_cannot_be_timed_is_refused(
    loader: object, options: dict[str, int], says: str
) -> None:
    """With the reason."""
    with pytest.raises(ConfigError, match=says):
        loader_anatomy(loader, **options)


def test_the_first_of_several_loaders_counts() -> None:
    """As Lightning takes them."""
    several = {"a": [DataLoader(Rows(width=2), batch_size=1)], "b": DataLoader(Rows(width=8))}

    assert loader_anatomy(several, batches=2).batch_bytes == 2 * 4


def test_an_error_of_the_dataset_is_the_users() -> None:
    """As training would have met it."""

    class Broken(Rows):
        def __getitem__(self, key: int) -> torch.Tensor:
            raise KeyError("no such row")

    with pytest.raises(KeyError, match="no such row"):
        loader_anatomy(DataLoader(Broken(), batch_size=2))

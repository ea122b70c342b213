"""Settings of planted rates, and real loaders whose workers come and go."""

import gc
import multiprocessing
import random

import msgspec
import pytest
import torch
from support.loaders import Naps, Rows, Stream
from torch.utils.data import DataLoader

from trainperf.benchmark import LoaderPoint, LoaderSweep, sweep_loader
from trainperf.core.errors import ConfigError


def point(workers: int, *interval_s: float, wait_s: tuple[float, ...] | None = None) -> LoaderPoint:
    """A setting with the mean intervals of its rounds."""
    return LoaderPoint(
        num_workers=workers,
        start_s=(0.05,) * len(interval_s),
        interval_s=interval_s,
        wait_s=wait_s,
    )


def swept(*points: LoaderPoint, step_s: float | None = None) -> LoaderSweep:
    """A sweep of these."""
    return LoaderSweep(points=points, step_s=step_s)


def test_the_best_is_the_first_that_none_clearly_beats() -> None:
    """Two workers halve the time; four are 3 % faster still, which is noise."""
    none, two, four = point(0, 0.04, 0.04), point(2, 0.02, 0.02), point(4, 0.0194, 0.0194)

    found = swept(none, two, four)

    assert found.best is two


def test_what_is_not_better_in_every_round_is_not_better() -> None:
    """Three times as fast in one round and slower in the next is a noisy machine."""
    found = swept(point(0, 0.03, 0.03), point(1, 0.01, 0.031))

    assert found.best.num_workers == 0


def test_with_a_step_the_best_is_what_it_waits_least_for() -> None:
    """Both bring a batch in time: four workers bring more, and nobody needs them."""
    two = point(2, 0.010, wait_s=(0.0002,))
    four = point(4, 0.005, wait_s=(0.0001,))

    assert swept(two, four, step_s=0.02).best is two
    assert swept(two, four).best is four


def test_a_sweep_reads_as_an_answer_and_a_table() -> None:
    """Every number with its unit."""
    found = swept(
        point(0, 0.04, 0.05, wait_s=(0.04, 0.05)),
        point(2, 0.02, 0.025, wait_s=(0.001, 0.003)),
        point(4, 0.02, 0.025, wait_s=(0.001, 0.003)),
        step_s=0.02,
    )

    answer, table, _ = str(found).split("\n\n")
    assert answer.replace("\n", " ") == (
        "num_workers=2: 44.4 batches/s, a step of 20.0 ms waits 2.00 ms, 2.95× the speed with "
        "num_workers=0. No larger number is clearly better."
    )
    assert table.splitlines() == [
        "num_workers  batches/s  lowest–highest  first batch  step waits",
        "0                 22.2           20–25      50.0 ms     45.0 ms",
        "2                 44.4           40–50      50.0 ms     2.00 ms  ← best",
        "4                 44.4           40–50      50.0 ms     2.00 ms",
    ]


def test_the_last_setting_as_the_best_asks_for_more() -> None:
    """It was never seen to stop helping."""
    found = swept(point(0, 0.04), point(1, 0.02))

    answer = str(found).split("\n\n", maxsplit=1)[0].replace("\n", " ")
    assert answer == "num_workers=1: 50 batches/s, 2.00× the speed with num_workers=0. Try more."


def test_results_are_plain_data() -> None:
    """They survive JSON."""
    found = swept(point(0, 0.04, wait_s=(0.1,)), step_s=0.01)

    assert msgspec.json.decode(msgspec.json.encode(found), type=LoaderSweep) == found


@pytest.mark.slow
def test_workers_that_sleep_side_by_side_bring_more_batches() -> None:
    """A batch sleeps 40 ms: four workers bring twice as many, and the step does not wait."""
    loader = DataLoader(Rows(Naps(0.01)), batch_size=4)

    found = sweep_loader(loader, (0, 4), step_s=0.06, rounds=1)

    none, four = found.points
    assert four.batches_per_s > 2 * none.batches_per_s
    assert none.wait_s is not None
    assert four.wait_s is not None
    assert none.wait_s[0] > 0.03
    assert four.wait_s[0] < none.wait_s[0] / 2
    assert found.best is four


@pytest.mark.parametrize(
    ("context", "workers"),
    [("fork", (0, 2)), pytest.param("spawn", (1,), marks=pytest.mark.slow)],
)
def test_no_worker_outlives_the_sweep(context: str, workers: tuple[int, ...]) -> None:
    """Not even that of a setting whose passes are over."""
    before = set(multiprocessing.active_children())
    loader = DataLoader(
        Rows(number=64), batch_size=2, num_workers=1, multiprocessing_context=context
    )

    found = sweep_loader(loader, workers, rounds=1)

    assert [each.num_workers for each in found.points] == list(workers)
    assert set(multiprocessing.active_children()) == before


def test_workers_end_also_when_the_dataset_fails() -> None:
    """The error is the dataset's own; once it is handled nothing is left."""

    class Broken(Rows):
        def __getitem__(self, key: int) -> torch.Tensor:
            raise LookupError("no such file")

    before = set(multiprocessing.active_children())
    with pytest.raises(LookupError, match="no such file"):
        sweep_loader(DataLoader(Broken()), (1,), rounds=1)
    gc.collect()  # the error that was caught held the frames of the loader
    for worker in set(multiprocessing.active_children()) - before:
        worker.join(timeout=30)  # torch 2.6 terminates it and does not wait

    assert set(multiprocessing.active_children()) == before


def test_the_loader_and_the_random_generators_are_as_they_were() -> None:
    """The batches that follow are the same to the bit, shuffled ones too."""

    def batches() -> list[list[float]]:
        return [batch[:, 0].tolist() for batch in loader]

    loader = DataLoader(
        Rows(number=32), 8, shuffle=True, generator=torch.Generator().manual_seed(3)
    )
    assert loader.generator is not None
    state = loader.generator.get_state()
    expected = batches()
    loader.generator.set_state(state)
    random.seed(1)
    drawn = random.random()  # noqa: S311 any number
    random.seed(1)

    sweep_loader(loader, (0, 1), rounds=1)

    assert batches() == expected
    assert random.random() == drawn  # noqa: S311 any number


def test_a_short_dataset_is_walked_through_again() -> None:
    """Two batches an epoch are enough: an end would cost the restart of every worker."""
    found = sweep_loader(DataLoader(Rows(number=4), batch_size=2), (0,), rounds=1)

    assert found.points[0].batches_per_s > 0


def test_a_stream_that_ends_too_soon_is_refused() -> None:
    """With what to do."""
    with pytest.raises(ConfigError, match="Stream: it yields too few batches for 4 workers"):
        sweep_loader(DataLoader(Stream(number=1)), (4,), rounds=1)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_workers": ()}, "num_workers="),
        ({"num_workers": (-1,)}, "num_workers="),
        ({"step_s": 0.0}, "step_s=0.0"),
        ({"rounds": 0}, "rounds="),
    ],
)
def test_nonsense_is_refused(values: dict[str, object], said: str) -> None:
    """Before a worker is started, with the value."""
    with pytest.raises(ConfigError, match=said):
        sweep_loader(DataLoader(Rows()), **values)  # type: ignore[arg-type]

"""Loaders that nobody has wrapped, in scripts as their authors wrote them, where Python tells."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from support.frozen import frozen
from support.loops import Sleeper
from support.outside import end, network, updates, written
from support.threads import one_thread
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainperf.plugins.outside_facts import COARSE, LOADER_HEARD
from trainperf.plugins.outside_loader import TOOLS
from trainperf.plugins.outside_updates import ProcessUpdates
from trainperf.recording.recorder import Recorder


__all__ = ["frozen", "one_thread", "updates"]

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells from 3.12 on")

STEPS = 18
BATCH = 2
NAPS_MS = {"data_wait": (10.0, 30.0), "other": (5.0, 10.0)}
"""Short and long naps of each: a batch in every second step, a pause in two of four."""
RELATIVE, ABSOLUTE_S = 0.02, 0.3e-3
"""Of a planted time, whichever is more."""


class Rows(Dataset[Tensor]):
    """Rows whose batch takes a while to make, in this process or in a worker."""

    def __init__(self, nap: Callable[[str], None], number: int) -> None:
        self.nap = nap
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitems__(self, places: list[int]) -> list[Tensor]:
        """One nap for all of them."""
        self.nap("data_wait")
        return [torch.ones(4) for _ in places]


class Script:
    """What a training consists of, and how long its naps took by a clock of their own."""

    def __init__(self, loader_naps: int = 1) -> None:
        self.sleeper = Sleeper()
        self.per_step = {"data_wait": loader_naps, "other": 1}
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def loader(self, steps: int = STEPS, workers: int = 0) -> "DataLoader[Tensor]":
        """A slow one."""
        context = "fork" if workers else None
        return DataLoader(
            Rows(self.nap, BATCH * steps),
            batch_size=BATCH,
            num_workers=workers,
            multiprocessing_context=context,
            prefetch_factor=1 if workers else None,
        )

    def nap(self, where: str) -> None:
        """A short one or a long one."""
        step = len(self.sleeper.naps[where]) // self.per_step[where]
        turn = 1 if where == "data_wait" else 2
        self.sleeper.sleep(where, NAPS_MS[where][step // turn % 2])

    def pause(self) -> None:
        """The loop's own code."""
        self.nap("other")

    def step(self, batch: Tensor) -> None:
        """One update."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(batch), torch.tensor([0, 1]))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def epochs(script: Script) -> None:
    """A loop in a loop; the loader is asked anew in each epoch."""
    for _ in range(3):
        for batch in script.loader(STEPS // 3):
            script.pause()
            script.step(batch)


def by_hand(script: Script) -> None:
    """An iterator that the script keeps, and makes again when it is at its end."""
    loader = script.loader(STEPS // 2)
    batches = iter(loader)
    for _ in range(STEPS):
        script.pause()
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        script.step(batch)


def two_loaders(script: Script) -> None:
    """A batch of each in every step."""
    pairs = zip(script.loader(), script.loader(), strict=True)
    for first, second in pairs:
        script.pause()
        script.step(first + second)


def ahead(batches: Iterator[Tensor], pause: Callable[[], None]) -> Iterator[Tensor]:
    """Keeps one batch in hand."""
    batch = next(batches)
    for following in batches:
        pause()
        yield batch
        batch = following
    pause()
    yield batch


def prefetching(script: Script) -> None:
    """A generator around the loader, whose own code is the loop's."""
    for batch in ahead(iter(script.loader()), script.pause):
        script.step(batch)


class Inner(IterableDataset[Tensor]):
    """Rows that come from a loader of its own."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self.script.loader():
            self.script.nap("data_wait")
            yield from batch


def loader_in_a_loader(script: Script) -> None:
    """What a dataset does after its own loader has answered is still a wait for data."""
    for batch in DataLoader(Inner(script), batch_size=BATCH):
        script.pause()
        script.step(batch)


def more_s(pairs: Iterable[tuple[float, float]], *, long: bool, between_s: float) -> float:
    """What steps with a long nap, or with a short, hold beyond it where nobody disturbed them."""
    return min(measured - nap for measured, nap in pairs if (nap > between_s) == long)


@pytest.mark.parametrize(
    ("train", "naps"),
    [
        (epochs, 1),
        (by_hand, 1),
        (two_loaders, 2),
        (prefetching, 1),
        (loader_in_a_loader, 2),
    ],
)
def test_what_is_planted_comes_back(
    train: Callable[[Script], None], naps: int, updates: ProcessUpdates, tmp_path: Path
) -> None:
    """The loader's naps in data wait, those of the loop's own code in other, step by step."""
    script = Script(naps)
    train(script)

    run = written(updates, tmp_path)
    assert len(run.steps) == STEPS - 1
    assert run.totals.faults == {}
    assert run.totals.notes["data_wait"] == LOADER_HEARD
    batches = iter(script.sleeper.naps["data_wait"])
    loader_s = [sum(nap) for nap in zip(*[batches] * naps, strict=True)]
    if train is prefetching:  # in each step for the next one; the last has nothing to wait for
        loader_s = [*loader_s[1:], 0.0]
    for phase, planted_s in (("data_wait", loader_s), ("other", script.sleeper.naps["other"])):
        pairs = list(zip(run.phase_s(phase)[:-1], planted_s[1:-1], strict=True))
        assert all(measured > nap - 1e-5 for measured, nap in pairs), phase
        naps_s = sorted(nap for _, nap in pairs)
        between_s = (naps_s[0] + naps_s[-1]) / 2
        short_s, long_s = (more_s(pairs, long=long, between_s=between_s) for long in (False, True))
        # What runs besides is the same in both.
        tolerance_s = max(ABSOLUTE_S, RELATIVE * (naps_s[-1] - naps_s[0]))
        assert abs(long_s - short_s) < tolerance_s, phase


EXIT_S = 0.05
"""So long a worker takes to end."""


def slow_to_end(_: int) -> None:
    """Of a worker; the process that trains waits for it as the epoch ends."""
    Finalize(None, time.sleep, args=(EXIT_S,), exitpriority=1)


def test_the_end_of_workers_is_waited_for(updates: ProcessUpdates, tmp_path: Path) -> None:
    """A loader that has no batch any more has still something to do; the loop's pause is other."""
    script = Script()
    loader = script.loader(4, workers=1)
    loader.worker_init_fn = slow_to_end
    for _ in range(2):
        for batch in loader:
            script.step(batch)
        script.pause()

    run = written(updates, tmp_path)
    assert run.phase_s("data_wait")[3] > EXIT_S
    assert run.phase_s("other")[3] > script.sleeper.naps["other"][0] - 1e-5


def test_where_others_listen_it_is_coarse(updates: ProcessUpdates, tmp_path: Path) -> None:
    """Python has six numbers for who listens; nothing is wrong where ours are taken."""
    free = [tool for tool in TOOLS if sys.monitoring.get_tool(tool) is None]
    for tool in free:
        sys.monitoring.use_tool_id(tool, "another")
    try:
        epochs(Script())
        run = written(updates, tmp_path)
    finally:
        for tool in free:
            sys.monitoring.free_tool_id(tool)

    assert run.totals.notes["data_wait"] == COARSE.format("Data")
    assert run.totals.faults == {}


def listened() -> list[object]:
    """Who listens in this process."""
    return [sys.monitoring.get_tool(tool) for tool in TOOLS]


@pytest.mark.parametrize("ends", ["with the fit", "with a fault"])
def test_nothing_is_left_behind(
    ends: str, updates: ProcessUpdates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at the end nor after a fault of ours, and nobody's training fails by it."""
    before = listened()
    script = Script()
    batches = iter(script.loader())
    for _ in range(4):
        script.step(next(batches))
    assert "trainperf" in listened()
    if ends == "with a fault":
        monkeypatch.setattr(Recorder, "moment", Mock(side_effect=ValueError))
        script.step(next(batches))
    else:
        end(updates)

    assert listened() == before
    script.step(next(batches))


def test_a_second_recording_hears_its_own_loader(updates: ProcessUpdates, tmp_path: Path) -> None:
    """As in the folds of a cross-validation; what the first one listened with is free again."""
    before = listened()
    for _ in range(2):
        epochs(Script())

    for number in range(2):
        assert written(updates, tmp_path, number).totals.notes["data_wait"] == LOADER_HEARD
    assert listened() == before

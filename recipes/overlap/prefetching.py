"""Batches made on a thread while the step before computes: prefetching on a CPU."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import turns
from recipes.cases.processor import threads
from recipes.cases.reports import before as report_before
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import OverlapEffort
from recipes.overlap.watched import WatchedLoop, watched
from trainperf.benchmark import BenchmarkComparison
from trainperf.loop import LoopMonitor
from trainperf.remedies import DevicePrefetcher


B = TypeVar("B")

WIDTH, FEATURES, BATCHES = 256, 1024, 6

CHANGE = (
    "- for batch in loader:",
    "+ for batch in ahead(loader):  # the next one is made on a thread",
)


class Records:
    """Compressed batches, each unpacked and normalised when it is asked for.

    zlib and torch let go of Python's lock while they work, or a thread could hide nothing.
    """

    def __init__(self, rows: int, batches: int = BATCHES) -> None:
        drawn = torch.Generator().manual_seed(0)
        self._rows = rows
        self._packed = [
            zlib.compress(
                torch.randint(0, 64, (rows, FEATURES), dtype=torch.uint8, generator=drawn)
                .numpy()
                .tobytes(),
                level=6,
            )
            for _ in range(batches)
        ]

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[Tensor]:
        for packed in self._packed:
            raw = bytearray(zlib.decompress(packed))
            pixels = torch.frombuffer(raw, dtype=torch.uint8).view(self._rows, FEATURES).float()
            yield (pixels - pixels.mean(1, keepdim=True)) / pixels.std(1, keepdim=True)


def ahead(loader: Iterable[B]) -> Iterator[B]:
    """The loader's batches, each made on a thread while the one before is used."""
    with ThreadPoolExecutor(1) as thread:
        batches, end = iter(loader), object()
        coming = thread.submit(next, batches, end)
        while (batch := coming.result()) is not end:
            coming = thread.submit(next, batches, end)
            yield batch  # type: ignore[misc]  # it is not the end


class Training:
    """A small model that learns to give back its input."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(FEATURES, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, FEATURES),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, monitor: LoopMonitor | None, batch: Tensor) -> Tensor:
        """The loss, after one update."""
        phase = nullcontext if monitor is None else monitor.phase
        self.optimizer.zero_grad()
        with phase("forward"):
            loss = nn.functional.mse_loss(self.model(batch), batch)
        with phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        with phase("optimizer"):
            self.optimizer.step()
        return loss.detach()

    def epoch(self, batches: Iterable[Tensor]) -> Tensor:
        """The last loss."""
        for batch in batches:
            loss = self.step(None, batch)
        return loss


def watch(folder: Path, effort: OverlapEffort) -> tuple[WatchedLoop, WatchedLoop]:
    """The loop as it was and with a thread, with the monitor attached."""
    records = Records(effort.record, effort.steps)
    with threads(1):
        first, second = Training(), Training()
        return (
            watched(folder, "loading in the loop", records, first.step, first.model),
            watched(folder, "loading on a thread", ahead(records), second.step, second.model),
        )


def cases(before: WatchedLoop, effort: OverlapEffort) -> Iterator[Case]:
    """Batches that cost something, batches that cost nothing, and the device's own prefetcher.

    Args:
        before: The loop that loads and computes in turn, which the report is about.
        effort: How long is measured.
    """
    records = Records(effort.record)
    yield OverlapClaim(
        name="prefetch on a thread",
        claim="A batch made on a thread while the step before computes takes time off the loop, "
        "as long as a core is free",
        expected="faster",
        change=CHANGE,
        why_not="making a batch holds Python's lock, or no core is free",
        before=report_before(before.run, "data_wait"),
    ).decided(_measured(records, ahead, effort))
    yield OverlapClaim(
        name="prefetch of ready batches",
        claim="Prefetching gains nothing where batches cost nothing",
        expected="equal",
        change=CHANGE,
        why_not="each epoch starts and ends a thread, and each batch is handed over, which the "
        "step does not hide",
    ).decided(_measured(list(records), ahead, effort))
    yield OverlapClaim(
        name="DevicePrefetcher on a CPU",
        claim="`DevicePrefetcher` changes nothing on a CPU: nothing is copied there",
        expected="equal",
        change=("- for batch in loader:", '+ for batch in DevicePrefetcher(loader, "cpu"):'),
        before=report_before(before.run, "transfer"),
    ).decided(_measured(records, partial(DevicePrefetcher, device="cpu"), effort))


def _measured(
    loader: Iterable[Tensor],
    wrapped: Callable[[Iterable[Tensor]], Iterable[Tensor]],
    effort: OverlapEffort,
) -> BenchmarkComparison:
    """An epoch each, with and without; each trains a model of its own from the same weights."""
    before, after = Training(), Training()
    versions = {
        f"{BATCHES} steps": before.epoch,
        f"{BATCHES} steps, prefetched": lambda batches: after.epoch(wrapped(batches)),
    }
    with threads(1):
        return turns(versions, loader, seconds=effort.paired_s)

"""Copies to the GPU under the step before: `DevicePrefetcher`, and what it needs."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.cases.reports import finding_lines
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import OverlapEffort
from recipes.overlap.watched import WatchedLoop, watched
from trainperf.loop import LoopMonitor
from trainperf.remedies import DevicePrefetcher


NO_COPIES = "on a CPU nothing is copied to a device"

CHANGE = (
    "- for batch in loader:",
    '-     batch = batch.to("cuda", non_blocking=True)',
    '+ for batch in DevicePrefetcher(loader, "cuda"):',
)

WIDTH, BATCHES = 4096, 8

Loader = Iterable[Tensor]
Wrapped = Callable[[Loader], Loader]


def copied_in_turn(loader: Loader) -> Iterator[Tensor]:
    """Each batch copied on the compute stream, before its step."""
    for batch in loader:
        yield batch.to("cuda", non_blocking=True)


prefetched: Wrapped = partial(DevicePrefetcher, device="cuda")


def batches(rows: int, number: int, *, pinned: bool) -> list[Tensor]:
    """Batches on the host, in memory that the GPU can read by itself or not."""
    drawn = torch.Generator().manual_seed(0)
    host = [torch.randn(rows, WIDTH, generator=drawn) for _ in range(number)]
    return [batch.pin_memory() for batch in host] if pinned else host


def watch(folder: Path, effort: OverlapEffort) -> tuple[WatchedLoop, ...]:
    """Both loops with the monitor attached; none without CUDA."""
    if not torch.cuda.is_available():
        return ()
    host = batches(WIDTH, 1, pinned=True) * effort.steps
    model = nn.Linear(WIDTH, WIDTH, bias=False, device="cuda")

    def computing(monitor: LoopMonitor, batch: Tensor) -> Tensor:
        with torch.no_grad(), monitor.phase("forward"):
            return torch.as_tensor(model(batch).mean())

    def copying(monitor: LoopMonitor, batch: Tensor) -> Tensor:
        with monitor.phase("h2d"):
            batch = batch.to("cuda", non_blocking=True)
        return computing(monitor, batch)

    return (
        watched(folder, "copies in turn", host, copying, model),
        watched(folder, "copies prefetched", prefetched(host), computing, model),
    )


def cases(before: tuple[WatchedLoop, ...], effort: OverlapEffort) -> Iterator[Case]:
    """Pinned memory, and memory that is not.

    Args:
        before: The watched loops, if there are any; the report is about the first.
        effort: How long is measured.
    """
    pinned = OverlapClaim(
        name="DevicePrefetcher",
        claim="A pinned batch copied on a stream of its own while the step before computes takes "
        "time off the loop",
        expected="faster",
        change=CHANGE,
        why_not="the copy is short against the step, or the step against the copy",
        before=finding_lines(before[0].run, ("transfer",)) if before else (),
    )
    pageable = OverlapClaim(
        name="DevicePrefetcher, not pinned",
        claim="Without pinned memory nothing overlaps: the copy goes through a buffer of the "
        "driver, which the host waits for",
        expected="equal",
        change=CHANGE,
        why_not="the host still copies into the driver's buffer while the GPU computes",
    )
    for claim, host in ((pinned, True), (pageable, False)):
        if torch.cuda.is_available():
            yield claim.decided(_measured(effort, pinned=host))
        else:
            yield claim.without_cuda(NO_COPIES)


def _measured(effort: OverlapEffort, *, pinned: bool) -> tuple[MeasuredRow, ...]:
    host = batches(WIDTH, BATCHES, pinned=pinned)
    weights = torch.randn(WIDTH, WIDTH, device="cuda")

    def epoch(wrapped: Wrapped, loader: Loader) -> Tensor:
        total = torch.zeros((), device="cuda")
        for batch in wrapped(loader):
            total += (batch @ weights).abs().mean()
        return total

    versions = {
        "copies in turn": partial(epoch, copied_in_turn),
        "copies prefetched": partial(epoch, prefetched),
    }
    with torch.inference_mode():
        return paired(versions, host, seconds=effort.paired_s)

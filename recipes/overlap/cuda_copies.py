"""Copies to the GPU under the step before: `DevicePrefetcher`, and what it needs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import turns
from recipes.cases.reports import before as report_before
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import CUDA, OverlapEffort, usable
from recipes.overlap.published import COPIES, PAGEABLE_COPIES
from recipes.overlap.watched import WatchedLoop, watched
from trainperf.benchmark import BenchmarkComparison
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


def copied_in_turn(loader: Loader, device: str = CUDA) -> Iterator[Tensor]:
    """Each batch copied on the compute stream, before its step."""
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def batches(rows: int, number: int, *, pinned: bool) -> list[Tensor]:
    """Batches on the host, in memory that the GPU can read by itself or not."""
    drawn = torch.Generator().manual_seed(0)
    host = [torch.randn(rows, WIDTH, generator=drawn) for _ in range(number)]
    return [batch.pin_memory() for batch in host] if pinned else host


def watch(folder: Path, effort: OverlapEffort, device: str = CUDA) -> tuple[WatchedLoop, ...]:
    """Both loops with the monitor attached, pinned and not; none without CUDA."""
    if not usable(device):
        return ()
    model = nn.Linear(WIDTH, WIDTH, bias=False, device=device)
    loops: list[WatchedLoop] = []
    for pinned in (True, False):
        host = batches(WIDTH, 1, pinned=pinned) * effort.steps
        loops += _watched(folder, "" if pinned else ", not pinned", host, model, device)
    return tuple(loops)


def _watched(
    folder: Path, words: str, host: Sequence[Tensor], model: nn.Module, device: str
) -> tuple[WatchedLoop, ...]:
    def computing(monitor: LoopMonitor, batch: Tensor) -> Tensor:
        with torch.no_grad(), monitor.phase("forward"):
            return torch.as_tensor(model(batch).mean())

    def copying(monitor: LoopMonitor, batch: Tensor) -> Tensor:
        with monitor.phase("h2d"):
            batch = batch.to(device, non_blocking=True)
        return computing(monitor, batch)

    return (
        watched(folder, f"copies in turn{words}", host, copying, model),
        watched(
            folder, f"copies prefetched{words}", DevicePrefetcher(host, device), computing, model
        ),
    )


def cases(
    before: Sequence[WatchedLoop], effort: OverlapEffort, device: str = CUDA
) -> Iterator[Case]:
    """Pinned memory, and memory that is not.

    Args:
        before: The watched loops, if there are any; the reports are about those that copy in turn.
        effort: How long is measured.
        device: Where to.
    """
    reports = {loop.name: report_before(loop.run, "transfer") for loop in before}
    pinned = OverlapClaim(
        name="DevicePrefetcher",
        claim="A pinned batch copied on a stream of its own while the step before computes takes "
        "time off the loop",
        expected="faster",
        change=CHANGE,
        why_not="the copy is short against the step, or the step against the copy",
        before=reports.get("copies in turn"),
        published=COPIES,
    )
    pageable = OverlapClaim(
        name="DevicePrefetcher, not pinned",
        claim="Without pinned memory nothing overlaps: the copy goes through a buffer of the "
        "driver, which the host waits for",
        expected="equal",
        change=CHANGE,
        why_not="the host still copies into the driver's buffer while the GPU computes",
        before=reports.get("copies in turn, not pinned"),
        published=PAGEABLE_COPIES,
    )
    for claim, host in ((pinned, True), (pageable, False)):
        if usable(device):
            yield claim.decided(_measured(effort, device, pinned=host))
        else:
            yield claim.without_cuda(NO_COPIES)


def _measured(effort: OverlapEffort, device: str, *, pinned: bool) -> BenchmarkComparison:
    host = batches(WIDTH, BATCHES, pinned=pinned)
    weights = torch.randn(WIDTH, WIDTH, device=device)

    def epoch(wrapped: Wrapped, loader: Loader) -> Tensor:
        total = torch.zeros((), device=device)
        for batch in wrapped(loader):
            total += (batch @ weights).abs().mean()
        return total

    versions = {
        "copies in turn": partial(epoch, partial(copied_in_turn, device=device)),
        "copies prefetched": partial(epoch, partial(DevicePrefetcher, device=device)),
    }
    with torch.inference_mode():
        return turns(versions, host, seconds=effort.paired_s)

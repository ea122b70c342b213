"""CUDA streams: what several gain over one, and when nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from recipes.cases.case import Case
from recipes.cases.measuring import turns
from recipes.cases.reports import before as report_before
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.cpu_threads import in_turn
from recipes.overlap.effort import CUDA, OverlapEffort, usable
from recipes.overlap.watched import HOST_TOO_SLOW, WatchedLoop, watched_calls


STREAMS, ALONE = 4, "one stream"

NO_STREAMS = "a CPU has no streams; its threads are measured above"

CHANGE = (
    "  streams = [torch.cuda.Stream() for _ in range(4)]",
    "+ for stream in streams: stream.wait_stream(torch.cuda.current_stream())",
    "  for place, part in enumerate(parts):",
    "+     with torch.cuda.stream(streams[place % 4]):",
    "          results.append(work(part))",
    "+ for stream in streams: torch.cuda.current_stream().wait_stream(stream)",
)

Work = Callable[[Tensor], Tensor]


def few_rows(rows: Tensor) -> Tensor:
    """Softmax over long rows: a block of threads each, so a few rows leave most of a GPU idle."""
    for _ in range(4):
        rows = torch.softmax(rows, dim=1)
    return rows


def product(matrix: Tensor) -> Tensor:
    """A large matrix product, whose blocks fill a GPU."""
    return matrix @ matrix


def tiny(rows: Tensor) -> Tensor:
    """Kernels that end before the next one is launched."""
    for _ in range(50):
        rows = rows * 0.9
    return rows


class OnStreams:
    """Parts on several streams, which begin after the current one and end before it goes on.

    Memory needs no `record_stream`: what a stream allocates is used on it until the current stream
    has waited for it, and it allocates again only after it has waited for the current stream.
    """

    def __init__(self, work: Work, number: int = STREAMS) -> None:
        self._work = work
        self._streams = [torch.cuda.Stream() for _ in range(number)]  # type: ignore[no-untyped-call]

    def __call__(self, parts: Sequence[Tensor]) -> Tensor:
        """The last part's result."""
        current = torch.cuda.current_stream()
        for stream in self._streams:
            stream.wait_stream(current)
        results = []
        for place, part in enumerate(parts):
            with torch.cuda.stream(self._streams[place % len(self._streams)]):
                results.append(self._work(part))
        for stream in self._streams:
            current.wait_stream(stream)
        return results[-1]


def watch(folder: Path, effort: OverlapEffort, device: str = CUDA) -> tuple[WatchedLoop, ...]:
    """Loops of each claim's work on one stream and on several; none without CUDA."""
    if not usable(device):
        return ()
    return tuple(
        loop
        for claim, work, shape in CLAIMS
        for loop in watched_calls(
            folder,
            {_name(claim, name): call for name, call in _versions(work).items()},
            _parts(shape, device),
            effort.steps,
            device,
        )
    )


def cases(
    before: Sequence[WatchedLoop], effort: OverlapEffort, device: str = CUDA
) -> Iterator[Case]:
    """Kernels that leave most of the GPU idle, that fill it, and that the host is too slow for.

    Args:
        before: The watched loops, if there are any; the reports are about those of one stream.
        effort: How long is measured.
        device: Where.
    """
    reports = {loop.name: report_before(loop.run, *HOST_TOO_SLOW) for loop in before}
    for claim, work, shape in CLAIMS:
        if usable(device):
            with torch.inference_mode():
                comparison = turns(_versions(work), _parts(shape, device), seconds=effort.paired_s)
            report = reports.get(_name(claim, ALONE))
            yield replace(claim, before=report).decided(comparison)
        else:
            yield claim.without_cuda(NO_STREAMS)


def _parts(shape: tuple[int, int], device: str) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, device=device) for _ in range(2 * STREAMS)]


def _versions(work: Work) -> dict[str, Callable[[Sequence[Tensor]], Tensor]]:
    return {ALONE: partial(in_turn, work), f"{STREAMS} streams": OnStreams(work)}


def _name(claim: OverlapClaim, version: str) -> str:
    return f"{claim.name}: {version}"


CLAIMS: tuple[tuple[OverlapClaim, Work, tuple[int, int]], ...] = (
    (
        OverlapClaim(
            name="streams, small grids",
            claim=f"Kernels of few blocks run side by side on {STREAMS} streams and take less time",
            expected="faster",
            change=CHANGE,
        ),
        few_rows,
        (8, 1 << 17),
    ),
    (
        OverlapClaim(
            name="streams, full GPU",
            claim="Streams gain nothing where each kernel fills the GPU",
            expected="equal",
            change=CHANGE,
        ),
        product,
        (4096, 4096),
    ),
    (
        OverlapClaim(
            name="streams, launch-bound",
            claim="Streams gain nothing where the host launches slower than kernels end",
            expected="equal",
            change=CHANGE,
        ),
        tiny,
        (64, 64),
    ),
)
"""Each with its work and the shape of a part."""

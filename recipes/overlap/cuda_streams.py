"""CUDA streams: what several gain over one, and when nothing."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import OverlapEffort


STREAMS = 4

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


def cases(effort: OverlapEffort) -> Iterator[Case]:
    """Kernels that leave most of the GPU idle, that fill it, and that the host is too slow for."""
    for claim, work, shape in CLAIMS:
        if torch.cuda.is_available():
            yield claim.decided(_measured(work, shape, effort))
        else:
            yield claim.without_cuda(NO_STREAMS)


def _measured(work: Work, shape: tuple[int, int], effort: OverlapEffort) -> tuple[MeasuredRow, ...]:
    torch.manual_seed(0)
    parts = [torch.randn(*shape, device="cuda") for _ in range(2 * STREAMS)]

    def in_turn(parts: Sequence[Tensor]) -> Tensor:
        return [work(part) for part in parts][-1]

    versions: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
        "one stream": in_turn,
        f"{STREAMS} streams": OnStreams(work),
    }
    with torch.inference_mode():
        return paired(versions, parts, seconds=effort.paired_s)


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

"""CUDA graphs: small kernels launched once, captured by hand and by `mode="reduce-overhead"`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from recipes.cases.case import Case
from recipes.cases.measuring import turns
from recipes.cases.reports import before as report_before
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import CUDA, OverlapEffort, usable
from recipes.overlap.launches import chain, large
from recipes.overlap.published import LARGE_KERNELS, MLPERF, REDUCE_OVERHEAD
from recipes.overlap.watched import HOST_TOO_SLOW, WatchedLoop, watched_calls
from trainperf.benchmark import BenchmarkComparison


NO_GRAPHS = "CUDA graphs are of CUDA; what a CPU gains by launching less is measured above"

BY_HAND = (
    "+ with torch.cuda.graph(graph):  # after three calls on a stream of their own",
    "+     result = chain(buffer)",
    "- result = chain(rows)",
    "+ buffer.copy_(rows); graph.replay()",
)
BY_MODE = (
    "- result = chain(rows)",
    '+ result = torch.compile(chain, mode="reduce-overhead")(rows)',
)

SMALL, BIG = 64, 8192
"""Rows and columns of what is launched."""

Function = Callable[[Tensor], Tensor]


def captured(function: Function, example: Tensor) -> Function:
    """The function as one CUDA graph for inputs like *example*.

    The graph reads and writes memory of its own: an input is copied into it, and a result holds
    until the next call.  What a library sets up in its first calls must not be captured, so there
    are three before, on another stream than the default one, as the capture asks for.
    """
    buffer = example.clone()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(buffer)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(buffer)

    def replay(rows: Tensor) -> Tensor:
        buffer.copy_(rows)
        graph.replay()
        return result

    return replay


def watch(folder: Path, effort: OverlapEffort, device: str = CUDA) -> tuple[WatchedLoop, ...]:
    """Loops of each claim's work, launched and replayed; none without CUDA."""
    if not usable(device):
        return ()
    small, big = _rows(SMALL, device), _rows(BIG, device)
    with torch.no_grad():
        versions = {
            "small kernels launched": chain,
            "small kernels as a CUDA graph": captured(chain, small),
            "small kernels by reduce-overhead": _by_mode(chain, small),
        }
        of_large = {
            "large kernel launched": large,
            "large kernel as a CUDA graph": captured(large, big),
        }
    return (
        *watched_calls(folder, versions, small, effort.steps, device),
        *watched_calls(folder, of_large, big, effort.steps, device),
    )


def cases(
    before: Sequence[WatchedLoop], effort: OverlapEffort, device: str = CUDA
) -> Iterator[Case]:
    """Small kernels by hand and by mode, and a large one.

    Args:
        before: The watched loops, if there are any; the reports are about those that launch.
        effort: How long is measured.
        device: Where.
    """
    reports = {loop.name: report_before(loop.run, *HOST_TOO_SLOW) for loop in before}
    report = reports.get("small kernels launched")
    by_hand = OverlapClaim(
        name="CUDA graph",
        claim="Small kernels replayed as one graph take less time than launched each",
        expected="faster",
        change=BY_HAND,
        before=report,
        published=MLPERF,
    )
    by_mode = OverlapClaim(
        name="reduce-overhead",
        claim='`mode="reduce-overhead"` fuses the chain and replays it: less time than launching',
        expected="faster",
        change=BY_MODE,
        published=REDUCE_OVERHEAD,
        before=report,
    )
    of_large = OverlapClaim(
        name="CUDA graph of a large kernel",
        claim="A graph gains nothing where one kernel takes the time: there is no launch to save",
        expected="equal",
        change=BY_HAND,
        before=reports.get("large kernel launched"),
        published=LARGE_KERNELS,
    )
    for claim, function, other, size in (
        (by_hand, chain, captured, SMALL),
        (by_mode, chain, _by_mode, SMALL),
        (of_large, large, captured, BIG),
    ):
        if usable(device):
            yield claim.decided(_measured(function, other, _rows(size, device), effort))
        else:
            yield claim.without_cuda(NO_GRAPHS)


def _by_mode(function: Function, example: Tensor) -> Function:
    del example  # the mode captures what it is called with
    compiled: Function = torch.compile(function, mode="reduce-overhead")
    return compiled


def _measured(
    function: Function,
    other: Callable[[Function, Tensor], Function],
    rows: Tensor,
    effort: OverlapEffort,
) -> BenchmarkComparison:
    with torch.inference_mode():
        versions = {"launched": function, "replayed": other(function, rows)}
        return turns(versions, rows, seconds=effort.paired_s)


def _rows(size: int, device: str) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(size, size, device=device)

"""CUDA graphs: small kernels launched once, captured by hand and by `mode="reduce-overhead"`."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from recipes.cases.case import Case, MeasuredRow, PublishedFigure
from recipes.cases.measuring import paired
from recipes.cases.reports import finding_lines
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import OverlapEffort
from recipes.overlap.launches import chain, large
from recipes.overlap.watched import WatchedLoop


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

MLPERF = PublishedFigure(
    figure="MLPerf training v1.0: Mask R-CNN on 272 GPUs trains 1.70× as fast with CUDA graphs, "
    "BERT on 4096 GPUs 1.12×",
    source="https://github.com/pytorch/pytorch.github.io/blob/master/_posts/"
    "2021-10-26-accelerating-pytorch-with-cuda-graphs.md",
    differs="whole trainings on many GPUs with one image or few sequences on each; here a chain of "
    "elementwise kernels on one",
)

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


def cases(before: WatchedLoop | None, effort: OverlapEffort) -> Iterator[Case]:
    """Small kernels by hand and by mode, and a large one.

    Args:
        before: The loop of small operators on the GPU, which the report is about.
        effort: How long is measured.
    """
    lines = finding_lines(before.run, ("launch_bound", "host_bound")) if before else ()
    by_hand = OverlapClaim(
        name="CUDA graph",
        claim="Small kernels replayed as one graph take less time than launched each",
        expected="faster",
        change=BY_HAND,
        before=lines,
        published=MLPERF,
    )
    by_mode = OverlapClaim(
        name="reduce-overhead",
        claim='`mode="reduce-overhead"` fuses the chain and replays it: less time than launching',
        expected="faster",
        change=BY_MODE,
        before=lines,
    )
    of_large = OverlapClaim(
        name="CUDA graph of a large kernel",
        claim="A graph gains nothing where one kernel takes the time: there is no launch to save",
        expected="equal",
        change=BY_HAND,
    )
    for claim, function, other, size in (
        (by_hand, chain, captured, 64),
        (by_mode, chain, _by_mode, 64),
        (of_large, large, captured, 8192),
    ):
        if torch.cuda.is_available():
            yield claim.decided(_measured(function, other, size, effort))
        else:
            yield claim.without_cuda(NO_GRAPHS)


def _by_mode(function: Function, example: Tensor) -> Function:
    del example  # the mode captures what it is called with
    compiled: Function = torch.compile(function, mode="reduce-overhead")
    return compiled


def _measured(
    function: Function,
    other: Callable[[Function, Tensor], Function],
    size: int,
    effort: OverlapEffort,
) -> tuple[MeasuredRow, ...]:
    torch.manual_seed(0)
    rows = torch.randn(size, size, device="cuda")
    with torch.inference_mode():
        versions = {"launched": function, "replayed": other(function, rows)}
        return paired(versions, rows, seconds=effort.paired_s)

"""A library's sort against one of your own, though the latter compares everything in parallel."""

import torch
from torch import Tensor

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.reports import BENCHMARK, benchmark_lines
from recipes.cases.verdicts import verdict
from recipes.claims.bench import ClaimBench
from recipes.claims.published import LIBRARY_SORT
from trainperf.benchmark import benchmark_step


def library_sort(bench: ClaimBench) -> Case:
    """A bitonic network in tensor operators, and `torch.sort`."""
    x = bench.random(bench.pick(1 << 9, 1 << 15))
    versions = {"bitonic network": bitonic, "torch.sort": lambda y: torch.sort(y).values}
    rows = paired(versions, x, seconds=bench.seconds)
    return Case(
        name="library_sort",
        claim="A library's sort beats one written in tensor operators, however parallel that is.",
        before=benchmark_lines(benchmark_step(bitonic, x, warmup=2, repeat=7)),
        before_note=BENCHMARK,
        change=("- bitonic(x)", "+ torch.sort(x).values"),
        measured=rows,
        published=LIBRARY_SORT,
        **verdict(rows[1], "faster"),
    )


def bitonic(x: Tensor) -> Tensor:
    """Sorted in ascending order; its size is a power of two.

    log₂(n) · (log₂(n) + 1) / 2 passes over all values, each of which is compared with a partner.
    """
    place = torch.arange(len(x), device=x.device)
    run = 2
    while run <= len(x):
        distance = run // 2
        while distance:
            other = x[place ^ distance]
            lower = (place & distance) == 0
            ascending = (place & run) == 0
            x = torch.where(lower == ascending, torch.minimum(x, other), torch.maximum(x, other))
            distance //= 2
        run *= 2
    return x

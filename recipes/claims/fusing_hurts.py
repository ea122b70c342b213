"""When fusing hurts: a compiled call costs more than the few small operators it replaces."""

import torch
from torch import Tensor

from recipes.cases.case import Case, Plot, PlotLine
from recipes.cases.measuring import rows, turns
from recipes.cases.reports import benchmark_lines
from recipes.cases.verdicts import Judgement, verdict
from recipes.claims.bench import ClaimBench
from recipes.claims.published import FUSING_HURTS
from trainperf.benchmark import benchmark_step


SIZES = (64, 4096, 65_536, 1_048_576)
NO_COMPILER = Judgement(verdict="cannot tell", reason="no C++ compiler here", decided_by="")
NO_FINDING = "no finding is told of chains so short; `trainperf.benchmark` times this one:"


def chain(x: Tensor) -> Tensor:
    """Scale, shift, clamp: three operators."""
    return torch.relu(x * 2.0 + 1.0)


def fusing_hurts(bench: ClaimBench) -> Case:
    """The same chain on tensors of growing size, as operators and compiled."""
    claim = "Fusing hurts where tensors are small: the call of a compiled function costs more than "
    claim += "the operators that it replaces."
    if not bench.compiles:
        return Case(name="fusing_hurts", claim=claim, before_note=NO_FINDING, **NO_COMPILER)
    compiled = torch.compile(chain, dynamic=True)
    sizes = bench.pick(SIZES[:2], SIZES)
    measured = {
        size: rows(
            turns(
                {f"operators, {size:,} values": chain, f"compiled, {size:,} values": compiled},
                bench.random(size),
                seconds=bench.seconds / len(sizes),
            )
        )
        for size in sizes
    }
    ratios = tuple((float(size), after.ratio or 0.0) for size, (_, after) in measured.items())
    return Case(
        name="fusing_hurts",
        claim=claim,
        before=benchmark_lines(benchmark_step(chain, bench.random(SIZES[0]), calls=100)),
        before_note=NO_FINDING,
        change=("- chain(x)", "+ torch.compile(chain)(x)"),
        measured=tuple(row for pair in measured.values() for row in pair),
        published=FUSING_HURTS,
        plot=Plot(
            title="speed of the compiled chain over that of its operators, by size",
            lines=(PlotLine(name="compiled over operators", points=ratios),),
            across="values in the tensor",
            up="times as fast",
            up_unit="×",
            log_across=True,
        ),
        **verdict(measured[SIZES[0]][1], "slower", why="calling compiled code is cheap here"),
    )

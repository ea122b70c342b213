"""Many small operators against fewer: what launching costs, and `torch.compile` on a CPU."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import turns
from recipes.cases.processor import compiler, threads
from recipes.cases.reports import before as report_before
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import OverlapEffort
from recipes.overlap.published import COMPILED
from recipes.overlap.watched import WatchedLoop, watched
from trainperf.loop import LoopMonitor


LINKS = 40
"""Elementwise operators of the chain: two of each link."""

OWN_COST = "the compiled function has its own cost per call"

CHANGE = ("- result = chain(rows)", "+ result = torch.compile(chain)(rows)")


def chain(rows: Tensor) -> Tensor:
    """Small elementwise operators, one after the other."""
    for _ in range(LINKS):
        rows = torch.tanh(rows * 0.9)
    return rows


def large(matrix: Tensor) -> Tensor:
    """One operator that takes longer than any launch."""
    return matrix @ matrix


class SmallOperators(nn.Module):
    """A model that is nothing but launches; trained, its backward launches as many again."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((64,), 0.5))

    def forward(self, rows: Tensor) -> Tensor:
        """The mean of what the chain leaves."""
        return chain(rows * self.scale).mean()


def watch(folder: Path, effort: OverlapEffort) -> WatchedLoop:
    """Training of small operators, with the monitor attached."""
    model = SmallOperators()
    rows = torch.randn(64, 64)

    def step(monitor: LoopMonitor, batch: Tensor) -> Tensor:
        model.zero_grad()
        with monitor.phase("forward"):
            loss: Tensor = model(batch)
        with monitor.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    with threads(1):
        return watched(folder, "small operators", [rows] * effort.steps, step, model)


def cases(before: WatchedLoop, effort: OverlapEffort) -> Iterator[Case]:
    """A chain of small operators, one large one, and a mode that is for CUDA graphs.

    Args:
        before: The loop of small operators, which the report is about.
        effort: How long is measured.
    """
    torch.manual_seed(0)
    small = torch.randn(64, 64)
    matrix = torch.randn(2 * effort.matrix, 2 * effort.matrix)
    yield _case(
        OverlapClaim(
            name="small operators, compiled",
            claim="Small operators cost their launches: compiled into one loop they take less time",
            expected="faster",
            change=CHANGE,
            why_not=OWN_COST,
            before=report_before(before.run, "launch_bound"),
            published=COMPILED,
        ),
        lambda: {"operator by operator": chain, "compiled": torch.compile(chain)},
        small,
        effort,
    )
    yield _case(
        OverlapClaim(
            name="one large operator, compiled",
            claim="Compilation gains nothing where one large operator takes the time",
            expected="equal",
            change=CHANGE,
            why_not=OWN_COST,
        ),
        lambda: {"one operator": large, "compiled": torch.compile(large)},
        matrix,
        effort,
    )
    yield _case(
        OverlapClaim(
            name="reduce-overhead on a CPU",
            claim='`mode="reduce-overhead"` is compilation and nothing more on a CPU: it is for '
            "CUDA graphs",
            expected="equal",
            change=('+ torch.compile(chain, mode="reduce-overhead")',),
            why_not=OWN_COST,
        ),
        lambda: {
            "compiled": torch.compile(chain),
            "reduce-overhead": torch.compile(chain, mode="reduce-overhead"),
        },
        small,
        effort,
    )


def _case(
    claim: OverlapClaim,
    versions: Callable[[], Mapping[str, Callable[[Tensor], Tensor]]],
    batch: Tensor,
    effort: OverlapEffort,
) -> Case:
    missing = _missing(effort)
    if missing:
        return claim.unmeasured(missing)
    with threads(1), torch.inference_mode():
        return claim.decided(turns(versions(), batch, seconds=effort.paired_s))


def _missing(effort: OverlapEffort) -> str:
    """Why nothing can be compiled here; empty if it can."""
    if not effort.compiled:
        return "nothing is compiled at this size: the first call takes seconds"
    if not compiler():
        return "torch.compile needs a C++ compiler (g++), which is not installed"
    return ""

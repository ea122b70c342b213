"""Operators from several threads of a CPU: what streams are to a GPU."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from recipes.cases.case import Case
from recipes.cases.measuring import turns
from recipes.cases.processor import threads
from recipes.overlap.claim import OverlapClaim
from recipes.overlap.effort import OverlapEffort
from recipes.overlap.published import FULL_CORES, TWO_THREADS
from recipes.overlap.watched import WatchedLoop, watched_calls
from trainperf.benchmark import BenchmarkComparison


PARTS, WORKERS = 8, 2

CHANGE = (
    "- for part in parts: work(part)",
    f"+ with ThreadPoolExecutor({WORKERS}) as pool: list(pool.map(work, parts))",
)

Work = Callable[[Tensor], Tensor]


@torch.inference_mode()  # of a thread: the caller's does not reach the pool's
def products(matrix: Tensor) -> Tensor:
    """A chain of matrix products, scaled so that it stays finite."""
    for _ in range(2):
        matrix = matrix @ matrix / matrix.shape[0] ** 0.5
    return matrix


@torch.inference_mode()
def tiny(matrix: Tensor) -> Tensor:
    """Operators of a microsecond or two, which Python issues one after the other."""
    row = matrix[0, :64]
    for _ in range(200):
        row = row.add(1.0).mul(0.5)
    return row


def in_turn(work: Work, parts: Sequence[Tensor]) -> Tensor:
    """One part after the other."""
    return [work(part) for part in parts][-1]


def side_by_side(pool: ThreadPoolExecutor, work: Work, parts: Sequence[Tensor]) -> Tensor:
    """Parts on the threads of a pool."""
    return list(pool.map(work, parts))[-1]


def watch(folder: Path, effort: OverlapEffort) -> tuple[WatchedLoop, ...]:
    """The first claim's work with the monitor attached, in turn and on threads."""
    torch.manual_seed(0)
    parts = [torch.randn(effort.matrix, effort.matrix) for _ in range(PARTS)]
    with threads(1), ThreadPoolExecutor(WORKERS) as pool:
        versions = {
            f"{PARTS} parts in turn": partial(in_turn, products),
            f"{PARTS} parts on {WORKERS} threads": partial(side_by_side, pool, products),
        }
        return watched_calls(folder, versions, parts, effort.steps, "cpu")


def cases(effort: OverlapEffort) -> Iterator[Case]:
    """Large operators of one thread each, of all cores each, and tiny ones."""
    torch.manual_seed(0)
    parts = [torch.randn(effort.matrix, effort.matrix) for _ in range(PARTS)]
    for claim, work, inside in CLAIMS:
        # A thread keeps the number of threads that it was started with: a pool for each claim.
        with threads(inside), ThreadPoolExecutor(WORKERS) as pool:
            comparison = _measured(pool, work, parts, effort)
        yield claim.decided(comparison)


def _measured(
    pool: ThreadPoolExecutor, work: Work, parts: Sequence[Tensor], effort: OverlapEffort
) -> BenchmarkComparison:
    return turns(
        {"in turn": partial(in_turn, work), "two threads": partial(side_by_side, pool, work)},
        parts,
        seconds=effort.paired_s,
    )


CLAIMS: tuple[tuple[OverlapClaim, Work, int], ...] = (
    (
        OverlapClaim(
            name="two threads",
            claim="Independent operators of one thread each take less time from two threads",
            expected="faster",
            change=CHANGE,
            why_not="there is no second core",
            published=TWO_THREADS,
        ),
        products,
        1,
    ),
    (
        OverlapClaim(
            name="two threads, cores full",
            claim="Threads gain nothing where each operator already uses every core",
            expected="equal",
            change=CHANGE,
            why_not="operators that share the cores wait for each other at the end of each one, or "
            "fill the gaps that one alone leaves",
            published=FULL_CORES,
        ),
        products,
        WORKERS,
    ),
    (
        OverlapClaim(
            name="two threads, tiny operators",
            claim="Two threads that issue operators of microseconds are slower than one: only one "
            "holds Python's lock",
            expected="slower",
            change=CHANGE,
            why_not="the lock changes hands without a loss here",
        ),
        tiny,
        1,
    ),
)
"""Each with its work and the threads inside of an operator."""

"""`torch.cuda.empty_cache()` in every step: what it costs where memory is not short."""

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.verdicts import needs_cuda, verdict
from recipes.claims.bench import Batch, ClaimBench, Training, same, sgd
from recipes.claims.published import EMPTY_CACHE


NOTE = "no finding is about this; `trainperf.benchmark` decides it, on a device."


def empty_cache(bench: ClaimBench) -> Case:
    """Training steps with and without it."""
    claim = "Emptying the allocator's cache in every step makes training slower."
    if bench.device == "cpu":
        why = "the CPU's allocator keeps no cache that torch could empty"
        return Case(
            name="empty_cache",
            claim=claim,
            before_note=NOTE,
            published=EMPTY_CACHE,
            **needs_cuda(why),
        )
    keeping, emptying = _training(bench), _training(bench)

    def emptied(batch: Batch) -> Tensor:
        loss = emptying.step(batch)
        torch.cuda.empty_cache()
        return loss

    rows = paired(
        {"keeping the cache": keeping.step, "emptying it": emptied},
        (bench.random(bench.pick(32, 4096), 1024),),
        seconds=bench.seconds,
    )
    return Case(
        name="empty_cache",
        claim=claim,
        before_note=NOTE,
        published=EMPTY_CACHE,
        change=("+ torch.cuda.empty_cache()  # at the end of each step",),
        measured=rows,
        **verdict(rows[1], "slower", why="the step made no block that could be given back"),
    )


def _training(bench: ClaimBench) -> Training:
    width = bench.pick(64, 4096)
    model = same(lambda: nn.Sequential(nn.Linear(1024, width), nn.GELU(), nn.Linear(width, 1024)))
    return sgd(model.to(bench.device), lambda module, rows: module(rows[0]).square().mean())

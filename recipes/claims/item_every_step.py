"""`.item()` in every step: the host waits for the device, where there is one."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.reports import before
from recipes.cases.verdicts import verdict
from recipes.claims.bench import Batch, ClaimBench, Training, same, sgd
from recipes.claims.published import ITEM_EVERY_STEP


STEPS = 20
"""Of a call."""

WHY_NOT = "a CPU has computed the value before Python asks: there is no queue to drain"


def item_every_step(bench: ClaimBench) -> Case:
    """Training steps that read their loss, and that leave it where it is."""
    losses: list[float] = []
    kept: list[Tensor] = []

    def read(loss: Tensor) -> None:
        losses.append(loss.item())

    def keep(loss: Tensor) -> None:
        kept.append(loss.detach())

    def steps(training: Training) -> Callable[[Batch], Tensor]:
        # A call waits for the device at its end, so it is of many steps: the queue is their own.
        def call(batch: Batch) -> Tensor:
            losses.clear()
            kept.clear()
            return torch.stack([training.step(batch) for _ in range(STEPS)]).mean()

        return call

    reading, leaving = _training(bench), _training(bench)
    reading = sgd(reading.model, reading.loss, after=read)
    leaving = sgd(leaving.model, leaving.loss, after=keep)
    batch = (bench.random(bench.pick(8, 128), 256),)
    rows = paired(
        {"loss.item()": steps(reading), "loss.detach()": steps(leaving)},
        batch,
        seconds=bench.seconds,
    )
    fitted = _training(bench)
    run = bench.fit("item_every_step", sgd(fitted.model, fitted.loss, after=read), [batch])
    return Case(
        name="item_every_step",
        claim="Without `loss.item()` in every step training is faster.",
        change=(
            "- losses.append(loss.item())",
            "+ losses.append(loss.detach())  # read every fiftieth step",
        ),
        measured=rows,
        published=ITEM_EVERY_STEP,
        **before(run, "hidden_syncs"),
        **verdict(rows[1], "faster", why=WHY_NOT if bench.device == "cpu" else ""),
    )


def _training(bench: ClaimBench) -> Training:
    width = bench.pick(32, 512)
    model = same(lambda: nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 1)))
    return sgd(model.to(bench.device), lambda module, rows: module(rows[0]).square().mean())

"""Metrics in every training batch against every tenth."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.reports import before
from recipes.cases.verdicts import verdict
from recipes.claims.bench import Batch, ClaimBench, Training, same, sgd
from recipes.claims.published import METRICS


CLASSES, EVERY = 10, 10


def metrics_every_batch(bench: ClaimBench) -> Case:
    """Ten training steps with F1, AUROC and confusion matrix in each, and in one of them."""
    always, seldom = _training(bench, every=1), _training(bench, every=EVERY)

    def ten(training: Training) -> Callable[[Batch], Tensor]:
        def steps(batch: Batch) -> Tensor:
            return torch.stack([training.step(batch) for _ in range(EVERY)]).mean()

        return steps

    rows_of_batch = bench.pick(16, 256)
    batch = (
        bench.random(rows_of_batch, 64),
        torch.arange(rows_of_batch).to(bench.device) % CLASSES,
    )
    rows = paired(
        {"every batch": ten(always), "every tenth batch": ten(seldom)},
        batch,
        seconds=bench.seconds,
    )
    run = bench.fit("metrics_every_batch", _training(bench, every=1), [batch])
    return Case(
        name="metrics_every_batch",
        claim="Metrics in every training batch cost a notable part of training.",
        change=("- metrics(logits, labels)", "+ if step % 10 == 0: metrics(logits, labels)"),
        measured=rows,
        published=METRICS,
        **before(run, "metrics_every_batch", "callbacks"),
        **verdict(rows[1], "faster"),
    )


def _training(bench: ClaimBench, *, every: int) -> Training:
    metrics = MetricCollection(
        [
            MulticlassF1Score(CLASSES),
            MulticlassAUROC(CLASSES, thresholds=50),
            MulticlassConfusionMatrix(CLASSES),
        ]
    ).to(bench.device)
    steps = 0

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        nonlocal steps
        logits = module(batch[0])
        value = cross_entropy(logits, batch[1])
        if steps % every == 0:
            with torch.no_grad():
                metrics(logits, batch[1])
        steps += 1
        return value

    width = bench.pick(16, 512)
    model = same(lambda: nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, CLASSES)))
    return sgd(model.to(bench.device), loss)

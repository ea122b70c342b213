"""Channels last: the same convolutions with the channels as the innermost dimension."""

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.reports import before
from recipes.cases.verdicts import verdict
from recipes.claims.bench import Batch, ClaimBench, Training, same, sgd
from recipes.claims.published import CHANNELS_LAST


def channels_last(bench: ClaimBench) -> Case:
    """Training steps of a small convolutional network, channels first and last."""
    images = bench.random(bench.pick(2, 16), 3, bench.pick(16, 64), bench.pick(16, 64))
    first, last = _training(bench), _training(bench)
    last.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # not typed

    def channels_first_step(batch: Batch) -> Tensor:
        return first.step(batch)

    def channels_last_step(batch: Batch) -> Tensor:
        return last.step((batch[0].contiguous(memory_format=torch.channels_last),))

    versions = {"channels first": channels_first_step, "channels last": channels_last_step}
    rows = paired(versions, (images,), seconds=2 * bench.seconds)
    return Case(
        name="channels_last",
        claim="Convolutions are faster with the channels last.",
        change=(
            "+ model.to(memory_format=torch.channels_last)",
            "+ images = images.contiguous(memory_format=torch.channels_last)",
        ),
        measured=rows,
        published=CHANNELS_LAST,
        **before(bench.fit("channels_last", _training(bench), [(images,)]), "layout_copies"),
        **verdict(rows[1], "faster", why="on a CPU the library reorders into blocks of its own"),
    )


def _training(bench: ClaimBench) -> Training:
    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )

    return sgd(same(build).to(bench.device), lambda module, batch: module(batch[0]).square().mean())

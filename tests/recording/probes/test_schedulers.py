"""Schedulers that step as often as the optimizer, and some that step more often."""

from pathlib import Path

import pytest
import torch
from support.fits import Loader, Model, fit
from support.live import HostFit
from torch.optim.lr_scheduler import ChainedScheduler, LambdaLR, LRScheduler

from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.schedulers import SchedulersProbe


def counted(
    scheduler: LRScheduler, optimizer: torch.optim.Optimizer, *, each: bool
) -> dict[str, Scalar]:
    """Of four steps of three micro-batches; the scheduler steps with each of them, or with a step.

    What it had stepped before is another fit's.
    """
    optimizer.step()
    for _ in range(7):
        scheduler.step()
    fit = HostFit(SchedulersProbe([scheduler]))
    for number in range(1, 13):
        complete = number % 3 == 0
        if complete or each:
            scheduler.step()
        fit.micro_batch(complete=complete)
    return fit.finish().totals.config


def made() -> torch.optim.Optimizer:
    """Something to schedule."""
    return torch.optim.SGD([torch.zeros(2, requires_grad=True)], 0.1)


@pytest.mark.parametrize(("each", "steps"), [(True, 12), (False, 4)])
def test_what_a_scheduler_did_is_counted_from_where_it_stood(*, each: bool, steps: int) -> None:
    """Twelve micro-batches are four updates."""
    optimizer = made()
    found = counted(LambdaLR(optimizer, lambda _: 1.0), optimizer, each=each)

    assert found == {"scheduler_steps": steps, "updates": 4, "micro_batches": 12}


def test_a_scheduler_that_does_not_count_tells_nothing() -> None:
    """A chain has no counter of its own."""
    optimizer = made()
    chain = ChainedScheduler([LambdaLR(optimizer, lambda _: 1.0)])

    assert counted(chain, optimizer, each=True) == {}


class Scheduled(Model):
    """A learning rate that is set anew with every update, as Lightning does it."""

    def training_step(self, batch: object, batch_idx: int) -> torch.Tensor:
        """Log something for every batch, and something for the epoch."""
        loss: torch.Tensor = super().training_step(batch, batch_idx)
        self.log("shown", loss, prog_bar=True, on_step=True)
        self.log("quiet", loss, on_step=True)
        self.log("reduced", loss, on_step=True, sync_dist=True)
        self.log("epoch", loss, on_step=False, on_epoch=True, prog_bar=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> object:
        """With a scheduler by the step."""
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [{"scheduler": LambdaLR(optimizer, lambda _: 1.0), "interval": "step"}]


def test_lightning_steps_schedulers_with_updates_and_tells_what_was_logged(tmp_path: Path) -> None:
    """Six batches in groups of two; what is shown once an epoch costs no batch anything."""
    ran = fit(tmp_path, Scheduled(), Loader(6), accumulate_grad_batches=2)
    found = ran.totals.config

    assert (found["scheduler_steps"], found["updates"], found["micro_batches"]) == (3, 3, 6)
    assert found["prog_bar_metrics"] == "shown"
    assert not found["sync_dist_metrics"]  # one rank reduces nothing, asked or not

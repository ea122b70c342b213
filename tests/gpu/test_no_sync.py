"""No step waits for the device because of us: it raises an error at the first wait."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from support.fits import At, Loader, Model, fit
from support.gpu import DEVICE, allow_waits, known, refuse_waits, trainer_options


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*debug mode is a prototype.*"),
]

STEPS = 120
"""More than two groups: sealing, copying and writing happen in the loop too."""


class Reading(Model):
    """Reads its loss in every step, as loops should not."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, after it was waited for."""
        loss = self.loss(batch)
        loss.item()
        return loss


class Fused(Model):
    """Its optimizer takes the scale into its kernel, so that a GradScaler needs no read."""

    def configure_optimizers(self) -> Any:
        """Fused AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=0.01, fused=True)


def plain() -> tuple[Model, dict[str, Any]]:
    """SGD in single precision."""
    return Model(), {}


def scaled() -> tuple[Model, dict[str, Any]]:
    """Half precision under a GradScaler."""
    scaler = torch.amp.GradScaler(DEVICE)
    return Fused(), {"plugins": [MixedPrecision("16-mixed", DEVICE, scaler)]}


def accumulated() -> tuple[Model, dict[str, Any]]:
    """Two micro-batches a step."""
    return Model(), {"accumulate_grad_batches": 2}


def batch() -> dict[str, torch.Tensor]:
    """Pinned, with a mask: the tokens are summed on the device."""
    mask = torch.ones(8, 16, dtype=torch.int64)
    return {"x": torch.ones(8, 4).pin_memory(), "attention_mask": mask.pin_memory()}


@pytest.mark.first
@pytest.mark.parametrize("made", [plain, scaled, accumulated])
def test_a_measured_fit_never_waits_for_the_device(
    made: Callable[[], tuple[Model, dict[str, Any]]], tmp_path: Path
) -> None:
    """All training steps under `set_sync_debug_mode("error")`; nothing was switched off."""
    model, options = made()
    ran = fit(
        tmp_path,
        model,
        Loader(STEPS, batch=batch()),
        At("on_train_start", refuse_waits),
        At("on_train_end", allow_waits),
        **trainer_options(),
        **options,
    )
    passes = STEPS // len(ran.steps)
    assert passes == options.get("accumulate_grad_batches", 1)
    assert known(ran, "tokens_effective") == [8 * 16 * passes] * len(ran.steps)
    assert len(known(ran, "loss")) == len(known(ran, "h2d_device_ns")) == len(ran.steps)
    assert ran.info.device == DEVICE


def test_a_loop_that_reads_its_loss_is_refused(tmp_path: Path) -> None:
    """The instrument works: a read in the loop raises in this mode."""
    with pytest.raises(RuntimeError, match=r"synchronizing CUDA operation|a synchronisation"):
        fit(
            tmp_path,
            Reading(),
            Loader(STEPS, batch=batch()),
            At("on_train_start", refuse_waits),
            At("on_train_end", allow_waits),
            **trainer_options(),
        )

"""Every action that the installed Lightning announces is classified on purpose."""

import itertools
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.profilers import SimpleProfiler
from support.fits import Loader, Model, Validated, trainer

from trainperf.lightning import actions
from trainperf.lightning.actions import Action, Role, role_of


HOOKS = (
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "on_fit_end",
    "on_fit_start",
    "on_save_checkpoint",
    "on_train_batch_start",
    "on_train_epoch_end",
    "on_train_epoch_start",
    "on_train_start",
    "setup",
    "teardown",
)
"""Hooks of callbacks and of the module whose time is a user's."""

VALIDATION = (
    "on_validation_batch_end",
    "on_validation_batch_start",
    "on_validation_end",
    "on_validation_epoch_end",
    "on_validation_epoch_start",
    "on_validation_start",
)

CLASSIFIED: dict[tuple[str, str], Role] = {
    ("", "optimizer_step"): "optimizer",
    ("", "run_training_batch"): "batch",
    ("", "run_training_epoch"): "epoch",
    ("", "save_checkpoint"): "checkpoint",
    **{(kind, hook): "hook" for kind in ("Callback", "LightningModule") for hook in HOOKS},
    **{
        (kind, hook): "validation"
        for kind in ("Callback", "LightningModule")
        for hook in VALIDATION
    },
    ("Callback", "on_after_backward"): "backward_ends",
    ("Callback", "on_before_backward"): "hook",
    ("Callback", "on_exception"): "hook",
    ("Callback", "on_sanity_check_end"): "sanity_ends",
    ("Callback", "on_sanity_check_start"): "sanity_begins",
    ("Callback", "on_train_batch_end"): "hook",
    ("Callback", "on_train_end"): "shutdown",
    ("LightningDataModule", "on_after_batch_transfer"): "hook",
    ("LightningDataModule", "on_before_batch_transfer"): "hook",
    ("LightningDataModule", "on_exception"): "hook",
    ("LightningDataModule", "setup"): "hook",
    ("LightningDataModule", "state_dict"): "hook",
    ("LightningDataModule", "teardown"): "hook",
    ("LightningDataModule", "train_dataloader"): "hook",
    ("LightningDataModule", "transfer_batch_to_device"): "copy",
    ("LightningDataModule", "val_dataloader"): "validation_begins",
    ("LightningModule", "configure_callbacks"): "hook",
    ("LightningModule", "configure_gradient_clipping"): "nothing",
    ("LightningModule", "configure_optimizers"): "hook",
    ("LightningModule", "lr_scheduler_step"): "optimizer",
    ("LightningModule", "on_after_backward"): "backward_ends",
    ("LightningModule", "on_after_batch_transfer"): "hook",
    ("LightningModule", "on_before_backward"): "backward_begins",
    ("LightningModule", "on_before_batch_transfer"): "hook",
    ("LightningModule", "on_train_batch_end"): "last_hook",
    ("LightningModule", "on_train_end"): "shutdown",
    ("LightningModule", "on_validation_model_eval"): "validation",
    ("LightningModule", "on_validation_model_zero_grad"): "validation_begins",
    ("LightningModule", "optimizer_step"): "optimizer",
    ("LightningModule", "optimizer_zero_grad"): "zero_grad",
    ("LightningModule", "transfer_batch_to_device"): "copy",
    ("Strategy", "backward"): "nothing",
    ("Strategy", "batch_to_device"): "h2d",
    ("Strategy", "on_train_batch_start"): "nothing",
    ("Strategy", "on_train_end"): "shutdown",
    ("Strategy", "on_train_start"): "nothing",
    ("Strategy", "on_validation_end"): "validation",
    ("Strategy", "on_validation_start"): "validation",
    ("Strategy", "training_step"): "forward",
    ("Strategy", "validation_step"): "validation",
    ("_EvaluationLoop", "val_next"): "validation",
    ("_TrainingEpochLoop", "train_dataloader_next"): "fetch",
}
"""What each means.  A name that is missing here is new in Lightning: look at it, then add it."""


class Data(pl.LightningDataModule):
    """With transfer hooks of its own, if asked for."""

    def train_dataloader(self) -> Loader:
        """Four batches."""
        return Loader(4)

    def val_dataloader(self) -> Loader:
        """One batch."""
        return Loader(1)


class MovingData(Data):
    """Moves batches by itself."""

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Nothing."""
        return batch

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Nothing."""
        return batch

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Nothing."""
        return batch


class Scheduled(Validated):
    """Automatic optimization with a scheduler."""

    def configure_optimizers(self) -> Any:
        """SGD whose rate is stepped every step."""
        sgd = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1)
        return {"optimizer": sgd, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Manual(Model):
    """Manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One update."""
        optimizer = self.optimizers()
        self.manual_backward(self.loss(batch))
        optimizer.step()


class Failing(Model):
    """Raises."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Raise."""
        raise LookupError("planted")


def announced(
    tmp_path: Path, model: pl.LightningModule, data: pl.LightningDataModule, **options: Any
) -> set[str]:
    """Names of all actions of a fit."""
    diary = SimpleProfiler()
    callbacks = options.pop("callbacks", [Callback()])
    training = trainer(tmp_path, *callbacks, profiler=diary, **options)
    if isinstance(model, Failing):
        with pytest.raises(LookupError):
            training.fit(model, datamodule=data)
    else:
        training.fit(model, datamodule=data)
    return {*diary.recorded_durations}


@pytest.mark.filterwarnings("ignore:.*val_dataloader.*")
@pytest.mark.filterwarnings("ignore:.*validation_step.*")
def test_every_action_of_rich_fits_is_classified(tmp_path: Path) -> None:
    """No name that these fits announce is unknown, and none in the table above is stale."""
    rich = {
        "callbacks": [Callback(), ModelCheckpoint(tmp_path / "kept")],
        "enable_checkpointing": True,
        "num_sanity_val_steps": 1,
        "max_epochs": 2,
        "val_check_interval": 2,
        "gradient_clip_val": 1.0,
    }
    names = announced(tmp_path, Scheduled(), Data(), **rich)
    names |= announced(tmp_path, Manual(), MovingData())
    names |= announced(tmp_path, Failing(), Data())
    parsed = {Action.parse(name) for name in names}
    assert {(a.kind, a.hook): role_of(a, overridden=True) for a in parsed} == CLASSIFIED


def test_no_entry_of_our_table_is_for_nothing() -> None:
    """Every line of it is the reason of some role above."""
    assert set(actions.ROLES) <= {*CLASSIFIED, *(("*", hook) for _, hook in CLASSIFIED)}


def test_a_hook_that_nobody_overrides_is_not_bracketed() -> None:
    """It costs a bracket, and has nothing in it."""
    for kind, hook in itertools.product(("Callback", "LightningModule"), ("on_train_batch_start",)):
        action = Action(kind, "Any", hook)
        assert role_of(action, overridden=False) == "nothing"
        assert role_of(action, overridden=True) == "hook"


@pytest.mark.parametrize("name", ["mine", "my own.action", "[mine]", "[mine]x", "[", "", "a]b"])
def test_a_name_of_the_users_own_means_nothing(name: str) -> None:
    """Whatever it looks like."""
    assert role_of(Action.parse(name), overridden=True) == "nothing"


def test_the_owner_of_a_callbacks_action_may_have_any_state_key() -> None:
    """`ModelCheckpoint`'s is a dictionary with dots and brackets; a report shows the class."""
    name = "[Callback]ModelCheckpoint{'monitor': 'a.b]', 'dirpath': None}.on_train_batch_end"
    action = Action.parse(name)
    assert action.kind == "Callback"
    assert action.hook == "on_train_batch_end"
    assert action.label == "ModelCheckpoint.on_train_batch_end"
    assert Action.parse("save_checkpoint").label == "save_checkpoint"

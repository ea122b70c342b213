"""What is a fit made of?  Reads a Trainer once, at its start."""

import lightning.pytorch as pl
import torch

from trainperf import identity
from trainperf.probes.choose import Objects
from trainperf.probes.tokens import MaskFunction
from trainperf.records import RunInfo, Scalar


def objects(trainer: "pl.Trainer", mask: MaskFunction | None) -> Objects:
    """What probes look at."""
    return Objects(
        device=trainer.strategy.root_device,
        module=trainer.model,
        optimizers=trainer.optimizers,
        scaler=getattr(trainer.precision_plugin, "scaler", None),
        world_size=trainer.world_size,
        precision=f"precision {trainer.precision}",
        # Lightning hands callbacks the loss already divided by the accumulation.
        loss_scale=float(trainer.accumulate_grad_batches),
        mask=mask,
    )


def run_info(trainer: "pl.Trainer", module: "pl.LightningModule", started_at: str) -> RunInfo:
    """Identity of the run, as comparisons will need it."""
    device = trainer.strategy.root_device
    return RunInfo(
        started_at=started_at,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        device=device.type,
        software={**identity.software(), "lightning": str(pl.__version__)},
        hardware=identity.hardware(device),
        config={
            **identity.model(module),
            **_configuration(trainer, module),
            **identity.loader(trainer.train_dataloader),
        },
    )


def _configuration(trainer: "pl.Trainer", module: "pl.LightningModule") -> dict[str, Scalar]:
    return {
        "loop": "lightning",
        "precision": str(trainer.precision),
        "strategy": type(trainer.strategy).__name__,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "automatic_optimization": module.automatic_optimization,
        "optimizers": ", ".join(type(o).__name__ for o in trainer.optimizers),
        "seed": torch.initial_seed(),
        "max_steps": trainer.max_steps,
        "max_epochs": trainer.max_epochs,
        "log_every_n_steps": trainer.log_every_n_steps,
    }

"""Activations kept in place of computed twice, where a model of Hugging Face recomputes them."""

from functools import partial

from torch import nn

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


FLAG = "gradient_checkpointing"
"""By which each part of such a model knows; the methods that set it replace more than that."""


def no_checkpointing(training: Training) -> list[Trial]:
    """It takes more memory, so it comes late: one that runs out of it ends the process."""
    modules = list(training.module.modules())
    parts = [part for part in modules if getattr(part, FLAG, False) is True]
    newer = "activation_checkpointing_disable"  # its name in this version of transformers, or
    method = newer if any(hasattr(p, newer) for p in modules) else "gradient_checkpointing_disable"
    return [
        Trial(
            "no_checkpointing",
            on=partial(_choose, parts, checkpointing=False),
            off=partial(_choose, parts, checkpointing=True),
            title="no activation checkpointing",
            apply=f"model.{method}()",
            run_last=True,
            unavailable="" if parts else "no activation is computed twice",
        )
    ]


def _choose(parts: list[nn.Module], *, checkpointing: bool) -> None:
    for part in parts:
        setattr(part, FLAG, checkpointing)

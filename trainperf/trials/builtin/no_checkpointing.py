"""Activations kept in place of computed twice, where a model of Hugging Face recomputes them."""

from torch import nn

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE = "no_checkpointing", "no activation checkpointing"
FLAG = "gradient_checkpointing"
"""By which each part of such a model knows; the methods that set it replace more than that."""


def no_checkpointing(training: Training) -> list[Trial]:
    """It takes more memory, so it comes late: one that runs out of it ends the process."""
    parts = [part for part in training.module.modules() if getattr(part, FLAG, False) is True]
    if not parts:
        return [cannot(ID, "no activation is computed twice", title=TITLE)]
    return [
        Trial(
            ID,
            on=lambda: _choose(parts, checkpointing=False),
            off=lambda: _choose(parts, checkpointing=True),
            title=TITLE,
            apply="model.gradient_checkpointing_disable()",
            late=True,
        )
    ]


def _choose(parts: list[nn.Module], *, checkpointing: bool) -> None:
    for part in parts:
        setattr(part, FLAG, checkpointing)

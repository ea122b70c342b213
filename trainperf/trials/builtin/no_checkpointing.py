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
            apply=f"model.{_method(training.module)}()",
            run_last=True,
        )
    ]


def _method(module: nn.Module) -> str:
    """Its name in this version of transformers."""
    newer = "activation_checkpointing_disable"
    has = any(hasattr(part, newer) for part in module.modules())
    return newer if has else "gradient_checkpointing_disable"


def _choose(parts: list[nn.Module], *, checkpointing: bool) -> None:
    for part in parts:
        setattr(part, FLAG, checkpointing)

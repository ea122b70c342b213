"""Fused attention, in models of Hugging Face that write out their scores."""

from functools import partial
from typing import Any

from torch import nn

from trainperf.core.errors import ConfigError
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def attention(training: Training) -> list[Trial]:
    """`set_attn_implementation("sdpa")`, where it is `eager` now.

    Attention that is written in the user's own code is a change of that code: no switch makes it.
    """
    models = _models(training.module)
    now = {model.config._attn_implementation for model in models}  # noqa: SLF001 its only name
    return [
        Trial(
            "attention_sdpa",
            on=partial(_choose, models, "sdpa"),
            off=partial(_choose, models, "eager"),
            title="fused attention (SDPA)",
            apply='model.set_attn_implementation("sdpa")',
            group="attention",
            unavailable={
                "no part of the model has set_attn_implementation()": not models,
                f"it is {' and '.join(sorted(map(str, now)))} already": now != {"eager"},
            },
        )
    ]


def _models(module: nn.Module) -> list[Any]:
    """The outermost parts whose attention can be chosen."""
    if hasattr(module, "set_attn_implementation"):
        return [module]
    return [model for child in module.children() for model in _models(child)]


def _choose(models: list[Any], implementation: str) -> None:
    for model in models:
        model.set_attn_implementation(implementation)
        chosen = model.config._attn_implementation  # noqa: SLF001 its only name
        if chosen != implementation:  # it warns and goes on
            raise ConfigError(f"{type(model).__name__} stays with {chosen} attention")

"""Fused attention, in models of Hugging Face that write out their scores."""

from typing import Any

from torch import nn

from trainperf.core.errors import ConfigError
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "attention_sdpa", "fused attention (SDPA)", ("attention",)


def attention(training: Training) -> list[Trial]:
    """`set_attn_implementation("sdpa")`, where it is `eager` now.

    Attention that is written in the user's own code is a change of that code: no switch makes it.
    """
    models = _models(training.module)
    now = {model.config._attn_implementation for model in models}  # noqa: SLF001 its only name
    if not models:
        why = "no part of the model has set_attn_implementation()"
        return [cannot(ID, why, title=TITLE, rules=RULES)]
    if now != {"eager"}:
        why = f"it is {' and '.join(sorted(map(str, now)))} already"
        return [cannot(ID, why, title=TITLE, rules=RULES)]
    return [
        Trial(
            ID,
            on=lambda: _choose(models, "sdpa"),
            off=lambda: _choose(models, "eager"),
            title=TITLE,
            apply='model.set_attn_implementation("sdpa")',
            rules=RULES,
            group="attention",
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

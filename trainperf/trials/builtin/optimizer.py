"""Optimizers that update all parameters at once, where they go one by one."""

from collections.abc import Callable

import torch
from torch.optim import Optimizer

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


RULES = ("optimizer_not_fused",)


def optimizer(training: Training) -> list[Trial]:
    """Its fused kernel, and its loop-free one."""
    return [
        _switched(training, "optimizer_fused", {"fused": True, "foreach": False}),
        _switched(training, "optimizer_foreach", {"fused": False, "foreach": True}),
    ]


def _switched(training: Training, name: str, flags: dict[str, bool]) -> Trial:
    chosen = next(flag for flag, value in flags.items() if value)
    able = [each for each in training.optimizers if chosen in each.defaults]
    kinds = " and ".join(dict.fromkeys(type(each).__name__ for each in training.optimizers))
    if not able:
        return cannot(name, f"{kinds or 'the optimizer'} has no {chosen}=", rules=RULES)
    if all(group.get(chosen) for each in able for group in each.param_groups):
        return cannot(name, f"{kinds} has {chosen}=True already", rules=RULES)
    on, off = _flags(able, flags)
    return Trial(
        name,
        on,
        off,
        title=f"{kinds} with {chosen}=True",
        apply=f"{kinds}(…, {chosen}=True)",
        rules=RULES,
        group="optimizer",
    )


def _flags(
    optimizers: list[Optimizer], flags: dict[str, bool]
) -> tuple[Callable[[], None], Callable[[], None]]:
    groups = [(each, group) for each in optimizers for group in each.param_groups]
    before = [{name: group.get(name) for name in flags} for _, group in groups]

    def on() -> None:
        for each, group in groups:
            group.update(flags)
            if flags["fused"]:
                _steps_to_device(each)

    def off() -> None:
        for (_, group), kept in zip(groups, before, strict=True):
            group.update(kept)

    return on, off


def _steps_to_device(optimizer: Optimizer) -> None:
    """A fused kernel counts its steps where the parameter is; the others accept that too."""
    for parameter, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, torch.Tensor) and step.device != parameter.device:
            state["step"] = step.to(parameter.device)

"""Optimizers that update all parameters at once, where they go one by one."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _default_to_fused_or_foreach

from trainperf.trials.training import Training
from trainperf.trials.trial import SAME_ARITHMETIC, Trial


DEVICES = {"fused": {"cpu", "cuda", "mps", "xpu"}, "foreach": {"cpu", "cuda", "xpu"}}
"""Where torch.optim has such an update."""


def optimizer(training: Training) -> list[Trial]:
    """Its fused kernel, and its loop-free one."""
    return [_switched(training, chosen) for chosen in DEVICES]


def _switched(training: Training, chosen: str) -> Trial:
    able = [each for each in training.optimizers if chosen in each.defaults]
    kinds = " and ".join(dict.fromkeys(type(each).__name__ for each in able))
    groups = [group for each in able for group in each.param_groups]
    before = [{flag: group[flag] for flag in DEVICES if flag in group} for group in groups]
    after = [{flag: flag == chosen for flag in flags} for flags in before]
    return Trial(
        f"optimizer_{chosen}",
        on=partial(_set_options, able, after),
        off=partial(_set_options, able, before),
        title=f"{kinds or 'optimizer'} with {chosen}=True",
        apply=f"{kinds}(…, {chosen}=True)",
        group="optimizer",
        tolerance=SAME_ARITHMETIC,
        bounded_by="no_update",
        unavailable=_why_not(training, able, groups, chosen),
    )


def _why_not(
    training: Training, able: list[Optimizer], groups: list[dict[str, Any]], chosen: str
) -> dict[str, object]:
    """The rules of torch.optim, which would raise in the user's step."""
    every = " and ".join(dict.fromkeys(type(each).__name__ for each in training.optimizers))
    parameters = [parameter for group in groups for parameter in group["params"]]
    devices = {parameter.device.type for parameter in parameters}
    fused = chosen == "fused"
    adagrad = fused and "cuda" in devices and any(isinstance(e, torch.optim.Adagrad) for e in able)
    real = all(parameter.is_floating_point() for parameter in parameters)
    sparse = any(getattr(part, "sparse", False) for part in training.module.modules())
    rates = [group.get("lr") for group in groups if not group.get("capturable")]
    unable = f"parameters on {' and '.join(sorted(devices))} have no {chosen} update"
    return {
        f"{every or 'the optimizer'} has no {chosen}=": not able,
        f"{every} updates them together already": all(map(_together, groups)) and not fused,
        f"{every} has fused=True already": all(group.get("fused") for group in groups),
        f"differentiable=True excludes {chosen}=True": any(
            group.get("differentiable") for group in groups
        ),
        unable: bool(devices - DEVICES[chosen]) or adagrad,
        "a fused update needs floating point parameters": fused and not real,
        "a fused update takes no sparse gradients": fused and sparse,
        "a tensor as learning rate needs capturable=True": not fused
        and any(isinstance(rate, Tensor) for rate in rates),
    }


def _together(group: dict[str, Any]) -> bool:
    """Whether it updates many parameters at a time: by what it was told, or torch's own default."""
    if group.get("foreach") is not None or group.get("fused"):
        return bool(group.get("fused") or group.get("foreach"))
    _, foreach = _default_to_fused_or_foreach(group["params"], differentiable=False)
    return foreach


def _set_options(optimizers: list[Optimizer], options: list[dict[str, bool]]) -> None:
    """Those of each group, and its counts of updates where they want them.

    A fused kernel wants them where the parameter is, as float32, and so does one that is captured;
    any other wants them on the CPU, or reading one would wait for the device.
    """
    groups = [(each.state, group) for each in optimizers for group in each.param_groups]
    for (state, group), chosen in zip(groups, options, strict=True):
        group.update(chosen)
        there = group.get("fused") or group.get("capturable")
        for parameter in group["params"]:
            count = state[parameter].get("step") if parameter in state else None
            if isinstance(count, Tensor):
                to = parameter.device if there else "cpu"
                state[parameter]["step"] = count.to(to, torch.float32)

"""Optimizers that update all parameters at once, where they go one by one."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


RULES = ("optimizer_not_fused",)
TOLERANCE = 0.005
"""Of the loss: the same arithmetic, rounded otherwise."""
FUSED_DEVICES, FOREACH_DEVICES = ("cpu", "cuda", "mps", "xpu"), ("cpu", "cuda", "xpu")


def optimizer(training: Training) -> list[Trial]:
    """Its fused kernel, and its loop-free one."""
    return [
        _switched(training, "optimizer_fused", {"fused": True, "foreach": False}),
        _switched(training, "optimizer_foreach", {"fused": False, "foreach": True}),
    ]


def _switched(training: Training, name: str, flags: dict[str, bool]) -> Trial:
    chosen = next(flag for flag, value in flags.items() if value)
    able = [each for each in training.optimizers if chosen in each.defaults]
    kinds = " and ".join(dict.fromkeys(type(each).__name__ for each in able))
    title = f"{kinds or 'optimizer'} with {chosen}=True"
    why = _why_not(training, able, chosen)
    if why:
        return cannot(name, why, title=title, rules=RULES)
    on, off = _flags(able, flags)
    return Trial(
        name,
        on,
        off,
        title=title,
        apply=f"{kinds}(…, {chosen}=True)",
        rules=RULES,
        group="optimizer",
        tolerance=TOLERANCE,
        bounded_by="no_update",
    )


def _why_not(training: Training, able: list[Optimizer], chosen: str) -> str:
    """The rules of torch.optim, which would raise in the user's step."""
    every = " and ".join(dict.fromkeys(type(each).__name__ for each in training.optimizers))
    groups = [group for each in able for group in each.param_groups]
    parameters = [parameter for group in groups for parameter in group["params"]]
    devices = {parameter.device.type for parameter in parameters}
    fused = chosen == "fused"
    able_devices = FUSED_DEVICES if fused else FOREACH_DEVICES
    sparse = any(getattr(part, "sparse", False) for part in training.module.modules())
    reasons = {
        f"{every or 'the optimizer'} has no {chosen}=": not able,
        f"{every} updates them together already": all(map(_together, groups)) and not fused,
        f"{every} has fused=True already": all(group.get("fused") for group in groups),
        f"differentiable=True excludes {chosen}=True": any(
            group.get("differentiable") for group in groups
        ),
        f"parameters on {' and '.join(sorted(devices))} have no {chosen} update": bool(
            devices - set(able_devices)
        )
        or (fused and "cuda" in devices and any(isinstance(e, torch.optim.Adagrad) for e in able)),
        "a fused update needs floating point parameters": fused
        and not all(parameter.is_floating_point() for parameter in parameters),
        "a fused update takes no sparse gradients": fused and sparse,
        "a tensor as learning rate needs capturable=True": not fused
        and any(
            isinstance(group.get("lr"), Tensor) and not group.get("capturable") for group in groups
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _together(group: dict[str, object]) -> bool:
    """Whether it updates many parameters at a time: by what it was told, or torch's own default."""
    if group.get("fused") or group.get("foreach"):
        return True
    parameters = group["params"]
    return (
        group.get("foreach") is None
        and isinstance(parameters, list)
        and all(
            type(each) in (Tensor, nn.Parameter) and each.device.type in ("cuda", "xpu")
            for each in parameters
        )
    )


def _flags(
    optimizers: list[Optimizer], flags: dict[str, bool]
) -> tuple[Callable[[], None], Callable[[], None]]:
    groups = [(each, group) for each in optimizers for group in each.param_groups]
    before = [{name: group[name] for name in flags if name in group} for _, group in groups]
    steps = _Steps(optimizers)

    def on() -> None:
        for _, group in groups:
            group.update({name: value for name, value in flags.items() if name in group})
        if flags["fused"]:
            steps.to_device()

    def off() -> None:
        for (_, group), kept in zip(groups, before, strict=True):
            group.update(kept)
        steps.put_back()

    return on, off


class _Steps:
    """Counts of updates, one tensor per parameter.

    A fused kernel wants them where the parameter is, as float32; any other wants them on the CPU,
    or reading one would wait for the device.
    """

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self._optimizers = optimizers
        self._before: dict[int, Tensor] = {}

    def to_device(self) -> None:
        for parameter, state, step in self._each():
            if step.device != parameter.device or step.dtype != torch.float32:
                self._before[id(parameter)] = step
                state["step"] = step.to(parameter.device, torch.float32)

    def put_back(self) -> None:
        """In the tensors of before; those that were made meanwhile go where the others are."""
        for parameter, state, step in self._each():
            before = self._before.get(id(parameter))
            if before is not None:
                state["step"] = before.copy_(step)
            elif self._before:
                state["step"] = step.to(next(iter(self._before.values())).device)
        self._before.clear()

    def _each(self) -> Iterator[tuple[Tensor, dict[str, Tensor], Tensor]]:
        for each in self._optimizers:
            for parameter, state in each.state.items():
                if isinstance(state.get("step"), Tensor):
                    yield parameter, state, state["step"]

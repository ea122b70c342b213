"""A small training for the built-in trials, and all of it that a trial must leave as it was."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from trainperf.trials.batch_source import BatchSource
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


class Net(nn.Module):
    """A convolution and a layer, which note what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(3, 4, 3)
        self.score = nn.Linear(4, 2)
        self.outputs: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        """Scores of two classes."""
        features = self.convolve(images)
        self.outputs = [features, self.score(features.mean((2, 3)))]
        return self.outputs[-1]


def training(
    module: nn.Module | None = None,
    batches: Iterable[Any] | None = None,
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    **options: Any,
) -> Training:
    """Of a module that has taken a step where it is a `Net`; its batches have come."""
    torch.manual_seed(0)
    module = Net() if module is None else module
    stepper = optimizer(module.parameters(), **{"lr": 0.01, **options})  # type: ignore[call-arg]
    source = None
    if batches is not None:
        source = BatchSource(batches)
        source.held.extend(batches)
    result = Training(module, [stepper], torch.device("cpu"), source)
    if isinstance(module, Net):
        step(result)
    return result


def step(training: Training) -> None:
    """One step on random images."""
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=False)
    training.module(torch.randn(2, 3, 8, 8)).square().mean().backward()
    for optimizer in training.optimizers:
        optimizer.step()


def only(trials: list[Trial], name: str = "") -> Trial:
    """The trial of that name, or the only one there is."""
    chosen = [trial for trial in trials if not name or trial.id == name]
    assert len(chosen) == 1, [trial.id for trial in trials]
    return chosen[0]


def everything(training: Training) -> list[object]:
    """What a switch on and off leaves as it was: values, layouts, options, hooks, settings."""
    module = training.module
    tensors = [*module.parameters(), *module.buffers()]
    tensors += [each.grad for each in module.parameters() if each.grad is not None]
    facts: list[object] = []
    for optimizer in training.optimizers:
        facts += [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        for state in optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
        facts.append(len(optimizer._optimizer_step_pre_hooks))
    facts += [(id(each), each.stride(), each.dtype, each.flatten().tolist()) for each in tensors]
    facts += [
        (len(part._forward_pre_hooks), len(part._forward_hooks), part._compiled_call_impl)
        for part in module.modules()
    ]
    settings = (torch.get_float32_matmul_precision(), torch.get_num_threads())
    return [*facts, settings, torch.backends.cudnn.benchmark]


def switched(trial: Trial, look: Callable[[], Any]) -> list[Any]:
    """What is seen before a change is made, with it, and after it."""
    seen_before = look()
    trial.on()
    seen_during = look()
    trial.off()
    return [seen_before, seen_during, look()]

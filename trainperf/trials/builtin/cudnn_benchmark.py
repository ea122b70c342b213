"""cuDNN's own choice of the fastest convolution."""

import torch
from torch import nn

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE = "cudnn_benchmark", "cuDNN chooses its fastest convolution"
TOLERANCE = 0.005
"""Of the loss: the same arithmetic in another order."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


def cudnn_benchmark(training: Training) -> list[Trial]:
    """`torch.backends.cudnn.benchmark`; its choice is made in the steps that settle."""
    before = torch.backends.cudnn.benchmark
    accelerator = accelerator_of(training.device)
    if not accelerator.has_cudnn:
        return [cannot(ID, f"no cuDNN on {accelerator.name()}", title=TITLE)]
    if not any(isinstance(part, CONVOLUTIONS) for part in training.module.modules()):
        return [cannot(ID, "it has no convolution", title=TITLE)]
    if before:
        return [cannot(ID, "torch.backends.cudnn.benchmark is True already", title=TITLE)]
    if torch.backends.cudnn.deterministic:
        return [cannot(ID, "torch.backends.cudnn.deterministic leaves no choice", title=TITLE)]

    def choose(*, benchmark: bool) -> None:
        torch.backends.cudnn.benchmark = benchmark

    return [
        Trial(
            ID,
            on=lambda: choose(benchmark=True),
            off=lambda: choose(benchmark=before),
            title=TITLE,
            apply="torch.backends.cudnn.benchmark = True",
            where="before the training",
            tolerance=TOLERANCE,
        )
    ]

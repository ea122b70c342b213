"""cuDNN's own choice of the fastest convolution."""

from functools import partial

from torch import nn
from torch.backends import cudnn

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import SAME_ARITHMETIC, Trial


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


def cudnn_benchmark(training: Training) -> list[Trial]:
    """`torch.backends.cudnn.benchmark`; its choice is made in the steps that settle."""
    accelerator, parts = accelerator_of(training.device), training.module.modules()
    return [
        Trial(
            "cudnn_benchmark",
            on=partial(setattr, cudnn, "benchmark", True),
            off=partial(setattr, cudnn, "benchmark", cudnn.benchmark),
            title="cuDNN chooses its fastest convolution",
            apply="torch.backends.cudnn.benchmark = True",
            where="before the training",
            tolerance=SAME_ARITHMETIC,
            unavailable={
                f"no cuDNN on {accelerator.name()}": not accelerator.features().cudnn,
                "it has no convolution": not any(isinstance(part, CONVOLUTIONS) for part in parts),
                "torch.backends.cudnn.benchmark is True already": cudnn.benchmark,
                "torch.backends.cudnn.deterministic leaves no choice": cudnn.deterministic,
            },
        )
    ]

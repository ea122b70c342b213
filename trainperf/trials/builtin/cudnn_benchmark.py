"""cuDNN's search for the fastest convolution."""

from functools import partial

from torch import nn
from torch.backends import cudnn

from trainperf.accelerators import accelerator_of
from trainperf.trials.training import Training
from trainperf.trials.trial import SAME_ARITHMETIC, Trial


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


def cudnn_benchmark(training: Training) -> list[Trial]:
    """`torch.backends.cudnn.benchmark` on, or off where it is on; it searches as steps settle."""
    accelerator, parts = accelerator_of(training.device), training.module.modules()
    searches = not cudnn.benchmark
    return [
        Trial(
            "cudnn_benchmark",
            on=partial(setattr, cudnn, "benchmark", searches),
            off=partial(setattr, cudnn, "benchmark", not searches),
            title=f"cuDNN looks for {'its fastest' if searches else 'no'} convolution",
            apply=f"torch.backends.cudnn.benchmark = {searches}",
            where="before the training",
            tolerance=SAME_ARITHMETIC,
            unavailable={
                f"no cuDNN on {accelerator.name()}": not accelerator.features().cudnn,
                "it has no convolution": not any(isinstance(part, CONVOLUTIONS) for part in parts),
                "torch.backends.cudnn.deterministic leaves no choice": cudnn.deterministic,
            },
        )
    ]

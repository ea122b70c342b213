"""Images with their channels last in memory, which convolutions compute faster in."""

from functools import partial

import torch
from torch import Tensor, nn

from trainperf.trials.training import Training
from trainperf.trials.trial import SAME_ARITHMETIC, Trial


def channels_last(training: Training) -> list[Trial]:
    """Weights of 2-D convolutions, with their gradients and optimizer state.

    A convolution with such weights gives such outputs, so the batches can stay as they are.
    """
    convolutions = [part for part in training.module.modules() if isinstance(part, nn.Conv2d)]
    last, first = torch.channels_last, torch.contiguous_format
    weights = [p.weight for p in convolutions if not p.weight.is_contiguous(memory_format=last)]
    by_buckets = "DistributedDataParallel has laid out its buckets for the weights as they are"
    return [
        Trial(
            "channels_last",
            on=partial(_lay_out, training, weights, last),
            off=partial(_lay_out, training, weights, first),
            title="channels last",
            apply="model.to(memory_format=torch.channels_last)",
            where="before the optimizer is made; the batches too",
            tolerance=SAME_ARITHMETIC,
            unavailable={
                "it has no 2-D convolution": not convolutions,
                "its convolutions have it already": not weights,
                by_buckets: training.distributed,
            },
        )
    ]


def _lay_out(training: Training, weights: list[Tensor], layout: torch.memory_format) -> None:
    """Each weight, its gradient and its state; they stay the same objects."""
    for weight in weights:
        states = [each.state.get(weight, {}) for each in training.optimizers]
        values = [value for state in states for value in state.values()]
        for tensor in (weight, weight.grad, *values):
            if isinstance(tensor, Tensor) and tensor.shape == weight.shape:
                tensor.data = tensor.data.contiguous(memory_format=layout)

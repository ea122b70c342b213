"""Images with their channels last in memory, which convolutions compute faster in."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from trainperf.trials.training import Training
from trainperf.trials.trial import SAME_ARITHMETIC, Trial, first_reason


def channels_last(training: Training) -> list[Trial]:
    """Weights of 2-D convolutions, with their gradients and optimizer state.

    A convolution with such weights gives such outputs, so the batches can stay as they are.
    """
    weights = [part.weight for part in training.module.modules() if isinstance(part, nn.Conv2d)]
    laid_out = all(each.is_contiguous(memory_format=torch.channels_last) for each in weights)
    by_buckets = "DistributedDataParallel has laid out its buckets for the weights as they are"
    why = {
        "it has no 2-D convolution": not weights,
        "its convolutions have it already": laid_out,
        by_buckets: training.distributed,
    }
    strides: dict[int, tuple[int, ...]] = {}

    def on() -> None:
        for _, tensor in _tensors(training, weights):
            strides[id(tensor)] = tensor.stride()
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)

    def off() -> None:
        """The values as they are now, laid out as before; what is new as its weight was."""
        for weight, tensor in _tensors(training, weights):
            stride = strides.get(id(tensor)) or strides.get(id(weight))
            if stride is not None:
                tensor.data = tensor.new_empty_strided(tensor.shape, stride).copy_(tensor.data)
        strides.clear()

    return [
        Trial(
            "channels_last",
            on,
            off,
            title="channels last",
            apply="model.to(memory_format=torch.channels_last)",
            where="before the optimizer is made; the batches too",
            tolerance=SAME_ARITHMETIC,
            unavailable=first_reason(why),
        )
    ]


def _tensors(training: Training, weights: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Each weight with itself, its gradient and its state; they stay the same objects."""
    for weight in weights:
        states = [each.state.get(weight, {}) for each in training.optimizers]
        values = [value for state in states for value in state.values()]
        for tensor in (weight, weight.grad, *values):
            if isinstance(tensor, Tensor) and tensor.shape == weight.shape:
                yield weight, tensor

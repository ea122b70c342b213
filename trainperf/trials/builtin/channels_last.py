"""Images with their channels last in memory, which convolutions compute faster in."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "channels_last", "channels last", ("layout_copies", "channels_last")
TOLERANCE = 0.005
"""Of the loss: the same arithmetic in another order."""


def channels_last(training: Training) -> list[Trial]:
    """Weights of 2-D convolutions, with their gradients and optimizer state.

    A convolution with such weights gives such outputs, so the batches can stay as they are.
    """
    weights = [part.weight for part in training.module.modules() if isinstance(part, nn.Conv2d)]
    if not weights:
        return [cannot(ID, "it has no 2-D convolution", title=TITLE, rules=RULES)]
    if all(each.is_contiguous(memory_format=torch.channels_last) for each in weights):
        return [cannot(ID, "its convolutions have it already", title=TITLE, rules=RULES)]
    if training.distributed:
        why = "DistributedDataParallel has laid out its buckets for the weights as they are"
        return [cannot(ID, why, title=TITLE, rules=RULES)]
    layouts = _Layouts(training, weights)
    return [
        Trial(
            ID,
            on=layouts.channels_last,
            off=layouts.put_back,
            title=TITLE,
            apply="model.to(memory_format=torch.channels_last)",
            where="before the optimizer is made; the batches too",
            rules=RULES,
            tolerance=TOLERANCE,
        )
    ]


class _Layouts:
    """Strides of what belongs to the weights; the tensors stay the same objects."""

    def __init__(self, training: Training, weights: list[Tensor]) -> None:
        self._training = training
        self._weights = weights
        self._changed: list[tuple[Tensor, tuple[int, ...]]] = []

    def channels_last(self) -> None:
        for _, tensor in self._tensors():
            self._changed.append((tensor, tensor.stride()))
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)

    def put_back(self) -> None:
        """The values as they are now, laid out as before; what is new as its weight was."""
        strides = {id(tensor): stride for tensor, stride in self._changed}
        for weight, tensor in self._tensors():
            stride = strides.get(id(tensor)) or strides.get(id(weight))
            if stride is not None:
                _lay_out(tensor, stride)
        self._changed.clear()

    def _tensors(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight with itself, its gradient and its state."""
        for weight in self._weights:
            yield weight, weight
            if weight.grad is not None:
                yield weight, weight.grad
            for optimizer in self._training.optimizers:
                for value in optimizer.state.get(weight, {}).values():
                    if isinstance(value, Tensor) and value.shape == weight.shape:
                        yield weight, value


def _lay_out(tensor: Tensor, stride: tuple[int, ...]) -> None:
    laid_out = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    tensor.data = laid_out.copy_(tensor.data)

"""A forward hook stores what a layer returns, with its graph."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


def _watch(layer: nn.Module, *, detached: bool) -> None:
    """Keep the outputs of a layer, to look at them later."""
    outputs: list[Tensor] = []

    def keep(module: nn.Module, given: object, output: Tensor) -> None:
        outputs.append(output.detach().mean(dim=0) if detached else output)

    layer.register_forward_hook(keep)


@script("leak")
def _train(out: Path, *, fixed: bool) -> None:
    model = Classifier()
    layers = model.body
    assert isinstance(layers, nn.Sequential)
    _watch(layers[2], detached=fixed)
    train(out, model, ready(80, WIDTH, 512))

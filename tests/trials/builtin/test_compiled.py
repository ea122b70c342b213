"""torch.compile, switched on a model that runs eagerly in between."""

import pytest
import torch
from support.toy_training import everything, only, training
from torch import nn

from trainperf.recording.probes.compilation import graphs_built
from trainperf.trials.builtin.compiled import compiled
from trainperf.trials.training import outermost_layers


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own


class Kind(nn.Module):
    """Notes whether its forward is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Ones where it is."""
        zeros: torch.Tensor = self.layer(rows) * 0
        return zeros + (1 if torch.compiler.is_compiling() else 0)


@pytest.mark.slow
def test_it_is_compiled_once_runs_eagerly_in_between_and_leaves_nothing() -> None:
    """However often it is switched."""
    toy = training(Kind())
    before, rows, graphs = everything(toy), torch.ones(1, 4), graphs_built()
    trial = only(compiled(toy))
    values = []
    for _ in range(3):
        trial.on()
        values.append(toy.module(rows).sum().tolist())
        trial.off()
        values.append(toy.module(rows).sum().tolist())
    trial.finish()
    later = torch.compile(Kind(), backend="eager")

    assert values == [4.0, 0.0] * 3
    assert graphs_built() == graphs + 1
    assert everything(toy) == before
    assert later(rows).sum().tolist() == 4.0


def test_what_is_compiled_already_is_left_alone() -> None:
    """Running it eagerly in between would be another training."""
    inside, whole = Kind(), torch.compile(Kind())
    inside.layer.compile()

    assert "already" in only(compiled(training(inside))).why_not()
    assert "already" in only(compiled(training(whole))).why_not()


def test_where_a_framework_calls_no_forward_the_outermost_layers_are_compiled() -> None:
    """Those in lists too; a loss without parameters is none of them."""
    module = nn.Module()
    module.add_module("blocks", nn.ModuleList([Kind(), Kind()]))
    module.add_module("loss", nn.CrossEntropyLoss())
    module.add_module("head", nn.Linear(2, 2))

    assert outermost_layers(module) == [*module.blocks, module.head]

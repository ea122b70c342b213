"""What users do with a plain loop that its author did not think of: nothing of it may hurt them."""

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.loops import quiet, stepped, written

from trainperf.core.phases import Tag


def endless() -> Iterator[torch.Tensor]:
    """A stream that is left and taken up again."""
    while True:
        yield torch.ones(2, 2)


def test_a_stream_goes_on_after_the_monitor_was_closed(tmp_path: Path) -> None:
    """Leaving an epoch early does not close the user's generator, measured or not."""
    stream, monitor, batches = endless(), quiet(tmp_path), []
    for epoch in range(3):
        for number, _ in enumerate(monitor.batches(stream)):
            monitor.end_step()
            if number == 3:
                break
        batches.append(number + 1)
        if epoch == 0:
            monitor.close()

    assert batches == [4, 4, 4]


def test_batches_of_a_validation_are_no_steps(tmp_path: Path) -> None:
    """Whoever wraps every loader gets the steps of training all the same."""
    with quiet(tmp_path) as monitor:
        for _ in monitor.batches([torch.ones(1)] * 5):
            monitor.end_step()
            with monitor.phase("validation"):
                assert len(list(monitor.batches([torch.ones(1)] * 3))) == 3

    found = written(monitor)
    assert [step.micro_batches for step in found.steps] == [1] * 5
    assert len(found.gap_s("validation")) == 5


def test_a_copy_of_the_model_has_no_hook_that_works(tmp_path: Path) -> None:
    """An average of the weights is copied, pickled, and run under another precision."""
    model = torch.nn.Linear(2, 2)
    with quiet(tmp_path).watch(model) as monitor:
        for number, batch in enumerate(monitor.batches([torch.ones(1, 2)] * 3)):
            if number == 0:
                average = copy.deepcopy(model)
                with torch.autocast("cpu", torch.bfloat16):
                    average(batch)
            model(batch)
            monitor.end_step()
        pickle.loads(pickle.dumps(average))(torch.ones(1, 2))  # noqa: S301 our own bytes

    assert written(monitor).totals.config["autocast"] == "off"
    assert not model._forward_pre_hooks


@pytest.mark.filterwarnings("ignore")
def test_a_model_compiled_after_watch_is_compiled_whole(tmp_path: Path) -> None:
    """Our hook is on the module inside: it must not be traced, nor keep torch from tracing."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with quiet(tmp_path).watch(model) as monitor:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        stepped(monitor, [torch.ones(1, 2)] * 4, compiled)

    assert len(graphs) == 1
    assert monitor.monitor.guard.faults == {}


def compiled_by(train: Callable[[Callable[..., torch.Tensor], torch.nn.Module], None]) -> list[int]:
    """Nodes of each graph that a training makes torch build, of a model under another name."""
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(len(graph.graph.nodes))
        return graph

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    train(torch.compile(model, backend=backend), model)
    return graphs


@pytest.mark.filterwarnings("ignore")
def test_a_validation_compiles_what_it_compiles_without_us(tmp_path: Path) -> None:
    """The monitor knows the model by the name that is not compiled, as in nanoGPT's manner."""
    batch = torch.ones(1, 2)

    def validate(step: Callable[..., torch.Tensor], model: torch.nn.Module) -> None:
        model.eval()
        with torch.no_grad():
            step(batch)
        model.train()

    def alone(step: Callable[..., torch.Tensor], model: torch.nn.Module) -> None:
        for _ in range(2):
            step(batch).sum().backward()
            validate(step, model)

    def watched(step: Callable[..., torch.Tensor], model: torch.nn.Module) -> None:
        with quiet(tmp_path).watch(model, torch.optim.SGD(model.parameters())) as monitor:
            for given in monitor.batches([batch] * 2):
                step(given).sum().backward()
                monitor.end_step()
                with monitor.phase("validation"):
                    validate(step, model)

    assert compiled_by(watched) == compiled_by(alone)
    assert torch._dynamo.utils.counters["graph_break"] == {}


@pytest.mark.filterwarnings("ignore")
def test_graphs_built_in_a_validation_are_no_steps_recompilation(tmp_path: Path) -> None:
    """Neither of the step before it nor of the one after."""
    torch._dynamo.reset()

    @torch.compile(backend="eager", dynamic=False)
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with quiet(tmp_path) as monitor:
        for number, _ in enumerate(monitor.batches([torch.ones(1)] * 9)):
            if number in (2, 7):
                doubled(torch.ones(number))
            monitor.end_step()
            if number == 4:
                with monitor.phase("validation"):
                    doubled(torch.ones(50))
        with monitor.phase("validation"):
            doubled(torch.ones(60))

    steps = written(monitor).steps
    assert [step.facts["recompiles"] for step in steps] == [0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert [n for n, step in enumerate(steps) if step.tags & Tag.RECOMPILED] == [2, 7]


def test_an_optimizer_that_stands_for_another_is_no_list_of_them(tmp_path: Path) -> None:
    """As DeepSpeed's wrapper, which is neither torch's class nor iterable."""

    class Standing:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups
            self.state = optimizer.state

    model = torch.nn.Linear(2, 2)
    standing = Standing(torch.optim.SGD(model.parameters(), lr=0.1))
    with quiet(tmp_path).watch(model, standing) as monitor:  # type: ignore[arg-type]
        for batch in monitor.batches([torch.ones(2, 2)] * 10):
            model(batch).sum().backward()
            standing.optimizer.step()
            monitor.end_step()

    assert len(written(monitor).steps) == 10
    assert written(monitor).totals.faults == {}

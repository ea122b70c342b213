"""Hooks of PyTorch that come and go, next to the user's own."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from trainperf.recording.process_objects import SwitchedHook, UntracedHook, hear_gradient


def output() -> Tensor:
    """As a module returns it."""
    return torch.ones(3, requires_grad=True) * 2


def test_a_gradient_is_heard_once() -> None:
    """By whoever has asked for this tensor's."""
    heard: list[str] = []
    first, second = output(), output()
    hear_gradient(first, lambda _: heard.append("first"))
    hear_gradient(second, lambda _: heard.append("second"))

    first.sum().backward()  # type: ignore[no-untyped-call]

    assert heard == ["first"]


@pytest.mark.parametrize("before", [[], ["before"]])
def test_hooks_of_the_user_before_and_after_it_are_kept(before: list[str]) -> None:
    """Each can be removed, and change the gradient."""
    heard: list[str] = []
    leaf = torch.ones(3, requires_grad=True)
    result = leaf * 2
    for name in before:
        result.register_hook(lambda _, name=name: heard.append(name))
    hear_gradient(result, lambda _: heard.append("ours"))
    removed = result.register_hook(lambda _: heard.append("removed"))
    result.register_hook(lambda gradient: gradient * 3)
    removed.remove()
    result.sum().backward()

    assert heard == [*before, "ours"]
    assert leaf.grad.tolist() == [6, 6, 6]


def test_a_leaf_or_a_parameter_is_heard_too() -> None:
    """A module may return what it was given."""
    heard: list[int] = []
    for leaf in (torch.ones(2, requires_grad=True), nn.Parameter(torch.ones(2))):
        hear_gradient(leaf, lambda _: heard.append(1))
        leaf.sum().backward()  # type: ignore[no-untyped-call]

    assert heard == [1, 1]


def test_a_switched_hook_leaves_nothing_behind() -> None:
    """In no dictionary of the module, so that none is saved with it."""
    calls: list[int] = []
    module = nn.Linear(2, 2)
    before = {name: value for name, value in vars(module).items() if "hooks" in name and value}

    def hook(*_: object) -> None:
        calls.append(1)

    switched = SwitchedHook(module.register_forward_hook(hook, with_kwargs=True), hook)
    for take in 2 * switched.takes:
        take()
    module(torch.ones(2))
    assert not calls
    after = {name: value for name, value in vars(module).items() if "hooks" in name and value}
    assert after == before

    for put in switched.puts:
        put()
    module(torch.ones(2))
    assert calls == [1]


@pytest.mark.filterwarnings("ignore")
def test_an_untraced_hook_is_nothing_in_a_graph_and_may_do_something_else_later() -> None:
    """What it does could not be traced: it would break the graph."""
    heard: list[str] = []
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    hook = UntracedHook(lambda *_: heard.append("first"))
    model.register_forward_pre_hook(hook)
    model(torch.ones(1, 2))
    hook.act = lambda *_: heard.append("second")
    model(torch.ones(1, 2))
    assert heard == ["first", "second"]

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    compiled(torch.ones(1, 2))
    hook.act = lambda *_: heard.append("third")
    compiled(torch.ones(1, 2))
    assert heard == ["first", "second"]
    assert len(graphs) == 1


def test_a_copy_of_a_hooked_module_tells_nobody() -> None:
    """An average of weights, or a module in a file: what the hook knows does not go with it."""
    heard: list[int] = []
    module = nn.Linear(2, 2)
    module.register_forward_pre_hook(UntracedHook(lambda *_: heard.append(1)))

    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301 our own
        other(torch.ones(2))
    assert heard == []
    module(torch.ones(2))
    assert heard == [1]

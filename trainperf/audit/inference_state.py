"""State of a model that answers requests: train mode, a graph for gradients, numbers drawn.

Looked at from outside, before and after one forward.  Nothing here waits for a device.
"""

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from timeit import repeat

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from trainperf.accelerators import accelerator_of
from trainperf.audit.allocations import memory_of
from trainperf.audit.nested import tensors
from trainperf.core.machine.clocks import monotonic_ns


MOST_NODES = 100_000
"""Nodes of a graph that are counted."""

_CALLS, _ROUNDS = 200, 5


def in_train_mode(model: nn.Module) -> Counter[str]:
    """Kinds of its modules that answer otherwise in train mode, and are in it, with their number.

    Dropout with a probability, normalisation with running statistics, recurrent layers and
    attention with dropout, and modules whose forward reads `self.training` to drop something.
    """
    return Counter(
        type(part).__name__ for part in model.modules() if part.training and _reads_mode(part)
    )


def _reads_mode(part: nn.Module) -> bool:
    """Whether its own forward drops something by its mode, with a probability that is not 0."""
    if isinstance(part, _NormBase):
        return part.running_mean is not None
    code = getattr(inspect.unwrap(type(part).forward), "__code__", None)
    names = () if code is None else (*code.co_names, *code.co_varnames)
    if "training" not in names or not any("drop" in name.lower() for name in names):
        return False
    held = {**vars(part), **dict(part.named_children())}
    # Torch's own `Dropout` has its probability as `p`.
    named = [value for name, value in held.items() if name == "p" or "drop" in name.lower()]
    given = [getattr(value, "p", value) for value in named]
    rates = [rate for rate in given if type(rate) in (int, float)]
    return not rates or max(rates) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSize:
    """A graph that autograd has built, by its nodes and what they keep."""

    nodes: int
    """That compute; those that hold parameters are not counted."""
    kept_bytes: int
    """Of tensors that they keep for backward, each once, parameters excluded."""


def graph_size(output: object) -> GraphSize | None:
    """What hangs on the tensors of *output*; `None` without a graph.

    Visits every node once and changes none: some milliseconds for a thousand.
    """
    waiting = [tensor.grad_fn for tensor in tensors(output) if tensor.grad_fn is not None]
    if not waiting:
        return None
    nodes = set(waiting)
    while waiting and len(nodes) < MOST_NODES:
        further = {node for node, _ in waiting.pop().next_functions if node is not None} - nodes
        nodes |= further
        waiting += further
    parameters = [memory_of(node.variable)[0] for node in nodes if hasattr(node, "variable")]
    computing = [node for node in nodes if not hasattr(node, "variable")]
    kept = dict(memory_of(tensor) for node in computing for tensor in _saved(node))
    size = sum(amount for storage, amount in kept.items() if storage not in parameters)
    return GraphSize(nodes=len(computing), kept_bytes=size)


def _saved(node: object) -> Iterator[Tensor]:
    # So torch's nodes call what they keep for backward.
    names = (name for name in dir(node) if name.startswith("_saved_"))
    for name in (*names, "saved_tensors"):
        try:
            value = getattr(node, name, None)
        except RuntimeError:  # written over since, or given up: it cannot be read any more
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            yield from (each,) if isinstance(each, Tensor) else ()


def generator_state(device: torch.device) -> Tensor:
    """Where the generator stands that a forward on *device* draws from; kept on the host."""
    state = accelerator_of(device).random_state()
    return torch.get_rng_state() if state is None else state


def grad_mode() -> str:
    """What autograd does here: `inference_mode`, `no_grad` or `on`."""
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    return "on" if torch.is_grad_enabled() else "no_grad"


def node_s() -> float:
    """What a node of a graph costs the host here: an operator with gradients on less one without.

    The least of five rounds of 200 calls each, some milliseconds in all.
    """
    value = torch.ones(1, requires_grad=True)
    call_s = {}
    for on in (True, False):
        with torch.set_grad_enabled(on):
            rounds_ns = repeat(value.neg, timer=monotonic_ns, number=_CALLS, repeat=_ROUNDS)
            call_s[on] = min(rounds_ns) / _CALLS / 1e9
    return max(0.0, call_s[True] - call_s[False])

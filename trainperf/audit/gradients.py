"""Gradients of weights, from the end of the backward that makes them to the update that reads them.

What no update reads is made for nothing: gradients of weights that no optimizer holds, and those
that are zeroed, replaced or freed before.  Their memory is known by weak reference, and nothing is
read of it.
"""

import weakref
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from trainperf.audit.allocations import local_of, memory_of
from trainperf.audit.data_flow import Ends
from trainperf.audit.operator_call import Call
from trainperf.audit.traffic import storage_key


class NeedlessGradients(NamedTuple):
    """Gradients of a step that no update reads."""

    paths: Sequence[str]
    """Modules of whose weights no optimizer holds any, the outer ones first."""
    unheld: Ends
    """Gradients that no optimizer holds."""
    dropped: Ends
    """Those that are gone before an update that reads what another backward has left."""
    reads: Mapping[int, Collection[int]]
    """Number of calls before an update to the storages of the gradients that it is for."""


class _Gradient(NamedTuple):
    """What a backward has left at a weight."""

    weight: int
    storage: int
    since: int
    """Number of calls when backward was over."""
    line: str
    """That called it."""
    alive: weakref.ref[torch.UntypedStorage]


class Gradients:
    """Follows gradients through the backwards and updates of a step that it is told of.

    Args:
        calls: Of the step so far.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self.held: set[int] = set()
        """Weights, by identity, of the optimizers that stepped."""
        self._waiting: dict[int, _Gradient] = {}
        """Memory, by identity, to the gradient that it has had since the last backward."""
        self._past: list[tuple[_Gradient, int, bool]] = []
        """Each with the number of calls up to which only these can have read it, and whether its
        memory was freed then."""
        self._reads: dict[int, set[int]] = defaultdict(set)
        self._learned: set[int] = set()
        """Weights whose update was for what a backward had left."""

    def backward_ended(self, weights: Iterable[Tensor], line: str) -> None:
        """Take what a backward, called at a line, has left at these weights."""
        for weight in weights:
            gradient = None if weight.grad is None else local_of(weight.grad)
            if gradient is None or gradient.layout is not torch.strided:
                continue
            memory, size = memory_of(gradient)
            self._end(memory)
            if size:
                alive = weakref.ref(gradient.untyped_storage(), partial(self._end, memory))
                self._waiting[memory] = _Gradient(
                    id(weight), storage_key(gradient), len(self._calls), line, alive
                )

    def update(self, optimizer: Optimizer) -> None:
        """Take an update as it begins, and again when it was made: it may call backward itself.

        What its operators read is seen; kernels of other libraries are none.
        """
        for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
            self.held.add(id(weight))
            if weight.grad is not None:
                memory, _ = memory_of(weight.grad)
                if memory in self._waiting:
                    self._learned.add(id(weight))
                self._reads[len(self._calls)].add(storage_key(local_of(weight.grad)))
                self._end(memory)

    def pause(self) -> None:
        """From now on others may read the gradients."""
        for memory in [*self._waiting]:
            self._end(memory)

    def needless(self, weights: Mapping[str, Collection[int]]) -> NeedlessGradients:
        """What no update reads; after `pause`.

        Of weights that no optimizer holds nothing is said where no optimizer stepped, or one holds
        what is no weight of a known module: it may be a copy of one.

        Args:
            weights: Path of each known module to its weights, by identity.
        """
        paths: list[str] = []
        unheld: list[_Gradient] = []
        if self.held and self.held <= set().union(*weights.values()):
            paths = [path for path, own in weights.items() if own and self.held.isdisjoint(own)]
            past = [gradient for gradient, *_ in self._past]
            kept = {(each.since, each.storage) for each in past if each.weight in self.held}
            unheld = [each for each in past if (each.since, each.storage) not in kept]
        return NeedlessGradients(
            sorted(paths, key=len), _ends(unheld), _ends(self._dropped()), self._reads
        )

    def _end(self, memory: int, freed: object = None) -> None:
        if memory in self._waiting:
            gradient = self._waiting.pop(memory)
            self._past.append((gradient, len(self._calls), freed is not None))

    def _dropped(self) -> list[_Gradient]:
        zeroes: dict[int, list[tuple[int, bool]]] = {each.storage: [] for each, *_ in self._past}
        for at, call in enumerate(self._calls):
            for access in call.accesses:
                if access.storage in zeroes:
                    zeroes[access.storage].append((at, "zero_." in call.like.name))
        dropped = []
        for gradient, until, freed in self._past:
            uses = zeroes[gradient.storage]
            within = (zeroed for at, zeroed in uses if gradient.since <= at < until)
            if gradient.weight in self._learned and next(within, freed):
                dropped.append(gradient)
        return dropped


def _ends(gradients: Iterable[_Gradient]) -> Ends:
    ends: dict[int, tuple[set[int], str]] = {}
    for each in gradients:
        ends.setdefault(each.since, (set(), each.line))[0].add(each.storage)
    return ends

"""Gradients of weights, from the end of the backward that makes them to the update that reads them.

What no update reads is made for nothing: gradients of weights that no optimizer holds, and those
that are zeroed, replaced or freed before.  Their memory is known by weak reference, and nothing is
read of it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.optim.optimizer import Optimizer

from trainperf.audit.allocations import Storages, local_of
from trainperf.audit.data_flow import Ends
from trainperf.audit.operator_call import Call
from trainperf.audit.traffic import storage_key
from trainperf.core.groups import grouped


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
    version: int
    """How often it had been written by then."""


class Gradients:
    """Follows gradients through the backwards and updates of a step that it is told of.

    Args:
        calls: Of the step so far.
        storages: Numbers storages, and tells when they are freed.
    """

    def __init__(self, calls: Sequence[Call], storages: Storages) -> None:
        self._calls, self._storages = calls, storages
        self._held: set[int] = set()
        """Weights, by identity, of the optimizers that stepped."""
        self._waiting: dict[int | None, _Gradient] = {}
        """Number of a storage to the gradient that it has had since the last backward."""
        self._past: list[tuple[_Gradient, int, bool]] = []
        """Each with the number of calls up to which only these can have read it, and whether it was
        freed then."""
        self._updated: set[int] = set()
        """Weights whose gradients were there at an update."""
        self._reads: dict[int, set[int]] = defaultdict(set)

    def backward_ended(self, weights: Iterable[Tensor], line: str) -> None:
        """Take what a backward, called at a line, has left at these weights."""
        gradients = ((id(each), local_of(each.grad)) for each in weights if each.grad is not None)
        for weight, gradient in gradients:
            number = self._storages.number(gradient)
            version = gradient._version  # noqa: SLF001 torch's only count of changes
            earlier = self._waiting.get(number)
            if number is not None and (earlier is None or earlier.version != version):
                self._end(number)
                since, storage = len(self._calls), storage_key(gradient)
                self._waiting[number] = _Gradient(weight, storage, since, line, version)

    def update(self, optimizer: Optimizer) -> None:
        """Take an update as it begins, and again when it was made: it may call backward itself.

        What its operators read is seen; kernels of other libraries are none.
        """
        for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
            self._held.add(id(weight))
            if weight.grad is not None:
                self._reads[len(self._calls)].add(storage_key(local_of(weight.grad)))
                if gradient := self._end(self._storages.number(weight.grad)):
                    self._updated.add(gradient.weight)

    def pause(self) -> None:
        """From now on others may read the gradients."""
        for number in [*self._waiting]:
            self._end(number)

    def needless(self, weights: Mapping[str, Collection[int]]) -> NeedlessGradients:
        """What no update reads; after `pause`.

        Of weights that no optimizer holds nothing is said where no optimizer stepped, or one holds
        what is no weight of a known module: it may be a copy of one.

        Args:
            weights: Path of each known module to its weights, by identity.
        """
        knows = bool(self._held) and self._held <= set().union(*weights.values())
        past = [gradient for gradient, *_ in self._past if knows]
        kept = {(each.since, each.storage) for each in past if each.weight in self._held}
        unheld = (each for each in past if (each.since, each.storage) not in kept)
        paths = (path for path, own in weights.items() if own and self._held.isdisjoint(own))
        return NeedlessGradients(
            sorted(paths, key=len) if knows else (),
            _ends(unheld),
            _ends(self._dropped()),
            self._reads,
        )

    def _end(self, number: int | None) -> _Gradient | None:
        """The gradient that a storage had until now, or until it was freed."""
        gradient = self._waiting.pop(number, None)
        if gradient is not None and number is not None:
            until = self._storages.freed_at.get(number)
            freed = until is not None
            self._past.append((gradient, len(self._calls) if until is None else until, freed))
        return gradient

    def _dropped(self) -> Iterator[_Gradient]:
        """Those of weights whose update was for what another backward had left."""
        zeroes: dict[int, list[tuple[int, bool]]] = {each.storage: [] for each, *_ in self._past}
        for at, call in enumerate(self._calls):
            for storage in zeroes.keys() & {access.storage for access in call.accesses}:
                zeroes[storage].append((at, "zero_." in call.like.name))
        for gradient, until, freed in self._past:
            uses = zeroes[gradient.storage]
            within = (zeroed for at, zeroed in uses if gradient.since <= at < until)
            if gradient.weight in self._updated and next(within, freed):
                yield gradient


def _ends(gradients: Iterable[_Gradient]) -> Ends:
    backwards = grouped((gradient.since, gradient) for gradient in gradients)
    return {at: ({each.storage for each in own}, own[0].line) for at, own in backwards.items()}

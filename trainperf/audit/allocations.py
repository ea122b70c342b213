"""Allocations of a step: each storage that it makes, followed until it is freed, and their uses.

Storages are known by weak reference, so observing them keeps nothing alive; memory that an operator
takes and frees within itself is not seen.
"""

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer

from trainperf.audit.nested import walk
from trainperf.audit.operator_call import Site
from trainperf.core.artifacts.audit import Part
from trainperf.core.artifacts.memory import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One storage of the step."""

    size_bytes: int
    part: Part | None
    """Part of the step that made it; `None` if it is older than the step."""
    module: str | None
    line: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of a step's tensors."""

    activations_bytes: int | None
    """Most that forward had left alive when a backward began; `None` without a backward."""
    by_module: Mapping[str | None, int]
    """The same by the module that made it."""
    gradients_bytes: int
    """Most that the gradients of all optimizers were when they stepped."""
    new_state_bytes: int
    """What became optimizer state in the step."""
    at_peak: Mapping[Category, int]
    """The most that was alive at a time, by category."""


class Allocations:
    """Follows storages through the calls and updates that it is told of; grows until the end."""

    def __init__(self) -> None:
        self._allocated: list[Allocation] = []
        """By number."""
        self._events: list[tuple[int, int]] = []
        """In order: number of a storage, and the bytes that it takes, below zero as it is freed."""
        self._backwards: list[int] = []
        """Indices into the events at which a backward began."""
        self._gradients: set[int] = set()
        self._states: set[int] = set()
        self._gradients_bytes: dict[int, int] = {}
        """Most gradient bytes of each optimizer at its steps."""
        self._alive: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._part: Part = "forward"

    def follow(
        self, tensors: Iterable[Tensor], part: Part | None = None, site: Site | None = None
    ) -> set[int]:
        """Follow the storages of *tensors* until they are freed; their numbers.

        Sparse tensors and those without data have none.
        """
        numbers: set[int] = set()
        for tensor in tensors:
            local, (key, size) = local_of(tensor), memory_of(tensor)
            if not size or local.layout is not torch.strided:
                continue
            number = len(self._allocated)
            if key not in self._alive:
                module, line = (None, None) if site is None else (site.module, site.line)
                self._allocated.append(
                    Allocation(size_bytes=size, part=part, module=module, line=line)
                )
                self._events.append((number, size))
                freed = partial(self._freed, key, number)
                self._alive[key] = (number, weakref.ref(local.untyped_storage(), freed))
            numbers.add(self._alive[key][0])
        return numbers

    def _freed(self, key: int, number: int, _: object) -> None:
        self._events.append((number, -self._allocated[number].size_bytes))
        self._alive.pop(key, None)

    def line_of(self, storage: int) -> str | None:
        """Where a storage was made, if it was in the step and is alive."""
        alive = self._alive.get(storage)
        return None if alive is None else self._allocated[alive[0]].line

    def observe(self, part: Part, site: Site, fresh: Iterable[Tensor]) -> None:
        """Take a call: what it returned that is not in the memory of what it was given."""
        if part == "backward" and self._part == "forward":
            self._backwards.append(len(self._events))
        if part in ("forward", "backward"):
            self._part = part
        self.follow(fresh, part, site)

    def updated(self, optimizer: Optimizer) -> None:
        """Take an update that has been made, after which backward may have run inside of it."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        gradients = self.follow(weight.grad for weight in weights if weight.grad is not None)
        most, size_bytes = self._gradients_bytes, self._size_bytes(gradients)
        most[id(optimizer)] = max(most.get(id(optimizer), 0), size_bytes)
        self._gradients |= gradients
        # State that is older than the step is not followed.
        tensors = walk(optimizer.state, Tensor)
        states = (self._alive.get(memory_of(tensor)[0]) for tensor in tensors)
        self._states |= {alive[0] for alive in states if alive is not None}

    def use(self) -> MemoryUse:
        """Replay the step: what was alive at its peak, and when backward began."""
        forward = {n for n, each in enumerate(self._allocated) if each.part == "forward"}
        saved = [self._alive_after(events) & forward for events in self._backwards]
        left = max(saved, key=self._size_bytes, default=set[int]())
        kept = set[int]().union(*saved)
        by_module: Counter[str | None] = Counter()
        for number in left:
            by_module[self._allocated[number].module] += self._allocated[number].size_bytes
        held = [0, *accumulate(size for _, size in self._events)]
        at_peak: Counter[Category] = Counter()
        for number in self._alive_after(held.index(max(held))):
            at_peak[self._category(number, kept)] += self._allocated[number].size_bytes
        return MemoryUse(
            activations_bytes=sum(by_module.values()) if saved else None,
            by_module=by_module,
            gradients_bytes=sum(self._gradients_bytes.values()),
            new_state_bytes=self._size_bytes(self._states - self._gradients),
            at_peak=at_peak,
        )

    def _alive_after(self, events: int) -> set[int]:
        times = Counter(number for number, _ in self._events[:events])
        return {number for number, heard in times.items() if heard == 1}

    def _size_bytes(self, numbers: Collection[int]) -> int:
        return sum(self._allocated[number].size_bytes for number in numbers)

    def _category(self, number: int, kept: Collection[int]) -> Category:
        if number in self._gradients or self._allocated[number].part is None:
            return "gradients"
        if number in self._states:
            return "optimizer state"
        return "activations" if number in kept else "temporaries"


def gradients(model: nn.Module) -> Iterator[Tensor]:
    """The gradients that exist."""
    return (p.grad for p in model.parameters() if p.grad is not None)


def local_of(tensor: Tensor) -> Tensor:
    """The part of a distributed tensor that is here; any other tensor itself."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


def memory_of(tensor: Tensor) -> tuple[int, int]:
    """Identity of the memory behind a tensor, as long as it lives, and its bytes; views share it.

    0 for what stands for a tensor without its data, as compilers leave some behind.
    """
    local = local_of(tensor)
    if local.device.type == "meta" or isinstance(local, FakeTensor) or is_lazy(local):
        return id(local), 0
    if local.layout is not torch.strided:
        return id(local), local.numel() * local.element_size()
    try:
        storage = local.untyped_storage()
        size = storage.nbytes()
    except NotImplementedError:  # of a wrapper, as in `vmap`: the data is another tensor's
        return id(local), 0
    # Another compiler's stand-in has a symbol for its size.
    return int(storage._cdata), size if isinstance(size, int) else 0  # noqa: SLF001 no other identity

"""Storages of a step: a number for each from when it is first seen until it is freed, and its uses.

They are known by weak reference, so following them keeps nothing alive; memory that an operator
takes and frees within itself is not seen.
"""

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, count
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer

from trainperf.audit.nested import walk
from trainperf.audit.operator_call import Call, Site
from trainperf.core.artifacts.audit import Part
from trainperf.core.artifacts.memory import Category, MemoryLedger, ModuleActivations
from trainperf.core.groups import summed


NO_BACKWARD = "no backward ran in the audited step"


class Allocation(NamedTuple):
    """One storage that the step has made, or whose gradients it updates by."""

    size_bytes: int
    part: Part | None
    """Part of the step that made it; `None` if it is older than the step."""
    site: Site | None


class Storages:
    """Follows storages through the calls and updates that it is told of; grows until the end.

    Args:
        calls: Of the step so far.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._numbers = count()
        self._alive: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        """Memory, by identity, to the number that it has until it is freed."""
        self.freed_at: dict[int, int] = {}
        """By number, how many calls there were when it was freed."""
        self._allocated: dict[int, Allocation] = {}
        self._events: list[tuple[int, int]] = []
        """In order: number of a storage, and the bytes that it takes, below zero as it is freed."""
        self._backwards: list[int] = []
        """Indices into the events at which a backward began."""
        self._gradients: set[int] = set()
        self._states: set[int] = set()
        self._gradients_bytes: dict[int, int] = {}
        """Most gradient bytes of each optimizer at its steps."""
        self._part: Part = "forward"

    def number(self, tensor: Tensor) -> int | None:
        """Of the storage behind a tensor; `None` of a sparse one, or one without data."""
        local, (memory, size) = local_of(tensor), memory_of(tensor)
        if not size or local.layout is not torch.strided:
            return None
        if memory not in self._alive:
            number = next(self._numbers)
            freed = partial(self._freed, memory, number)
            self._alive[memory] = number, weakref.ref(local.untyped_storage(), freed)
        return self._alive[memory][0]

    def _freed(self, memory: int, number: int, _: object) -> None:
        self._alive.pop(memory, None)
        self.freed_at[number] = len(self._calls)
        if number in self._allocated:
            self._events.append((number, -self._allocated[number].size_bytes))

    def follow(
        self, tensors: Iterable[Tensor], part: Part | None = None, site: Site | None = None
    ) -> set[int]:
        """Count the storages of *tensors* until they are freed; numbers of those with data."""
        numbers: set[int] = set()
        for tensor in tensors:
            number, (_, size) = self.number(tensor), memory_of(tensor)
            if number is None:
                continue
            if number not in self._allocated:
                self._allocated[number] = Allocation(size, part, site)
                self._events.append((number, size))
            numbers.add(number)
        return numbers

    def line_of(self, memory: int) -> str | None:
        """Where what has this identity was made, if it was in the step and is alive."""
        number, _ = self._alive.get(memory, (None, None))
        allocation = None if number is None else self._allocated.get(number)
        return allocation.site.line if allocation and allocation.site else None

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
        # State that is older than the step is not counted.
        states = map(self.number, walk(optimizer.state, Tensor))
        self._states |= self._allocated.keys() & states

    def complete(self, ledger: MemoryLedger) -> MemoryLedger:
        """A ledger of what exists regardless of the batch, completed by the memory of the step.

        Args:
            ledger: Counted after the step.
        """
        forward = {n for n, each in self._allocated.items() if each.part == "forward"}
        saved = [self._alive_after(events) & forward for events in self._backwards]
        kept = set[int]().union(*saved)
        left = (self._allocated[each] for each in max(saved, key=self._size_bytes, default=()))
        by_module = summed(
            (each.site.module if each.site else None, each.size_bytes) for each in left
        )
        held = [0, *accumulate(size for _, size in self._events)]
        new_states = self._states - self._gradients
        whole: dict[Category, int] = {
            "parameters": ledger.parameters_bytes,
            "buffers": ledger.buffers_bytes,
            "optimizer state": ledger.optimizer_bytes - self._size_bytes(new_states),
        }
        then = (
            (self._category(number, kept), self._allocated[number].size_bytes)
            for number in self._alive_after(held.index(max(held)))
        )
        at_peak = summed((*whole.items(), *then))
        return msgspec.structs.replace(
            ledger,
            gradients_bytes=max(ledger.gradients_bytes, sum(self._gradients_bytes.values())),
            activations_bytes=sum(by_module.values()) if saved else None,
            activations=tuple(
                ModuleActivations(module=module, size_bytes=size)
                for module, size in sorted(by_module.items(), key=lambda item: -item[1])
            ),
            peak_bytes=sum(at_peak.values()),
            at_peak_bytes={name: size for name, size in at_peak.items() if size},
            reasons={} if saved else {"activations_bytes": NO_BACKWARD},
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

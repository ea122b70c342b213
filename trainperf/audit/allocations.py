"""Allocations of a step: each storage that it makes, followed until it is freed, and their uses.

Storages are known by weak reference, so observing them keeps nothing alive; memory that an operator
takes and frees within itself is not seen.
"""

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from trainperf.audit.operator_call import Site
from trainperf.core.artifacts.audit import Part
from trainperf.core.artifacts.memory import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One storage of the step."""

    size_bytes: int
    device: str
    part: Part | None
    """Part of the step that made it; `None` if it is older than the step."""
    module: str | None
    line: str | None


@dataclass(slots=True, kw_only=True)
class AllocationTimeline:
    """Storages by number, and when they came and went; grows until the step is over."""

    allocations: list[Allocation] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    """In order: *n* for storage *n* allocated, *-n - 1* for the same freed."""
    backwards: list[int] = field(default_factory=list)
    """Indices into `events` at which a backward began."""
    gradients: set[int] = field(default_factory=set)
    """Storages that held gradients when an optimizer stepped."""
    optimizer_gradients_bytes: dict[int, int] = field(default_factory=dict)
    """Most gradient bytes of each optimizer at its steps."""

    @property
    def gradients_bytes(self) -> int:
        """Most that the gradients of all optimizers were when they stepped."""
        return sum(self.optimizer_gradients_bytes.values())


class Allocations:
    """Follows storages through the calls and updates that it is told of."""

    def __init__(self) -> None:
        self.timeline = AllocationTimeline()
        """The allocations so far."""
        self._alive: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._part: Part = "forward"

    def follow(self, tensors: Iterable[Tensor]) -> None:
        """Follow tensors that exist before the step and may be freed in it."""
        for tensor in tensors:
            self._new(tensor, None, None)

    def line_of(self, storage: int) -> str | None:
        """Where a storage was made, if it was in the step and is alive."""
        alive = self._alive.get(storage)
        return None if alive is None else self.timeline.allocations[alive[0]].line

    def alive_among(self, storages: Collection[int]) -> frozenset[int]:
        """Numbers of those *storages* that the step made and that are alive."""
        return frozenset(
            number
            for storage, (number, _) in self._alive.items()
            if storage in storages and self.timeline.allocations[number].part is not None
        )

    def beyond_bytes(self, storages: Collection[int]) -> int:
        """Device bytes that the step made and left alive outside of these *storages*."""
        others = (n for storage, (n, _) in self._alive.items() if storage not in storages)
        allocations = (self.timeline.allocations[number] for number in others)
        return sum(each.size_bytes for each in allocations if each.device != "cpu")

    def observe(self, part: Part, site: Site, fresh: Iterable[Tensor]) -> None:
        """Take a call: what it returned that is not in the memory of what it was given."""
        if part == "backward" and self._part == "forward":
            self.timeline.backwards.append(len(self.timeline.events))
        if part in ("forward", "backward"):
            self._part = part
        for tensor in fresh:
            self._new(tensor, part, site)

    def _new(self, tensor: Tensor, part: Part | None, site: Site | None) -> None:
        if not _stored(tensor) or storage_of(tensor) in self._alive:
            return
        key = storage_of(tensor)
        storage, number = tensor.untyped_storage(), len(self.timeline.allocations)
        self.timeline.allocations.append(
            Allocation(
                size_bytes=storage.nbytes(),
                device=tensor.device.type,
                part=part,
                module=None if site is None else site.module,
                line=None if site is None else site.line,
            )
        )
        self.timeline.events.append(number)
        self._alive[key] = (number, weakref.ref(storage, partial(self._freed, key, number)))

    def _freed(self, key: int, number: int, _: object) -> None:
        self.timeline.events.append(-number - 1)
        self._alive.pop(key, None)

    def updated(self, optimizer: Optimizer) -> None:
        """Take an update that has been made, after which backward may have run inside of it."""
        tensors = [p.grad for group in optimizer.param_groups for p in group["params"]]
        held = {
            storage_of(each): each.untyped_storage().nbytes()
            for each in tensors
            if each is not None and _stored(each)
        }
        alive = (self._alive[storage][0] for storage in held if storage in self._alive)
        self.timeline.gradients.update(alive)
        most = self.timeline.optimizer_gradients_bytes
        most[id(optimizer)] = max(most.get(id(optimizer), 0), sum(held.values()))


def gradients(model: nn.Module) -> Iterator[Tensor]:
    """The gradients that exist."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            yield parameter.grad


def _stored(tensor: Tensor) -> bool:
    """Whether it has a storage; sparse tensors and those without data have none."""
    return tensor.layout is torch.strided and tensor.device.type != "meta"


def storage_of(tensor: Tensor) -> int:
    """Identity of the memory behind a tensor, as long as it lives."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 the only identity of a storage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of a step's tensors."""

    activations_bytes: int | None
    """Most that forward had left alive when a backward began; `None` without a backward."""
    by_module: Mapping[str | None, int]
    """The same by the module that made it."""
    gradients_bytes: int
    peak_bytes: int
    """Most that was alive at a time."""
    at_peak: Mapping[Category, int]
    """The same by category."""


def memory_use(timeline: AllocationTimeline, states: frozenset[int] = frozenset()) -> MemoryUse:
    """Replay a step: what was alive at its peak, and when backward began.

    Args:
        timeline: Of the step.
        states: Storages that became optimizer state in it.
    """
    saved = _saved(timeline)
    left = max(saved, key=lambda alive: sum(_sizes(timeline, alive)), default=None)
    kept = frozenset(number for alive in saved for number in alive)
    by_module: Counter[str | None] = Counter()
    for number in left or ():
        by_module[timeline.allocations[number].module] += timeline.allocations[number].size_bytes
    peak = _alive_at(timeline, _peak(timeline))
    at_peak: Counter[Category] = Counter()
    for number in peak:
        category = "optimizer state" if number in states else _category(timeline, number, kept)
        at_peak[category] += timeline.allocations[number].size_bytes
    return MemoryUse(
        activations_bytes=None if left is None else sum(by_module.values()),
        by_module=by_module,
        gradients_bytes=timeline.gradients_bytes,
        peak_bytes=sum(_sizes(timeline, peak)),
        at_peak=at_peak,
    )


def _saved(timeline: AllocationTimeline) -> list[frozenset[int]]:
    """What forward had made and not freed, at each beginning of a backward."""
    forward = {n for n, each in enumerate(timeline.allocations) if each.part == "forward"}
    return [frozenset(_alive_at(timeline, at) & forward) for at in timeline.backwards]


def _category(timeline: AllocationTimeline, number: int, saved: frozenset[int]) -> Category:
    if number in timeline.gradients or timeline.allocations[number].part is None:
        return "gradients"
    return "activations" if number in saved else "temporaries"


def _sizes(timeline: AllocationTimeline, numbers: Iterable[int]) -> list[int]:
    return [timeline.allocations[number].size_bytes for number in numbers]


def _peak(timeline: AllocationTimeline) -> int:
    """Place in the events after which most is alive."""
    alive, most, place = 0, 0, 0
    for at, event in enumerate(timeline.events, start=1):
        size = timeline.allocations[event if event >= 0 else -event - 1].size_bytes
        alive += size if event >= 0 else -size
        if alive > most:
            most, place = alive, at
    return place


def _alive_at(timeline: AllocationTimeline, place: int) -> set[int]:
    alive: set[int] = set()
    for event in timeline.events[:place]:
        if event >= 0:
            alive.add(event)
        else:
            alive.discard(-event - 1)
    return alive

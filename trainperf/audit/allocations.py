"""Which memory does a step take, when, and what for?  Every storage is followed until it is freed.

A storage is known by a weak reference, so nothing lives longer for being looked at; memory that an
operator takes and frees within itself is not seen.
"""

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle
from typing_extensions import Self

from trainperf.audit.attribution import Attribution
from trainperf.audit.elementwise import Operator
from trainperf.audit.fault_shield import Shield, as_it_is
from trainperf.audit.traffic import is_traced, tensors_in
from trainperf.core.artifacts.audit import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One storage of the step."""

    size_bytes: int
    device: str
    part: Part | None
    """In which it was made; `None` if it was there before the step."""
    module: str | None
    line: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTimeline:
    """Storages by number, and when they came and went."""

    made: Sequence[Allocation]
    events: Sequence[int]
    """In order: *n* for storage *n* allocated, *-n - 1* for the same freed."""
    backwards: Sequence[int]
    """Places in `events` at which a backward began."""
    gradients: frozenset[int]
    """Storages that held gradients when an optimizer stepped."""
    gradients_bytes: int
    """Most that the optimizers' gradients were then."""


@dataclass(slots=True)
class _Seen:
    made: list[Allocation] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)
    gradients: set[int] = field(default_factory=set)
    gradients_bytes: dict[int, int] = field(default_factory=dict)
    """By optimizer."""


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Follows storages while it is on, around the mode that knows where calls come from.

    Args:
        where: Of that mode, which is entered before.
        shield: Wraps what is done after each call, so that a fault of ours ends the audit only.
    """

    supports_higher_order_operators = True
    """Operators that are given functions are one call like any other."""

    def __init__(self, where: Attribution, shield: Shield = as_it_is) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # same
        self._where = where
        self._seen = _Seen()
        self._alive: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._part: Part = "forward"
        self._saw = shield(self._observe)
        self._steps = shield(self._update)
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        # After, because backward may run inside the update, as under Lightning.
        self._handles = [
            register_optimizer_step_pre_hook(self._steps),
            register_optimizer_step_post_hook(self._steps),
        ]
        super().__enter__()  # type: ignore[no-untyped-call]  # same
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]  # same
        for handle in self._handles:
            handle.remove()

    def __torch_dispatch__(
        self,
        func: Operator,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run the operator, then see what it allocated."""
        del types
        given = kwargs or {}
        out = func(*args, **given)
        if not is_traced(out):
            self._saw(args, given, out)
        return out

    def follow(self, tensors: Iterable[Tensor]) -> None:
        """Tensors that are there before the step, and may be freed in it."""
        for tensor in tensors:
            self._new(tensor, None)

    def timeline(self) -> AllocationTimeline:
        """What was seen so far."""
        seen = self._seen
        return AllocationTimeline(
            made=tuple(seen.made),
            events=tuple(seen.events),
            backwards=tuple(seen.backwards),
            gradients=frozenset(seen.gradients),
            gradients_bytes=sum(seen.gradients_bytes.values()),
        )

    def line_of(self, storage: int) -> str | None:
        """Where a storage was made, if it was in the step and is alive."""
        known = self._alive.get(storage)
        return None if known is None else self._seen.made[known[0]].line

    def among(self, storages: Collection[int]) -> frozenset[int]:
        """Numbers of the storages made in the step that are alive and among these."""
        return frozenset(
            number
            for storage, (number, _) in self._alive.items()
            if storage in storages and self._seen.made[number].part is not None
        )

    def beyond_bytes(self, storages: Collection[int]) -> int:
        """What the step made and left alive on its device that is none of these."""
        others = (n for storage, (n, _) in self._alive.items() if storage not in storages)
        made = [self._seen.made[number] for number in others]
        return sum(one.size_bytes for one in made if one.device != "cpu")

    def _observe(self, args: Sequence[object], kwargs: Mapping[str, object], out: object) -> None:
        part = self._where.last[0]
        if part == "backward" and self._part == "forward":
            self._seen.backwards.append(len(self._seen.events))
        if part in ("forward", "backward"):
            self._part = part
        fresh = [one for one in tensors_in(out) if _stored(one) and not self._knows(one)]
        if not fresh:
            return
        given = {storage_of(one) for one in tensors_in([*args, *kwargs.values()]) if _stored(one)}
        for tensor in fresh:
            if storage_of(tensor) not in given:
                self._new(tensor, part)

    def _knows(self, tensor: Tensor) -> bool:
        return storage_of(tensor) in self._alive

    def _new(self, tensor: Tensor, part: Part | None) -> None:
        if not _stored(tensor) or self._knows(tensor):
            return
        key = storage_of(tensor)
        storage, number = tensor.untyped_storage(), len(self._seen.made)
        site = self._where.last[1]
        self._seen.made.append(
            Allocation(
                size_bytes=storage.nbytes(),
                device=tensor.device.type,
                part=part,
                module=site.module if part else None,
                line=site.line if part else None,
            )
        )
        self._seen.events.append(number)
        self._alive[key] = (number, weakref.ref(storage, partial(self._freed, key, number)))

    def _freed(self, key: int, number: int, storage: object) -> None:
        del storage
        self._seen.events.append(-number - 1)
        self._alive.pop(key, None)

    def _update(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        del args, kwargs
        held: dict[int, int] = {}
        for group in optimizer.param_groups:
            for gradient in (one.grad for one in group["params"] if one.grad is not None):
                if _stored(gradient):
                    held[storage_of(gradient)] = gradient.untyped_storage().nbytes()
        alive = (self._alive[storage][0] for storage in held if storage in self._alive)
        self._seen.gradients.update(alive)
        before = self._seen.gradients_bytes.get(id(optimizer), 0)
        self._seen.gradients_bytes[id(optimizer)] = max(before, sum(held.values()))


def gradients(model: nn.Module) -> Iterator[Tensor]:
    """Those that there are."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            yield parameter.grad


def _stored(tensor: Tensor) -> bool:
    """Whether it has a storage of its own kind: sparse ones and those without data have none."""
    return tensor.layout is torch.strided and tensor.device.type != "meta"


def storage_of(tensor: Tensor) -> int:
    """Identity of the memory behind a tensor, as long as it lives."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 the only identity of a storage

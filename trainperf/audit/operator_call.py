"""Record of one operator call: the memory it touched and what it computed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload

from trainperf.core.artifacts.audit import Kind, Part


Operator = OpOverload | HigherOrderOperator
"""What is dispatched: an overload of an operator, or one that is given functions."""


def name_of(func: Operator) -> str:
    """The operator without its overload, e.g. `addmm`."""
    return str(func.overloadpacket.__name__ if isinstance(func, OpOverload) else func)


def bound(
    func: Operator, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[tuple[torch.Argument, object]]:
    """The parameters of an operator's schema with what they are given; none without a schema."""
    parameters = func._schema.arguments if isinstance(func, OpOverload) else ()  # noqa: SLF001 no public schema
    for place, parameter in enumerate(parameters):
        yield parameter, args[place] if place < len(args) else kwargs.get(parameter.name)


def names(text: str) -> frozenset[str]:
    """The words of a text, as a table of operators."""
    return frozenset(text.split())


class Access(NamedTuple):
    """One tensor that a call read or wrote."""

    storage: int
    """Address of its storage: the same address is the same place in a cache."""
    size_bytes: int
    """What the call touches of it, elements of a broadcast tensor once."""
    writes: bool
    whole: bool
    """Whether that is all of the storage."""
    new: bool = False
    """Whether the call allocated the storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a call comes from."""

    module: str | None
    line: str | None
    called_at: str | None = None
    """The user's line around it, where it is an installed package's."""
    logs: bool = False
    """Whether a framework's logging makes the call, e.g. Lightning's `self.log`."""
    in_torch: bool = False
    """Whether the module is one of torch itself."""
    composed: bool = False
    """Whether it is, and has others inside, e.g. `nn.MultiheadAttention`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWork:
    """What a call computes."""

    kind: Kind
    flops: int
    repeated_flops: int = 0
    """The part of a contraction's that repeats forward work."""
    counted: bool = True
    """Whether the arithmetic is known; 0 FLOPs otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKind:
    """What calls of one operator have in common that are given tensors of the same layouts."""

    name: str
    """E.g. `aten.addmm.default`."""
    draws: bool = False
    """Whether its result is drawn at random."""
    places: tuple[Access, ...] = ()
    """What a call touches, with places among its tensors, given and returned, for storages."""
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    precision: str
    devices: frozenset[str]
    """Types of the devices of its tensors."""
    work: OperatorWork
    result_dtype: str | None = None
    """Of the first tensor that it returns."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One operator call of the audited step."""

    part: Part
    site: Site
    like: CallKind
    accesses: tuple[Access, ...]
    passes: Mapping[str, int] = field(default_factory=dict)
    """Path of each module that runs to the number of its call."""
    host_ns: int
    busy_ns: int = 0
    """The part of it in which the calling thread computed."""
    before_ns: int = 0
    """Between the call before it, in the same part and thread, and this one; the audit excluded."""
    constant: bool = False
    """Whether it computes with numbers and with results of such calls only."""
    again: bool = False
    """Whether this forward has computed the same before, from the same values."""
    ignored: float = 0.0
    """Of a loss the share of its rows whose target is to be ignored."""

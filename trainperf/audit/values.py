"""Values that storages hold while a step runs, numbered: equal numbers are equal values.

A call of an operator that draws nothing computes the same as one before it where all it is given is
the same.  So what is made of numbers alone is a constant, and what a forward computes again from
the same values need not be computed again.

What is given a graph can take the place only of what has the same one: it has another number than
what was computed without one, or for gradients of other tensors.

An in-place write gives its storage another number.  What nobody told of has a number of its own,
which goes with its storage; what another library writes there, e.g. NumPy, is not seen.  So memory
that is filled with one number is never the same: it may be a kernel's to write.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import count

import torch
from torch import Tensor
from torch._ops import OpOverload

from trainperf.audit.allocations import Storages
from trainperf.audit.nested import tensors_in
from trainperf.audit.operator_call import Access, CallKind, Operator, bound, name_of, names
from trainperf.audit.traffic import layout_of


class Values:
    """Follows what each storage holds through the calls that it is told of, in their order.

    Args:
        storages: Numbers storages.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._numbers = count()
        self._held: dict[int, int] = {}
        """Storage, by number, to the number of its value."""
        self._constant: set[int] = set()
        """Numbers of what is made of numbers alone."""
        self._computed: dict[Hashable, tuple[int, ...]] = {}
        """Call to the numbers of what it has written."""

    def begin_backward(self) -> None:
        """What is computed from here on may be of another graph."""
        self._computed.clear()

    def given_to(self, func: Operator, given: Sequence[Tensor]) -> None:
        """Take what no schema says that it is written: collectives, and others' kernels, write."""
        if not isinstance(func, OpOverload) or not (
            func.namespace == "aten" or func._schema.is_mutable  # noqa: SLF001 no public schema
        ):
            for tensor in given:
                self._hold(tensor, next(self._numbers))

    def made_by(
        self,
        func: Operator,
        like: CallKind,
        accesses: Sequence[Access],
        arguments: tuple[Sequence[object], Mapping[str, object]] | None,
        touched: Mapping[int, Tensor],
        *,
        graph: bool,
    ) -> tuple[bool, bool]:
        """Take a call: whether its result is constant, and whether it has been computed before.

        Args:
            func: What was called.
            like: What calls of this kind are.
            accesses: What it read and wrote.
            arguments: All it was given, where it may be asked for again; else `None`.
            touched: Its tensors, given and returned, by the address of their storage.
            graph: Whether it has made a node of a graph.
        """
        written = tuple(dict.fromkeys(access.storage for access in accesses if access.writes))
        kept = [
            self._number(touched[each.storage])
            for each in accesses
            if not (each.writes and (each.whole or each.new))
        ]
        draws = like.draws and (arguments is None or _draws(func, *arguments))
        constant = bool(written) and not draws and self._constant.issuperset(kept)
        pure = isinstance(func, OpOverload) and func.namespace == "aten" and not draws
        again, numbers = False, tuple(next(self._numbers) for _ in written)
        if pure and arguments is not None and name_of(func) not in _FILLS:
            call = func, len(written), self._signature(arguments)
            learns = graph and tuple(tensor.requires_grad for tensor in tensors_in(arguments))
            again = bool(written) and (call, learns) in self._computed
            numbers = self._computed.setdefault((call, learns), numbers)
            self._computed.setdefault((call, False), numbers)  # without a graph any of them will do
        if constant:
            self._constant.update(numbers)
        for address, number in zip(written, numbers, strict=True):
            self._hold(touched[address], number)
        return constant, again

    def _signature(self, given: object) -> Hashable:
        """Equal for equal arguments: of a tensor its value, and how it looks at its storage."""
        if isinstance(given, Tensor):
            offset = given.storage_offset() if given.layout is torch.strided else 0
            lazy = given.is_conj(), given.is_neg()
            return self._number(given), layout_of(given)[0], offset, lazy
        if isinstance(given, list | tuple):
            return tuple(map(self._signature, given))
        if isinstance(given, dict):
            return tuple((name, self._signature(value)) for name, value in given.items())
        return type(given), repr(given)

    def _number(self, tensor: Tensor) -> int:
        """Of what a tensor's storage holds; a new one where nobody told of it."""
        storage, new = self._storages.number(tensor), next(self._numbers)
        # The memory of some has no identity to go by.
        return new if storage is None else self._held.setdefault(storage, new)

    def _hold(self, tensor: Tensor, number: int) -> None:
        storage = self._storages.number(tensor)
        if storage is not None:
            self._held[storage] = number


_FILLS = names(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill_ zero_"
)


def _draws(func: Operator, given: Sequence[object], named: Mapping[str, object]) -> bool:
    """Whether an operator that may draw does: fused attention without dropout does not."""
    by_name = {parameter.name: value for parameter, value in bound(func, given, named)}
    return bool(by_name.get("dropout_p", True))

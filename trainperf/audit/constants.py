"""Constants: results that are the same in every step, because they derive from numbers alone.

A call that reads only constants, and draws nothing at random, makes another one.  What is older
than the step (batches, parameters, buffers) is never taken for constant.
"""

from collections.abc import Sequence

import torch
from torch._ops import OpOverload

from trainperf.audit.elementwise import Operator, name_of
from trainperf.audit.operator_call import Access
from trainperf.audit.traffic import storages_of


class Constants:
    """Follows what each storage holds while the step runs."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    def forget(self) -> None:
        """Forget everything: memory was used unobserved."""
        self._held.clear()

    def allocated(self, func: Operator, out: object) -> None:
        """A call moved nothing: what it allocated has unknown contents, a view keeps its own."""
        if name_of(func).startswith(("empty", "new_empty", "lift", "resize", "set")):
            self._held.difference_update(storages_of(out))

    def made_by(self, func: Operator, accesses: Sequence[Access]) -> bool:
        """Whether the call's result is constant; remembers it."""
        read = {access.storage for access in accesses if not access.writes}
        written = {access.storage for access in accesses if access.writes}
        kept = {a.storage for a in accesses if a.writes and not (a.whole or a.new)}
        draws = isinstance(func, OpOverload) and torch.Tag.nondeterministic_seeded in func.tags
        constant = bool(written) and not draws and (read | kept) <= self._held
        if constant:
            self._held |= written
        else:
            self._held -= written
        return constant

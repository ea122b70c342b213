"""Which operators of an audited step make and use attention scores that lie in memory?

Eager attention is a product, a softmax over the last of its dimensions and another product; what
is done to the scores in between (scale, mask, dropout) and in backward belongs to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from trainperf.analysis.rules.operators.audited import PASSES, Timed, short
from trainperf.core.artifacts.audit import OperatorUse


SOFTMAX = ("_softmax", "_safe_softmax")
SMALLEST = 32
"""Scores of fewer queries or keys are too small to matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One shape of attention scores."""

    rows: int
    """Queries."""
    columns: int
    """Keys."""
    number: int
    """Elements, over all sequences and heads."""

    def are_in(self, use: OperatorUse) -> bool:
        """Whether an operator reads or makes them."""
        if any(map(self.is_shape, use.shapes)):
            return True
        return self.number == result_of_product(use)

    def is_shape(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of that shape is one of scores, perhaps transposed."""
        if len(shape) < 3 or prod(shape) != self.number:
            return False
        return {shape[-2], shape[-1]} == {self.rows, self.columns}


def result_of_product(use: OperatorUse) -> int | None:
    """Elements of the result of a batched product; `None` for another operator."""
    if short(use) not in ("bmm", "baddbmm") or len(use.shapes) < 2:
        return None
    left, right = use.shapes[-2:]
    return left[0] * left[1] * right[2] if len(left) == len(right) == 3 else None


def attention_rows(rows: Iterable[Timed]) -> list[Timed]:
    """Everything that touches the scores of eager attention, products included."""
    own = [row for row in rows if row.use.part in PASSES]
    kinds = set(_kinds([row.use for row in own]))
    return [row for row in own if any(kind.are_in(row.use) for kind in kinds)]


def _kinds(uses: Sequence[OperatorUse]) -> Iterator[Scores]:
    for use in uses:
        if short(use) not in SOFTMAX or use.part != "forward" or not use.shapes:
            continue
        shape = use.shapes[0]
        if len(shape) < 3 or min(shape[-2:]) < SMALLEST:
            continue
        kind = Scores(rows=shape[-2], columns=shape[-1], number=prod(shape))
        if _made(kind, uses) and _used(kind, uses):
            yield kind


def _made(kind: Scores, uses: Iterable[OperatorUse]) -> bool:
    """Whether a product has such a result."""
    return any(result_of_product(use) == kind.number for use in uses if use.part == "forward")


def _used(kind: Scores, uses: Iterable[OperatorUse]) -> bool:
    """Whether a product takes them as its first factor."""
    forward = (use for use in uses if use.part == "forward")
    return any(
        result_of_product(use) is not None and kind.is_shape(use.shapes[-2]) for use in forward
    )

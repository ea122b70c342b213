"""Products of matrices whose order costs: `(a @ b) @ c` is `a @ (b @ c)`.

With `m` by `k` and `k` by `n` numbers and `p` columns of what follows, `m·n·(k + p)` products of
numbers become `k·p·(m + n)`, and a result of `m` by `n` numbers becomes one of `k` by `p`.  E.g. of
scores of 1,000 by 1,000 between heads of 64 numbers: 128 million become 8 million.

That holds where only products, and sums, read the result, or what is it but for a factor: after a
softmax, a mask or an activation the order is what it is.
"""

from collections.abc import Mapping, Sequence
from math import prod
from operator import itemgetter

from trainperf.audit.operator_call import Call, names
from trainperf.core.artifacts.audit import short_name


def reordered(calls: Sequence[Call]) -> dict[int, float]:
    """Calls of forward products, by identity, to the share of their work in the other order.

    Args:
        calls: In their order.
    """
    results: dict[int, _Product] = {}
    products = []
    for call in calls:
        result = _handed_on(call, results) if call.part == "forward" else None
        if call.part == "forward" and _name(call) in _FIRST and len(call.like.shapes) == 2:
            result = _Product(call)
            products.append(result)
        for access in call.accesses:
            if access.writes:
                results.pop(access.storage, None)
                results |= {} if result is None else {access.storage: result}
    left: dict[int, float] = {}
    for share, members in sorted((each.left() for each in products), key=itemgetter(0)):
        for call in members:
            left.setdefault(id(call), min(1.0, share))
    return left


_FIRST = names("mm bmm")
_SECOND = names("mm bmm addmm baddbmm mv addmv")
_SUMS = names("sum mean")
_SCALED = names("mul mul_ div div_ neg clone")
"""With a number: they hand on a product as it is, but for a factor."""


def _name(call: Call) -> str:
    return short_name(call.like.name)


class _Product:
    """A product of two matrices, or of as many pairs of them as its first shape says."""

    def __init__(self, call: Call) -> None:
        left, right = call.like.shapes
        self.call, self.pairs, self.size = call, left[:-2], (left[-2], right[-1])
        self.readers: list[Call] = []
        self.scaling: list[Call] = []
        """Calls that hand it on."""
        self.mixed = False
        """Whether something else reads it, too."""

    def is_factor(self, call: Call, shape: Sequence[int]) -> bool:
        """Whether a call multiplies all of it, perhaps transposed, or adds it up."""
        flat = (prod(self.pairs) * self.size[0], self.size[1])
        whole = {(*self.pairs, *self.size), (*self.pairs, *self.size[::-1]), flat}
        return _name(call) in _SUMS or (_name(call) in _SECOND and tuple(shape) in whole)

    def left(self) -> tuple[float, Sequence[Call]]:
        """Share of the work that the other order leaves, and whose work that is."""
        (rows, columns), number = self.size, 2 * max(1, prod((*self.pairs, *self.size)))
        multiply = any(reader.like.work.kind == "matmul" for reader in self.readers)
        if self.mixed or not multiply:
            return 1.0, ()
        inner = self.call.like.work.flops / number
        outer = sum(reader.like.work.flops for reader in self.readers) / number
        smaller = inner * outer / (rows * columns)
        share = max(smaller, smaller * (rows + columns) / (inner + outer))
        return share, [self.call, *self.scaling, *self.readers]


def _handed_on(call: Call, results: Mapping[int, _Product]) -> _Product | None:
    """Product that a call hands on; each that it reads is told."""
    shapes = call.like.shapes
    read = [access.storage for access in call.accesses if not access.writes]
    aligned = len(read) == len(shapes)
    result = None
    for at, storage in enumerate(read):
        product = results.get(storage)
        if product is None:
            continue
        # Before the two factors is what is added to their product.
        if aligned and at >= len(shapes) - 2 and product.is_factor(call, shapes[at]):
            product.readers.append(call)
        elif _name(call) in _SCALED and len(shapes) == 1:
            product.scaling.append(call)
            result = product
        else:
            product.mixed = True
    return result

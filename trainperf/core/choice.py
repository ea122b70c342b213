"""A choice as a table: what to say, or do, and when.

Cases stand below each other in the order in which they count, and the last one holds always::

    change = first_that_holds({"one_array": makes_tensors, "write_rarely": writes, "wait": True})
"""

from collections.abc import Mapping
from typing import TypeVar


Case = TypeVar("Case")


def first_that_holds(cases: Mapping[Case, object]) -> Case:
    """The first case whose condition is true.

    Raises:
        StopIteration: None of them is.
    """
    return next(case for case, holds in cases.items() if holds)

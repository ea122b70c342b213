"""A choice as a table: what to say, or do, and when; the first that applies, or all of them.

Cases stand below each other in the order in which they count, and the last one holds always::

    change = first_that_holds(("one_array", makes_tensors), ("write", writes), ("wait", True))
"""

from typing import TypeVar


Case = TypeVar("Case")


def first_that_holds(*cases: tuple[Case, object]) -> Case:
    """The first case whose condition is true.

    Raises:
        StopIteration: None of them is.
    """
    return next(case for case, holds in cases if holds)


def texts_of(*texts: object) -> tuple[str, ...]:
    """Each text that has something to say, of those as `value and f"…{value}"`."""
    return tuple(each for each in texts if isinstance(each, str) and each)


def all_that_hold(*cases: tuple[Case, object]) -> tuple[Case, ...]:
    """The cases whose condition is true, in their order."""
    return tuple(case for case, holds in cases if holds)

"""Members of a family: one file each, named once in a tuple of its package.

A family is a package to which people add: meters, rules, checks, commands.  Its `__init__` lists
the names of its files in display order, and this loads them, so that adding a member is one file
and one line::

    CHECKS = tuple(load_members("trainperf.analysis.doctor", ("steady_state", "loader")))
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any


def load_members(package: str, names: Sequence[str], attribute: str | None = None) -> Iterator[Any]:
    """What the files *names* of *package* define, in order.

    Args:
        package: Dotted name of the family's package.
        names: Files, without `.py`; of a family in folders `"folder.file"`, of several members in
            a file `"file:member"`.
        attribute: What each file defines; by default what bears the file's own name.
    """
    for name in names:
        file, _, member = name.partition(":")
        module = import_module(f"{package}.{file}")
        yield getattr(module, attribute or member or file.rpartition(".")[2])

"""Which scripts are there?  Every module of the folders of `KINDS`, by its name."""

import importlib
import pkgutil
from typing import get_args

import faults
from faults.base import Kind, Script, script_in


def scripts(kind: Kind) -> dict[str, Script]:
    """Name to script, in alphabetical order."""
    package = importlib.import_module(f"{faults.__name__}.{kind}")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = (importlib.import_module(f"{package.__name__}.{name}") for name in names)
    return dict(zip(names, map(script_in, modules), strict=True))


KINDS: tuple[Kind, ...] = get_args(Kind)
HELD_OUT: tuple[Kind, ...] = ("unseen", "fresh")
"""Those that no rule is changed for before they are measured."""

TUNED: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in HELD_OUT)
"""All others: the rules are changed for them."""

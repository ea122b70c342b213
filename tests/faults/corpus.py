"""Which scripts are there?  Every module of the six folders, by its name."""

import importlib
import pkgutil
from typing import get_args

import faults
from faults.base import Kind, Script


def scripts(kind: Kind) -> dict[str, Script]:
    """Name to script, in alphabetical order."""
    package = importlib.import_module(f"{faults.__name__}.{kind}")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"{package.__name__}.{name}").SCRIPT for name in names}


KINDS: tuple[Kind, ...] = get_args(Kind)
TUNED: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in ("unseen", "fresh"))
"""Those that the rules are changed for; the others are measured, and never tuned on."""

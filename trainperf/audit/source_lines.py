"""Lines of source as reports print them: of code, of a dataset, and where a container is filled."""

import functools
import linecache
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import torch
from torch.utils.data import IterableDataset


_TORCH = str(Path(torch.__file__).parent)
_GETITEM = ("__getitems__", "__getitem__")

_METHODS = "append|appendleft|extend|add|insert|update"
_FILLS = rf"\s*(?:\[[^\]]*\]\s*)?(?:\.(?:{_METHODS})\(|\[.*\]\s*=[^=]|\+=)"
"""What follows a name where something is put into what it names."""


def shown_path(file: str) -> str:
    """A file's name as reports print it: relative to the working directory if it lies below."""
    path, here = Path(file), Path.cwd()
    return os.fspath(path.relative_to(here)) if path.is_relative_to(here) else file


def place(file: str, line: int) -> str:
    """`file:line`, the file as `shown_path` has it."""
    return f"{shown_path(file)}:{line}"


def getitem_line(dataset: object) -> str | None:
    """Of the dataset's own class; of the one inside where torch only wraps it."""
    methods = ("__iter__",) if isinstance(dataset, IterableDataset) else _GETITEM
    for inner in _wrapped(dataset):
        for method in methods:
            line = definition_line(getattr(type(inner), method, None))
            if line is not None:
                return line
    return None


def definition_line(function: object) -> str | None:
    """`file:line` of a function, or of the `__call__` of an object; `None` for torch's own."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    if code is None or code.co_filename.startswith(_TORCH):
        return None
    return place(code.co_filename, code.co_firstlineno)


def filled_in(code: CodeType, name: str) -> str:
    """The first line of a function that puts something into the variable *name*; else its own."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    last = max(lines, default=code.co_firstlineno)
    line = _search(code.co_filename, rf"(?<![\w.]){re.escape(name)}", code.co_firstlineno, last)
    return place(code.co_filename, line or code.co_firstlineno)


def filled_as_attribute(file: str, name: str) -> str:
    """The first line of a file that puts something into an attribute *name*; empty if none does."""
    line = _search(file, rf"\.{re.escape(name)}")
    return place(file, line) if line else ""


def filled_as_global(file: str, name: str) -> str:
    """The first line of a file that puts something into its global *name*; empty if none does."""
    line = _search(file, rf"(?<![\w.]){re.escape(name)}")
    return place(file, line) if line else ""


def _wrapped(dataset: object) -> Iterator[object]:
    """It, and what is inside of it."""
    while dataset is not None:
        yield dataset
        dataset = getattr(dataset, "dataset", None)


def _search(file: str, name: str, first: int = 1, last: int | None = None) -> int | None:
    wanted = re.compile(name + _FILLS)
    lines = enumerate(linecache.getlines(file)[first - 1 : last], start=first)
    return next((number for number, line in lines if wanted.search(line)), None)

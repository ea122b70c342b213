"""Where is the code that makes a sample, and the code that makes a batch of samples?"""

import functools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import IterableDataset

from trainperf.audit.stack_frames import shown


_TORCH = str(Path(torch.__file__).parent)
_METHODS = ("__getitems__", "__getitem__")


def getitem_line(dataset: object) -> str | None:
    """Of the dataset's own class; of the one inside where torch only wraps it."""
    methods = ("__iter__",) if isinstance(dataset, IterableDataset) else _METHODS
    for inner in _wrapped(dataset):
        for method in methods:
            line = line_of(getattr(type(inner), method, None))
            if line is not None:
                return line
    return None


def line_of(function: object) -> str | None:
    """`file:line` of a function, or of the `__call__` of an object; `None` for torch's own."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    if code is None or code.co_filename.startswith(_TORCH):
        return None
    return f"{shown(code.co_filename)}:{code.co_firstlineno}"


def _wrapped(dataset: object) -> Iterator[object]:
    """It, and what is inside of it."""
    while dataset is not None:
        yield dataset
        dataset = getattr(dataset, "dataset", None)

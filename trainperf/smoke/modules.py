"""Modules that a step uses, found through what the function refers to, without running it."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType

from torch import nn


_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def modules_of(step: object) -> tuple[nn.Module, ...]:
    """Modules that *step* is, is bound to, closes over, is given as defaults or reads by name."""
    modules = {id(each): each for each in _reached(step) if isinstance(each, nn.Module)}
    return tuple(modules.values())


def dropout_of(step: Callable[..., object]) -> str:
    """The dropout that is on in the step's modules, e.g. `p=0.1 (2 ×)`; `no dropout module`."""
    parts = {id(part): part for module in modules_of(step) for part in module.modules()}
    counts = Counter(
        part.p
        for part in parts.values()
        if isinstance(part, _DROPOUT) and part.training and part.p > 0
    )
    if not counts:
        return "no dropout module that is on"
    return ", ".join(f"dropout p={p:g} ({n} ×)" for p, n in sorted(counts.items()))


def _reached(step: object) -> Iterator[object]:
    yield step
    if isinstance(step, partial):
        for each in (step.func, *step.args, *step.keywords.values()):
            yield from _reached(each)
    elif isinstance(step, MethodType):
        yield step.__self__
        yield from _held(step.__self__)
        yield from _reached(step.__func__)
    elif isinstance(step, FunctionType):
        yield from (cell.cell_contents for cell in step.__closure__ or () if _filled(cell))
        yield from step.__defaults__ or ()
        names = (name for name in step.__code__.co_names if name in step.__globals__)
        yield from (step.__globals__[name] for name in names)
    elif not isinstance(step, nn.Module | type):
        yield from _held(step)


def _held(owner: object) -> Iterator[object]:
    """The attributes of an object that is no module: a trainer class, a callable."""
    if not isinstance(owner, nn.Module):
        yield from getattr(owner, "__dict__", {}).values()


def _filled(cell: object) -> bool:
    return hasattr(cell, "cell_contents")

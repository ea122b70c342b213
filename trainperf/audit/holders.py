"""Containers that hold many tensors, listed once through the garbage collector, and their owners.

Parameters, gradients and optimizer state are not counted; what only C++ holds is not seen.  An
owner is the attribute, variable or closure that names a container.  Searched once, after the fit:
every query to the garbage collector walks all objects.
"""

import gc
import inspect
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from trainperf.audit.allocations import memory_of
from trainperf.audit.stack_frames import filled, filled_in, frames
from trainperf.core.artifacts.memory import Holder


LEAST = 8
"""Containers with fewer tensors are ignored."""

SHOWN = 3
"""Containers that are named: naming one walks all objects."""

_CONTAINERS = frozenset({dict, OrderedDict, defaultdict, list, deque, set})
"""Plain ones: one of another class might compute what it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    """A container and what is in it."""

    container: object
    graphs: int
    sizes: dict[int, int]
    """Identity of the memory to its size."""

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())


def holders(
    named: Collection[int], line_of: Callable[[int], str | None], since: int = 0
) -> tuple[Holder, ...]:
    """The largest containers of tensors and arrays; those that hold graphs come first.

    Args:
        named: Identities of storages that are accounted for.
        line_of: The line that made a storage, if known.
        since: Graphs made before are an earlier fit's; see `attribution.graphs_made`.
    """
    gc.collect()  # garbage is held by nobody
    gatherings = [
        _gathered(container, named, since)
        for container in gc.get_objects()
        if type(container) in _CONTAINERS and _may_hold(container)
    ]
    gatherings = [each for each in gatherings if len(each.sizes) >= LEAST]
    gatherings.sort(key=lambda gathered: (-(gathered.graphs >= LEAST), -gathered.size_bytes))
    outermost: list[_Gathered] = []
    for inner in gatherings:
        if not any(inner.sizes.keys() <= outer.sizes.keys() for outer in outermost):
            outermost.append(inner)
    return tuple(_holder(each, line_of) for each in outermost[:SHOWN])


def _may_hold(container: Any) -> bool:  # noqa: ANN401 one of the plain ones
    """By one element, of a list the newest: to look at all of all containers would take seconds."""
    ends = isinstance(container, list | deque)
    element = next(reversed(container) if ends else iter(_inside(container)), None)
    return _is_data(element) or any(map(_is_data, _inside(element)))


def _inside(element: Any) -> Collection[object]:  # noqa: ANN401 anything
    """What a plain container holds; nothing for anything else."""
    if type(element) is tuple or type(element) in _CONTAINERS:
        values: Collection[object] = element.values() if isinstance(element, dict) else element
        return values
    return ()


def _is_data(value: object) -> bool:
    # By the type: `isinstance` asks the object for its class, which lazy modules answer at length.
    return issubclass(type(value), (Tensor, np.ndarray))


def _gathered(container: object, named: Collection[int], since: int) -> _Gathered:
    """Tensors and arrays in it, and one level deeper; what shares memory counts once."""
    sizes: dict[int, int] = {}
    graphs = 0
    for element in list(_inside(container)):
        for each in (element, *_inside(element)):
            identity, size = _memory(each) if _is_data(each) else (0, 0)
            if size and identity not in named and identity not in sizes:
                sizes[identity] = size
                graphs += _graph_number(each) >= since
    return _Gathered(container=container, graphs=graphs, sizes=sizes)


def _graph_number(element: object) -> int:
    """Number of the node that made a tensor; negative for what hangs on no graph."""
    node = element.grad_fn if isinstance(element, Tensor) else None
    return -1 if node is None else int(node._sequence_nr())  # noqa: SLF001 same


def _memory(element: Any) -> tuple[int, int]:  # noqa: ANN401 a tensor or an array
    """Identity and size of the memory behind an element; views share it."""
    if not isinstance(element, Tensor):
        whole = element.base if isinstance(element.base, np.ndarray) else element
        return id(whole), whole.nbytes
    return memory_of(element)


def _holder(gathered: _Gathered, line_of: Callable[[int], str | None]) -> Holder:
    name, where = next(_owners(gathered.container), ("", ""))
    lines = (line_of(identity) for identity in gathered.sizes)
    return Holder(
        kind=type(gathered.container).__name__,
        name=name,
        where=where,
        count=len(gathered.sizes),
        graphs=gathered.graphs,
        size_bytes=gathered.size_bytes,
        made_at=next(filter(None, lines), ""),
    )


_DEEPEST = 3
"""Containers inside containers that are looked through to find a name."""


def _owners(held: object, depth: int = _DEEPEST) -> Iterator[tuple[str, str]]:
    """Names of an object, and where each is filled.

    Attributes and globals first, then variables of running functions, then closures; then those of
    a container around it.
    """
    referrers = gc.get_referrers(held)
    for referrer in referrers:
        yield from _attribute(referrer, held)
    yield from _variable(held)
    for referrer in referrers:
        if isinstance(referrer, CellType):
            yield from _closure(referrer)
    for referrer in referrers if depth else ():
        if type(referrer) in (list, tuple, dict):
            yield from ((f"{name}[…]", where) for name, where in _owners(referrer, depth - 1))


def _attribute(referrer: object, held: object) -> Iterator[tuple[str, str]]:
    """An attribute of an instance, or a global of a module."""
    if isinstance(referrer, dict) and "__name__" in referrer:
        name, file = _name_in(referrer, held), referrer.get("__file__")
        yield from [(name, filled(file or "", name))] if name else []
        return
    # Since Python 3.11 an instance may refer to its values without a dictionary.
    for instance in gc.get_referrers(referrer) if isinstance(referrer, dict) else [referrer]:
        kind = type(instance)
        if issubclass(kind, (FrameType, FunctionType, ModuleType, CellType, type)):
            continue
        try:
            name = _name_in(object.__getattribute__(instance, "__dict__"), held)
        except AttributeError:
            continue
        if name is not None:
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            owner = kind.__qualname__.rpartition(".")[2]
            yield f"{owner}.{name}", filled(file or "", f".{name}")


def _variable(held: object) -> Iterator[tuple[str, str]]:
    """Variables of running functions, which the collector does not know."""
    for whose, frame in frames():
        code = frame.f_code
        if whose != "user" or not code.co_flags & inspect.CO_OPTIMIZED:
            continue
        local = frame.f_locals
        name = _name_in(dict(local), held)
        if isinstance(local, dict):
            # Until Python 3.12 a function keeps that copy, which would hold the user's tensors.
            local.clear()
        if name is not None:
            yield f"{name} in {code.co_name}()", filled_in(code, name)


def _closure(cell: CellType) -> Iterator[tuple[str, str]]:
    for cells in gc.get_referrers(cell):
        for function in gc.get_referrers(cells) if type(cells) is tuple else ():
            if isinstance(function, FunctionType) and function.__closure__ is cells:
                variables = zip(function.__code__.co_freevars, cells or (), strict=True)
                name = next(name for name, each in variables if each is cell)
                owner = function.__qualname__.rpartition(".")[2]
                yield f"{name} in {owner}()", filled_in(function.__code__, name)


def _name_in(names: Mapping[Any, object], held: object) -> str | None:
    keys = (key for key, value in names.items() if value is held)
    return next((key for key in keys if isinstance(key, str) and key.isidentifier()), None)

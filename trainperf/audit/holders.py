"""Containers that hold many tensors, listed once through the garbage collector, and their owners.

Parameters, gradients and optimizer state are not counted; what only C++ holds is not seen.  An
owner is the attribute, variable or closure that names a container.  Searched once, after the fit:
every query to the garbage collector walks all objects.
"""

import gc
import inspect
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from trainperf.audit.allocations import storage_of
from trainperf.audit.stack_frames import filled, filled_in
from trainperf.audit.stack_frames import owner as owner_of_code
from trainperf.core.artifacts.memory import Holder


LEAST = 8
"""Containers with fewer tensors are ignored."""

SHOWN = 3
"""Containers that are named: naming one walks all objects."""

_MAPPINGS = frozenset({dict, OrderedDict, defaultdict})
_SEQUENCES = frozenset({list, tuple, deque, set})
_CONTAINERS = _MAPPINGS | _SEQUENCES - {tuple}
_Sizes = dict[int, int]
"""Identity of the memory to its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    """A container and what is in it."""

    container: object
    count: int
    graphs: int
    sizes: _Sizes

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
        since: Graphs made before are an earlier fit's; see `graphs_made`.
    """
    gc.collect()  # garbage is held by nobody
    gatherings = [
        gathered
        for container in gc.get_objects()
        if type(container) in _CONTAINERS and _may_hold(container)
        for gathered in _gathered(container, named, since)
    ]
    gatherings.sort(key=lambda gathered: (-(gathered.graphs >= LEAST), -gathered.size_bytes))
    return tuple(_holder(each, line_of) for each in _outermost(gatherings)[:SHOWN])


def _may_hold(container: object) -> bool:
    """By its newest element: to look at all of all containers would take seconds."""
    newest = _newest(container)
    return _is_data(newest) or any(map(_is_data, _inside(newest)))


def _newest(container: object) -> object:
    if not isinstance(container, dict | list | deque | set) or not container:
        return None
    if isinstance(container, dict):
        return next(reversed(container.values()))
    return next(iter(container)) if isinstance(container, set) else container[-1]


def _inside(element: object) -> list[object]:
    """What a plain container holds; one of another class might compute what it is asked for."""
    if type(element) in _MAPPINGS:
        return list(element.values())  # type: ignore[attr-defined]  # checked by its exact type
    return list(element) if type(element) in _SEQUENCES else []  # type: ignore[call-overload]  # same


def _is_data(value: object) -> bool:
    # By the type: `isinstance` asks the object for its class, which lazy modules answer at length.
    return issubclass(type(value), (Tensor, np.ndarray))


def _gathered(container: object, named: Collection[int], since: int) -> Iterator[_Gathered]:
    sizes: _Sizes = {}
    count = graphs = 0
    for element in _elements(container):
        identity, size = _memory(element)
        if size and identity not in named and identity not in sizes:
            sizes[identity] = size
            count += 1
            graphs += _number(element) >= since
    if count >= LEAST:
        yield _Gathered(container=container, count=count, graphs=graphs, sizes=sizes)


def graphs_made() -> int:
    """Number of the next graph node that this thread makes."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001 no public name


def _number(element: object) -> int:
    """Number of the node that made a tensor; negative for what hangs on no graph."""
    node = element.grad_fn if isinstance(element, Tensor) else None
    return -1 if node is None else int(node._sequence_nr())  # noqa: SLF001 same


def _elements(container: object) -> Iterator[object]:
    """Tensors and arrays in it, and one level deeper."""
    for element in _inside(container):
        if _is_data(element):
            yield element
        else:
            yield from filter(_is_data, _inside(element))


def _memory(element: object) -> tuple[int, int]:
    """Identity and size of the memory behind an element; views share it.

    0 for what stands for a tensor without its data, as compilers leave some behind.
    """
    if isinstance(element, Tensor):
        if element.device.type == "meta" or isinstance(element, FakeTensor):
            return id(element), 0
        if element.layout is not torch.strided:
            return id(element), element.numel() * element.element_size()
        try:
            size = element.untyped_storage().nbytes()
        except NotImplementedError:  # of a wrapper, as in `vmap`: the data is another tensor's
            return id(element), 0
        # Another compiler's stand-in has a symbol for its size.
        return storage_of(element), size if isinstance(size, int) else 0
    if isinstance(element, np.ndarray):
        whole = element.base if isinstance(element.base, np.ndarray) else element
        return id(whole), whole.nbytes
    return id(element), 0


def _outermost(gatherings: list[_Gathered]) -> list[_Gathered]:
    """Without those whose memory is all in a container before them."""
    outermost: list[_Gathered] = []
    for inner in gatherings:
        if not any(inner.sizes.keys() <= outer.sizes.keys() for outer in outermost):
            outermost.append(inner)
    return outermost


def _holder(gathered: _Gathered, line_of: Callable[[int], str | None]) -> Holder:
    owner = owner_of(gathered.container) or Owner(name="")
    kind = type(gathered.container).__name__
    lines = (line_of(identity) for identity in gathered.sizes)
    return Holder(
        kind=kind,
        name=owner.name,
        where=owner.where,
        count=gathered.count,
        graphs=gathered.graphs,
        size_bytes=gathered.size_bytes,
        made_at=next(filter(None, lines), ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A name for an object, and where that name is filled."""

    name: str
    where: str = ""


_DEEPEST = 3
"""Containers inside containers that are looked through to find a name."""


def owner_of(held: object, depth: int = 0) -> Owner | None:
    """The first of: an attribute, a variable of a running function, a closure, a global."""
    referrers = gc.get_referrers(held)
    owner = (
        _first(_attribute(referrer, held) for referrer in referrers)
        or _variable(held)
        or _first(_closure(referrer) for referrer in referrers)
        or _first(_global(referrer, held) for referrer in referrers)
    )
    if owner is not None or depth >= _DEEPEST:
        return owner
    for referrer in referrers:
        if type(referrer) in (list, tuple, dict):
            outer = owner_of(referrer, depth + 1)
            if outer is not None:
                return Owner(name=f"{outer.name}[{_key(referrer, held)}]", where=outer.where)
    return None


def _first(candidates: Iterable[Owner | None]) -> Owner | None:
    return next((owner for owner in candidates if owner is not None), None)


def _attribute(referrer: object, held: object) -> Owner | None:
    """Attribute of an instance; since Python 3.11 one may refer to its values without a dict."""
    if isinstance(referrer, (FrameType, FunctionType, ModuleType, CellType, type)):
        return None
    if not isinstance(referrer, dict):
        return _of_instance(referrer, held)
    return _first(
        _of_instance(instance, held)
        for instance in gc.get_referrers(referrer)
        if not isinstance(instance, (FrameType, ModuleType, FunctionType, type))
    )


def _of_instance(instance: object, held: object) -> Owner | None:
    try:
        own = object.__getattribute__(instance, "__dict__")
    except AttributeError:
        return None
    name = _name_in(own, held)
    if name is None:
        return None
    kind = type(instance)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    where = filled(file, f".{name}") if file else ""
    return Owner(name=f"{kind.__qualname__.rpartition('.')[2]}.{name}", where=where)


def _variable(held: object) -> Owner | None:
    """Variable of a running function, which the collector does not know."""
    frame = inspect.currentframe()
    while frame is not None:
        name = _name_in(_variables(frame), held) if owner_of_code(frame.f_code) == "user" else None
        if name is not None and frame.f_code.co_name == "<module>":
            return Owner(name=name, where=filled(frame.f_code.co_filename, name))
        if name is not None:
            return Owner(
                name=f"{name} in {frame.f_code.co_name}()", where=filled_in(frame.f_code, name)
            )
        frame = frame.f_back
    return None


def _variables(frame: FrameType) -> dict[str, object]:
    local = frame.f_locals
    variables = dict(local)
    # Until Python 3.12 a function keeps that copy, which would hold the user's tensors alive.
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(local) is dict:
        local.clear()
    return variables


def _closure(referrer: object) -> Owner | None:
    if not isinstance(referrer, CellType):
        return None
    for function in _functions(referrer):
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            if cell is referrer:
                variable = f"{name} in {function.__qualname__.rpartition('.')[2]}()"
                return Owner(name=variable, where=filled_in(function.__code__, name))
    return None


def _functions(cell: CellType) -> Iterator[FunctionType]:
    for cells in gc.get_referrers(cell):
        if type(cells) is tuple:
            yield from (f for f in gc.get_referrers(cells) if isinstance(f, FunctionType))


def _global(referrer: object, held: object) -> Owner | None:
    if not isinstance(referrer, dict) or "__name__" not in referrer:
        return None
    name = _name_in(referrer, held)
    if name is None:
        return None
    file = referrer.get("__file__")
    return Owner(name=name, where=filled(file, name) if isinstance(file, str) else "")


def _name_in(names: object, held: object) -> str | None:
    if not isinstance(names, Mapping):
        return None
    keys = (key for key, value in names.items() if value is held)
    return next((key for key in keys if isinstance(key, str) and key.isidentifier()), None)


def _key(container: object, held: object) -> str:
    items = container.items() if isinstance(container, dict) else ()
    return next((repr(key) for key, value in items if value is held), "…")

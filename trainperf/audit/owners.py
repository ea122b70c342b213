"""Who holds a container?  The attribute, variable or closure that names it, found by the collector.

Looked for once, after the fit: every question to the collector walks all objects there are.
"""

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType

from trainperf.audit.source_places import filled_as_attribute, filled_as_global, filled_in
from trainperf.audit.stack_frames import owner


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
    for one in referrers:
        attribute = _attribute(one, held)
        if attribute is not None:
            return attribute
    known = _variable(held) or _first(_closure(one) for one in referrers)
    known = known or _first(_global(one, held) for one in referrers)
    if known is not None or depth >= _DEEPEST:
        return known
    for one in referrers:
        if type(one) in (list, tuple, dict):
            outer = owner_of(one, depth + 1)
            if outer is not None:
                return Owner(name=f"{outer.name}[{_key(one, held)}]", where=outer.where)
    return None


def _first(found: Iterable[Owner | None]) -> Owner | None:
    return next((one for one in found if one is not None), None)


def _attribute(one: object, held: object) -> Owner | None:
    """Of an instance: since Python 3.11 it may refer to its values without a dictionary."""
    if isinstance(one, (FrameType, FunctionType, ModuleType, CellType, type)):
        return None
    if not isinstance(one, dict):
        return _of_instance(one, held)
    for instance in gc.get_referrers(one):
        if not isinstance(instance, (FrameType, ModuleType, FunctionType, type)):
            found = _of_instance(instance, held)
            if found is not None:
                return found
    return None


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
    where = filled_as_attribute(file, name) if file else ""
    return Owner(name=f"{kind.__qualname__.rpartition('.')[2]}.{name}", where=where)


def _variable(held: object) -> Owner | None:
    """In the functions that are running, of which the collector knows nothing."""
    frame = inspect.currentframe()
    while frame is not None:
        name = _name_in(_variables(frame), held) if owner(frame.f_code) == "user" else None
        if name is not None and frame.f_code.co_name == "<module>":
            return Owner(name=name, where=filled_as_global(frame.f_code.co_filename, name))
        if name is not None:
            return Owner(
                name=f"{name} in {frame.f_code.co_name}()", where=filled_in(frame.f_code, name)
            )
        frame = frame.f_back
    return None


def _variables(frame: FrameType) -> dict[str, object]:
    kept = frame.f_locals
    variables = dict(kept)
    # Until Python 3.12 a function keeps that copy, which would hold the user's tensors alive.
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(kept) is dict:
        kept.clear()
    return variables


def _closure(one: object) -> Owner | None:
    if not isinstance(one, CellType):
        return None
    for function in _functions(one):
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            if cell is one:
                said = f"{name} in {function.__qualname__.rpartition('.')[2]}()"
                return Owner(name=said, where=filled_in(function.__code__, name))
    return None


def _functions(cell: CellType) -> Iterator[FunctionType]:
    for cells in gc.get_referrers(cell):
        if type(cells) is tuple:
            yield from (f for f in gc.get_referrers(cells) if isinstance(f, FunctionType))


def _global(one: object, held: object) -> Owner | None:
    if not isinstance(one, dict) or "__name__" not in one:
        return None
    name = _name_in(one, held)
    if name is None:
        return None
    file = one.get("__file__")
    return Owner(name=name, where=filled_as_global(file, name) if isinstance(file, str) else "")


def _name_in(names: object, held: object) -> str | None:
    if not isinstance(names, Mapping):
        return None
    return next((key for key, value in names.items() if value is held and _is_name(key)), None)


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _key(container: object, held: object) -> str:
    if isinstance(container, dict):
        return next((repr(key) for key, value in container.items() if value is held), "…")
    return "…"

"""Owners of containers: the attribute, variable or closure that names one.

Searched once, after the fit: every query to the garbage collector walks all objects.
"""

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType

from trainperf.audit.source_lines import filled_as_attribute, filled_as_global, filled_in
from trainperf.audit.stack_frames import owner as owner_of_code


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
    where = filled_as_attribute(file, name) if file else ""
    return Owner(name=f"{kind.__qualname__.rpartition('.')[2]}.{name}", where=where)


def _variable(held: object) -> Owner | None:
    """Variable of a running function, which the collector does not know."""
    frame = inspect.currentframe()
    while frame is not None:
        name = _name_in(_variables(frame), held) if owner_of_code(frame.f_code) == "user" else None
        if name is not None and frame.f_code.co_name == "<module>":
            return Owner(name=name, where=filled_as_global(frame.f_code.co_filename, name))
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
    return Owner(name=name, where=filled_as_global(file, name) if isinstance(file, str) else "")


def _name_in(names: object, held: object) -> str | None:
    if not isinstance(names, Mapping):
        return None
    keys = (key for key, value in names.items() if value is held)
    return next((key for key in keys if isinstance(key, str) and key.isidentifier()), None)


def _key(container: object, held: object) -> str:
    items = container.items() if isinstance(container, dict) else ()
    return next((repr(key) for key, value in items if value is held), "…")

"""Assertion that an object keeps no autograd graph alive; names the path to each tensor."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType

import torch

from trainperf.core.errors import SmokeFailure
from trainperf.core.formatting.units import plural


_SHOWN = 5
_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), type, ModuleType, range)
_Holders = list[tuple[str, str]]


def assert_no_graph_held(obj: object, *, name: str = "obj", allowed: Collection[str] = ()) -> None:
    """Fail if *obj* holds a tensor with a `grad_fn`, in containers or attributes at any depth.

    Such a tensor keeps the activations of its whole step alive.  Looks into mappings, sequences,
    sets, attributes and slots, closures and bound methods; it does not evaluate properties or
    iterators, and cannot see what only C++ holds.  *allowed* are paths (as the message names them)
    that may hold one.
    """
    __tracebackhide__ = True
    holders = [holder for holder in _graphs(obj, name) if holder[0] not in allowed]
    if not holders:
        return
    lines = [f"  {path}: {what}" for path, what in holders[:_SHOWN]]
    if len(holders) > _SHOWN:
        lines.append(f"  … and {len(holders) - _SHOWN:,} more, the last at {holders[-1][0]}")
    keep = "keeps" if len(holders) == 1 else "keep"
    raise SmokeFailure(
        f"{plural(len(holders), 'object')} in {name} {keep} an autograd graph alive, and with it "
        "the activations of that step:\n" + "\n".join(lines),
        "store loss.detach() instead (no synchronisation; .item() waits for the device), and "
        "clear lists of outputs after the step.",
    )


def _graphs(root: object, name: str) -> _Holders:
    """Paths of all graph holders, each object visited once, in breadth-first order."""
    holders: _Holders = []
    visited: dict[int, object] = {}
    waiting: deque[tuple[str, object]] = deque([(name, root)])
    while waiting:
        path, each = waiting.popleft()
        if isinstance(each, _LEAVES) or id(each) in visited:
            continue
        # Kept alive, so that its id is not reused meanwhile.
        visited[id(each)] = each
        what = _holder(each)
        if what:
            holders.append((path, what))
        else:
            waiting.extend((path + step, part) for step, part in _parts(each))
    return holders


def _holder(each: object) -> str:
    """What holds a graph, in words; empty if this does not."""
    if isinstance(each, torch.Tensor):
        if each.grad_fn is None:
            return ""
        dtype = str(each.dtype).removeprefix("torch.")
        shape = "×".join(map(str, each.shape)) or "scalar"
        return f"tensor {shape} {dtype}, grad_fn={type(each.grad_fn).__name__}"
    if isinstance(each, torch.autograd.graph.Node):
        return f"the graph node {type(each).__name__} itself"
    return ""


def _parts(each: object) -> Iterator[tuple[str, object]]:
    if isinstance(each, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in list(each.items()))
        yield from ((f".keys()[{at}]", key) for at, key in enumerate(list(each)))
    elif isinstance(each, list | tuple | deque):
        yield from ((f"[{at}]", value) for at, value in enumerate(each))
    elif isinstance(each, set | frozenset):
        yield from ((f"{{{at}}}", value) for at, value in enumerate(each))
    elif isinstance(each, torch.Tensor):
        yield ".grad", each.grad if each.is_leaf else None
    elif isinstance(each, partial):
        yield from ((".func", each.func), (".args", each.args), (".keywords", each.keywords))
    elif isinstance(each, MethodType):
        yield ".__self__", each.__self__
    elif isinstance(each, FunctionType):
        yield from _closure(each)
    yield from _attributes(each)


def _closure(function: FunctionType) -> Iterator[tuple[str, object]]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        if hasattr(cell, "cell_contents"):
            yield f".<closure>.{name}", cell.cell_contents


def _attributes(each: object) -> Iterator[tuple[str, object]]:
    """Instance attributes and slots, read without calling the user's code."""
    held = getattr(each, "__dict__", None)
    if isinstance(held, dict):
        for key, value in list(held.items()):
            # What nn.Module keeps in its private mappings is named as its users name it.
            if key in {"_parameters", "_buffers", "_modules"} and isinstance(value, dict):
                yield from ((f".{inner}", part) for inner, part in list(value.items()))
            else:
                yield f".{key}", value
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in {"__dict__", "__weakref__"} and hasattr(each, slot):
                yield f".{slot}", getattr(each, slot)

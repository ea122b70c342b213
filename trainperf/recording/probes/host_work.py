"""Work of a running frame on the host that cannot be a tensor operation.

A call into C leaves no frame of its own: at `x = x @ w` the innermost frame is the user's, as it is
at `time.sleep(1)`.  The instruction it stands at tells them apart.  The interpreter is left in
loops and as functions begin only where it has run Python for a while; a call names what is called.
Everything that might be an operator, such as a method of an unknown object, counts as one.
"""

import ast
import builtins
import dis
import inspect
import linecache
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType

import torch

from trainperf.core.artifacts.lines import OBJECTS, STALLS


PYTHON = "Python"
"""The interpreter itself."""

HOST_PACKAGES = frozenset(
    {"PIL", "imageio", "matplotlib", "nltk", "numpy", "pandas", "regex", "requests", "scipy"}
    | {"skimage", "sklearn", "urllib3"}
)
"""Installed ones that run no operator of torch."""

CALLERS = frozenset(
    {
        "_weakrefset",
        "abc",
        "asyncio",
        "ast",
        "concurrent",
        "contextlib",
        "copy",
        "enum",
        "functools",
    }
    | {"collections", "importlib", "inspect", "itertools", "linecache", "math", "multiprocessing"}
    | {"operator", "queue", "selectors", "threading", "traceback", "typing", "warnings", "weakref"}
)
"""Modules of the standard library that call back, wait for other threads, or run inside torch."""

_FROM_VALUES = (torch.tensor, torch.as_tensor)
"""Go through lists and arrays value by value, in Python's own types, before there is a tensor."""

DEVICE_CALLS: Mapping[CodeType, str] = {
    function.__code__: f"torch.{kind}.{name}"
    for kind in ("accelerator", "cuda", "mps", "xpu")
    for name in STALLS
    if isinstance(function := getattr(getattr(torch, kind, None), name, None), FunctionType)
}
"""Code of torch that has the host wait for a device, or its allocator give memory back."""

OBJECT_CALLS: Mapping[CodeType, str] = {
    inspect.unwrap(function).__code__: f"torch.distributed.{name}"
    for name in OBJECTS
    if isinstance(function := getattr(torch.distributed, name, None), FunctionType)
}
"""Code of torch that sends objects between ranks: pickled, on the host."""

_MOST_FILES = 20_000

_LOOPS = ("RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")
_CALLS = ("PRECALL", "CALL")
_PLAIN = frozenset({"chr", "input", "isinstance", "len", "open", "ord", "print", "range"})
"""Built-in functions that call no operator, whatever they are given; `sum` may."""
_METHODS = frozenset(
    name
    for kind in (str, bytes, bytearray, list, dict, set, re.Pattern, re.Match)
    for name in dir(kind)
    if not name.startswith("_")
).difference(dir(torch.Tensor), dir(torch.nn.Module), dir(torch.nn.ModuleDict), ["get"])


def host_work(frame: FrameType, package: str | None) -> str:
    """Such as `Python`, `time.sleep` or `json`; empty where it may be an operator.

    Args:
        frame: The innermost one.
        package: Top name of the library whose code it runs; `None` for the user's own.
    """
    if package is not None:
        return package if package in HOST_PACKAGES or _standard(package) else ""
    code = frame.f_code
    # Before its first instruction a frame stands at -1.
    instruction = dis.opname[code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""
    if instruction.startswith(_LOOPS):
        return PYTHON
    if instruction.startswith(_CALLS):
        return called(_source(code, frame.f_lasti), code, frame.f_globals)
    return ""


@lru_cache(_MOST_FILES)
def package_of(file: str) -> str:
    """Top name of the library a file belongs to: a folder's or its own."""
    parts = Path(file).parts
    roots = [at for at, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    # The standard library's: below `lib/python3.11`.
    roots = roots or [at for at, part in enumerate(parts) if part.startswith("python3.")]
    return Path(parts[roots[-1] + 1]).stem if roots and roots[-1] + 1 < len(parts) else ""


def _standard(module: str) -> bool:
    # What is written in C names its module with an underscore before it, as `_functools`.
    return module in sys.stdlib_module_names and CALLERS.isdisjoint({module, module.lstrip("_")})


def _source(code: CodeType, offset: int) -> str:
    """The expression that the instruction at *offset* runs; empty without its source."""
    positions = getattr(code, "co_positions", None)  # Python 3.11 has it
    span = None if positions is None else next(islice(positions(), offset // 2, None), None)
    if span is None or None in span:
        return ""
    first, last, begin, end = span
    lines = [line.encode() for line in linecache.getlines(code.co_filename)[first - 1 : last]]
    source = b"".join(lines)
    if not source or source[:begin].rstrip().endswith(b"."):  # a part of an expression
        return ""
    return source[begin : len(source) - len(lines[-1]) + end].decode(errors="replace")


def called(source: str, code: CodeType, space: Mapping[str, object]) -> str:
    """Name of the function that a call calls, if it is one that cannot be an operator."""
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(call, ast.Call):
        return ""
    name = ast.unparse(call.func)
    owner, _, method = name.rpartition(".")
    function = _resolved(name.split("."), code, space)
    if function is None:
        return method if owner and method in _METHODS else ""
    return name if _is_plain(function) else ""


def _resolved(names: list[str], code: CodeType, space: Mapping[str, object]) -> object | None:
    """A global function, or one of a module that is a global; `None` for anything else."""
    if names[0] in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return None
    value = space.get(names[0], getattr(builtins, names[0], None))
    for name in names[1:]:
        if not isinstance(value, ModuleType):
            return None
        value = vars(value).get(name)
    return value


def _is_plain(function: object) -> bool:
    if any(function is each for each in _FROM_VALUES):
        return True
    owner = getattr(function, "__self__", None)
    kind = function if owner is None else type(owner)
    module = owner.__name__ if isinstance(owner, ModuleType) else getattr(kind, "__module__", "")
    top = str(module).partition(".")[0]
    if top in ("builtins", "_io"):
        return getattr(function, "__name__", "") in _PLAIN
    return top in HOST_PACKAGES or _standard(top)

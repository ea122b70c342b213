"""Python frames and lines of source: who owns them, and how reports print them."""

import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Literal

import torch
from torch.optim import Optimizer


Owner = Literal[
    "user", "framework", "torch", "checkpoint", "backward", "update", "logging", "audit"
]
"""`checkpoint`, `backward` and `update` are torch's own: activation checkpointing, the call that
begins a backward, and the work of an update (optimizers, gradient clipping, unscaling); `logging`
is the part of a framework that keeps and writes metrics."""

TORCH = Path(torch.__file__).parent
OURS = Path(__file__).parent.parent
_AUDIT = (f"{Path(__file__).parent}{os.sep}", str(OURS / "recording" / "guard.py"))
"""Its own files, and the guard around what torch calls of them."""
STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = ("site-packages", "dist-packages")
_FRAMEWORKS = (
    "lightning",
    "lightning_fabric",
    "lightning_utilities",
    "pytorch_lightning",
    "torch",
    "torchgen",
)
_LOGGING = "logger_connector"
"""Lightning's package behind `self.log`."""
_CLOSURE = "loops/optimization/automatic.py"
"""Lightning runs forward and backward in there, inside the optimizer's step."""

_LOG = ("log", "_LightningModule__to_tensor", "__to_tensor")
"""Functions of the module that do a part of it."""

_PARTS_OF_TORCH: dict[str, Owner] = {
    "utils/checkpoint.py": "checkpoint",
    "autograd/__init__.py": "backward",
    "optim": "update",
    "nn/utils/clip_grad": "update",
    "amp/grad_scaler.py": "update",
}
"""What paths in there begin with."""
_NO_UPDATE = ("scale", "apply_scale")
"""Functions of the GradScaler that belong to forward: they scale the loss."""


def frames() -> Iterator[tuple[Owner, FrameType]]:
    """The running frames from the innermost one, those of the audit excluded."""
    for frame, _ in walk_stack(inspect.currentframe()):
        whose = owner(frame.f_code)
        if whose != "audit":
            yield whose, frame


def in_closure() -> bool:
    """Whether the optimizer has called back, and what runs is the step that it asks for."""
    for whose, frame in frames():
        if whose == "update" or frame.f_code.co_filename.endswith(_CLOSURE):
            return whose != "update"
    return False


def in_update() -> bool:
    """Whether an optimizer's `step` goes on in this thread: torch's own wrapper around it."""
    step = Optimizer.profile_hook_step.__code__.co_filename
    codes = (frame.f_code for _, frame in frames())
    return any(code.co_name == "wrapper" and code.co_filename == step for code in codes)


def line_of(frame: FrameType) -> str:
    """`file:line`, the file as `shown_path` has it."""
    return place(frame.f_code.co_filename, frame.f_lineno)


def caller_of(frame: FrameType) -> str | None:
    """The innermost line of the user's own code around a line of an installed package.

    `None` where the line is the user's own, or no such code is running.
    """
    if not in_package(frame.f_code.co_filename):
        return None
    for outer, _ in walk_stack(frame):
        if owner(outer.f_code) == "user" and not in_package(outer.f_code.co_filename):
            return line_of(outer)
    return None


def owner(code: CodeType) -> Owner:
    """Whose code that is, by its file."""
    # Not by the code itself, whose hash is that of all its instructions.
    return _owner(code.co_filename, code.co_name)


@lru_cache(maxsize=4096)
def _owner(file: str, function: str) -> Owner:
    if file.startswith("<"):
        return "user" if file.startswith(("<ipython", "<stdin")) else "framework"
    path = Path(file)
    if path.is_relative_to(TORCH):
        return _part_of_torch(path.relative_to(TORCH).as_posix(), function)
    if path.is_relative_to(OURS):
        return "audit" if file.startswith(_AUDIT) else "framework"
    if inside := in_package(file):
        if inside[0] not in _FRAMEWORKS:
            return "user"
        logs = _LOGGING in path.parts or (path.name == "module.py" and function in _LOG)
        return "logging" if logs else "framework"
    return "framework" if path.is_relative_to(STANDARD) else "user"


def _part_of_torch(path: str, function: str) -> Owner:
    inside = (whose for start, whose in _PARTS_OF_TORCH.items() if path.startswith(start))
    whose: Owner = "update" if function == "zero_grad" else next(inside, "torch")
    return "torch" if whose == "update" and function in _NO_UPDATE else whose


@lru_cache(maxsize=4096)
def in_package(file: str) -> tuple[str, ...]:
    """The parts of a path from an installed package on; empty for a file that is not installed."""
    parts = Path(file).parts
    tops = [at for at, part in enumerate(parts) if part in _INSTALLED]
    return parts[tops[-1] + 1 :] if tops else ()


_METHODS = "append|appendleft|extend|add|insert|update"
_FILLS = rf"\s*(?:\[[^\]]*\]\s*)?(?:\.(?:{_METHODS})\(|\[.*\]\s*=[^=]|\+=)"
"""What follows a name where something is put into what it names."""


def shown_path(file: str) -> str:
    """A file's name as reports print it.

    Of an installed package from the package on, e.g. `torchmetrics/metric.py`; else relative to the
    working directory or to the script's, if it lies below one of them.
    """
    path = Path(file)
    if inside := in_package(file):
        return os.fspath(Path(*inside))
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    for base in (Path.cwd(), *([Path(script).resolve().parent] if script else [])):
        if path.is_relative_to(base):
            return os.fspath(path.relative_to(base))
    return file


_shown_path = lru_cache(maxsize=4096)(shown_path)
"""Called for every operator of an audited step."""


def place(file: str, line: int) -> str:
    """`file:line`, the file as `shown_path` has it."""
    return f"{_shown_path(file)}:{line}"


def filled(file: str, name: str, first: int = 1, last: int | None = None) -> str:
    """The first line of a file that puts something into what has this name; empty if none does.

    Args:
        file: Source.
        name: Of a variable; with a dot before it, of an attribute of anything.
        first: Line to begin with.
        last: Line to end with.
    """
    own = re.escape(name) if name.startswith(".") else rf"(?<![\w.]){re.escape(name)}"
    wanted = re.compile(own + _FILLS)
    lines = enumerate(linecache.getlines(file)[first - 1 : last], start=first)
    return next((place(file, number) for number, line in lines if wanted.search(line)), "")


def filled_in(code: CodeType, name: str) -> str:
    """The same of a variable of a function; else the function's own line."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    first, last = code.co_firstlineno, max(lines, default=code.co_firstlineno)
    return filled(code.co_filename, name, first, last) or place(code.co_filename, first)

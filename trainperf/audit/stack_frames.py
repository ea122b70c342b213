"""Owners of Python frames: the user, torch, or a framework in between."""

import inspect
import os
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Literal

import torch

from trainperf.audit.source_lines import shown_path


Owner = Literal["user", "framework", "torch", "checkpoint", "update", "logging"]
"""`checkpoint` and `update` are torch's own: activation checkpointing, and the work of an update
(optimizers, gradient clipping, unscaling); `logging` is the part of a framework that keeps and
writes metrics."""

_TORCH = Path(torch.__file__).parent
_OURS = Path(__file__).parent.parent
_AUDIT = f"{Path(__file__).parent}{os.sep}"
_STANDARD = Path(sysconfig.get_path("stdlib"))
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

_UPDATES = ("optim", "nn/utils/clip_grad.py", "nn/utils/clip_grad_norm.py", "amp/grad_scaler.py")
_NO_UPDATE = ("scale", "apply_scale")
"""Functions of the GradScaler that belong to forward: they scale the loss."""


_shown_path = lru_cache(maxsize=4096)(shown_path)
"""Called for every operator of an audited step."""


def frames() -> Iterator[tuple[Owner, FrameType]]:
    """The running frames from the innermost one, those of the audit excluded."""
    frame = inspect.currentframe()
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_AUDIT):
            yield owner(frame.f_code), frame
        frame = frame.f_back


def in_closure() -> bool:
    """Whether the optimizer has called back, and what runs is the step that it asks for."""
    for owner_, frame in frames():
        if owner_ == "update":
            return False
        if frame.f_code.co_filename.endswith(_CLOSURE):
            return True
    return False


def line_of(frame: FrameType) -> str:
    """`file:line`, the file relative to the working directory where it lies below it."""
    return f"{_shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def is_torchmetrics(frame: FrameType) -> bool:
    """Whether that library's code runs."""
    return f"{os.sep}torchmetrics{os.sep}" in frame.f_code.co_filename


@lru_cache(maxsize=4096)
def owner(code: CodeType) -> Owner:
    """Whose code that is, by its file."""
    name = code.co_filename
    if name.startswith("<"):
        return "user" if name.startswith(("<ipython", "<stdin")) else "framework"
    path = Path(name)
    if path.is_relative_to(_TORCH):
        return _part_of_torch(path.relative_to(_TORCH).as_posix(), code.co_name)
    if path.is_relative_to(_OURS):
        return "framework"
    package = _package(path)
    if package in _FRAMEWORKS:
        logs = _LOGGING in path.parts or (path.name == "module.py" and code.co_name in _LOG)
        return "logging" if logs else "framework"
    if package is not None:
        return "user"
    return "framework" if path.is_relative_to(_STANDARD) else "user"


def _part_of_torch(path: str, function: str) -> Owner:
    if path == "utils/checkpoint.py":
        return "checkpoint"
    updates = path.startswith(_UPDATES) and function not in _NO_UPDATE
    return "update" if updates or function == "zero_grad" else "torch"


def _package(path: Path) -> str | None:
    """The installed package that a file belongs to; `None` for a file that is not installed."""
    parts = path.parts
    place = next((at for at, part in enumerate(parts) if part in _INSTALLED), None)
    return None if place is None or place + 1 >= len(parts) else parts[place + 1]

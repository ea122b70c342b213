"""Out-of-memory errors: what asked for how much, read from the exception that ended the fit."""

import re
from traceback import walk_tb
from types import FrameType
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

from trainperf.accelerators import accelerator_in_use
from trainperf.audit.stack_frames import owner, place
from trainperf.core.artifacts.memory import OutOfMemory


During = Literal["forward", "backward", "optimizer", "elsewhere"]

_OUT_OF_MEMORY = re.compile(
    r"out of memory|not enough memory|can't allocate memory|unable to allocate|alloc_failed",
    re.IGNORECASE,
)
_WORKSPACE = re.compile(r"(cublas|cudnn|cusolver|cusparse)_status_alloc_failed", re.IGNORECASE)
_REQUESTED = re.compile(
    r"(?:tried to allocate|unable to allocate)\s+([\d.]+)\s*(bytes|KiB|MiB|GiB|TiB|PiB|EiB)",
    re.IGNORECASE,
)
_UNITS = {"bytes": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40, "pib": 50, "eib": 60}


def out_of_memory(error: BaseException | None) -> OutOfMemory | None:
    """The allocation that failed; `None` if *error* is about something else."""
    if error is None or not _ran_out(error):
        return None
    message, accelerator = str(error), accelerator_in_use()
    requested = _REQUESTED.search(message)
    steps = list(walk_tb(error.__traceback__))[::-1]  # the innermost frame first
    return OutOfMemory(
        during=_during(steps),
        workspace=_WORKSPACE.search(message) is not None,
        requested_bytes=requested
        and round(float(requested[1]) * (1 << _UNITS[requested[2].lower()])),
        # Most that was on the current device; where nothing ever was there is none.
        allocated_bytes=None if accelerator is None else accelerator.peak_bytes() or None,
        where=next(
            (place(f.f_code.co_filename, n) for f, n in steps if owner(f.f_code) == "user"), ""
        ),
    )


def _ran_out(error: BaseException) -> bool:
    says_so = isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None
    return says_so or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def _during(steps: list[tuple[FrameType, int]]) -> During:
    """The innermost frame that tells: a framework may run all of a step inside the update."""
    for frame, _ in steps:
        instance = frame.f_locals.get("self")
        if isinstance(instance, Optimizer):
            return "optimizer"
        if "autograd" in frame.f_code.co_filename and owner(frame.f_code) == "torch":
            return "backward"
        if isinstance(instance, nn.Module) and frame.f_code.co_name != "backward":
            return "forward"
    return "elsewhere"

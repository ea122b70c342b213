"""What of a process, and of what is trained in it, somebody may have replaced."""

import gc
import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterable

import psutil
import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers


def of_process() -> dict[str, object]:
    """Everything common to a process that hooks are put into, and its children."""
    hooks = {
        name: list(value.values())
        for place in (modules, optimizers)
        for name, value in vars(place).items()
        if name.startswith("_global") and isinstance(value, dict)
    }
    monitoring = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(number) for number in range(6)] if monitoring else []
    return {
        **hooks,
        "meta_path": list(sys.meta_path),
        "monitoring": tools,
        "gc": list(gc.callbacks),
        "trace": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "hooks of sys": (sys.excepthook, sys.unraisablehook, sys.displayhook),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "dispatch modes": torch.utils._python_dispatch._len_torch_dispatch_stack(),
        "children": {child.pid for child in psutil.Process().children(recursive=True)},
        "workers": set(multiprocessing.active_children()),
        "threads": {thread for thread in threading.enumerate() if "trainperf" in thread.name},
    }


def replaced(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """The names of what is no longer the same."""
    return [name for name in before if after[name] != before[name]]


def left_on(parts: Iterable[object]) -> list[str]:
    """Hooks of modules and optimizers, and whatever of ours stands on an object of somebody's."""
    left = []
    for part in parts:
        for name, value in vars(part).items():
            hooks = "hook" in name and isinstance(value, dict) and value
            if hooks or str(getattr(value, "__module__", "")).startswith("trainperf."):
                left.append(f"{type(part).__name__}.{name}")
    return left

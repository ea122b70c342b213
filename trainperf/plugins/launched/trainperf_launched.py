"""Entry points of processes that `trainperf run` starts, for Lightning and PyTorch.

This folder is on the path of those processes and of no others.  A process may be of another Python,
in which trainperf is not installed: it trains as ever, and is not measured.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lightning_callbacks() -> list[object]:
    """What Lightning attaches to a new Trainer."""
    return _ask("lightning_factory", "callbacks") or []


def torch_loaded() -> None:
    """Called by PyTorch as it is imported: entry points named `torch.backends`."""
    _ask("torch_start", "begin")


def _ask(module: str, function: str) -> Any:  # noqa: ANN401 each answers in its own way
    """The answer of a plugin; `None` where it cannot be loaded."""
    try:
        answer: Callable[[str], object] = getattr(
            import_module(f"trainperf.plugins.{module}"), function
        )
    except ImportError as error:
        sys.stderr.write(f"trainperf: not measured, {sys.executable} cannot load it: {error}\n")
        return None
    return answer(os.environ.get("TRAINPERF_RUN", ""))

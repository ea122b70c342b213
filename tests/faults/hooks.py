"""Callbacks that do something after every batch."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback


class After(Callback):
    """Does one thing after each batch."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def on_train_batch_end(self, *hook: Any) -> None:
        """That thing."""
        self._act()


def sleeping(seconds: float) -> Callback:
    """Waits for something that has nothing to do with training."""
    return After(lambda: time.sleep(seconds))


def writing(path: Path, size_bytes: int) -> Callback:
    """Writes a file anew."""
    content = b"x" * size_bytes
    return After(lambda: path.write_bytes(content) and None)

"""Modules that Fabric sets up, each with the precision that a recording from outside names.

Fabric has no callback around loaders, forward or backward: its loops are recorded as plain ones.
"""

from typing import Protocol
from weakref import WeakKeyDictionary

from torch import nn


PRECISIONS: "WeakKeyDictionary[nn.Module, str]" = WeakKeyDictionary()
"""Mixed precision of each module that Fabric has set up in this process."""


class _Precision(Protocol):
    precision: str


class _Strategy(Protocol):
    precision: _Precision


class _Fabric(Protocol):
    strategy: _Strategy


class FabricSetup:
    """A callback of Fabric's."""

    def on_after_setup(self, fabric: _Fabric, module: nn.Module) -> None:
        """A module is ready to be trained."""
        PRECISIONS[module] = str(fabric.strategy.precision.precision)

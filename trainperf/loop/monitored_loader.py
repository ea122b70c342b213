"""A loader for frameworks whose own loop iterates over it: its epochs go through a monitor."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from trainperf.loop.monitor import LoopMonitor


T = TypeVar("T")


class MonitoredLoader(Generic[T]):
    """A loader that is handed to a framework in place of the user's.

    Everything but iteration is the user's loader's own.

    Args:
        monitor: Measures each epoch, as `monitor.batches(loader)` does.
        loader: The user's.
    """

    def __init__(self, monitor: LoopMonitor, loader: Iterable[T]) -> None:
        self.loader = loader
        self._monitor = monitor

    def __iter__(self) -> Iterator[T]:
        return self._monitor.batches(self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # it raises where there is no length

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 whatever the loader has
        if name == "loader":  # while it is copied or unpickled there is none
            raise AttributeError(name)
        return getattr(self.loader, name)

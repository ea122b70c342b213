"""A loader for frameworks whose own loop iterates over it: its epochs go through a monitor."""

from collections.abc import Iterable, Iterator

from trainperf.loop.monitor import LoopMonitor
from trainperf.loop.prepared_loaders import StandIn, T


class MonitoredLoader(StandIn[T]):
    """A loader that is handed to a framework in place of the user's.

    Everything but iteration is the user's loader's own.

    Args:
        monitor: Measures each epoch, as `monitor.batches(loader)` does.
        loader: The user's.
    """

    def __init__(self, monitor: LoopMonitor, loader: Iterable[T]) -> None:
        super().__init__(loader)
        self._monitor = monitor

    def __iter__(self) -> Iterator[T]:
        return self._monitor.batches(self.loader)

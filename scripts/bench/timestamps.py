"""Lower bound of the overhead of any instrument in a plain loop: it only reads the clock.

It stands in the same places of the loop as our monitor: what it costs is the price of the calls.
"""

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from types import TracebackType
from typing import TypeVar


T = TypeVar("T")

_MOST = 1000
"""Timestamps kept before they are forgotten."""


class _Phase:
    """Notes when a phase begins and ends."""

    __slots__ = ("_note",)

    def __init__(self, times: list[int]) -> None:
        self._note = times.append

    def __enter__(self) -> None:
        self._note(perf_counter_ns())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._note(perf_counter_ns())


class Timestamps:
    """As much of a monitor's interface as the loop uses."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._phases = {name: _Phase(self._times) for name in ("forward", "backward", "optimizer")}

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches."""
        iterator = iter(loader)
        while True:
            self._times.append(perf_counter_ns())
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._times.append(perf_counter_ns())
            yield batch

    def phase(self, name: str) -> _Phase:
        """A phase by name."""
        return self._phases[name]

    def end_step(self, loss: object) -> None:
        """The step is over."""
        del loss
        self._times.append(perf_counter_ns())
        if len(self._times) > _MOST:
            self._times.clear()

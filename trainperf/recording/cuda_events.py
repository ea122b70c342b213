"""Timing events of one CUDA device, whichever device is current."""

from collections.abc import Callable

import torch

from trainperf.core.machine.clocks import TimingEvent


def events_of(device: torch.device) -> Callable[[], TimingEvent]:
    """Makes events that are recorded on *device*'s current stream."""
    return lambda: _event(device)


def _event(device: torch.device) -> TimingEvent:
    if device.index in (None, torch.cuda.current_device()):
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return _EventElsewhere(device)


class _EventElsewhere:
    """An event on a device that is not the current one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def record(self, stream: object = None, /) -> None:
        """Stand behind everything queued on the device's current stream."""
        del stream
        self._event.record(torch.cuda.current_stream(self._device))

    def query(self) -> bool:
        """Whether the device has come here."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def elapsed_time(self, end_event: "_EventElsewhere", /) -> float:
        """Milliseconds to *end_event*."""
        return float(self._event.elapsed_time(end_event._event))  # noqa: SLF001 the other of a pair

    def synchronize(self) -> None:
        """Wait for the device to come here: for the one drain at the end of a fit."""
        self._event.synchronize()

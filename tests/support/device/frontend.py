"""`torch.threaded`: what PyTorch and users of the device ask of its Python module."""

import atexit
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from support.device.build import extension
from torch.utils import backend_registration


NAME = "threaded"

_initialized = True
"""Recomputing keeps the state of a device's generator only where this is true."""

PINNED = {
    "pin_memory": True,
    "pin_memory_device": NAME if torch.__version__.startswith("2.6.") else "",
}
"""Options of a loader that pins its batches: before torch 2.7 it does so for CUDA unless told."""

Place = torch.device | str | int | None


@functools.cache
def attach() -> None:
    """Register the device: before the first backward pass, which starts a thread per device."""
    backend = extension()
    backend_registration.rename_privateuse1_backend(NAME)
    backend.attach()
    torch._register_device_module(NAME, sys.modules[__name__])  # type: ignore[no-untyped-call]
    backend_registration.generate_methods_for_privateuse1_backend()
    atexit.register(backend.let_go)  # no thread may run when the process ends


def index_of(device: Place) -> int:
    """Return the number of a device; the current one without a number."""
    if isinstance(device, str):
        device = torch.device(device)
    index = device.index if isinstance(device, torch.device) else device
    return current_device() if index is None else index


def is_available() -> bool:
    """Tell that the device is there."""
    return True


def is_initialized() -> bool:
    """Tell that the device can be used."""
    return True


def _is_in_bad_fork() -> bool:
    """Tell that no forked process asks."""
    return False


def _lazy_init() -> None:
    """Do nothing: there is nothing to start."""


def device_count() -> int:
    """Return the number of devices."""
    return extension().device_count()


def current_device() -> int:
    """Return the number of this thread's current device."""
    return extension().current_device()


def set_device(device: Place) -> None:
    """Make a device this thread's current one."""
    extension().set_device(index_of(device))


class device:  # noqa: N801 the name that backends have
    """Makes a device the current one for a while."""

    def __init__(self, place: Place) -> None:
        self._index, self._before = index_of(place), 0

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._index)

    def __exit__(self, *error: object) -> None:
        set_device(self._before)


def get_device_name(device: Place = None) -> str:
    """Return the name of a device."""
    return f"streams in threads {index_of(device)}"


def synchronize(device: Place = None) -> None:
    """Wait for everything that is queued on a device."""
    extension().synchronize(index_of(device))


def current_stream(device: Place = None) -> torch.Stream:
    """Return this thread's current stream of a device."""
    return torch.accelerator.current_stream(index_of(device))


@contextmanager
def stream(chosen: torch.Stream) -> Iterator[None]:
    """Make a stream the current one, and its device too."""
    device, before = current_device(), torch.accelerator.current_stream(chosen.device.index)
    torch.accelerator.set_stream(chosen)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
        set_device(device)


def Stream(device: Place = None) -> torch.Stream:  # noqa: N802 the name that backends have
    """Return another stream of a device."""
    return torch.Stream(device=torch.device(NAME, index_of(device)))


def Event(*, enable_timing: bool = False) -> torch.Event:  # noqa: N802 the name that backends have
    """Return an event that has not been recorded."""
    return torch.Event(device=NAME, enable_timing=enable_timing)


def is_current_stream_capturing() -> bool:
    """Tell whether what is queued now becomes part of a graph."""
    return extension().is_capturing(current_device())


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    extension().default_generator(current_device()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for index in range(device_count()):
        extension().default_generator(index).manual_seed(seed)


def get_rng_state(device: Place = None) -> torch.Tensor:
    """Return the state of a device's generator."""
    return extension().default_generator(index_of(device)).get_state()


def set_rng_state(state: torch.Tensor, device: Place = None) -> None:
    """Set the state of a device's generator."""
    extension().default_generator(index_of(device)).set_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return what autocast may cast to."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """Tell that bfloat16 works."""
    return True


def memory_stats(device: Place = None) -> dict[str, int]:
    """Return the statistics of a device's allocator, by CUDA's names."""
    return extension().memory_stats(index_of(device))


def memory_allocated(device: Place = None) -> int:
    """Return the bytes in use by tensors."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Place = None) -> int:
    """Return the most bytes that tensors used at once."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Place = None) -> int:
    """Return the bytes that the allocator holds."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: Place = None) -> int:
    """Return the most bytes that the allocator held at once."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: Place = None) -> None:
    """Count the peaks from now."""
    extension().reset_peak_memory_stats(index_of(device))


def mem_get_info(device: Place = None) -> tuple[int, int]:
    """Return the bytes that are free and the bytes there are."""
    free, total = extension().memory_info(index_of(device))
    return free, total


def empty_cache() -> None:
    """Give back what the allocators hold and nobody uses."""
    for index in range(device_count()):
        extension().empty_cache(index)

"""The class for a device: its backend's own, else the general one."""

import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from trainperf.accelerators.base import Accelerator, Host, built_in
from trainperf.accelerators.cuda import Cuda
from trainperf.accelerators.mps import Mps
from trainperf.accelerators.xpu import Xpu


BACKENDS: Mapping[str, type[Accelerator]] = {"cuda": Cuda, "xpu": Xpu, "mps": Mps}
"""Those with a file of their own, by type of the device."""

_HELD = "allocated_bytes.all.current"


def accelerator_of(device: torch.device) -> Accelerator:
    """What there is to be asked of a device; of a type without an index the current one."""
    return Host() if device.type == "cpu" else BACKENDS.get(device.type, Accelerator)(device)


def accelerator_in_use() -> Accelerator | None:
    """The current device, where this process has begun to use one; never begins to."""
    device = built_in()
    module = None if device is None else getattr(torch, device.type, None)
    # Asking whether one is there would start the driver, and forks after that would fail.
    initialized = getattr(module, "is_initialized", None)
    if device is None or (initialized is not None and not initialized()):
        return None
    return accelerator_of(device)


def default_accelerator() -> Accelerator:
    """The one that this machine has; the host where it has none."""
    device = built_in() if torch.accelerator.is_available() else None
    return accelerator_of(device or torch.device("cpu"))


def busy_accelerators() -> list[Accelerator]:
    """What a clock must wait for: the current device, and each other that holds tensors."""
    current = default_accelerator()
    others = (each for each in _all() if each.device != current.device)
    return [current, *(each for each in others if each.memory_stats().get(_HELD))]


def random_states() -> dict[torch.device, torch.Tensor]:
    """Where the generators of all devices of this machine's accelerator stand."""
    states = {accelerator.device: accelerator.random_state() for accelerator in _all()}
    return {device: state for device, state in states.items() if state is not None}


def keep_random_state() -> Callable[[], None]:
    """Puts the generators of Python, NumPy and torch, of host and devices, where they are now."""
    python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 the user's own
    on_host, on_devices = torch.get_rng_state(), random_states()

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(of_numpy)  # noqa: NPY002 the user's own
        torch.set_rng_state(on_host)
        for device, state in on_devices.items():
            accelerator_of(device).set_random_state(state)

    return put_back


def _all() -> Iterator[Accelerator]:
    """Every device of this machine's accelerator."""
    kind = default_accelerator().type
    for place in range(0 if kind == "cpu" else torch.accelerator.device_count()):
        yield accelerator_of(torch.device(kind, place))

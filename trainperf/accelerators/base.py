"""One device by torch's general interface, and the host as the device that it is on a CPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, cast

import torch

from trainperf.core.machine.clocks import TimingEvent


class Ability(Enum):
    """Something that a measurement needs of a device; the value is what a report calls it."""

    EVENTS = "timed events"
    """Points in its queue that can be polled, and times between them."""
    STATISTICS = "statistics of its allocator"
    RETRIES = "retries of its allocator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a device can compute, and how the machine's other tools name it."""

    tf32: bool = False
    """Whether products of fp32 can be computed in TF32."""
    bf16: bool = True
    """Whether it computes in bf16, without emulation."""
    cudnn: bool = False
    """Whether its convolutions and attention may be cuDNN's."""
    capability: tuple[int, int] = (0, 0)
    """Of NVIDIA's architecture; (0, 0) for anything else."""
    cache_bytes: int | None = None
    """Its last-level cache; `None` if that is not known."""
    uuid: str = ""
    """Empty where there is none."""
    pci_address: str = ""
    """Its place on the bus, as the system names it; empty where nobody tells."""


ON_A_CPU = "not applicable: a CPU has no queue and no allocator of torch's"


class Accelerator:
    """One device that works through a queue of its own while the host goes on.

    Args:
        device: With its index, or without where the current one is meant.
    """

    asynchronous = True
    """Whether calls return before their work is done."""
    unified = False
    """Whether its memory is the host's, so that a copy to it crosses no link."""
    wait_error: str | None = None
    """Part of the error that torch raises inside `raises_at_waits`; `None` where it raises none."""

    def __init__(self, device: torch.device) -> None:
        index = current_index(device.type) if device.index is None else device.index
        self.device = torch.device(device.type, index)
        # Asked several times every step.
        self._captures = getattr(self._module(), "is_current_stream_capturing", None)

    @property
    def type(self) -> str:
        """Of the device, as torch names it: `cuda`, `xpu`, `mps`, …."""
        return self.device.type

    def lacks(self) -> Mapping[Ability, str]:
        """Why something cannot be measured there; without what can."""
        current = built_in()
        if current is None or current.type != self.type:
            return dict.fromkeys(Ability, f"not measured: torch knows no queue of {self.type}")
        counters = self.memory_stats()
        if not counters:
            reason = f"not measured: {self.type} has no statistics of its allocator"
            return {Ability.STATISTICS: reason, Ability.RETRIES: reason}
        if "num_alloc_retries" not in counters:
            return {Ability.RETRIES: f"not measured: the allocator of {self.type} counts none"}
        return {}

    # -- its queue ------------------------------------------------------------------------------

    def event(self) -> TimingEvent:
        """A new event with a time, to be recorded on a stream of this device.

        All of one device are of one kind, whichever thread asks, and whichever device is current.
        """
        return cast("TimingEvent", torch.Event(device=self.device, enable_timing=True))

    def current_stream(self) -> Any:  # noqa: ANN401 each backend has a class of its own
        """The stream that this thread puts its work on; runs several times every step."""
        return torch.accelerator.current_stream(self.device)

    def stream(self) -> Any:  # noqa: ANN401 as above
        """A new stream beside that."""
        return torch.Stream(device=self.device)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:  # noqa: ANN401 as above
        """Work goes to *stream*, of this device, inside; afterwards all is as it was."""
        index, before = current_index(self.type), self.current_stream()
        torch.accelerator.set_stream(stream)  # which makes its device the current one
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)
            _renamed("set_device_index", "set_device_idx")(index)

    def synchronize(self) -> None:
        """Wait for all streams of this device.  Never in a loop that is measured."""
        torch.accelerator.synchronize(self.device)

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured into a graph: no query may be made then."""
        return self._captures is not None and bool(self._captures())

    @contextmanager
    def raises_at_waits(self) -> Iterator[None]:
        """Inside, torch raises where it would wait for the device, as far as the backend can."""
        yield

    def has_graphs(self) -> bool:
        """Whether this process captures a graph, or has: its replay dispatches nothing."""
        return self.is_capturing()

    # -- its memory -----------------------------------------------------------------------------

    def memory_stats(self) -> Mapping[str, int]:
        """Counters of the caching allocator, as `torch.cuda.memory_stats` names them.

        Empty where there are none.
        """
        return self._ask("memory_stats", self.device) or {}

    def peak_bytes(self) -> int | None:
        """Most bytes that the allocator had handed out; `None` where it does not tell."""
        return self.memory_stats().get("allocated_bytes.all.peak")

    def forget_peak(self) -> None:
        """Let the peak be that of what follows, for whoever else reads it too."""
        self._ask("reset_peak_memory_stats", self.device)

    def empty_cache(self) -> None:
        """Give what the allocator keeps back to the device."""
        self._ask("empty_cache")

    def memory_bytes(self) -> tuple[int, int] | None:
        """Free and all of its memory; `None` where nobody tells."""
        sizes = self._ask("mem_get_info", self.device) or self._ask("get_memory_info", self.device)
        return None if sizes is None else (int(sizes[0]), int(sizes[1]))

    def total_bytes(self) -> int | None:
        """All of its memory; told also after an error of the device."""
        total = getattr(self._ask("get_device_properties", self.device), "total_memory", None)
        if total is None:
            _, total = self.memory_bytes() or (0, None)
        return None if total is None else int(total)

    # -- what it is -----------------------------------------------------------------------------

    def name(self) -> str:
        """As its driver calls it; else the type."""
        return str(self._ask("get_device_name", self.device) or self.type)

    def features(self) -> Features:
        """What this kind of device has, as far as its backend says."""
        bf16 = self._ask("is_bf16_supported", False)  # without emulation
        return Features(tf32=bool(self._ask("is_tf32_supported")), bf16=bf16 is not False)

    # -- its random numbers -----------------------------------------------------------------------

    def random_state(self) -> torch.Tensor | None:
        """Where its generator stands; `None` where nobody tells."""
        return cast("torch.Tensor | None", self._ask("get_rng_state", self.device))

    def set_random_state(self, state: torch.Tensor) -> None:
        """Put its generator back."""
        self._ask("set_rng_state", state, self.device)

    # -- inside ---------------------------------------------------------------------------------

    def _module(self) -> ModuleType | None:
        """What torch has under the name of the type, e.g. `torch.xpu`."""
        return cast("ModuleType | None", getattr(torch, self.type, None))

    def _ask(self, name: str, *given: object) -> Any:  # noqa: ANN401 whatever torch answers
        """What the backend's own function says, else torch's general one; `None` if none does."""
        for owner in (self._module(), torch.accelerator):
            function = getattr(owner, name, None)
            if function is not None:
                with suppress(RuntimeError, TypeError):  # no allocator to ask; takes something else
                    return function(*given)
        return None


class Host(Accelerator):
    """A CPU: what is called has been done when the call returns."""

    asynchronous = False
    unified = True

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._captures = None

    def lacks(self) -> Mapping[Ability, str]:
        """All of it."""
        return dict.fromkeys(Ability, ON_A_CPU)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def random_state(self) -> torch.Tensor:
        """Of torch's own generator."""
        return torch.get_rng_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Put it back."""
        torch.set_rng_state(state)

    def _ask(self, name: str, *given: object) -> None:
        """What it has of memory is told elsewhere, and nothing is kept."""


def built_in() -> torch.device | None:
    """The type of accelerator that this torch was built for; starts nothing."""
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:  # torch 2.6 says so that there is none
        return None


def current_index(kind: str) -> int:
    """Index of the current device of that type."""
    current = built_in()
    if current is None or current.type != kind:
        return 0
    return int(_renamed("current_device_index", "current_device_idx")())


def _renamed(name: str, before: str) -> Any:  # noqa: ANN401 functions of torch's
    """One that torch 2.6 has under another name."""
    return getattr(torch.accelerator, name, None) or getattr(torch.accelerator, before)

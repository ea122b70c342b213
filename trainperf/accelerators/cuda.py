"""CUDA, and ROCm, which torch calls `cuda` too."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from trainperf.accelerators.base import Ability, Accelerator, Features
from trainperf.core.machine.clocks import TimingEvent


ASYNC_ALLOCATOR = "cudaMallocAsync"
NO_RETRIES = f"not measured: the allocator is {ASYNC_ALLOCATOR}, which counts none and reports 0"


class Cuda(Accelerator):
    """One device of CUDA or ROCm."""

    wait_error = "called a synchronizing CUDA operation"

    @override
    def lacks(self) -> Mapping[Ability, str]:
        # Some builds of torch know no allocator to ask for.
        has_any = torch.version.cuda is not None or torch.version.hip is not None
        if has_any and torch.cuda.get_allocator_backend() == ASYNC_ALLOCATOR:
            return {Ability.RETRIES: NO_RETRIES}
        return {}

    # Torch's general classes make a context on the current device, too, if it is another one.

    @override
    def event(self) -> TimingEvent:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    @override
    def current_stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    @override
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    @override
    @contextmanager
    def on(self, stream: torch.cuda.Stream) -> Iterator[None]:
        with torch.cuda.stream(stream):
            yield

    @override
    def has_graphs(self) -> bool:
        kind = torch.cuda.CUDAGraph
        return self.is_capturing() or any(type(e) is kind for e in gc.get_referrers(kind))

    @override
    @contextmanager
    def raises_at_waits(self) -> Iterator[None]:
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    @override
    def features(self) -> Features:
        own: Any = torch.cuda.get_device_properties(self.device)
        # An older torch has neither this nor all of what else is asked.
        address = (
            f"{own.pci_domain_id:04x}:{own.pci_bus_id:02x}:{own.pci_device_id:02x}.0"
            if hasattr(own, "pci_bus_id")
            else ""
        )
        # ROCm answers with AMD's numbers, which mean something else.
        is_nvidia = torch.version.hip is None
        capability = torch.cuda.get_device_capability(self.device) if is_nvidia else (0, 0)
        return Features(
            tf32=capability >= (8, 0),
            bf16=bool(torch.cuda.is_bf16_supported(including_emulation=False)),
            cudnn=is_nvidia,
            capability=capability,
            cache_bytes=getattr(own, "L2_cache_size", None),
            uuid=str(getattr(own, "uuid", "")),
            pci_address=address,
        )


def versions() -> dict[str, str]:
    """Of what belongs to CUDA or ROCm in this build of torch; without those that there are not."""
    cudnn, rocm = torch.backends.cudnn, torch.version.hip
    several = dist.is_available() and dist.is_nccl_available()
    candidates = {
        "cuda": torch.version.cuda,
        "rocm": rocm,
        # There it is MIOpen that answers.
        "cudnn": cudnn.version() if rocm is None and cudnn.is_available() else None,  # type: ignore[no-untyped-call]
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if several else None,  # type: ignore[no-untyped-call]
    }
    return {name: str(version) for name, version in candidates.items() if version is not None}

"""CUDA, and ROCm, which torch calls `cuda` too."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from typing_extensions import override

from trainperf.accelerators.base import Ability, Accelerator
from trainperf.core.machine.clocks import TimingEvent


ASYNC_ALLOCATOR = "cudaMallocAsync"
NO_RETRIES = (
    f"not measured: the allocator is {ASYNC_ALLOCATOR}, which counts no retries and reports 0"
)


class Cuda(Accelerator):
    """One device of CUDA or ROCm."""

    @override
    def lacks(self) -> Mapping[Ability, str]:
        if torch.cuda.get_allocator_backend() == ASYNC_ALLOCATOR:
            return {Ability.RETRIES: NO_RETRIES}
        return {}

    @override
    def event(self) -> TimingEvent:
        event: TimingEvent = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        return event

    @override
    def current_stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.device)

    @override
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

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
    def raised_at_wait(self, error: RuntimeError) -> bool:
        return "called a synchronizing CUDA operation" in str(error)

    @override
    def memory_stats(self) -> Mapping[str, int]:
        return torch.cuda.memory_stats(self.device)

    @override
    def memory_bytes(self) -> tuple[int, int] | None:
        free, total = torch.cuda.mem_get_info(self.device)
        return free, total

    @override
    def uuid(self) -> str:
        return str(self._properties().uuid)

    @override
    def cache_bytes(self) -> int | None:
        return int(self._properties().L2_cache_size)

    @property
    @override
    def has_tf32(self) -> bool:
        return self.capability >= (8, 0)

    @property
    @override
    def has_bf16(self) -> bool:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))

    @property
    @override
    def has_cudnn(self) -> bool:
        return torch.version.hip is None

    @property
    @override
    def capability(self) -> tuple[int, int]:
        # ROCm answers with AMD's numbers, which mean something else.
        if torch.version.hip is not None:
            return 0, 0
        return torch.cuda.get_device_capability(self.device)

    def _properties(self) -> Any:  # noqa: ANN401 torch has no type for them
        return torch.cuda.get_device_properties(self.device)

"""Apple's GPUs.  Written by the documentation, never run."""

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from trainperf.accelerators.base import Ability, Accelerator


NO_EVENTS = (
    "not measured: recording an event of MPS sends off what is queued, which would change the "
    "training"
)
NO_STATISTICS = "not measured: MPS has no statistics of its allocator"


class Mps(Accelerator):
    """The GPU of an Apple machine, which shares the host's memory."""

    unified = True

    @override
    def lacks(self) -> Mapping[Ability, str]:
        return {
            Ability.EVENTS: NO_EVENTS,
            Ability.STATISTICS: NO_STATISTICS,
            Ability.RETRIES: NO_STATISTICS,
        }

    @override
    def synchronize(self) -> None:
        torch.mps.synchronize()

    @override
    def memory_bytes(self) -> tuple[int, int] | None:
        total = int(torch.mps.recommended_max_memory())
        return total - int(torch.mps.driver_allocated_memory()), total

    @override
    def _ask(self, name: str, *given: object) -> Any:
        # There is one, and no function of its module takes it.
        return super()._ask(name, *(each for each in given if not isinstance(each, torch.device)))

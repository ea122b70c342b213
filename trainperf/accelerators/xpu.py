"""Intel's GPUs.  Written by the documentation, never run."""

from collections.abc import Mapping

import torch
from typing_extensions import override

from trainperf.accelerators.base import Ability, Accelerator


TIMED_FROM = 20250000
NO_TIMES = (
    "not measured: torch times events of XPU only where it was built with the SYCL compiler 2025.0 "
    "or a newer one"
)


class Xpu(Accelerator):
    """One device of oneAPI."""

    @override
    def lacks(self) -> Mapping[Ability, str]:
        # `elapsed_time` is there in any case, and raises with an older one.
        timed = int(getattr(torch.version, "xpu", None) or 0) >= TIMED_FROM
        return super().lacks() if timed else {**super().lacks(), Ability.EVENTS: NO_TIMES}

    @property
    @override
    def has_tf32(self) -> bool:
        ask = getattr(torch.xpu, "is_tf32_supported", None)
        return ask is not None and bool(ask())

    @property
    @override
    def has_bf16(self) -> bool:
        return bool(torch.xpu.is_bf16_supported(including_emulation=False))

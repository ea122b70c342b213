"""Intel's GPUs.  Written by the documentation, never run."""

from collections.abc import Mapping

import torch
from typing_extensions import override

from trainperf.accelerators.base import Ability, Accelerator


NO_TIMES = "not measured: torch times events of XPU from version 2.6 on, where the driver does"


class Xpu(Accelerator):
    """One device of oneAPI."""

    @override
    def lacks(self) -> Mapping[Ability, str]:
        # `elapsed_time` raises where the driver keeps no times.
        timed = hasattr(torch.xpu.Event, "elapsed_time")
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

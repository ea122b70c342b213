"""Intel's GPUs.  Written by the documentation, never run."""

from collections.abc import Mapping

import torch
from typing_extensions import override

from trainperf.accelerators.base import Ability, Accelerator, Features


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

    @override
    def features(self) -> Features:
        tf32 = getattr(torch.xpu, "is_tf32_supported", bool)  # an older torch has none
        bf16 = torch.xpu.is_bf16_supported(including_emulation=False)
        return Features(tf32=bool(tf32()), bf16=bool(bf16))

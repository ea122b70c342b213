"""How many kernels did each step launch, how short are they, and do they use tensor cores?"""

import re

import numpy as np

from trainperf.traces.event_table import EventTable, Kind
from trainperf.traces.metrics.columns import StepColumns, per_step, seconds, share
from trainperf.traces.metrics.device import DeviceUse, DeviceWork
from trainperf.traces.metrics.host import LAUNCHING
from trainperf.traces.metrics.steps import Mask, StepSpans, named, present


SHORT_NS = 10_000
"""A kernel below this takes about as long to launch as to run."""

_TENSOR_CORE = re.compile(
    r"tensor_?op|hmma|imma|wgmma|gmma|xmma|_mma_|nvjet|flash|fmha|mfma|h884|h1688|i8816"
    r"|[_s](884|1688|8816|16816|168128)|_MI(16|32|4)x|_MT\d+x\d+.*_MI\d+",
    re.IGNORECASE,
)
_ORDINARY = re.compile(r"simt|_sgemm_|cutlass_\d+_simt", re.IGNORECASE)


def kernel_columns(table: EventTable, steps: StepSpans, device: DeviceWork) -> StepColumns:
    """Counts and sums over the kernels that each step launched, communication among them."""
    count = len(steps)
    length = device.end - device.start
    short = device.kernel & (length < SHORT_NS)
    compute = device.kernel & device.used_for(DeviceUse.COMPUTE)
    launches = named(table, LAUNCHING, Kind.RUNTIME)
    computed = per_step(device.step[compute], count, length[compute])
    tensor = compute & _sounds_of_tensor_cores(table, device)
    return {
        "kernels": per_step(device.step[device.kernel], count),
        "launches": per_step(steps.holding(table.start_ns[launches]), count),
        "short_kernels": per_step(device.step[short], count),
        "short_kernels_s": seconds(per_step(device.step[short], count, length[short])),
        "tensor_core_fraction": share(
            per_step(device.step[tensor], count, length[tensor]), computed
        ),
    }


def sounds_of_tensor_cores(name: str) -> bool:
    """Whether a kernel's name is one that libraries give to those that use tensor cores."""
    return _TENSOR_CORE.search(name) is not None and _ORDINARY.search(name) is None


def _sounds_of_tensor_cores(table: EventTable, device: DeviceWork) -> Mask:
    codes = table.name[device.row]
    sounds = np.zeros(len(table.names), bool)
    for code in present(codes[device.kernel]):
        sounds[code] = sounds_of_tensor_cores(table.names[code])
    return sounds[codes]

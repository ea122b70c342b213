"""Loops in which an audit that nobody asked for by step might do harm, or would see nothing.

An audit takes a step's operators one by one: what is compiled would have to run uncompiled, with
the memory of its eager form, and a CUDA graph replays operators that nothing dispatches.
"""

import torch
from torch import nn

from trainperf.accelerators import accelerator_in_use, accelerator_of
from trainperf.core.formatting.units import size
from trainperf.core.machine.limits import free_bytes
from trainperf.recording.parallelism import sharding
from trainperf.recording.probes.compilation import graphs_built
from trainperf.recording.process_objects import is_compiled


LEAST_FREE_BYTES = 512 << 20
"""Below it no step is looked at: records of an audit and events of a capture take some of it."""


def why_not_eager(module: nn.Module | None) -> str:
    """Why a step of this loop is captured and not audited; empty where it is audited."""
    if graphs_built() or any(map(is_compiled, () if module is None else module.modules())):
        return "torch.compile is in use, and an audit would run its functions uncompiled"
    if spread := sharding(module):
        return f"{spread} is in use"
    accelerator = accelerator_in_use()
    if accelerator is not None and accelerator.has_graphs():
        return "graphs of the device are in use, and an audit does not see what they replay"
    return ""


def why_no_look(device: torch.device) -> str:
    """Why a step is neither audited nor captured; empty where it may be."""
    free = free_bytes()
    on_device = accelerator_of(device).memory_bytes()
    if free < LEAST_FREE_BYTES:
        return f"only {size(free)} of memory are free"
    if on_device is not None and on_device[0] < LEAST_FREE_BYTES // 2:
        return "the device's memory is full"
    return ""

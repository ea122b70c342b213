"""Kinds of events by the categories and names that profilers of all years gave them.

Since 2022 Kineto says `kernel`, `gpu_memcpy`, `cuda_runtime`; in 2021 it said `Kernel`, `Memcpy`,
`Runtime`.  Each kind of device has a runtime of its own name: `hip_runtime`, `xpu_driver`, ….
"""

import re

from trainperf.traces.event_table import Kind


MEMORY_NAME = "[memory]"
MEMORY_CATEGORY = "cpu_instant_event"

_BY_CATEGORY = {
    "cpu_op": Kind.CPU_OP,
    "operator": Kind.CPU_OP,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "python_function": Kind.PYTHON,
    MEMORY_CATEGORY: Kind.MEMORY,
    "overhead": Kind.OVERHEAD,
}

_BY_ENDING = (
    ("_runtime", Kind.RUNTIME),
    ("_driver", Kind.RUNTIME),
    ("_sync", Kind.DEVICE_SYNC),
)
"""`cuda_runtime`, `hip_runtime`, `xpu_driver`, `cuda_sync` and those of devices to come."""

_ANNOTATION = re.compile(
    r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|nccl:|gloo:|## "
)
"""Names of ranges that PyTorch itself opens, which old profilers wrote as operators."""


def kind_of(category: str | None) -> Kind:
    """The kind by category alone; `OTHER` for one that is not known."""
    lowered = (category or "").lower()
    if lowered in _BY_CATEGORY:
        return _BY_CATEGORY[lowered]
    for ending, kind in _BY_ENDING:
        if lowered.endswith(ending):
            return kind
    return Kind.OTHER


def is_annotation(name: str) -> bool:
    """Whether an operator of this name is a range in truth.

    Told by the name, since the traces of 2021 have one category for both.  A range that a user
    named cannot be told from an operator there, and stays one.
    """
    return _ANNOTATION.match(name) is not None

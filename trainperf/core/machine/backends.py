"""Backends of torch, and what is said of each: what only CUDA has is said of it alone.

`cuda` stands for NVIDIA's here, `rocm` for AMD's, which torch calls `cuda` too.  On a CPU, and
where nothing is known, advice is that for CUDA: it is where such a training goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What is said about a device; a text that does not apply there is empty."""

    name: str
    no_waits: str = "trainperf trace: the step has no call that waits"
    """How to see that a step waits for nothing."""
    growing: str = ""
    """How segments of the allocator grow in place of being torn."""
    holes: str = ""
    """The same, where it is one way of several."""
    workspace: str = ""
    """How libraries take less memory for themselves."""
    graphs: str = ""
    """How `torch.compile` replays a step as one launch; beside it the option of that name."""
    graphs_option: str = ""
    unblocked: str = "; batch.to(device, non_blocking=True)"
    """How the copy of a batch does not keep the host; on MPS it would read memory that may be freed
    (pytorch#189690)."""
    unified: bool = False
    """Whether its memory is the host's: nothing is copied, and nothing has to be pinned."""
    no_copies: str = ""
    """In place of the time for copies to it, where nothing is copied."""
    copies: str = ""
    """What a loop does where it copies, if not that."""
    host_time: str = " (host time)"
    """After phases in which the host only hands its work out."""
    idle: str = "device idle for {share}"
    """While the loader makes it wait, beside the host's own wait."""


_GRAPHS = '; on a GPU with {}="reduce-overhead", where shapes are the same in every step'
_GROWING = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment"

CUDA = Backend(
    name="cuda",
    no_waits="torch.cuda.set_sync_debug_mode('warn') says nothing in the step",
    growing=_GROWING,
    holes=f", or where the memory is in holes {_GROWING}",
    workspace="CUBLAS_WORKSPACE_CONFIG=:4096:2, or ",
    graphs=_GRAPHS.format("mode"),
    graphs_option=_GRAPHS.format("torch_compile_mode"),
)
# Segments that grow came to ROCm in 2026, and hang there with some drivers (pytorch#192259).
ROCM = replace(CUDA, name="rocm", growing="", holes="", workspace="")
MPS = Backend(name="mps", unblocked="", unified=True)

CPU = replace(
    CUDA,
    no_copies="not applicable (CPU)",
    copies="hooks only: nothing is copied",
    host_time="",
    idle="",
)

_BY_TYPE = {"": CUDA, "cpu": CPU, "cuda": CUDA, "rocm": ROCM, "mps": MPS}


def backend_of(device: str, software: Mapping[str, str]) -> Backend:
    """What a run's device is: by its type and the versions that were written with it."""
    name = "rocm" if device == "cuda" and "rocm" in software else device
    return _BY_TYPE.get(name) or Backend(name=name)

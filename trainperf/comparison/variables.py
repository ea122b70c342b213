"""Environment variables of two runs: which are a difference, and which cannot have changed a thing.

What is recorded is what was set.  Set to what it is without, it is no change; and a variable of
CUDA or of NCCL changes nothing where neither is used.
"""

from collections.abc import Mapping

from trainperf.analysis.summary.schema import Summary
from trainperf.core.machine.surroundings import VARIABLES
from trainperf.core.steps.records import Scalar


UNSET = "not set"
"""Value of an environment variable that a run did not have."""

THREADS = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
"""Variables that set the number of threads, which is recorded itself."""

_OFF = (
    *("CUDA_LAUNCH_BLOCKING", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"),
    *("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_FREEZING", "TORCH_NCCL_BLOCKING_WAIT"),
    *("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "PYTHONOPTIMIZE"),
)
_DEFAULTS: Mapping[str, str] = {
    **dict.fromkeys(_OFF, "0"),
    "TORCH_DISTRIBUTED_DEBUG": "OFF",
    "OMP_DYNAMIC": "FALSE",
    "MKL_DYNAMIC": "TRUE",
}
"""What they are where they are not set, as their documentation says in every release."""

_OF_COLLECTIVES = ("NCCL_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_")
_OF_DEVICES = (
    *("CUDA_", "CUBLAS", "NVIDIA_", "TORCH_CUDNN_", "TORCH_ALLOW_TF32_", "MIOPEN_"),
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_", "PYTORCH_NO_CUDA_", *_OF_COLLECTIVES[:2]),
)


_WITHOUT_USE = {"cpu": _OF_DEVICES}
"""Type of device to the variables that change nothing there."""


def variables(summary: Summary) -> dict[str, Scalar]:
    """Those that can have changed this run's speed, as if all had been set; empty if unknown."""
    run = summary.run
    if not run.environment:
        return {}
    return {
        name: _value(name, run.environment.get(name))
        for name in VARIABLES
        if not name.startswith(_WITHOUT_USE.get(run.device, ()))
        and not (run.world_size == 1 and name.startswith(_OF_COLLECTIVES))
    }


def _value(name: str, given: Scalar) -> Scalar:
    text = "" if given is None else str(given).strip()
    return given if text and text.upper() != _DEFAULTS.get(name) else UNSET


def as_without(name: str, before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> bool:
    """Whether one run was given as many threads as the other one took by itself."""
    threads = before.get("threads")
    if name not in THREADS or threads is None or threads != after.get("threads"):
        return False
    return {str(before.get(name)), str(after.get(name))} == {UNSET, str(threads)}

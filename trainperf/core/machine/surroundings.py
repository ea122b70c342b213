"""Surroundings of a run: what besides the code decides how fast it is, read once at its start.

Nothing else of the environment is ever read or written: a variable that is not in `VARIABLES` may
hold a credential.  `docs/reference/settings.md` lists the same names, and a test compares them.
"""

import os
import platform
import re
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from trainperf.core.machine.limits import ROOT, text_of


VARIABLES = (
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "NVIDIA_TF32_OVERRIDE"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "TORCH_LOGS"),
    *("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE"),
    *("TORCHINDUCTOR_FREEZING", "TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_BLOCKING_WAIT"),
    *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_AVOID_RECORD_STREAMS"),
    *("NCCL_DEBUG", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
    *("NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"),
    "GLOO_SOCKET_IFNAME",
    *("NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    *("NCCL_NET_GDR_LEVEL", "NCCL_CROSS_NIC", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE"),
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "OMP_DYNAMIC"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY", "MKL_NUM_THREADS", "MKL_DYNAMIC"),
    *("OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MIOPEN_FIND_MODE"),
    *("LD_PRELOAD", "MALLOC_CONF", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "PYTHONMALLOC"),
    *("PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHON_GIL", "PYTHON_JIT", "TOKENIZERS_PARALLELISM"),
    "XLA_FLAGS",
)
"""Environment variables that change speed: the only ones that are written."""

PACKAGES = (
    *("numpy", "triton", "torchvision", "torchaudio", "torchao", "lightning", "transformers"),
    *("accelerate", "deepspeed", "datasets", "tokenizers", "flash_attn", "xformers", "apex"),
    *("transformer_engine", "bitsandbytes", "liger_kernel", "peft", "trl", "ultralytics", "timm"),
    *("webdataset", "albumentations", "cv2", "PIL", "pandas", "pyarrow"),
)
"""Packages whose version is written where the training process has imported them."""

_DISTRIBUTIONS = {"cv2": "opencv-python", "PIL": "pillow", "liger_kernel": "liger-kernel"}

NEW_FACTS = frozenset(
    {*PACKAGES, "cuda", "rocm", "cudnn", "nccl", "driver", "cpu_model", "cpu_governor", "kernel"}
) - {"lightning", "transformers"}
"""Which runs before November 2026 lack: there, what one side does not say is no change."""


def variables() -> dict[str, str]:
    """Those of the list that are set."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def packages() -> dict[str, str]:
    """Versions of those of the list that this process has imported; of what has none nothing."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        if name in sys.modules:
            with suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(_DISTRIBUTIONS.get(name, name))
    # One without metadata, as a broken uninstall leaves it, has none either.
    return {name: version for name, version in versions.items() if version}


def cpu_model(root: Path = ROOT) -> str | None:
    """Name of the processor as the system gives it; `None` where it does not."""
    match = re.search(r"^model name\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or None


def cpu_governor(root: Path = ROOT) -> str | None:
    """How Linux sets the clock of the first CPU, e.g. `performance`; `None` where it does not."""
    path = root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return text_of(path).strip() or None


def driver(root: Path = ROOT) -> str | None:
    """Version of the NVIDIA kernel driver; `None` without one."""
    line = text_of(root / "proc/driver/nvidia/version")
    match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", line)
    return match[1] if match else None


def near_cpus(address: str, root: Path = ROOT) -> str | None:
    """CPUs on the NUMA node of a device, as Linux lists them; `None` where it does not.

    Args:
        address: On the PCI bus, e.g. `0000:3b:00.0`.
        root: Of the file system.
    """
    return text_of(root / f"sys/bus/pci/devices/{address}/local_cpulist").strip() or None

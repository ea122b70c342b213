"""Identity of a run: software, hardware, model and loader, as comparisons need them."""

import multiprocessing
import platform
from collections import Counter
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

import trainperf
from trainperf.accelerators import accelerator_of, cuda
from trainperf.audit.nested import walk
from trainperf.core.machine.limits import (
    cpu_count,
    cpu_mask,
    host_cores,
    host_cpus,
    memory_bytes,
)
from trainperf.core.machine.surroundings import (
    cpu_governor,
    cpu_model,
    driver,
    near_cpus,
    packages,
    variables,
)
from trainperf.core.steps.records import Scalar
from trainperf.recording.source_version import source_version


LIBRARIES = {
    "webdataset.": "WebDataset",
    "streaming.": "Mosaic StreamingDataset",
    "grain.": "Grain",
    "nvidia.dali.": "DALI",
    "batchgenerators.": "batchgenerators",
    "tensorflow.": "tf.data",
    "tensorflow_datasets.": "tf.data",
}
"""Module of an iterator of batches that is no `DataLoader`, to what it is called."""

OF_FABRIC = "_dataloader"
"""Under which name a loader that Fabric has prepared has the one underneath."""


def software() -> dict[str, str]:
    """Versions of what a number can depend on; without those that there are not."""
    versions = {
        "trainperf": trainperf.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        **cuda.versions(),
        "driver": driver(),
    }
    return {**{name: str(v) for name, v in versions.items() if v is not None}, **packages()}


def environment(*, rank: int = 0) -> dict[str, Scalar]:
    """Variables that change speed and, on the first rank, the version of the script."""
    return {**variables(), **(source_version() if rank == 0 else {})}


def hardware(device: torch.device) -> dict[str, Scalar]:
    """The device, and the host's size: as this process may use it, and of all its CPUs."""
    accelerator, host = accelerator_of(device), platform.processor() or platform.machine()
    beside = accelerator.asynchronous
    return {
        "device_name": accelerator.name() if beside else host,
        "device_memory_bytes": accelerator.total_bytes() if beside else memory_bytes(),
        "cpu_count": cpu_count(),
        "host_cpus": host_cpus(),
        "cpu_mask": cpu_mask(),
        "device_cpus": near_cpus(accelerator.features().pci_address),
        "host": platform.node(),
        "host_cores": host_cores(),
        "threads": torch.get_num_threads(),
        "cpu_model": cpu_model(),
        "cpu_governor": cpu_governor(),
        "kernel": platform.release(),
    }


def model(module: torch.nn.Module) -> dict[str, Scalar]:
    """Class and size of a model."""
    parameters = list(module.parameters())
    # Lazy modules learn their size in the first forward, which is still to come.
    unknown = any(is_lazy(p) for p in parameters)
    return {
        "model": type(module).__qualname__,
        "parameters": None if unknown else sum(p.numel() for p in parameters),
        "trainable_parameters": None
        if unknown
        else sum(p.numel() for p in parameters if p.requires_grad),
    }


def precision(module: torch.nn.Module) -> str | None:
    """Types of the floating-point parameters, most elements first; `None` without any."""
    elements: Counter[str] = Counter()
    for parameter in module.parameters():
        if parameter.is_floating_point():
            elements[type_name(parameter.dtype)] += 0 if is_lazy(parameter) else parameter.numel()
    return ", ".join(name for name, _ in elements.most_common()) or None


def type_name(dtype: torch.dtype) -> str:
    """E.g. `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def loader(source: object) -> dict[str, Scalar]:
    """Settings of the first `DataLoader` in *source* that decide how fast it can be."""
    first = next(loaders(source), None)
    if first is None:
        return {"loader": type(source).__name__, "loader_library": library_of(source)}
    return {
        "loader": type(first).__name__,
        "dataset": type(first.dataset).__qualname__,
        "dataset_samples": samples_of(first.dataset),
        "dataset_shards": _shards(first.dataset),
        "batch_size": _batch_size(first),
        "num_workers": first.num_workers,
        "worker_start": _start_method(first) if first.num_workers else None,
        "pin_memory": bool(first.pin_memory),
        "prefetch_factor": first.prefetch_factor,
        "persistent_workers": first.persistent_workers,
    }


def loaders(source: object) -> Iterator["DataLoader[Any]"]:
    """The loaders in a source: it, the one under Fabric's, or those of a mapping or sequence."""
    inside = vars(source).get(OF_FABRIC) if hasattr(source, "__dict__") else None
    return walk(source if inside is None else inside, DataLoader)


def _start_method(first: "DataLoader[Any]") -> str:
    """How its workers begin: `fork`, `spawn` or `forkserver`.

    A process that has not chosen yet may still choose: asking for its method must not do so.
    """
    context: Any = first.multiprocessing_context or multiprocessing
    method = context.get_start_method(allow_none=True)
    return str(method or multiprocessing.get_all_start_methods()[0])


def library_of(source: object) -> str | None:
    """Name of the library that makes the batches, where it is one that has its own ways."""
    module = f"{type(source).__module__}."
    return next((name for start, name in LIBRARIES.items() if module.startswith(start)), None)


def _batch_size(first: "DataLoader[Any]") -> int | None:
    """Samples of a batch of this rank; `None` where a sampler of the user's own decides.

    Accelerate leaves it to a sampler, torch's or its own, which may cut batches up among ranks.
    """
    sampler = first.batch_sampler
    fixed = type(sampler) is BatchSampler or type(sampler).__module__.startswith("accelerate.")
    size = getattr(sampler, "batch_size", None) if fixed else first.batch_size
    cut = getattr(first, "split_batches", False) or getattr(sampler, "split_batches", False)
    return size if isinstance(size, int) and not cut else None


def _shards(dataset: object) -> int | None:
    """Parts that an iterable dataset of `datasets` shares out among workers.

    Elsewhere the same name may be of files or ranks; a folder of one's own may have its name.
    """
    of_datasets = type(dataset).__module__.startswith(
        ("datasets.iterable_dataset", "datasets.formatting.")
    )
    if not of_datasets or not isinstance(dataset, IterableDataset):
        return None
    shards = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", None)
    return shards if isinstance(shards, int) else None


def samples_of(dataset: object) -> int | None:
    """How many it has; `None` where nothing has counted them before, such as a sampler."""
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        return None
    return len(dataset)

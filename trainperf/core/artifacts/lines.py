"""Contents of `lines.json`: the lines of the user's code that a fit was seen in, sample by sample.

Samples of wall time of the training thread, on rank 0: no count of calls, and no time of a device.
A call into C counts for the Python line that made it; frames of torch, of a framework, of the
standard library and of installed packages count for the user's line that called them.
"""

from typing import ClassVar

import msgspec

from trainperf.core.artifacts import Document
from trainperf.core.phases import Gap


BEFORE_FIT, IMPORTS = "before_fit", "imports"
"""Slots of samples from before the fit: the script's own work, and loading modules."""

SENDS_BUFFERS = "DDP's buffers"
"""Work on the host of a thread that sends buffers between ranks, or waits for them."""
DATASET_MAP, DATASET_MAP_IN_PROCESSES = "Dataset.map_in_one_process", "Dataset.map_in_processes"
DATASETS, TOKENIZING = "datasets", "tokenizing"
LOADING, BUILDING, COMPILING = "loading_weights", "building_the_model", "compiling"
JOINING, AWAITING = "waiting_for_ranks", "waiting_for_workers"
"""Slots of the same, where what is running has a name: in `datasets`, in `transformers`, of torch.
"""

STARTUP = Gap.STARTUP.label
"""Slot of samples from between a fit's beginning and its first batch; without frames where nothing
was running there whose result could be kept."""

PREPARING = (DATASET_MAP, DATASET_MAP_IN_PROCESSES, DATASETS, TOKENIZING, BEFORE_FIT)
"""Slots whose result could be kept for the next start."""

BEFORE = (*PREPARING, IMPORTS, LOADING, BUILDING, COMPILING, JOINING, AWAITING)
"""All slots of samples from before the fit."""

WORKER_MAKING, WORKER_WAITING = "worker_making", "worker_waiting"
WORKER_HANDING, WORKER_STARTING = "worker_handing_over", "worker_starting"
"""Slots of samples of a loader's worker: it makes or packs a batch; waits to be asked for the next,
or to hand one over that is packed; or is not there yet."""
OF_WORKERS = (WORKER_MAKING, WORKER_WAITING, WORKER_HANDING, WORKER_STARTING)

COLLECT, STALLS = "gc.collect", ("empty_cache", "synchronize")
OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
"""Calls that stall a step, as `host_work` says: of Python, and the last names of those of torch, of
devices and between ranks."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A line of a function."""

    file: str
    """Relative to the working directory or to the script's, where it lies below one of them; of an
    installed package from the package on."""
    line: int
    function: str
    """Qualified by its class, e.g. `Net.forward`."""
    makes: str = ""
    """Field of a sample that the line computes, and nothing else, where that is made there:
    `['depth']`, or `[1]` of a tuple.  Empty where its source does not tell."""


class SampledStack(msgspec.Struct, frozen=True, array_like=True):
    """Frames of the user's code, one inside the other, in one phase or gap."""

    slot: str
    """Label of the phase or gap, or one of those above."""
    frames: tuple[int, ...]
    """Numbers of places, the outermost first; none where no code of the user was running."""
    outside: int
    """How many of them are outside every module that is called: the rest is its forward."""
    host_work: str = ""
    """What ran there that is no tensor operation, e.g. `Python` or `time.sleep`; empty where it
    may have been one."""
    loads: bool | None = None
    """Whether a loader of torch was asked for a batch; `None` where a recording does not say."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """A look at the training thread."""

    stack: int
    """Number of the stack."""
    step: int
    """Number of the step, or of the last one before a gap; -1 before the first."""
    stands_for_us: int
    """Wall time: the pause before it, and how much later than planned it came."""


class SampledWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a loader; each epoch may have new ones."""

    worker: int
    """Its number in the loader, from 0."""
    of: int
    """Workers of the loader."""
    dataset: int
    """Tells its dataset from those of other loaders; nothing else."""
    iterable: bool
    """Whether it goes through an `IterableDataset`: then each worker has a part of its own."""
    making_s: float
    """Wall time in which it made or packed batches, from as much as was sampled."""
    waiting_s: float
    """Wall time in which it did not."""
    handing_s: float = 0.0
    """The part of that in which a batch waited for the pipe that all workers share."""
    starting_s: float = 0.0
    """From the start of its process until it could be asked for a batch; of the latest one."""
    threads: int = 1
    """That computed at least a tenth of what the busiest did, those of Python's own left out: of
    torch, of BLAS, of OpenCV, …"""
    ran_s: float = 0.0
    """CPU time of all its threads."""
    lacked_cpu_s: float = 0.0
    """Time for which they were ready to run and had none."""
    samples: int
    cost_s: float
    """Wall time that they took."""
    own_bytes: tuple[int, int] = (0, 0)
    """Memory that no other process shares, once it was warm and as it was last looked at."""
    between_s: float = 0.0
    """From the one to the other."""
    batches: int | None = None
    """That it had made when it last wrote this; `None` where they were not counted, as before
    Python 3.12."""


class SampledLines(Document, frozen=True, kw_only=True):
    """What was seen of the latest attempt, on rank 0."""

    file: ClassVar[str] = "lines.json"
    taken: int
    """Samples in all."""
    every: int
    """One of so many is kept, evenly over the fit."""
    cost_s: float
    """Wall time that they took, the change between two threads included."""
    places: tuple[Place, ...]
    stacks: tuple[SampledStack, ...]
    samples: tuple[Sample, ...]
    """In their order; those from before the fit are all kept."""
    workers: tuple[SampledWorker, ...] = ()
    """Those of loaders that were seen, of all epochs."""
    before_fit_s: float = 0.0
    """From the start of the process to its first fit, where samples tell of it; else 0."""
    seen_from: str = "torch"
    """What had just been loaded when they began."""

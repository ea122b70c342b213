"""Samples of the main thread before there is a fit: what a script does ahead of its first step.

A thread looks at the stack, as while there is a fit, from the moment in which torch is loaded where
`trainperf run` has launched the process, else from that in which a door of trainperf is.  Between
the moment in which a fit begins and that in which its model and loaders are there it still does.
"""

import multiprocessing
import sys
import threading
from collections.abc import Iterable

import msgspec

from trainperf.core.artifacts.lines import (
    AWAITING,
    BEFORE_FIT,
    BUILDING,
    COMPILING,
    DATASET_MAP,
    DATASET_MAP_IN_PROCESSES,
    DATASETS,
    IMPORTS,
    JOINING,
    LOADING,
    PREPARING,
    STARTUP,
    TOKENIZING,
    SampledLines,
)
from trainperf.recording.guard import Guard
from trainperf.recording.line_sampler import LineSampler, Where
from trainperf.recording.probes.host_work import package_of
from trainperf.recording.stacks import Stack


PART = "early lines"

EARLY_BUDGET = 0.005
"""Share of the time before the fit: no step is measured there, and loading modules is deep."""

_NAMED = (
    (IMPORTS, "", "<frozen importlib._bootstrap>", ""),
    (JOINING, "torch", "distributed_c10d.py", ""),
    (JOINING, "filelock", "", ""),
    (DATASET_MAP, "datasets", "arrow_dataset.py", "_map_single"),
    (DATASET_MAP_IN_PROCESSES, "datasets", "py_utils.py", "iflatmap_unordered"),
    (DATASETS, "datasets", "", ""),
    (TOKENIZING, "transformers", "tokenization_", ""),
    (LOADING, "transformers", "modeling_utils.py", "from_pretrained"),
    (LOADING, "torch", "torch/serialization.py", "load"),
    (LOADING, "torch", "torch/distributed/checkpoint/", ""),
    (LOADING, "safetensors", "", ""),
    (LOADING, "huggingface_hub", "", ""),
    (AWAITING, "torch", "torch/utils/data/dataloader.py", "_try_get_data"),
    (AWAITING, "torch", "torch/utils/data/dataloader.py", "__init__"),
    (COMPILING, "torch", "torch/_dynamo/convert_frame.py", ""),
    (BUILDING, "torch", "torch/nn/init.py", ""),
    (BUILDING, "torch", "torch/nn/modules/", "__init__"),
)
"""Slot, installed package, part of a file's name, and function; the first one that any frame of a
stack is of has it."""


def slot_of(stack: Stack) -> str:
    """What runs there, as the ledger of what comes before the first step calls it."""
    frames = [(code.co_filename, code.co_name) for code, _ in stack]
    for slot, package, part, name in _NAMED:
        for file, function in frames:
            if part in file and name in ("", function) and package in ("", package_of(file)):
                return slot
    return BEFORE_FIT


def preparing(stack: Stack) -> Stack:
    """All of a stack in which something is prepared that could be kept; else nothing of it."""
    return stack if slot_of(stack) in PREPARING else []


def prepared_s(early: Iterable[SampledLines]) -> float:
    """Seconds in which something was prepared whose result could be kept."""
    return sum(
        sample.stands_for_us / 1e6
        for lines in early
        for sample in lines.samples
        if lines.stacks[sample.stack].slot in PREPARING
    )


class EarlyLines:
    """Samples the main thread from `start` to `end`; the first fit that starts takes it all."""

    def __init__(self) -> None:
        self.seen_from = ""
        """What had just been loaded."""
        self._samplers: list[LineSampler] = []
        """Before a fit, and in its startup: none of them looks for both."""

    def start(self, loaded: str) -> None:
        """Begin; does nothing in a process that another Python process has made for its own work.

        A worker of a loader would sample itself for as long as it lives.  In a session that
        somebody types into, what comes before a fit is no work of the script.

        Args:
            loaded: The package that has just been.
        """
        script = hasattr(sys.modules["__main__"], "__file__")
        if not self._samplers and script and not of_another_process():
            self.seen_from = loaded
            self._sample(lambda stack: (slot_of(stack), -1, stack))

    def fit_begins(self) -> None:
        """What comes until the fit starts is its startup."""
        if self._samplers:
            self.end()
            self._sample(lambda stack: (STARTUP, -1, preparing(stack)))

    def end(self) -> None:
        """A fit has started, or never will: what follows is its own.  Safe to call twice."""
        for sampler in self._samplers:
            sampler.stop()

    def take(self) -> tuple[SampledLines, ...]:
        """What was seen, once."""
        self.end()
        samplers, self._samplers = self._samplers, []
        return tuple(_whole(sampler.lines()) for sampler in samplers if sampler.samples)

    def _sample(self, where: Where) -> None:
        sampler = LineSampler(where, budget=EARLY_BUDGET)
        self._samplers.append(sampler)
        looks = Guard().hook(PART, sampler.sample_until_stopped)
        sampler.start(threading.main_thread().ident or 0, looks, "trainperf early lines")


def _whole(lines: SampledLines) -> SampledLines:
    """With samples that stand for those that were left out as well."""
    samples = (
        msgspec.structs.replace(each, stands_for_us=lines.every * each.stands_for_us)
        for each in lines.samples
    )
    return msgspec.structs.replace(lines, samples=tuple(samples))


def of_another_process() -> bool:
    """Whether `multiprocessing` has made this process.

    One that is spawned has no parent yet while it loads the script's modules.
    """
    spawned = getattr(multiprocessing.current_process(), "_inheriting", False)
    return spawned or multiprocessing.parent_process() is not None


EARLY_LINES = EarlyLines()
"""Of this process."""

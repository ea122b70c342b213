"""What a recipe uses of the processor, and whether kernels can be compiled for it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainperf.core.machine.limits import cpu_count


COMPILERS = ("g++", "clang++", "c++")
"""What `torch.compile` builds kernels for a CPU with, the first that is there."""


@contextmanager
def threads(number: int | None = None) -> Iterator[None]:
    """So many threads inside of an operator, and as many as before afterwards.

    Args:
        number: By default one for each processor that this process may use: torch counts those of
            the whole machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(cpu_count() or 1 if number is None else number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compiler() -> str:
    """Name of the first compiler on the path; empty if there is none."""
    return next(filter(shutil.which, COMPILERS), "")

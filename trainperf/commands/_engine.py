"""The option `--engine`, shared by the commands that read many files."""

import argparse
from collections.abc import Sequence
from typing import Protocol


LARGE_BYTES = 64 << 20
"""Records of many ranks: fewer are read sooner than another process starts."""


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """Add it."""
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="where files are read, with the same results: local[:N], N processes, or "
        "dask://HOST:PORT, the workers of a Dask scheduler, which needs trainperf[dask] "
        "(default: this process; for large files one process per processor)",
    )


class _File(Protocol):
    @property
    def size_bytes(self) -> int: ...


class _Run(Protocol):
    @property
    def attempts(self) -> Sequence[Sequence[_File]]: ...


def is_large(run: _Run) -> bool:
    """Whether the records of a run are worth other processes."""
    return sum(file.size_bytes for files in run.attempts for file in files) >= LARGE_BYTES

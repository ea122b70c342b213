"""Reader of the packed parts that releases up to November 2026 wrote; nothing writes them.

Behind the two lines is an index of stretches, then the lines that are no steps, then the columns of
each stretch: constants, whole numbers as the bytes of their distance from the least, differences
from the number before, or floats of eight or four bytes; equal bytes of a column stand together.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Column
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import FIRST_FACT, FIRST_PHASE, START


VERSION = 1


_HEAD = struct.Struct("<BBBq")
"""Of each column: how it is written, whether cells are missing, bytes per cell, the least."""
_CONSTANT, _DISTANCES = 0, 1
_FLOATS = {_CONSTANT: "<f8", 3: "<f8", 4: "<f4"}
"""Kinds of columns that are no whole numbers; one value stands for all of a constant."""


class _Layout(msgspec.Struct, frozen=True):
    stretches: int
    index_bytes: int
    others_bytes: int


def read_edges(file: IO[bytes], line: bytes) -> tuple[int, int, int]:
    """First and last step, and the end of that in ns; *line* is the second.

    Raises:
        zlib.error, ValueError: The index is damaged.
    """
    index = _index(file, msgspec.json.decode(line, type=_Layout))
    return int(index[0, 0]), int(index[-1, 1]), int(index[:, 5].max())


def contents(file: IO[bytes], schema: StepSchema) -> Iterator[list[bytes] | StepBlock]:
    """The lines that are no steps, then all steps.

    Raises:
        zlib.error, ValueError: They are damaged.
    """
    file.seek(0)
    file.readline()
    layout = msgspec.json.decode(file.readline(), type=_Layout)
    index, width = _index(file, layout), FIRST_FACT + len(schema.columns)
    if layout.others_bytes:
        yield zlib.decompress(file.read(layout.others_bytes)).split(b"\n")
    for first, _, steps, _, start_ns, _, _, size in index:
        matrix = _unpacked(zlib.decompress(file.read(int(size))), int(steps), width)
        # Steps are numbered from the first, and start from where the one before ended.
        matrix[:, 0] += first
        matrix[0, START] = start_ns
        matrix[1:, START] += matrix[:-1, FIRST_PHASE:FIRST_FACT].sum(axis=1)
        matrix[:, START] = np.cumsum(matrix[:, START])
        yield StepBlock(schema, matrix)


def _index(file: IO[bytes], layout: _Layout) -> Column:
    """A row per stretch: first and last step, steps, steady ones, start, end, place, bytes."""
    cells = np.frombuffer(zlib.decompress(file.read(layout.index_bytes)), "<f8")
    return np.asarray(cells[: 8 * layout.stretches].reshape(8, layout.stretches).T)


def _unpacked(content: bytes, rows: int, width: int) -> Column:
    matrix, at = np.full((width, rows), np.nan), width * _HEAD.size
    heads = _HEAD.iter_unpack(content[:at])
    for column, (kind, masked, bytes_each, least) in zip(matrix, heads, strict=True):
        present = np.ones(rows, np.bool_)
        if masked:
            bits = np.frombuffer(content, np.uint8, (rows + 7) // 8, at)
            present, at = np.unpackbits(bits, count=rows) == 0, at + len(bits)
        dtype = np.dtype(_FLOATS.get(kind, "<u8"))
        size = dtype.itemsize if kind in _FLOATS else bytes_each
        number = 1 if kind == _CONSTANT else int(present.sum())
        cells = np.zeros((number, dtype.itemsize), np.uint8)
        planes = np.frombuffer(content, np.uint8, number * size, at)
        cells[:, :size] = planes.reshape(size, number).T
        values = cells.reshape(-1).view(dtype)
        column[present] = values if kind in _FLOATS else _whole(kind, values, least)
        at += len(planes)
    return np.ascontiguousarray(matrix.T)


def _whole(kind: int, cells: npt.NDArray[np.uint64], least: int) -> npt.NDArray[np.int64]:
    if kind == _DISTANCES:
        return cells.astype(np.int64) + least
    # The sign is in the lowest bit.
    steps = (cells >> np.uint64(1)).astype(np.int64) ^ -(cells & np.uint64(1)).astype(np.int64)
    steps[0] = least
    return np.cumsum(steps, dtype=np.int64)

"""Columns of numbers, packed: a matrix of floats in about four bytes per changing cell.

Whole numbers are written as the bytes of their distance from the least of the column, others as
floats.  Equal bytes of a column stand together, and `zlib` takes what repeats.  What is unpacked is
equal to what was packed, bit for bit but for the sign of a zero.  Columns of earlier releases are
read too: constants, differences from the number before, floats of four bytes.

Example: step times 5,000,123 and 5,000,130 ns are 0 and 7 from the least: a byte each.
"""

import struct
import zlib

import numpy as np
import numpy.typing as npt


Matrix = npt.NDArray[np.float64]

_HEAD = struct.Struct("<BBBq")
"""Of each column: how it is written, whether cells are missing, bytes per cell, the least."""
_CONSTANT, _WHOLE, _DIFFERENCES, _FLOATS, _SHORT_FLOATS = range(5)
_MAGNITUDE = 2.0**53
_LEVEL = 6


def pack(matrix: Matrix) -> bytes:
    """The bytes of a matrix; `unpack` needs its shape."""
    heads, bodies = zip(*(_packed(column) for column in matrix.T), strict=True)
    return zlib.compress(b"".join(heads) + b"".join(bodies), _LEVEL)


def unpack(packed: bytes, rows: int, width: int) -> Matrix:
    """The matrix of so many rows and columns.

    Raises:
        ValueError: The bytes are damaged.
    """
    try:
        content = zlib.decompress(packed)
        heads = [_HEAD.unpack_from(content, place * _HEAD.size) for place in range(width)]
        matrix = np.empty((width, rows))
        at = width * _HEAD.size
        for place, head in enumerate(heads):
            at = _unpacked(content, at, head, matrix[place])
    except (zlib.error, struct.error) as error:
        raise ValueError(f"damaged columns: {error}") from None
    return np.ascontiguousarray(matrix.T)


def _packed(column: Matrix) -> tuple[bytes, bytes]:
    missing = np.isnan(column)
    values = column[~missing]
    mask = np.packbits(missing).tobytes() if missing.any() else b""
    if not len(values) or (np.abs(values) >= _MAGNITUDE).any() or (values % 1 != 0).any():
        return _HEAD.pack(_FLOATS, bool(mask), 0, 0), mask + _planes(values, 8)
    least = int(values.min())
    whole = values.astype(np.int64) - least
    width = max(1, (int(whole.max()).bit_length() + 7) // 8)
    return _HEAD.pack(_WHOLE, bool(mask), width, least), mask + _planes(whole, width)


def _planes(cells: npt.NDArray[np.generic], width: int) -> bytes:
    """The first *width* bytes of all cells, those of one place next to each other."""
    by_byte = np.ascontiguousarray(cells).view(np.uint8).reshape(len(cells), 8)
    planes: npt.NDArray[np.uint8] = by_byte[:, :width].T
    return planes.tobytes()


def _unpacked(content: bytes, at: int, head: tuple[int, bool, int, int], into: Matrix) -> int:
    """Fill a column from the bytes at a place; returns where they end."""
    kind, masked, width, base = head
    present = np.ones(len(into), np.bool_)
    if masked:
        size = (len(into) + 7) // 8
        bits = np.frombuffer(content, np.uint8, size, at)
        present = np.unpackbits(bits, count=len(into)) == 0
        into[:] = np.nan
        at += size
    if kind == _CONSTANT:
        into[present] = struct.unpack_from("<d", content, at)[0]
        return at + 8
    number = int(present.sum())
    bytes_each = {_FLOATS: 8, _SHORT_FLOATS: 4}.get(kind, width)
    cell = 4 if kind == _SHORT_FLOATS else 8
    cells = np.zeros((number, cell), np.uint8)
    planes = np.frombuffer(content, np.uint8, number * bytes_each, at)
    cells[:, :bytes_each] = planes.reshape(bytes_each, number).T
    into[present] = _values(kind, cells.reshape(-1), base)
    return at + number * bytes_each


def _values(kind: int, cells: npt.NDArray[np.uint8], base: int) -> npt.NDArray[np.generic]:
    if kind in (_FLOATS, _SHORT_FLOATS):
        return cells.view("<f8" if kind == _FLOATS else "<f4")
    whole = cells.view("<u8")
    if kind == _WHOLE:
        return whole.astype(np.int64) + base
    steps = (whole >> np.uint64(1)).astype(np.int64) ^ -(whole & np.uint64(1)).astype(np.int64)
    steps[0] = base
    summed: npt.NDArray[np.int64] = np.cumsum(steps)
    return summed

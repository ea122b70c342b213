"""Codec of record files: one JSON value per line, whole lines only.

Line 1 is an object (`RunInfo`), and so are gaps, totals and the end mark.  A step is an array of
the core columns followed by the facts named in line 1: names are written once, durations as
integers.  NaN, which stands for a missing fact in the live rows, is written as `null`.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.errors import RunError
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import (
    FIRST_FACT,
    SCHEMA_VERSION,
    EndMark,
    GapRecord,
    Row,
    RunInfo,
    Totals,
)


Entry = GapRecord | Totals | EndMark

_EXACT = 2.0**53
"""Whole numbers up to here survive the way through a float; nothing true is larger."""

_ENCODER = msgspec.json.Encoder()
_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_ROWS = msgspec.json.Decoder(list[list[float | None]])
_VERSION = msgspec.json.Decoder(dict[str, object])


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Encode step rows, one line each."""
    # Of an iterator msgspec 0.22 keeps the reference, and so all that is in it.
    return _ENCODER.encode_lines(rows)


def encode_entry(entry: RunInfo | Entry) -> bytes:
    """Encode anything but a step as one line."""
    return _ENCODER.encode(entry) + b"\n"


def decode_info(line: bytes) -> RunInfo:
    """Read line 1; says which versions differ when it was written by another schema."""
    try:
        fields = _VERSION.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RunError("the first line is not JSON: not a trainperf record file") from None
    version = fields.get("schema")
    if fields.get("kind") != "run" or not isinstance(version, int):
        raise RunError("the first line is not a trainperf header: not a trainperf record file")
    if version != SCHEMA_VERSION:
        raise RunError(
            f"schema version {version}: this trainperf reads version {SCHEMA_VERSION}; "
            "install the release that wrote it"
        )
    try:
        return msgspec.json.decode(line, type=RunInfo)
    except msgspec.ValidationError as error:
        raise RunError(f"damaged header: {error}") from None


def decode_entry(line: bytes) -> Entry | None:
    """Read a gap, totals or end line; `None` when the line is damaged."""
    try:
        return _ENTRY.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def matrix_of(lines: Sequence[bytes], width: int) -> Column | None:
    """The cells of lines as a matrix of *width* columns, NaN for `null`.

    `None` if a line is not an array of so many numbers.
    """
    try:
        rows = _ROWS.decode(b"[" + b",".join(lines) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if len(rows) != len(lines) or set(map(len, rows)) - {width}:
        return None
    return np.array(rows, dtype=np.float64).reshape(-1, width)


def decode_steps(schema: StepSchema, lines: Sequence[bytes]) -> tuple[StepBlock, int]:
    """Read step lines; returns the block and how many damaged lines were left out."""
    width = FIRST_FACT + len(schema.columns)
    matrix = matrix_of(lines, width)
    if matrix is None:
        each = (matrix_of([line], width) for line in lines)
        matrix = np.concatenate([np.empty((0, width)), *(row for row in each if row is not None)])
    read = StepBlock(schema, matrix)
    core = read.cells[:, :FIRST_FACT]
    # Without a mask, as large as the core, where all are: NaN is not.
    if len(core) and not (core.min() >= -_EXACT and core.max() <= _EXACT):
        read = read.select(np.logical_and.reduce(np.abs(core) <= _EXACT, axis=1))
    return read, len(lines) - len(read)

"""Packed parts of record files: steps as an archive that `numpy.load` reads, behind two lines.

Line 1 is the `RunInfo` of the record file, line 2 says which steps follow.  The archive holds
`others`, the lines that are no steps, and of every 1,024 steps, under the number of the first, the
bytes of their cells: those of one column and place stand together, for `zlib` takes what repeats.
Of the cumulative `Totals`, each of which holds what the one before it held, only some are kept.
"""

import io
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import IO
from zipfile import BadZipFile

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.errors import RunError
from trainperf.core.steps import packed_early
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.codec import decode_entry, decode_info, decode_steps, encode_entry
from trainperf.core.steps.records import FIRST_FACT, FIRST_PHASE, START, RunInfo, Totals


PACKED_VERSION = 2

STRETCH = 1024
"""Steps that are read at once."""

TOTALS_EVERY = 8 * STRETCH
"""Steps of which one `Totals` is kept, the last."""

_OTHERS = "others"


class PackedPart(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="packed"):
    """Line 2."""

    schema: int
    first: int = 0
    """Number of its first step."""
    last: int = -1
    end_ns: int = 0
    """When the last step ended, from the start of the fit."""


def read_header(file: IO[bytes]) -> tuple[RunInfo, PackedPart]:
    """What a packed part says of itself in its first lines; leaves the file behind them.

    Raises:
        RunError: It is none, or one of another release.
        OSError: It cannot be read.
    """
    info, line = decode_info(file.readline()), file.readline()
    try:
        part = msgspec.json.decode(line, type=PackedPart)
        if part.schema == packed_early.VERSION:
            first, last, end_ns = packed_early.read_edges(file, line)
            part = PackedPart(schema=part.schema, first=first, last=last, end_ns=end_ns)
    except (msgspec.DecodeError, zlib.error, ValueError) as error:
        raise RunError(f"damaged index: {error}") from None
    if part.schema not in (PACKED_VERSION, packed_early.VERSION):
        raise RunError(
            f"packed by schema version {part.schema}: this trainperf reads version "
            f"{PACKED_VERSION}; install the release that wrote it"
        )
    return info, part


def contents(
    file: IO[bytes], first: float = 0, last: float = math.inf
) -> Iterator[list[bytes] | StepBlock]:
    """The lines that are no steps, and stretches that have the steps from *first* to *last*.

    Raises:
        RunError: It is no packed part.
        OSError, ValueError: It cannot be read.
    """
    info, part = read_header(file)
    schema = StepSchema(info.columns, info.device)
    try:
        if part.schema == packed_early.VERSION:
            yield from packed_early.contents(file, schema)
            return
        with np.load(file) as archive:
            yield archive[_OTHERS].tobytes().splitlines()
            numbers = [name for name in archive.files if name != _OTHERS]
            for number, following in zip(numbers, [*numbers[1:], math.inf], strict=True):
                if int(number) <= last and float(following) > first:
                    yield StepBlock(schema, _cells(archive[number]))
    except (BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise ValueError(f"damaged: {error}") from None


def packed(info: RunInfo, lines: Sequence[bytes]) -> bytes | None:
    """The whole lines of a part, packed; `None` where that would lose something.

    A line that is no step is kept as it is.
    """
    schema = StepSchema(info.columns, info.device)
    block, damaged = decode_steps(schema, [line for line in lines if line[:1] == b"["])
    if damaged or not len(block) or (np.diff(block.index) <= 0).any():
        return None
    return assembled(info, block, _kept([line for line in lines if line and line[:1] != b"["]))


def assembled(info: RunInfo, block: StepBlock, others: Sequence[bytes]) -> bytes:
    """A packed part of steps and of the lines that are none."""
    arrays = {_OTHERS: np.frombuffer(b"\n".join(others), np.uint8)}
    for begin in range(0, len(block), STRETCH):
        arrays[str(int(block.index[begin]))] = _planes(block.cells[begin : begin + STRETCH])
    part = PackedPart(
        schema=PACKED_VERSION,
        first=int(block.index[0]),
        last=int(block.index[-1]),
        end_ns=int((block.start_ns + block.wall_ns).max()),
    )
    with io.BytesIO() as archive:
        np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]  # mypy takes it for a flag
        return encode_entry(info) + msgspec.json.encode(part) + b"\n" + archive.getvalue()


def _planes(cells: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """The bytes of cells by column and place: shape (columns, 8, steps)."""
    cells = cells.copy()
    # A step usually starts where the one before ended.
    cells[1:, START] -= cells[:-1, START] + cells[:-1, FIRST_PHASE:FIRST_FACT].sum(axis=1)
    columns = np.ascontiguousarray(cells.T, "<f8")
    planes: npt.NDArray[np.uint8] = columns.view(np.uint8).reshape(*columns.shape, 8)
    return np.ascontiguousarray(planes.transpose(0, 2, 1))


def _cells(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """What `_planes` was given, a row per step."""
    cells = np.ascontiguousarray(planes.transpose(2, 0, 1)).view("<f8")[:, :, 0]
    cells[1:, START] += cells[:-1, FIRST_PHASE:FIRST_FACT].sum(axis=1)
    cells[:, START] = np.cumsum(cells[:, START])
    return cells.astype(np.float64, copy=False)


def _kept(lines: Sequence[bytes]) -> list[bytes]:
    """All lines but most of the cumulative ones."""
    last = {
        totals.at_step // TOTALS_EVERY: place
        for place, line in enumerate(lines)
        if b'"kind":"totals"' in line and isinstance(totals := decode_entry(line), Totals)
    }
    kept = {*last.values()}
    return [
        line for place, line in enumerate(lines) if place in kept or b'"kind":"totals"' not in line
    ]

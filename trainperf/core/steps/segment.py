"""Packed parts of record files: columns of steps, with an index that tells where each is.

A part that is no longer written to is packed: line 1 is the `RunInfo` of the record file, line 2
says how long what follows is: the index (`Stretches`), the lines that are no steps, and the packed
columns of each stretch.  So a reader takes the stretches it needs.
Of the cumulative `Totals`, each of which holds what the one before it held, only some are kept.

Places of columns are counted from the end of the other lines.  In a stretch, steps are numbered
from its first, and the start of a step is what it differs from the end of the step before.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import IO

import msgspec
import numpy as np

from trainperf.core.errors import RunError
from trainperf.core.phases import PHASES
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.codec import decode_entry, decode_info, decode_steps, encode_entry
from trainperf.core.steps.columns import Matrix, pack, unpack
from trainperf.core.steps.records import CORE_COLUMNS, RunInfo, Totals
from trainperf.core.steps.stretches import NAMES, STRETCH, Stretches, cut


SEGMENT_VERSION = 1

_INDEX, _START = CORE_COLUMNS.index("index"), CORE_COLUMNS.index("start_ns")
_FIRST_PHASE = len(CORE_COLUMNS) - len(PHASES)

TOTALS_EVERY = 8 * STRETCH
"""Steps of which one `Totals` is kept, the last."""


class _Layout(msgspec.Struct, frozen=True, tag_field="kind", tag="packed"):
    """Line 2."""

    schema: int
    stretches: int
    index_bytes: int
    others_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndex:
    """What a packed part says of itself in its first lines."""

    info: RunInfo
    stretches: Stretches
    others_at: int
    """Where the lines that are no steps are."""
    others_bytes: int

    def others(self, file: IO[bytes]) -> list[bytes]:
        """The lines that are no steps, damaged ones among them.

        Raises:
            OSError, ValueError: They cannot be read.
        """
        if not self.others_bytes:
            return []
        file.seek(self.others_at)
        try:
            return zlib.decompress(file.read(self.others_bytes)).split(b"\n")
        except zlib.error as error:
            raise ValueError(f"damaged: {error}") from None

    def blocks(self, file: IO[bytes], stretches: Stretches) -> Iterator[StepBlock]:
        """The steps of some stretches.

        Raises:
            OSError, ValueError: They cannot be read.
        """
        schema = StepSchema(self.info.columns, self.info.device)
        width = len(CORE_COLUMNS) + len(schema.columns)
        columns = [stretches[name].tolist() for name in ("offset", "bytes", "steps")]
        begins = zip(stretches["first"].tolist(), stretches["start_ns"].tolist(), strict=True)
        for offset, size, steps, begin in zip(*columns, begins, strict=True):
            file.seek(self.others_at + self.others_bytes + int(offset))
            matrix = unpack(file.read(int(size)), int(steps), width)
            yield StepBlock(schema, _with_starts(matrix, *begin))


def read_index(file: IO[bytes]) -> SegmentIndex:
    """The index at the beginning of a packed part.

    Raises:
        RunError: It is none, or one of another release.
        OSError: It cannot be read.
    """
    info = decode_info(file.readline())
    try:
        layout = msgspec.json.decode(file.readline(), type=_Layout)
    except msgspec.DecodeError:
        raise RunError("the second line is no index: cut short, or not a packed part") from None
    if layout.schema != SEGMENT_VERSION:
        raise RunError(
            f"packed by schema version {layout.schema}: this trainperf reads version "
            f"{SEGMENT_VERSION}; install the release that wrote it"
        )
    packed = file.read(layout.index_bytes)
    try:
        cells = np.frombuffer(zlib.decompress(packed), "<f8")[: len(NAMES) * layout.stretches]
        matrix = cells.reshape(len(NAMES), layout.stretches).T.copy()
    except (zlib.error, ValueError) as error:
        raise RunError(f"damaged index: {error}") from None
    return SegmentIndex(
        info=info,
        stretches=Stretches(matrix),
        others_at=file.tell(),
        others_bytes=layout.others_bytes,
    )


def packed_segment(info: RunInfo, lines: Sequence[bytes]) -> bytes | None:
    """The whole lines of a part, packed; `None` where that would lose something.

    A line that is no step, or a damaged one, is kept as it is.
    """
    schema = StepSchema(info.columns, info.device)
    block, damaged = decode_steps(schema, [line for line in lines if line[:1] == b"["])
    others = _kept([line for line in lines if line and line[:1] != b"["])
    if damaged or (len(block) and (np.diff(block.index) <= 0).any()):
        return None
    pieces = cut(block) if len(block) else []
    columns = [stretch_columns(piece) for piece in pieces]
    content = assembled(info, Stretches.of(pieces), others, columns)
    return content if _same(content, block, others) else None


def stretch_columns(block: StepBlock) -> bytes:
    """The packed columns of a stretch; the same wherever it is in a run."""
    return pack(_without_starts(block))


def assembled(
    info: RunInfo, stretches: Stretches, others: Sequence[bytes], columns: Sequence[bytes]
) -> bytes:
    """A packed part of stretches, the lines that are no steps, and the columns of each stretch."""
    joined = b"\n".join(others)
    rest = zlib.compress(joined) if joined else b""
    sizes = [len(column) for column in columns]
    place = NAMES.index("offset")
    stretches.matrix[:, place] = np.cumsum([0, *sizes])[:-1]
    stretches.matrix[:, place + 1] = sizes
    index = zlib.compress(np.ascontiguousarray(stretches.matrix.T, "<f8").tobytes())
    layout = _Layout(SEGMENT_VERSION, len(stretches), len(index), len(rest))
    lines = encode_entry(info) + msgspec.json.encode(layout) + b"\n"
    return b"".join([lines, index, rest, *columns])


def _same(content: bytes, block: StepBlock, others: Sequence[bytes]) -> bool:
    """Whether what is read back is what was written."""
    with BytesIO(content) as file:
        index = read_index(file)
        try:
            blocks = list(index.blocks(file, index.stretches))
            lines = index.others(file)
        except ValueError:
            return False
    if not blocks:
        return not len(block) and lines == [*others]
    back = StepBlock.joined(blocks)
    return lines == [*others] and back.equals(block)


def _kept(lines: Sequence[bytes]) -> list[bytes]:
    """All lines but most of the cumulative ones."""
    last: dict[int, int] = {}
    for place, line in enumerate(lines):
        if b'"kind":"totals"' in line and isinstance(totals := decode_entry(line), Totals):
            last[totals.at_step // TOTALS_EVERY] = place
    kept = {*last.values()}
    return [
        line for place, line in enumerate(lines) if place in kept or b'"kind":"totals"' not in line
    ]


def _without_starts(block: StepBlock) -> Matrix:
    """Numbers from that of the first step, and starts from where the step before ended."""
    matrix: Matrix = block.cells().copy()
    starts = matrix[:, _START].copy()
    matrix[1:, _START] = starts[1:] - (starts[:-1] + block.wall_ns[:-1])
    matrix[0, _START] = 0.0
    matrix[:, _INDEX] -= block.index[0]
    return matrix


def _with_starts(matrix: Matrix, first: float, start_ns: float) -> Matrix:
    walls = matrix[:-1, _FIRST_PHASE : len(CORE_COLUMNS)].sum(axis=1)
    matrix[1:, _START] += walls
    matrix[0, _START] = start_ns
    np.cumsum(matrix[:, _START], out=matrix[:, _START])
    matrix[:, _INDEX] += first
    return matrix

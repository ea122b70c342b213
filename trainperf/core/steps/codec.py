"""Codec of record files: one JSON value per line, whole lines only.

Line 1 is an object (`RunInfo`), and so are gaps, totals and the end mark.  A step is an array of
the core columns followed by the facts named in line 1: names are written once, durations as
integers.  NaN, which stands for a missing fact in the live rows, is written as `null`.

Nearly every cell is a whole number of few digits, so steps are read without a Python object for
each: cells are found by their commas, and their digits are combined eight at a time in machine
words, all cells at once; anything else, a loss or a missing fact, is left to the JSON decoder.

Example: in `[1234,null]` the word of eight bytes that ends where the first cell ends is `000[1234`
(text begins with padding zeros).  XOR the digit 0, its bytes are `0 0 0 107 1 2 3 4`; masked to
the cell's four bytes, `0 0 0 0 1 2 3 4`, all digits.  Joining neighbours makes `0 0 12 34`, then
`0 1234`, then 1234.  The word of the second cell, masked, is that of `null`: NaN.  A cell such as
`1.5` leaves a byte above 9 and goes to the JSON decoder.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.errors import RunError
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import (
    CORE_COLUMNS,
    SCHEMA_VERSION,
    EndMark,
    GapRecord,
    Row,
    RunInfo,
    Totals,
)


Matrix = npt.NDArray[np.float64]
_Places = npt.NDArray[np.intp]
_Words = npt.NDArray[np.uint64]

_WORD = 8
_LONGEST = 2 * _WORD
"""Digits that two words hold, and a float is the nearest to: longer cells are decoded as JSON."""

_COMMA, _OPEN, _CLOSE = b",[]"

_ZEROS = np.uint64(0x3030303030303030)
_BEYOND_NINE = np.uint64(0x7676767676767676)
"""Added to a byte, it leaves the highest bit clear for 0 to 9 and sets it otherwise."""
_HIGHEST = np.uint64(0x8080808080808080)

_KEPT = np.array([(1 << 64) - (1 << 8 * (_WORD - n)) for n in range(_WORD + 1)], np.uint64)
"""By length of a cell: the bytes of the word before its end that belong to it."""

_NEVER = 2**64 - 1
_LEAST = np.array([_NEVER, 0, *(10 ** (n - 1) for n in range(2, _LONGEST + 1)), _NEVER], np.uint64)
"""By length of a cell: the least number without a leading zero; none is of no or of 17 digits."""

_NULL = np.frombuffer(b"0000null", "<u8")[0] ^ _ZEROS

_FLOATS = msgspec.json.Decoder(list[float | None])


def matrix_of(lines: Sequence[bytes], width: int) -> Matrix | None:
    """The cells of lines as a matrix of *width* columns, NaN for `null`.

    `None` if a line is not an array of so many numbers, without blanks around its brackets: the
    JSON decoder then says which lines are none.  The numbers are the same as that decoder's.
    """
    # A window of two words ends where a cell ends, and one byte is read beyond the last.
    text = b"0" * _LONGEST + b",".join(lines) + b"\n"
    chars = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(chars == _COMMA)
    if not lines or len(commas) != len(lines) * width - 1:
        return None
    begins = np.concatenate(([_LONGEST], commas + 1))
    ends = np.concatenate((commas, [len(text) - 1]))
    first, last = begins[::width], ends[width - 1 :: width]
    if not ((chars[first] == _OPEN).all() and (chars[last - 1] == _CLOSE).all()):
        return None
    first += 1
    last -= 1
    values = _cells(text, begins, ends)
    return None if values is None else values.reshape(len(lines), width)


def _cells(text: bytes, begins: _Places, ends: _Places) -> Matrix | None:
    windows: _Words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, 0, (1,))
    lengths = ends - begins
    numbers, wrong, words = _digits(windows[ends - _WORD], lengths)
    longer = np.flatnonzero(lengths > _WORD)
    if len(longer):
        upper, also_wrong, _ = _digits(windows[ends[longer] - _LONGEST], lengths[longer] - _WORD)
        numbers[longer] += upper * np.uint64(10**_WORD)
        wrong[longer] |= also_wrong
    wrong |= numbers < _LEAST.take(lengths, mode="clip")
    values = numbers.astype(np.float64)
    others = np.flatnonzero(wrong)
    if len(others):
        null = np.logical_and(words[others] == _NULL, lengths[others] == len(b"null"))
        values[others[null]] = np.nan
        others = others[np.logical_not(null)]
        decoded = _decoded(text, begins[others].tolist(), ends[others].tolist())
        if decoded is None:
            return None
        values[others] = decoded
    return values


def _digits(words: _Words, lengths: _Places) -> tuple[_Words, npt.NDArray[np.bool_], _Words]:
    """Numbers from the last eight bytes of cells, which cells are no digits, and their bytes.

    The bytes are less that of the digit 0, and 0 before the cell.  Overwrites *words*.
    """
    words ^= _ZEROS
    words &= _KEPT.take(lengths, mode="clip")
    beyond = words + _BEYOND_NINE
    beyond |= words
    beyond &= _HIGHEST
    wrong = beyond != 0
    # Neighbours are joined: digits to pairs, pairs to fours, fours to the number.  The first digit
    # of a text is the lowest byte of its word.
    numbers = words * np.uint64(10 * 2**8 + 1)
    numbers >>= np.uint64(8)
    numbers &= np.uint64(0x00FF00FF00FF00FF)
    numbers *= np.uint64(100 * 2**16 + 1)
    numbers >>= np.uint64(16)
    numbers &= np.uint64(0x0000FFFF0000FFFF)
    numbers *= np.uint64(10_000 * 2**32 + 1)
    numbers >>= np.uint64(32)
    return numbers, wrong, words


def _decoded(text: bytes, begins: list[int], ends: list[int]) -> list[float | None] | None:
    cells = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
    try:
        values = _FLOATS.decode(b"[" + b",".join(cells) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # A number holds no comma, so equally many numbers and cells are one each.
    return values if len(values) == len(cells) else None


Entry = GapRecord | Totals | EndMark

_EXACT = 2.0**53
"""Whole numbers up to here survive the way through a float; nothing true is larger."""

_CELLS_AT_ONCE = 16_000
"""Cells decoded at once.  Each array made of them is below 128 kB: they fit into a processor's
cache, and glibc's malloc keeps their memory for the next.  Larger ones it may return to the system
at each release, as it does in a worker of Dask: the system then clears each page anew."""

_ENCODER = msgspec.json.Encoder()
_INFO = msgspec.json.Decoder(RunInfo)
_ENTRY = msgspec.json.Decoder(GapRecord | Totals | EndMark)
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
        return _INFO.decode(line)
    except msgspec.ValidationError as error:
        raise RunError(f"damaged header: {error}") from None


def decode_entry(line: bytes) -> Entry | None:
    """Read a gap, totals or end line; `None` when the line is damaged."""
    try:
        entry: Entry = _ENTRY.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return entry


def decode_steps(schema: StepSchema, lines: Sequence[bytes]) -> tuple[StepBlock, int]:
    """Read step lines; returns the block and how many damaged lines were left out."""
    width = len(CORE_COLUMNS) + len(schema.columns)
    at_once = max(1, _CELLS_AT_ONCE // width)
    parts = [lines[begin : begin + at_once] for begin in range(0, len(lines), at_once)]
    matrices = [matrix_of(part, width) for part in parts]
    whole = [matrix for matrix in matrices if matrix is not None]
    if len(whole) == len(parts) > 0:
        read = StepBlock(schema, np.concatenate(whole))
    else:
        read = StepBlock.from_rows(schema, _rows(lines, width))
    core = read.core()
    # Without a mask, as large as the core, where all are: NaN is not.
    if len(core) and not (core.min() >= -_EXACT and core.max() <= _EXACT):
        read = read.select(np.logical_and.reduce(np.abs(core) <= _EXACT, axis=1))
    return read, len(lines) - len(read)


def _rows(lines: Sequence[bytes], width: int) -> list[list[float | None]]:
    """The rows among lines of which some may be damaged."""
    try:
        rows = _ROWS.decode(b"[" + b",".join(lines) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        rows = [row for line in lines for row in _salvage(line)]
    return [row for row in rows if len(row) == width]


def _salvage(line: bytes) -> list[list[float | None]]:
    try:
        return _ROWS.decode(b"[" + line + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def missing(value: float | None) -> float:
    """The live rows' form of a missing fact: NaN, which the encoder writes as `null`."""
    return math.nan if value is None else value

"""The fast way through lines of steps reads what the JSON decoder reads, to the last bit."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.codec import Matrix, decode_steps, matrix_of
from trainperf.core.steps.records import CORE_COLUMNS


WIDTH = 3
WHOLE = st.integers(0, 10**22).map(str)
SHORT = st.integers(0, 10**9).map(str)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr)
CELL = st.one_of(WHOLE, SHORT, FLOATS, st.just("null"))
ODDITIES = (
    *("", " 1", "1 ", "01", "00", "-0", "+1", "1e3", "1E-2", ".5", "5.", "NaN", "nul", "nulll"),
    *("true", '"1"', "[1", "1]", "[1]", "{", "0x1", "1_0", "\uff11", "12345678:", "/2345678"),
)
ODD = st.one_of(
    CELL,
    st.sampled_from(ODDITIES),
    st.text(alphabet='0123456789[]{}.eE+-nul" :/\t', max_size=18),
)


def by_json(lines: list[bytes], width: int) -> Matrix | None:
    """What the JSON decoder makes of the lines; `None` unless each is a row of *width*."""
    try:
        rows = msgspec.json.decode(b"[" + b",".join(lines) + b"]", type=list[list[float | None]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if len(rows) != len(lines) or set(map(len, rows)) - {width}:
        return None
    return np.array(rows, dtype=np.float64).reshape(len(lines), width)


@given(rows=st.lists(st.lists(CELL, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=9))
def test_rows_of_numbers_are_read_to_the_last_bit(rows: list[list[str]]) -> None:
    """Whole numbers of any length, floats, and missing facts."""
    lines = [f"[{','.join(row)}]".encode() for row in rows]

    read, expected = matrix_of(lines, WIDTH), by_json(lines, WIDTH)

    assert read is not None
    assert expected is not None
    assert read.tobytes() == expected.tobytes()


@given(rows=st.lists(st.lists(ODD, max_size=4), max_size=5), width=st.integers(1, 4))
def test_whatever_is_no_row_of_numbers_is_left_to_the_json_decoder(
    rows: list[list[str]], width: int
) -> None:
    """Never a number where that decoder has none, nor another one."""
    lines = [f"[{','.join(row)}]".encode() for row in rows]

    read, expected = matrix_of(lines, width), by_json(lines, width)

    if read is not None:
        assert expected is not None
        assert read.tobytes() == expected.tobytes()


@given(line=st.binary(max_size=40), width=st.integers(1, 3))
def test_no_bytes_are_read_as_other_than_json(line: bytes, width: int) -> None:
    """Nor do any make it raise, alone or beside a good line."""
    good = f"[{','.join('7' * width)}]".encode()
    for lines in ([line], [good, line], [line, good]):
        read, expected = matrix_of(lines, width), by_json(lines, width)

        if read is not None:
            assert expected is not None
            assert read.tobytes() == expected.tobytes()


@pytest.mark.parametrize("digits", range(1, 23))
@pytest.mark.parametrize("first", "19")
def test_a_whole_number_of_any_length_is_read(digits: int, first: str) -> None:
    """The lengths at which one word is full, two are, and a float is not exact any more."""
    text = first + "0918273645546372819055"[: digits - 1]

    read = matrix_of([f"[{text},0]".encode()], 2)

    assert read is not None
    assert read.tolist() == [[float(int(text)), 0.0]]


@pytest.mark.parametrize(
    "wrong", ["01", "00", "1:", "/1", "", "1234567:", "123456789:", "012345678"]
)
def test_a_cell_that_is_nearly_a_number_is_none(wrong: str) -> None:
    """The characters on either side of the digits, and a leading zero, which JSON forbids."""
    assert matrix_of([b"[1,2]", f"[3,{wrong}]".encode()], 2) is None


@pytest.mark.parametrize("place", range(12))
def test_any_byte_among_digits_is_read_as_json_reads_it(place: int) -> None:
    """Each of the 256 at each place of a number that takes more than one word."""
    for byte in range(256):
        cell = bytearray(b"123456789123")
        cell[place] = byte
        lines = [b"[1," + bytes(cell) + b"]"]

        read, expected = matrix_of(lines, 2), by_json(lines, 2)

        assert (read is None) == (expected is None)
        assert read is None or expected is None or read.tobytes() == expected.tobytes()


@pytest.mark.parametrize("line", [b"3,4]", b"13,4]", b"[3,4", b"[3,45", b" [3,4]", b"[3,4] "])
def test_a_line_without_its_brackets_is_none(line: bytes) -> None:
    """Among whole ones, and before or behind them."""
    whole = b"[1,2]"
    for lines in ([line, whole], [whole, line], [whole, line, whole]):
        assert matrix_of(lines, 2) is None


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_cell_at_either_end_of_the_lines_is_read_whole(place: str) -> None:
    """What stands before the first byte or behind the last one does not matter."""
    cells = ["1234567890123456", "5"] if place == "first" else ["5", "1234567890123456"]

    read = matrix_of([f"[{','.join(cells)}]".encode()], 2)

    assert read is not None
    assert read.tolist() == [[float(cell) for cell in cells]]


def test_rows_cut_short_anywhere_are_counted_and_the_others_read() -> None:
    """At every byte of the last of three lines."""
    schema = StepSchema(("samples", "loss"))
    row = [*range(len(CORE_COLUMNS)), None, -2.5e-7]
    line = msgspec.json.encode(row)
    for cut in range(1, len(line)):
        block, damaged = decode_steps(schema, [line, line[:cut], line])

        assert (len(block), damaged) == (2, 1)
    assert decode_steps(schema, [line] * 3)[1] == 0


def test_more_lines_than_are_read_at_once_keep_their_order() -> None:
    """Also when one in the middle is damaged."""
    schema = StepSchema()
    rest = [0] * (len(CORE_COLUMNS) - 1)
    lines = [msgspec.json.encode([step, *rest]) for step in range(5000)]

    whole, _ = decode_steps(schema, lines)
    lines[2500] = lines[2500][:-2]
    damaged, left_out = decode_steps(schema, lines)

    assert whole.index.tolist() == list(range(5000))
    assert damaged.index.tolist() == [step for step in range(5000) if step != 2500]
    assert left_out == 1

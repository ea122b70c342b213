"""What is unpacked is what was packed; of damaged data, what stands before the damage."""

import contextlib
import gzip
import io
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainperf.traces.reading.source import Buffer, unpacked


# Neither blanks nor noise: some 8 to 1, as traces are.
CONTENT = b"".join(
    b'{"ph": "X", "ts": %d, "name": "%d"},' % (n * n, random.Random(n).randrange(10**6))  # noqa: S311
    for n in range(8_000)
)
PACKED = gzip.compress(CONTENT)
MOST_LOST = 8 * Buffer.PIECE
"""What one piece of packed data unpacks to, at most."""


def content(packed: bytes) -> bytes:
    """All blocks of a file with these bytes."""
    blocks = [*unpacked(io.BytesIO(packed))]
    assert all(0 < len(block) <= Buffer.BLOCK for block in blocks)
    return b"".join(blocks)


def byte_by_byte(packed: bytes) -> bytes:
    """What zlib gives before it meets damage, the most there is to have."""
    unpacker, content = zlib.decompressobj(wbits=31), bytearray()
    with contextlib.suppress(zlib.error):
        for at in range(len(packed)):
            content += unpacker.decompress(packed[at : at + 1])
    return bytes(content)


def test_the_content_comes_out_whole_in_blocks_of_a_bounded_size() -> None:
    """Several blocks from one piece of packed data, and several pieces."""
    assert len(PACKED) > 2**16
    assert content(PACKED) == CONTENT
    assert content(PACKED + bytes(100) + PACKED) == CONTENT * 2


@settings(deadline=None, max_examples=30)
@given(at=st.integers(20, len(PACKED) - 9), bits=st.integers(1, 255))
def test_of_damaged_data_everything_before_the_damage_is_given_once(at: int, bits: int) -> None:
    """Wherever it is; what one piece of packed bytes stands for may be lost."""
    damaged = bytearray(PACKED)
    damaged[at] ^= bits

    found, most = content(bytes(damaged)), byte_by_byte(bytes(damaged))

    assert most.startswith(found)
    assert len(found) >= len(most) - MOST_LOST


@pytest.mark.parametrize("keep", [0, 5, 11, 1000, len(PACKED) - 1])
def test_data_that_is_cut_short_is_given_as_far_as_it_goes(keep: int) -> None:
    """Down to nothing, within the header."""
    found = content(PACKED[:keep])

    assert CONTENT.startswith(found)
    assert len(found) >= len(byte_by_byte(PACKED[:keep])) - MOST_LOST


def test_it_works_as_well_without_the_fast_inflater(tmp_path: Path) -> None:
    """Where there is no wheel of it: the same content, also of damaged data."""
    damaged = bytearray(PACKED)
    damaged[60_000] ^= 8
    path = tmp_path / "packed"
    path.write_bytes(damaged)
    program = (
        "import sys, zlib; sys.modules['isal'] = None\n"
        "from trainperf.traces.reading import source\n"
        "assert source.inflate is zlib\n"
        "sys.stdout.buffer.write(b''.join(source.unpacked(open(sys.argv[1], 'rb'))))"
    )

    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)

    assert done.stdout == content(bytes(damaged))
    assert len(done.stdout) > 100_000

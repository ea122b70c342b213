"""Unpacker of gzip files, block by block; of damaged data, all before the damage."""

import zlib
from collections.abc import Callable, Iterator
from typing import IO, Protocol


GZIP = b"\x1f\x8b"
"""How packed data begins."""

PIECE_BYTES = 2**16
_CAREFUL_PIECE_BYTES = 64


class Inflater(Protocol):
    """What `zlib.decompressobj` makes, and every library that is like zlib."""

    @property
    def eof(self) -> bool:
        """Whether the packed data has ended."""

    @property
    def unused_data(self) -> bytes:
        """What stands behind its end."""

    @property
    def unconsumed_tail(self) -> bytes:
        """What did not fit into the last block."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """The next block, of at most so many bytes."""


def _thorough() -> Inflater:
    return zlib.decompressobj(wbits=31)


def _fastest() -> tuple[Callable[[], Inflater], type[Exception]]:
    """The fastest inflater of this machine, and what it raises for damage."""
    try:
        from isal import isal_zlib  # noqa: PLC0415 only where there is a wheel
    except ImportError:
        return _thorough, zlib.error
    # Two and a half times as fast as zlib, which is a tenth of the time of a packed trace.
    return lambda: isal_zlib.decompressobj(wbits=31), isal_zlib.error  # type: ignore[return-value]  # its stub is wrong


_FAST, _FAULT = _fastest()


class Packed:
    """The content of one gzip file.

    Data that is cut or damaged just ends: whether something is missing is for its reader to say.

    Args:
        file: Open at its start.
        block_bytes: The most that a block has.
        check: Called after every block with the bytes read and those given so far; may raise.
    """

    def __init__(
        self, file: IO[bytes], block_bytes: int, check: Callable[[int, int], None]
    ) -> None:
        self.trailing = False
        """Whether something that is not packed stands behind the packed data."""
        self._file = file
        self._block_bytes = block_bytes
        self._check = check

    def blocks(self) -> Iterator[bytes]:
        """The content, unpacked as far as it can be."""
        given = 0
        try:
            for block in self._content(_FAST, _Pieces(self._file)):
                given += len(block)
                yield block
        except (_FAULT, zlib.error):
            # The call that failed gave nothing of what stands before the damage.
            yield from self._rest(given, self._file.tell() - 3 * PIECE_BYTES)

    def _rest(self, given: int, careful_from: int) -> Iterator[bytes]:
        """Everything again but what was *given* already, in small pieces where it failed."""
        self._file.seek(0)
        left_out = given
        try:
            for block in self._content(_thorough, _Pieces(self._file, careful_from)):
                new = block[left_out:]
                left_out -= len(block) - len(new)
                if new:
                    yield new
        except zlib.error:
            return

    def _content(self, inflater: Callable[[], Inflater], pieces: "_Pieces") -> Iterator[bytes]:
        """Of all packed data in the file: one may stand behind the other, with blanks between."""
        unpacker, pending, unpacked = inflater(), b"", 0
        while True:
            # At the end of the file too: the inflater may hold more than fitted into a block.
            pending = pending or pieces.next()
            block = unpacker.decompress(pending, self._block_bytes)
            if not block and not pending:
                return
            pending = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            unpacked += len(block)
            self._check(pieces.read - len(pending), unpacked)
            if block:
                yield block
            if unpacker.eof:
                pending = (pending + pieces.next()).lstrip(b"\0")
                if not pending.startswith(GZIP):
                    self.trailing = bool(pending)
                    return
                unpacker = inflater()


class _Pieces:
    """The packed bytes piece by piece, in small ones from *careful_from* on."""

    def __init__(self, file: IO[bytes], careful_from: int | None = None) -> None:
        self.read = 0
        """Bytes so far."""
        self._file = file
        self._careful_from = careful_from

    def next(self) -> bytes:
        """The next piece; nothing at the end."""
        careful = self._careful_from is not None and self.read >= self._careful_from
        piece = self._file.read(_CAREFUL_PIECE_BYTES if careful else PIECE_BYTES)
        self.read += len(piece)
        return piece

"""The bytes of a trace, plain or gzip by content; always UTF-8 when they leave.

A file may be hostile or cut short: what it unpacks to is bounded, and damage ends it early.
"""

import codecs
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from trainperf.core.errors import TraceError
from trainperf.core.places import AnyPath


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


BLOCK_BYTES = 2**18
"""Large enough that a block costs more than what happens around it, small enough for memory."""

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much one file may make us hold; what lies beyond is refused with a message."""

    unpacked_bytes: int = 8 * _GIB
    events: int = 16_000_000
    """Six times those of a gigabyte; a table of so many takes between 0.5 and 1.5 GB."""
    text_characters: int = 2**28
    """All different names together; those of real traces are below a thousandth of it."""
    gzip_ratio: float = 200.0
    """Real traces pack 10 to 30 to 1; a bomb of blanks 1,000 to 1."""
    gzip_ratio_from_bytes: int = 2**26
    """Below this, no ratio is suspicious."""


class Source:
    """The bytes of one file, unpacked, block by block.  Packed data that is damaged just ends."""

    def __init__(self, path: AnyPath, limits: ReadLimits) -> None:
        self.trailing = False
        """Whether something that is not packed stands behind the packed data."""
        self._path = path
        self._limits = limits

    def blocks(self) -> Iterator[bytes]:
        """The document as UTF-8 in blocks of any size but 0; raises `TraceError`."""
        try:
            if not self._path.is_file():
                what = "this is no file" if self._path.exists() else "it does not exist"
                raise TraceError(f"{what}; give a .json or .json.gz trace")
            with self._path.open("rb") as file:
                packed = file.read(2) == GZIP
                file.seek(0)
                raw = self._unpacked(file) if packed else _plain(file)
                yield from _as_utf8(self._bounded(raw))
        except OSError as error:
            raise TraceError(f"it cannot be read ({error.strerror or error})") from None

    def _bounded(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        total = 0
        for block in blocks:
            total += len(block)
            if total > self._limits.unpacked_bytes:
                most = self._limits.unpacked_bytes / _GIB
                raise TraceError(
                    f"it unpacks to more than {most:g} GiB; record fewer steps, or raise the limit"
                )
            yield block

    def _unpacked(self, file: IO[bytes]) -> Iterator[bytes]:
        content = Packed(file, BLOCK_BYTES, self._refuse_bomb)
        yield from content.blocks()
        self.trailing = content.trailing

    def _refuse_bomb(self, packed: int, unpacked: int) -> None:
        if unpacked < self._limits.gzip_ratio_from_bytes:
            return
        if unpacked > packed * self._limits.gzip_ratio:
            raise TraceError(
                f"it unpacks to more than {self._limits.gzip_ratio:g} times its size, "
                "as no trace does; unpack it yourself if you trust it"
            )


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    while len(first) < 3 and (more := next(blocks, b"")):
        first += more
    encoding = _encoding(first)
    if encoding is None:
        first = first.removeprefix(codecs.BOM_UTF8)
        if first:
            yield first
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while first:
        text = decoder.decode(first).encode("utf-8", errors="replace")
        if text:
            yield text
        first = next(blocks, b"")


def _encoding(head: bytes) -> str | None:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Without a mark: JSON starts with an ASCII character, so one of the two bytes is empty.
    if len(head) >= 2 and head[0] == 0 != head[1]:
        return "utf-16-be"
    if len(head) >= 2 and head[1] == 0 != head[0]:
        return "utf-16-le"
    return None

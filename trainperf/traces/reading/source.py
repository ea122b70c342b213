"""The bytes of a trace, plain or gzip by content.

A file may be hostile or cut short: what it unpacks to is bounded, and damage ends it early.
"""

import codecs
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import IO, Any

from trainperf.core.errors import TraceError
from trainperf.core.paths import AnyPath, is_remote, storage_errors


try:  # two and a half times as fast as zlib, which is a tenth of the time of a packed trace
    from isal import isal_zlib as inflate
except ImportError:
    import zlib as inflate  # type: ignore[no-redef]  # where there is no wheel of it


REMOTE_BYTES = 1 << 22
"""What one request asks of an object for."""

GZIP = b"\x1f\x8b"
"""How packed data begins."""


class Buffer(IntEnum):
    """How much is held at once, in bytes."""

    PIECE = 2**14
    """Packed data; of a damaged file the piece with the damage is lost."""
    BLOCK = 2**18
    """What is read, or unpacked: costs more than what happens around it."""
    CHUNK = 2**19
    """What is decoded: its events stay in the processor's cache until they are columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much one file may make us hold; what lies beyond is refused with a message."""

    unpacked_bytes: int = 8 * 2**30
    events: int = 16_000_000
    """Six times those of a gigabyte; a table of so many takes between 0.5 and 1.5 GB."""
    value_bytes: int = 2**25
    """A value or an event that is larger is taken for damage."""
    text_characters: int = 2**28
    """All different names together; those of real traces are below a thousandth of it."""


class Source:
    """The bytes of one file, unpacked, block by block.  Packed data that is damaged just ends."""

    def __init__(self, path: AnyPath, limits: ReadLimits) -> None:
        self.trailing = False
        """Whether something that is not packed stands behind the packed data."""
        self._path = path
        self._limits = limits

    def blocks(self) -> Iterator[bytes]:
        """The document without a mark of UTF-8, in blocks of any size but 0.

        Raises:
            TraceError: It cannot be read, or is larger than any trace.
        """
        try:
            if not self._path.is_file():
                what = "this is no file" if self._path.exists() else "it does not exist"
                raise TraceError(f"{what}; give a .json or .json.gz trace")
            ahead: dict[str, Any] = {"block_size": REMOTE_BYTES} if is_remote(self._path) else {}
            with storage_errors(), self._path.open("rb", **ahead) as file:
                blocks = self._bounded(file)
                first = next(blocks, b"").removeprefix(codecs.BOM_UTF8)
                yield from filter(None, chain([first], blocks))
        except OSError as error:
            raise TraceError(f"it cannot be read ({error.strerror or error})") from None

    def _bounded(self, file: IO[bytes]) -> Iterator[bytes]:
        limits, total = self._limits, 0
        for block in self._content(file):
            total += len(block)
            if total > limits.unpacked_bytes:
                raise TraceError(
                    f"it unpacks to more than {limits.unpacked_bytes / 2**30:g} GiB; "
                    "record fewer steps, or raise the limit"
                )
            yield block

    def _content(self, file: IO[bytes]) -> Iterator[bytes]:
        is_packed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        if is_packed:
            self.trailing = yield from unpacked(file)
        else:
            yield from iter(lambda: file.read(Buffer.BLOCK), b"")


def unpacked(file: IO[bytes]) -> Generator[bytes, None, bool]:
    """The content of a gzip file; returns whether something that is not packed stands behind it.

    One packed document may stand behind another, with zeros between.  Data that is cut or damaged
    just ends: whether something is missing is for its reader to say.
    """
    inflater, pending = inflate.decompressobj(wbits=31), file.read(Buffer.PIECE)
    while True:
        try:
            block = inflater.decompress(pending, Buffer.BLOCK)
        except inflate.error:  # type: ignore[misc]  # isal's stub is wrong
            return False
        if block:
            yield block
        elif not pending:
            return False
        if inflater.eof:
            pending = (inflater.unused_data + file.read(Buffer.PIECE)).lstrip(b"\0")
            if not pending.startswith(GZIP):
                return bool(pending)
            inflater = inflate.decompressobj(wbits=31)
        else:
            # At the end of the file too: it may hold more than fitted into a block.
            pending = inflater.unconsumed_tail or file.read(Buffer.PIECE)

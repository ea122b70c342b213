"""The bytes of a trace, plain or gzip by content; always UTF-8 when they leave.

A file may be hostile or cut short: what it unpacks to is bounded, and damage ends it early.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainperf.core.errors import TraceError
from trainperf.traces.reading.packed import GZIP, Packed


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

    def __init__(self, path: Path, limits: ReadLimits) -> None:
        self.trailing = False
        """Whether something that is not packed stands behind the packed data."""
        self._path = path
        self._limits = limits

    def blocks(self) -> Iterator[bytes]:
        """The document as UTF-8 in blocks of any size but 0; raises `TraceError`."""
        if not self._path.is_file():
            what = "this is no file" if self._path.exists() else "it does not exist"
            raise TraceError(f"{what}; give a .json or .json.gz trace")
        try:
            with self._path.open("rb") as file:
                packed = file.read(2) == GZIP
                file.seek(0)
                raw = self._unpacked(file) if packed else _plain(file)
                yield from _as_utf8(self._bounded(raw))
        except OSError as error:
            raise TraceError(f"it cannot be read ({error.strerror})") from None

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

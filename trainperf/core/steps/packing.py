"""The low-priority process that packs parts of a record file, `python -m …`.

A part is packed when a later one is written to.  The packed one is on the disk before the other is
taken away: at any moment, also after a crash, at least one of them is whole, and where both are,
readers take the packed one.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from trainperf.core.errors import RunError
from trainperf.core.machine.processes import run_beside_parent
from trainperf.core.run_directory import (
    drafted,
    has_begun,
    last_part,
    packed_part,
    part_number,
    record_part,
)
from trainperf.core.steps.codec import decode_info
from trainperf.core.steps.records import RunInfo
from trainperf.core.steps.segment import packed_segment


def pack_parts(first: Path) -> int:
    """Pack all parts of a record file but the last; returns how many were.

    Args:
        first: Its first part.

    Raises:
        OSError: A part cannot be read, or the packed one not be written.
        RunError: The file has no readable header.
    """
    info, packed = None, 0
    for number in range(part_number(last_part(first).name)):
        part = first.with_name(record_part(first.name, number))
        target = Path(str(packed_part(part)))
        if not part.exists():
            continue
        if not target.exists():
            info = info or _info(first)
            content = _packed(part, info, with_header=number == 0)
            if content is None:
                continue
            with drafted(target) as draft:
                _write(draft, content)
            packed += 1
        part.unlink(missing_ok=True)
    return packed


def _info(first: Path) -> RunInfo:
    header = first if first.exists() else Path(str(packed_part(first)))
    with header.open("rb") as file:
        return decode_info(file.readline())


def _packed(part: Path, info: RunInfo, *, with_header: bool) -> bytes | None:
    """`None` where the part stays as it is: it is damaged, or would not become smaller."""
    content = part.read_bytes()
    lines = content.split(b"\n")
    if lines.pop():
        return None  # cut in the middle of a line
    packed = packed_segment(info, lines[1:] if with_header else lines)
    return packed if packed is not None and len(packed) < len(content) else None


def _write(draft: Path, content: bytes) -> None:
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def main(arguments: Sequence[str]) -> int:
    """Pack once; 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="trainperf.core.steps.packing")
    parser.add_argument("first", type=Path)
    given = parser.parse_args(arguments)
    run_beside_parent(signal.SIGTERM)
    try:
        if has_begun(given.first):
            pack_parts(given.first)
    except (OSError, RunError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
